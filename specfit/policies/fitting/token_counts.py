"""How often each token needed each expert, shrunk towards how often any token did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.policies.fitting._kernels import base_logits

KAPPAS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Shrinkages tried: a token's own frequencies weigh as much as the back-off at this count."""

_MAX_NODES = 20_000


@dataclass(frozen=True, eq=False)
class TokenCounts:
    """Expert frequencies of each token, ``(count + kappa * unigram) / (total + kappa)``.

    Parameters
    ----------
    counts : float32[V, L, E]
        Nodes of each token that needed each expert.
    totals : float32[V]
        Nodes of each token.
    unigram : float64[L, E]
        Frequency of each expert over all nodes, inside (0, 1).
    kappas : float64[L]
        Shrinkage of each layer.
    """

    counts: NDArray[np.float32]
    totals: NDArray[np.float32]
    unigram: NDArray[np.float64]
    kappas: NDArray[np.float64]

    @classmethod
    def of(
        cls, tokens: NDArray[np.int64], needed: NDArray[np.bool_], vocab_size: int
    ) -> TokenCounts:
        """Count nodes with `tokens` [n] that need the experts `needed` [n, L, E].

        The shrinkage of each layer is the one under which nodes that are left out of the counts are
        likeliest.
        """
        counts = np.zeros((vocab_size, *needed.shape[1:]), np.float32)
        order = np.argsort(tokens, kind="stable")
        seen, starts = np.unique(tokens[order], return_index=True)
        counts[seen] = np.add.reduceat(needed[order], starts, axis=0, dtype=np.float32)
        totals = np.bincount(tokens, minlength=vocab_size).astype(np.float32)
        unigram = (needed.sum(axis=0) + 0.5) / (len(needed) + 1.0)
        candidates = [
            cls(counts, totals, unigram, np.full(needed.shape[1], kappa)) for kappa in KAPPAS
        ]
        some = slice(None, None, max(1, len(needed) // _MAX_NODES))
        losses = [c._left_out_loss(tokens[some], needed[some]) for c in candidates]
        kappas = np.array(KAPPAS)[np.argmin(losses, axis=0)]
        return cls(counts, totals, unigram, kappas)

    def logits(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the log odds of each expert for each token, float32[n, L, E]."""
        nothing = np.zeros((len(tokens), *self.unigram.shape), bool)
        return self._logits(tokens, nothing, 0.0)

    def left_out_logits(
        self, tokens: NDArray[np.int64], needed: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Return the log odds for counted nodes as if each had not been counted."""
        return self._logits(tokens, needed, 1.0)

    def _logits(
        self, tokens: NDArray[np.int64], needed: NDArray[np.bool_], leave_out: float
    ) -> NDArray[np.float32]:
        out = np.empty(needed.shape, np.float32)
        base_logits(
            self.counts, self.totals, self.unigram, self.kappas, tokens, needed, leave_out, out
        )
        return out

    def _left_out_loss(
        self, tokens: NDArray[np.int64], needed: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Minus the log likelihood of left-out nodes, float64[L]."""
        logits = self.left_out_logits(tokens, needed)
        loss: NDArray[np.float64] = np.logaddexp(0, np.where(needed, -logits, logits)).sum(
            axis=(0, 2), dtype=np.float64
        )
        return loss
