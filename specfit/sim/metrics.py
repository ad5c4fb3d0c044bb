"""Counters of decoded requests and every ratio derived from them: one ruler for all.

Nothing else in specfit divides tokens by seconds. Live and simulated results are counted alike;
whether the seconds are simulated is for the caller to say wherever they are shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.decode import DecodeResult
from specfit.core.errors import InvalidInputError
from specfit.sim.calibration import Calibration as Calibration
from specfit.sim.calibration import calibrate

NUM_RESAMPLES = 2000
"""Bootstrap samples of an interval."""


@dataclass(frozen=True, eq=False)
class Metrics:
    """What some requests did together; counters are stored, ratios are properties.

    Parameters
    ----------
    num_prompts, num_cycles : int
        Requests and their verification cycles.
    num_committed : int
        Tokens committed by cycles: the prefill's first token is not among them.
    num_verified : int
        Verified nodes, roots included.
    num_accepted : int
        Accepted nodes, roots not included.
    num_levels : int
        Drafted levels.
    num_hits, num_misses, num_evictions : int
        Activated experts that were resident, that were copied, and experts that left.
    num_prefetched, num_wasted : int
        Experts copied ahead of their pass, and those of them that it did not need.
    h2d_bytes, wasted_bytes : int
        Bytes copied, those of misses and those ahead, and bytes copied for nothing.
    draft_s, select_s, stall_s, compute_s, commit_s : float
        Seconds by part; decode only.
    num_4grams, num_distinct_4grams : int
        Runs of four tokens in the texts, and different ones within each text.
    calibration : Calibration
        What selections expected against what came of them.
    """

    num_prompts: int
    num_cycles: int
    num_committed: int
    num_verified: int
    num_accepted: int
    num_levels: int
    num_hits: int
    num_misses: int
    num_evictions: int
    num_prefetched: int
    num_wasted: int
    h2d_bytes: int
    wasted_bytes: int
    draft_s: float
    select_s: float
    stall_s: float
    compute_s: float
    commit_s: float
    num_4grams: int
    num_distinct_4grams: int
    calibration: Calibration

    @property
    def decode_s(self) -> float:
        """Seconds of all cycles, the sum of their parts."""
        return self.draft_s + self.select_s + self.stall_s + self.compute_s + self.commit_s

    @property
    def tokens_per_s(self) -> float:
        """Committed tokens a second; the prefill is left out."""
        return _ratio(self.num_committed, self.decode_s)

    @property
    def committed_per_cycle(self) -> float:
        """Mean acceptance length: committed tokens a cycle, bonus or recovered token counted."""
        return _ratio(self.num_committed, self.num_cycles)

    @property
    def verified_per_cycle(self) -> float:
        """Verified nodes a cycle, the root included."""
        return _ratio(self.num_verified, self.num_cycles)

    @property
    def levels_per_cycle(self) -> float:
        """Drafted levels a cycle."""
        return _ratio(self.num_levels, self.num_cycles)

    @property
    def acceptance_rate(self) -> float:
        """Accepted nodes over verified draft nodes; the root is no draft node."""
        return _ratio(self.num_accepted, self.num_verified - self.num_cycles)

    @property
    def copied_per_token(self) -> float:
        """Experts copied a committed token, prefetched ones included."""
        return _ratio(self.num_misses + self.num_prefetched, self.num_committed)

    @property
    def bytes_per_token(self) -> float:
        """Bytes copied a committed token."""
        return _ratio(self.h2d_bytes, self.num_committed)

    @property
    def hit_rate(self) -> float:
        """Activated experts that were resident when their layer began, of all activated."""
        return _ratio(self.num_hits, self.num_hits + self.num_misses)

    @property
    def distinct_4(self) -> float:
        """Share of runs of four tokens that differ within their text; low where it loops."""
        return _ratio(self.num_distinct_4grams, self.num_4grams)


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class DepthCount:
    """Verified and accepted nodes at one depth of the draft trees."""

    depth: int
    num_verified: int
    num_accepted: int

    @property
    def acceptance_rate(self) -> float:
        """Accepted over verified nodes at this depth."""
        return _ratio(self.num_accepted, self.num_verified)


@dataclass(frozen=True)
class UnionCount:
    """The passes that verified so many nodes, and the experts that they activated."""

    num_nodes: int
    num_passes: int
    num_experts: int

    @property
    def experts_per_pass(self) -> float:
        """Distinct experts that such a pass activates, summed over the layers."""
        return _ratio(self.num_experts, self.num_passes)


def num_reads(results: Sequence[DecodeResult]) -> int:
    """Return the experts that cycles read from disk into host memory, those ahead too."""
    return sum(c.outcome.verification.num_reads for result in results for c in result.cycles)


def measure(results: Sequence[DecodeResult], expert_bytes: int) -> Metrics:
    """Return the metrics of some requests together.

    Parameters
    ----------
    expert_bytes : int
        Size of one expert, for the bytes copied.
    """
    cycles = [cycle for result in results for cycle in result.cycles]
    verifications = [cycle.outcome.verification for cycle in cycles]
    num_misses = sum(int(v.num_misses.sum()) for v in verifications)
    num_prefetched = sum(v.num_prefetched for v in verifications)
    num_wasted = sum(v.num_wasted for v in verifications)
    counts = [_count_4grams(result.tokens) for result in results]
    return Metrics(
        num_prompts=len(results),
        num_cycles=len(cycles),
        num_committed=sum(cycle.num_committed for cycle in cycles),
        num_verified=sum(cycle.num_verified for cycle in cycles),
        num_accepted=sum(len(cycle.outcome.accepted) for cycle in cycles),
        num_levels=sum(cycle.outcome.cycle.levels for cycle in cycles),
        num_hits=sum(int(v.num_hits.sum()) for v in verifications),
        num_misses=num_misses,
        num_evictions=sum(int(v.num_evictions.sum()) for v in verifications),
        num_prefetched=num_prefetched,
        num_wasted=num_wasted,
        h2d_bytes=(num_misses + num_prefetched) * expert_bytes,
        wasted_bytes=num_wasted * expert_bytes,
        draft_s=sum(cycle.timings.draft_s for cycle in cycles),
        select_s=sum(cycle.timings.select_s for cycle in cycles),
        stall_s=sum(cycle.timings.stall_s for cycle in cycles),
        compute_s=sum(cycle.timings.compute_s for cycle in cycles),
        commit_s=sum(cycle.timings.commit_s for cycle in cycles),
        num_4grams=sum(total for total, _ in counts),
        num_distinct_4grams=sum(distinct for _, distinct in counts),
        calibration=calibrate(cycles),
    )


def paired_speedup(
    results: Sequence[DecodeResult],
    baseline: Sequence[DecodeResult],
    *,
    bootstrap_key: int = 0,
) -> Interval:
    """Return how many times faster `results` are than `baseline`, in tokens a second.

    The estimate is the ratio of sums: all tokens over all seconds of each. The interval is a
    bootstrap over prompts, the same ones for both.

    Raises
    ------
    InvalidInputError
        The two do not continue the same prompts in the same order, or there are none.
    """
    pairs = [(a.request.prompt, b.request.prompt) for a, b in zip(results, baseline, strict=False)]
    if not results or len(results) != len(baseline) or any(a != b for a, b in pairs):
        raise InvalidInputError(
            f"a paired speed-up compares the same prompts in the same order; got {len(results)} "
            f"and {len(baseline)} results. Run both on one list of prompts."
        )
    return paired_ratio(
        _tokens_and_seconds(results), _tokens_and_seconds(baseline), bootstrap_key=bootstrap_key
    )


def paired_ratio(
    ours: NDArray[np.float64], theirs: NDArray[np.float64], *, bootstrap_key: int = 0
) -> Interval:
    """Return the ratio of two throughputs over the same prompts, with a bootstrap over prompts.

    Parameters
    ----------
    ours, theirs : float64[n, 2]
        Tokens and seconds of each prompt.
    """
    rng = np.random.default_rng(bootstrap_key)
    picks = rng.integers(len(ours), size=(NUM_RESAMPLES, len(ours)))
    speedups = _rate(ours[picks].sum(axis=1)) / _rate(theirs[picks].sum(axis=1))
    low, high = np.quantile(speedups, (0.025, 0.975))
    estimate = _rate(ours.sum(axis=0)) / _rate(theirs.sum(axis=0))
    return Interval(float(estimate), float(low), float(high))


def regret(tokens_per_s: float, best_tokens_per_s: float) -> float:
    """Return the share of the best policy's throughput that a policy lacks; NaN without a best.

    0 for the best, and for a reference that is faster by looking ahead of the target.
    """
    return max(1.0 - _ratio(tokens_per_s, best_tokens_per_s), 0.0)


def seconds_errors(
    live: Sequence[DecodeResult], replayed: Sequence[DecodeResult]
) -> NDArray[np.float64]:
    """Return ``|simulated - measured| / measured`` seconds of each cycle of a run and its replay.

    The replay's own `select_s` is 0, so the policy's time is left out of both.

    Returns
    -------
    float64[n]
        One value for each cycle, prompt by prompt.

    Raises
    ------
    InvalidInputError
        The two do not have the same cycles.
    """
    shapes = [[len(result.cycles) for result in results] for results in (live, replayed)]
    if shapes[0] != shapes[1]:
        raise InvalidInputError(
            f"a run and its replay have the same cycles; got {shapes[0]} and {shapes[1]} a prompt. "
            f"Replay the run's own trace under the run's own policy."
        )
    measured, simulated = (
        np.array([c.timings.cycle_s - c.timings.select_s for r in results for c in r.cycles])
        for results in (live, replayed)
    )
    errors: NDArray[np.float64] = np.abs(simulated - measured) / measured
    return errors


def acceptance_by_depth(results: Iterable[DecodeResult]) -> list[DepthCount]:
    """Return the verified and accepted nodes at each depth, from depth 1 on."""
    verified: NDArray[np.int64] = np.zeros(1, np.int64)
    accepted: NDArray[np.int64] = np.zeros(1, np.int64)
    for result in results:
        for cycle in result.cycles:
            outcome = cycle.outcome
            depths = outcome.selection.tree.depths
            verified = _add(verified, np.bincount(depths[outcome.selection.nodes]))
            accepted = _add(accepted, np.bincount(depths[list(outcome.accepted)], minlength=1))
    accepted = _add(accepted, np.zeros_like(verified))
    return [
        DepthCount(depth, int(verified[depth]), int(accepted[depth]))
        for depth in range(1, len(verified))
    ]


def union_by_nodes(results: Iterable[DecodeResult]) -> list[UnionCount]:
    """Return how many experts the passes of each number of nodes activated, fewest nodes first."""
    found: dict[int, list[int]] = {}
    for result in results:
        for cycle in result.cycles:
            verification = cycle.outcome.verification
            num_experts = int((verification.num_hits + verification.num_misses).sum())
            found.setdefault(cycle.num_verified, []).append(num_experts)
    return [UnionCount(nodes, len(found[nodes]), sum(found[nodes])) for nodes in sorted(found)]


def distinct_4(tokens: Sequence[int]) -> float:
    """Return the share of runs of four tokens that differ; NaN for fewer than four tokens."""
    total, distinct = _count_4grams(tokens)
    return _ratio(distinct, total)


def _count_4grams(tokens: Sequence[int]) -> tuple[int, int]:
    runs = list(zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False))
    return len(runs), len(set(runs))


def _tokens_and_seconds(results: Sequence[DecodeResult]) -> NDArray[np.float64]:
    return np.array([[float(r.num_decoded), r.decode_s] for r in results])


def _rate(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return tokens over seconds, each in the last axis; NaN where nothing was decoded."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rate: NDArray[np.float64] = sums[..., 0] / sums[..., 1]
    return rate


def _add(counts: NDArray[np.int64], more: NDArray[np.int64]) -> NDArray[np.int64]:
    size = max(len(counts), len(more))
    total = np.zeros(size, np.int64)
    total[: len(counts)] += counts
    total[: len(more)] += more
    return total


def figure_or_none(value: float) -> float | None:
    """Return a figure as JSON has it: None where there is none, which metrics give as NaN."""
    return None if math.isnan(value) else value


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else float("nan")
