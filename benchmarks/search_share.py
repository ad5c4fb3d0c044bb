"""What part of a real cycle the search takes: all searches of a cycle over its measured seconds.

Demo prompts are decoded by the bundled model under the policy `specfit`, over the link and with the
cache of the demo, and recorded as a run trace, as `specfit record` does; the trace says what each
cycle took. The searches are timed as they happen, with whatever the model leaves in the
processor's caches.

``python -m benchmarks.search_share`` prints it; it is a row of ``python -m benchmarks.search`` too.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.search_rows import Row
from specfit.cli.live import open_live
from specfit.cli.live_options import LiveOptions
from specfit.cli.prompts import read_prompts
from specfit.cli.record import run_writer
from specfit.core.policy import Outcome
from specfit.core.search import LevelSearch, SearchResult, StopDecision, warm_up
from specfit.policies.specfit import SpecFit
from specfit.sim.record_run import RunRecorder
from specfit.sim.trace import TraceReader
from specfit.sim.trace.rows import CycleRow

PROMPTS = Path(__file__).parents[1] / "specfit" / "data" / "prompts" / "demo.jsonl"


class TimedSearch(LevelSearch):
    """Adds up the seconds of its calls; one inside another counts once."""

    seconds = 0.0
    _depth = 0

    def _timed(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        started = time.perf_counter()
        self._depth += 1
        try:
            return call(*args, **options)
        finally:
            self._depth -= 1
            if not self._depth:
                self.seconds += time.perf_counter() - started

    def start(self, *args: Any, **options: Any) -> None:
        """See `LevelSearch.start`; so the others."""
        self._timed(super().start, *args, **options)

    def add_level(self, *args: Any) -> None:
        self._timed(super().add_level, *args)

    def advance(self, *args: Any) -> bool:
        return bool(self._timed(super().advance, *args))

    def best(self) -> SearchResult:
        found: SearchResult = self._timed(super().best)
        return found

    def should_draft(self, *args: Any) -> StopDecision:
        found: StopDecision = self._timed(super().should_draft, *args)
        return found


@dataclass
class TimedSpecFit(SpecFit):
    """`specfit` with its search timed; keeps the seconds of the searches of each cycle."""

    searched_s: list[float] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._search = self._timed = TimedSearch(self._pricer)

    def observe(self, outcome: Outcome) -> None:
        """Note what the searches of the cycle took."""
        super().observe(outcome)
        self.searched_s.append(self._timed.seconds)
        self._timed.seconds = 0.0


def shares(folder: Path, num_prompts: int, num_tokens: int) -> NDArray[np.float64]:
    """Record a run and return the search's part of each cycle's measured seconds."""
    warm_up()
    policy = TimedSpecFit()
    texts = list(read_prompts(PROMPTS))[:num_prompts]
    with open_live(LiveOptions(link="pcie4", threads=1)) as live:
        requests = [live.request(text.text, num_tokens) for text in texts]
        live.loop(policy).run(requests[0])  # outside the clock
        policy.searched_s.clear()
        with run_writer(live, SpecFit(), folder) as writer:
            loop = live.loop(policy, [RunRecorder(writer)])
            for request in requests:
                loop.run(request)
    cycles = [row for prompt in TraceReader(folder).prompts() for row in prompt.rows()]
    cycle_s = [row.timings.cycle_s for row in cycles if isinstance(row, CycleRow)]
    assert len(cycle_s) == len(policy.searched_s)
    return np.array(policy.searched_s) / np.array(cycle_s)


def share_rows(folder: Path, num_prompts: int = 6, num_tokens: int = 48) -> list[Row]:
    """Measure what part of a demo cycle its searches take."""
    found = 100.0 * shares(folder, num_prompts, num_tokens)
    note = f"measured, {len(found)} cycles over an emulated PCIe 4"
    label = "all searches of a demo cycle / the cycle"
    return [
        Row(f"{label}, median", float(np.median(found)), "%", 2.0, note=note),
        Row(f"{label}, p99", float(np.percentile(found, 99)), "%", note=note),
    ]


def main() -> int:
    """Print the rows; return 1 if the share is too large."""
    with tempfile.TemporaryDirectory(prefix="specfit-search-") as scratch:
        rows = share_rows(Path(scratch) / "run")
    print("\n".join(map(str, rows)))
    return 0 if all(row.is_met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
