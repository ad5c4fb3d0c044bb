"""What one policy with one cache did on some prompts, and how fast it was against another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from specfit.core.decode import DecodeResult
from specfit.sim.metrics import Interval, Metrics, measure, paired_speedup


@dataclass(frozen=True, eq=False)
class Run:
    """What one policy with one cache did on some prompts.

    Parameters
    ----------
    policy : str
        Spec of the policy.
    cache : str
        Spec of the expert cache.
    results : tuple of DecodeResult
        One for each prompt, in the order of the prompts.
    expert_bytes : int
        Size of one expert.
    """

    policy: str
    cache: str
    results: tuple[DecodeResult, ...]
    expert_bytes: int

    @cached_property
    def metrics(self) -> Metrics:
        """Counters and ratios over all prompts."""
        return measure(self.results, self.expert_bytes)

    def speedup_over(self, baseline: Run) -> Interval:
        """Return tokens a second against those of `baseline` on the same prompts."""
        return paired_speedup(self.results, baseline.results)


def baseline_of(runs: Sequence[Run], cache: str) -> Run | None:
    """Return the run of plain decoding with this cache, if there is one."""
    return next((r for r in runs if r.cache == cache and r.policy == "autoregressive"), None)
