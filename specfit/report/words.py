"""What happened, in words, for those who do not read tables; also when speculation did not pay."""

from __future__ import annotations

from specfit.report.measures import DASH, number_text
from specfit.report.runs import Run
from specfit.sim.metrics import Interval


def verdict(ours: Run, fixed: Run, baseline: Run) -> str:
    """Return two or three sentences on two policies against plain decoding with the same cache.

    Parameters
    ----------
    ours : Run
        The policy that weighs tokens against copies.
    fixed : Run
        The policy that always verifies the same number of nodes.
    baseline : Run
        Plain decoding.
    """
    our_gain, fixed_gain = ours.speedup_over(baseline), fixed.speedup_over(baseline)
    name, other = _first_name(ours), _first_name(fixed)
    m, f = ours.metrics, fixed.metrics
    return (
        f"{name} was {_compared(our_gain)} plain decoding with the same text, "
        f"at {m.committed_per_cycle:.2f} committed tokens and {m.verified_per_cycle:.2f} verified "
        f"nodes a cycle. {other} was {_compared(fixed_gain)} it: {f.committed_per_cycle:.2f} "
        f"committed tokens a cycle, but {f.copied_per_token:.0f} experts copied a token, "
        f"where plain decoding copies {baseline.metrics.copied_per_token:.0f} and {name} "
        f"{m.copied_per_token:.0f}. {_conclusion(our_gain, fixed_gain)}"
    )


def counted(count: int, one: str, many: str = "") -> str:
    """Return ``1 node`` or ``3 nodes``; `many` where the plural is not `one` with an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def interval_text(interval: Interval) -> str:
    """Return ``1.12 [1.07, 1.17]``."""
    return f"{interval.estimate:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def range_text(interval: Interval) -> str:
    """Return ``1.07-1.17``; `DASH` where nothing was decoded."""
    low, high = (number_text(bound, 2) for bound in (interval.low, interval.high))
    return DASH if DASH in (low, high) else f"{low}-{high}"


def speedup_text(interval: Interval) -> str:
    """Return the speed-up with its interval, for a picture."""
    return f"{interval.estimate:.2f}× [{interval.low:.2f}, {interval.high:.2f}]"  # noqa: RUF001


def _compared(gain: Interval) -> str:
    if gain.low > 1:
        return f"faster ({interval_text(gain)} times) than"
    if gain.high < 1:
        return f"slower ({interval_text(gain)} times) than"
    return f"about as fast ({interval_text(gain)} times) as"


def _conclusion(ours: Interval, fixed: Interval) -> str:
    if ours.low > 1 and fixed.high < 1:
        return "Speculation paid here only where the copies were weighed."
    if ours.low > 1:
        return "Speculation paid here."
    if ours.high < 1:
        return "Speculation did not pay here, and trying it cost time."
    return "Speculation did not pay here by more than these prompts can show."


def _first_name(run: Run) -> str:
    return run.policy.partition(":")[0]
