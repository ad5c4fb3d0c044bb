"""Demand: what each draft node adds to the expected use of each expert that costs time.

Expert (l, e) is used with probability ``min(1, sum of r_v(l, e) over the selected nodes v)``, where

    r_v(l, e) = p_v(l, e) * product over the ancestors u of v of (1 - p_u(l, e))

and ``p_v(l, e)`` is the predicted probability that node v is routed to it, given that none of its
ancestors is. The ancestors of a selected node are selected too, so ``r_v`` does not depend on the
selection. This is exact for chains and for hard sets (p of 0 or 1), and for trees an upper bound on
the expected union if branches are independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specfit.core.search import _rows


@dataclass(frozen=True, eq=False)
class Demand:
    """The prices of N nodes over the C experts that cost time.

    Made by a pricer (`ProbPricer`, `RoutingPricer`), whose memory it shares: valid until the pricer
    starts the next cycle.

    Parameters
    ----------
    shape : tuple of int
        Layers and experts a layer, (L, E).
    experts : int64[C]
        Flat id ``layer * E + expert`` of each column.
    weight_s : float64[C]
        Seconds that the expert costs once.
    factors : float32[N]
        ``1 - discount * path probability``, the part of a node's demand that is charged.
    indptr, cols, vals : int64[N+1], int32[entries], float32[entries]
        Row v lists ``r_v(c) * factors[v]``. A dense demand has no `cols`; its `vals` are
        float32[N*C].
    full_s : float64[N]
        Seconds of each row if nobody shares with it.
    totals : float64[C]
        Sum of all rows.
    """

    shape: tuple[int, int]
    experts: NDArray[np.int64]
    weight_s: NDArray[np.float64]
    factors: NDArray[np.float32]
    indptr: NDArray[np.int64]
    cols: NDArray[np.int32]
    vals: NDArray[np.float32]
    full_s: NDArray[np.float64]
    totals: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.full_s)

    @cached_property
    def shared_s(self) -> NDArray[np.float64]:
        """Seconds of each row if all nodes share every expert evenly, float64[N].

        For any selection these add up to no more than its experts really cost.
        """
        out = np.empty(len(self))
        _rows.all_share(
            self.indptr, self.cols, self.vals, self.weight_s, self.full_s, self.totals, out
        )
        return out

    def rows(self) -> NDArray[np.float64]:
        """Return the demand as a matrix, float64[N, C]. For reports and tests."""
        shape = (len(self), len(self.weight_s))
        if not self.cols.size:
            return self.vals[: shape[0] * shape[1]].astype(np.float64).reshape(shape)
        matrix = np.zeros(shape)
        for node in range(len(self)):
            entries = slice(self.indptr[node], self.indptr[node + 1])
            matrix[node, self.cols[entries]] = self.vals[entries]
        return matrix

    def charged(self, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the part of each expert's price that a selection pays, float64[L, E].

        Without a discount this is the probability that it uses the expert. Experts that were not
        priced read 0.
        """
        return self._capped(self.rows()[mask])

    def activation(self, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the probability that a selection uses each expert, float64[L, E], undiscounted.

        Experts that were not priced read 0.
        """
        return self._capped(self.rows()[mask] / np.maximum(self.factors[mask], 1e-30)[:, None])

    def expected_use(
        self, mask: NDArray[np.bool_], is_counted: NDArray[np.bool_]
    ) -> tuple[float, float, float]:
        """Return how many of the counted experts a selection uses, their seconds, and the others'.

        All are expectations and undiscounted, as of `activation`.

        Parameters
        ----------
        mask : bool[N]
            The selection.
        is_counted : bool[L, E]
            Which of the experts that are priced to count.
        """
        count, counted_s, other_s = _rows.expected_use(
            np.flatnonzero(mask), self.factors, self.experts, np.array(is_counted).reshape(-1),
            self.indptr, self.cols, self.vals, self.weight_s,
        )  # fmt: skip
        return float(count), float(counted_s), float(other_s)

    def _capped(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        flat = np.zeros(self.shape[0] * self.shape[1])
        flat[self.experts] = np.minimum(1.0, rows.sum(axis=0))
        return flat.reshape(self.shape)
