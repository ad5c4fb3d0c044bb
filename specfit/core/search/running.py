"""The running price: what a second is worth over a run, not within one cycle."""

from __future__ import annotations

from specfit.core.errors import InvalidInputError


class RunningRate:
    """The rate achieved over the last cycles, as the price of the next.

    Over a run the rate is the sum of A over the sum of T. For independent cycles of one kind it is
    highest when every cycle maximises ``A - rate * T`` at the rate achieved, so a search is one
    closure at a fixed price. Older cycles fade by ``1 - 1 / horizon`` a cycle.

    Parameters
    ----------
    horizon : int
        Cycles over which the rate is measured, 1 or more.

    Examples
    --------
    >>> rate = RunningRate(horizon=10)
    >>> rate.price is None
    True
    >>> rate.observe(num_committed=3, cycle_s=0.5)
    >>> rate.price
    6.0
    """

    def __init__(self, horizon: int) -> None:
        if horizon < 1:
            raise InvalidInputError(f"horizon must be at least 1 cycle; got {horizon}.")
        self.horizon = horizon
        self.reset()

    def reset(self) -> None:
        """Forget the cycles so far."""
        self._tokens = self._seconds = 0.0

    def observe(self, num_committed: float, cycle_s: float) -> None:
        """Take what a cycle committed and how long it took."""
        keep = 1.0 - 1.0 / self.horizon
        self._tokens = keep * self._tokens + num_committed
        self._seconds = keep * self._seconds + cycle_s

    @property
    def price(self) -> float | None:
        """Tokens a second over the horizon; None before the first cycle: use ``"cycle"`` then."""
        return self._tokens / self._seconds if self._seconds > 0.0 else None
