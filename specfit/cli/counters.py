"""Counters of a long run in a file that Prometheus' node exporter and its kin can read.

Counters only ever grow; rates are for whoever reads them to take. The file is replaced whole, so a
reader never sees half of one.
"""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path

from specfit.cli.outputs import new_file
from specfit.core.backend import Prefill, Request
from specfit.core.decode import CycleRecord, Observer, Timings

EVERY_S = 1.0
"""Seconds between two writes while cycles come."""

HELP = {
    "specfit_requests_total": "Texts begun.",
    "specfit_cycles_total": "Verification cycles.",
    "specfit_committed_tokens_total": "Tokens committed by cycles; the prompt's first one is not.",
    "specfit_verified_nodes_total": "Verified nodes, roots included.",
    "specfit_accepted_nodes_total": "Accepted nodes, roots not included.",
    "specfit_drafted_levels_total": "Drafted levels.",
    "specfit_expert_hits_total": "Activated experts that were resident.",
    "specfit_expert_misses_total": "Activated experts that were not resident.",
    "specfit_h2d_bytes_total": "Bytes copied from host to device, those copied ahead too.",
    "specfit_decode_seconds_total": "Seconds of the decode cycles by part.",
}
PARTS = tuple(field.name.removesuffix("_s") for field in fields(Timings))


class CounterFile(Observer):
    """Keeps a file with the counters of a run up to date.

    Parameters
    ----------
    path : Path
        Usually ends in ``.prom``.
    expert_bytes : int
        Size of one expert.
    """

    def __init__(self, path: Path, expert_bytes: int) -> None:
        self._path = path
        self._expert_bytes = expert_bytes
        self._counts = dict.fromkeys(HELP, 0.0)
        self._parts = dict.fromkeys(PARTS, 0.0)
        self._written_at = float("-inf")

    def on_start(self, request: Request, prefill: Prefill) -> None:
        """Count a request."""
        self._counts["specfit_requests_total"] += 1
        self.write()

    def on_cycle(self, record: CycleRecord) -> None:
        """Count what a cycle did."""
        verification = record.outcome.verification
        added = {
            "specfit_cycles_total": 1,
            "specfit_committed_tokens_total": record.num_committed,
            "specfit_verified_nodes_total": record.num_verified,
            "specfit_accepted_nodes_total": len(record.outcome.accepted),
            "specfit_drafted_levels_total": record.outcome.cycle.levels,
            "specfit_expert_hits_total": int(verification.num_hits.sum()),
            "specfit_expert_misses_total": int(verification.num_misses.sum()),
            "specfit_h2d_bytes_total": verification.num_copied * self._expert_bytes,
        }
        for name, count in added.items():
            self._counts[name] += count
        for part in PARTS:
            self._parts[part] += getattr(record.timings, f"{part}_s")
        if time.monotonic() - self._written_at >= EVERY_S:
            self.write()

    def on_end(self, tokens: tuple[int, ...], stop_reason: str) -> None:
        """Write what the request came to."""
        self.write()

    def text(self) -> str:
        """Return the counters in the text format."""
        lines = []
        for name, text in HELP.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
            if name == "specfit_decode_seconds_total":
                lines += [f'{name}{{part="{part}"}} {s:.9g}' for part, s in self._parts.items()]
            else:
                lines.append(f"{name} {self._counts[name]:.0f}")
        return "\n".join(lines) + "\n"

    def write(self) -> None:
        """Replace the file."""
        with new_file(self._path) as partial:
            partial.write_text(self.text(), encoding="utf-8")
        self._written_at = time.monotonic()
