"""What the larger sweep of `docs/how-to/report-and-sweep.md` found, kept for that page.

``python -m benchmarks.sim.larger_sweep sweep`` reads the folder that the page's commands fill,
writes the report's sentences and what made them, and draws for each trace the fastest policy by
cache and link. *Simulated* seconds on *synthetic* routing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.pages import RESULTS, ROOT
from specfit.report import style
from specfit.report.sweep_report import report_of
from specfit.sim.results import read_results

OUT = RESULTS / "larger-sweep.json"
PICTURES = ROOT / "docs" / "how-to"


def main() -> None:
    """Write the findings and the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweep", type=Path, help="folder that specfit sweep filled")
    results = read_results(parser.parse_args().sweep)
    report = report_of(results)
    found = {
        "cells": len(results.rows),
        "source": report.source,
        "findings": report.findings,
        "manifest": dict(report.manifest),
    }
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for picture in report.pictures:
        kind, _, number = picture.key.rpartition("-")
        if kind == "best":
            name = f"report-best-{results.traces[int(number)]}.png"
            picture.figure.savefig(PICTURES / name, dpi=style.DPI)


if __name__ == "__main__":
    main()
