"""What the routers did so far: the routing of the text, and when each expert was needed."""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray

from specfit.core._kernels import fill_ages, fill_last, mark_needed
from specfit.core.experts import ModelGeometry

NEVER = np.iinfo(np.int64).max // 2
"""Age of an expert that was never needed, before any token was seen; it grows with each of them."""


class RoutingHistory:
    """The routing of the committed text, seen from its end, and what rejected tokens needed.

    Only tokens that the target has run are known: the last committed token, the root of the next
    cycle, is not among them.
    """

    def __init__(self, geometry: ModelGeometry) -> None:
        self._shape = (geometry.num_layers, geometry.num_experts)
        self._last: NDArray[np.int64] | None = None  # place of the last need; None: not worked out
        self._ages: NDArray[np.int64] | None = None  # None: not worked out
        self._origin: RoutingHistory | None = None  # what this is a snapshot of, until it is
        self._rows = np.empty((0, geometry.num_layers, geometry.experts_per_token), np.int16)
        self._length = self._num_rejected = 0
        self._rejected_need: NDArray[np.bool_] = np.zeros(self._shape, bool)

    def append(self, routing: NDArray[np.int16], rejected: NDArray[np.int16] | None = None) -> None:
        """Add the routing of further tokens that the target has run.

        Parameters
        ----------
        routing : int16[T, L, K]
            Of committed tokens, oldest first.
        rejected : int16[R, L, K], optional
            Of tokens that were verified beside them and rejected, in any order.
        """
        if rejected is not None and len(rejected):
            self._num_rejected += len(rejected)
            self._rejected_need = self._rejected_need.copy()  # snapshots keep the old one
            mark_needed(self._rejected_need, rejected)
        needed = self._length + len(routing)
        if needed > len(self._rows):
            grown = np.empty((max(2 * len(self._rows), needed), *self._rows.shape[1:]), np.int16)
            grown[: self._length] = self._rows[: self._length]
            self._rows = grown
        self._rows[self._length : needed] = routing
        fill_last(self._places(), routing, self._length)
        self._length, self._ages = needed, None

    def snapshot(self) -> RoutingHistory:
        """Return the history as it is now; later tokens are not added to it.

        The rows are shared: they are only ever written beyond the snapshot's length. When each
        expert was needed is worked out when it is first asked for, which may be never.
        """
        twin = copy.copy(self)
        twin._last, twin._origin = None, self
        return twin

    @property
    def num_tokens(self) -> int:
        """Committed tokens whose routing is known."""
        return self._length

    def recent(self, count: int) -> NDArray[np.int16]:
        """Return the routing of the newest tokens, oldest first: int16[min(count, T), L, K]."""
        rows = self._rows[max(self._length - count, 0) : self._length]
        rows.setflags(write=False)
        return rows

    @property
    def ages(self) -> NDArray[np.int64]:
        """Committed tokens since one last needed each expert, int64[L, E]; read-only.

        0 for the newest token's experts. An expert that none has needed has the age `NEVER` plus
        the number of tokens that did not need it: of the committed ones, and of the rejected ones
        too if none of those needed it either.
        """
        if self._ages is None:
            self._ages = np.empty(self._shape, np.int64)
            never = NEVER + self._length
            fill_ages(
                self._places(), self._length - 1, self._rejected_need,
                never, never + self._num_rejected, self._ages,
            )  # fmt: skip
            self._ages.setflags(write=False)
        return self._ages

    def _places(self) -> NDArray[np.int64]:
        """Return the place of the last token that needed each expert, int64[L, E]; -1: none."""
        if self._last is None:
            origin, self._origin = self._origin, None
            if origin is not None and origin._length == self._length:
                self._last = origin._places().copy()
            else:
                self._last = np.full(self._shape, -1, np.int64)
                fill_last(self._last, self._rows[: self._length], 0)
        return self._last
