"""Writes measured numbers into the pages that show them: none of them is typed by hand.

``python -m benchmarks.pages`` replaces what stands between two marks of a page by what its block
says of a committed results file. Run it whenever such a file has changed; a test compares.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import (
    calibration_page,
    policies_page,
    policy_causes_page,
    predictors_page,
    prefetch,
    price_page,
    readme,
    replay_speed_page,
    search_page,
    ssd_page,
)
from benchmarks.sim import larger_sweep_page, paper_table_page, synth_fit_page

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Block:
    """What a page shows of a results file.

    Parameters
    ----------
    page : str
        Path of the page, from the root of the repository.
    results : str
        File in `benchmarks/results`: JSON, or JSON lines.
    render : callable
        Returns the Markdown, given what the file holds: for JSON lines the list of them.
    name : str
        The block stands between ``<!-- NAME:start -->`` and ``<!-- NAME:end -->``.
    """

    page: str
    results: str
    render: Callable[[Any], str]
    name: str = "results"

    def text(self) -> str:
        """Return what the results say."""
        return self.render(load(RESULTS / self.results))

    def write(self) -> None:
        """Put it into the page."""
        page = ROOT / self.page
        page.write_text(filled(page.read_text("utf-8"), self.name, self.text()), "utf-8")


BLOCKS = (
    Block("README.md", "decode.json", readme.block),
    Block(
        "docs/explanation/how-good-the-predictions-are.md", "predictors.json", predictors_page.block
    ),
    Block(
        "docs/explanation/how-good-the-predictions-are.md",
        "calibration.json",
        calibration_page.block,
        "calibration",
    ),
    Block("docs/explanation/regret.md", "policies.json", policies_page.block),
    Block("docs/explanation/regret.md", "policy-causes.jsonl", policy_causes_page.block, "causes"),
    Block("docs/explanation/exact-search.md", "search.jsonl", search_page.block, "search"),
    Block("docs/explanation/exact-search.md", "price-study.json", price_page.block, "price-study"),
    Block("docs/how-to/run-qwen3-30b-a3b.md", "ssd.json", ssd_page.block),
    Block("benchmarks/README.md", "replay_speed.json", replay_speed_page.block, "replay-speed"),
    Block("docs/how-to/prefetch-and-overlap.md", "prefetch.json", prefetch.block),
    Block("docs/how-to/report-and-sweep.md", "larger-sweep.json", larger_sweep_page.block),
    Block("docs/how-to/reproduce-the-table.md", "paper_table.json", paper_table_page.block),
    Block("docs/how-to/draw-a-synthetic-trace.md", "synth_fit.json", synth_fit_page.block),
)


def load(path: Path) -> Any:
    """Return what a results file holds."""
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)


def parts(page: str, name: str) -> tuple[str, str, str]:
    """Return what stands before, in and after a block, the marks with the outer parts.

    Raises
    ------
    ValueError
        The page does not hold each mark once, the start first.
    """
    start, end = f"<!-- {name}:start -->\n", f"<!-- {name}:end -->"
    if page.count(start) != 1 or page.count(end) != 1 or page.index(start) > page.index(end):
        raise ValueError(f"the page must hold {start.strip()} and then {end}, each once.")
    before, _, rest = page.partition(start)
    shown, _, after = rest.partition(end)
    return before + start, shown, end + after


def filled(page: str, name: str, text: str) -> str:
    """Return a page with another text in a block."""
    before, _, after = parts(page, name)
    return f"{before}{text}\n{after}"


def main() -> None:
    """Write every block."""
    for block in BLOCKS:
        block.write()


if __name__ == "__main__":
    main()
