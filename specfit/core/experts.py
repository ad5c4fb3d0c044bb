"""Experts: the geometry of a model, what is resident, what nodes need or may need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specfit.core._kernels import fill_given_path
from specfit.core.errors import InvalidInputError


@dataclass(frozen=True)
class ModelGeometry:
    """Shape constants of a mixture-of-experts model, read from its configuration.

    Parameters
    ----------
    num_layers : int
        Layers with routed experts (L).
    num_experts : int
        Experts of a layer (E).
    experts_per_token : int
        Experts that the router picks for a token in a layer (K).
    expert_bytes : int
        Size of one expert as it is copied to the device.
    vocab_size : int
        Target vocabulary (V).
    """

    num_layers: int
    num_experts: int
    experts_per_token: int
    expert_bytes: int
    vocab_size: int


@dataclass(frozen=True, eq=False)
class Residency:
    """Experts whose weights are in device memory.

    Parameters
    ----------
    mask : bool[L, E]
        Whether each expert is resident.
    in_host : bool[L, E], optional
        Whether each expert is in host memory, where some are on disk; without it all are.
    """

    mask: NDArray[np.bool_]
    in_host: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        self.mask.setflags(write=False)
        if self.in_host is not None:
            self.in_host.setflags(write=False)

    @classmethod
    def everything(cls, geometry: ModelGeometry) -> Residency:
        """Return the residency with every expert on the device."""
        return cls(np.ones((geometry.num_layers, geometry.num_experts), bool))

    @classmethod
    def nothing(cls, geometry: ModelGeometry) -> Residency:
        """Return the residency of an empty device."""
        return cls(np.zeros((geometry.num_layers, geometry.num_experts), bool))


@dataclass(frozen=True, eq=False)
class ExpertCoverage:
    """Observed routing: the experts of each verified node, from the target's own routers.

    Parameters
    ----------
    routing : int16[N, L, K]
        Expert ids; the order within K has no meaning and a repeated id counts once.
    num_experts : int
        Experts of a layer (E).
    """

    routing: NDArray[np.int16]
    num_experts: int

    def __post_init__(self) -> None:
        outside = (self.routing < 0) | (self.routing >= self.num_experts)
        if outside.any():
            i = tuple(int(x) for x in np.argwhere(outside)[0])
            raise InvalidInputError(
                f"routing{list(i)} = {self.routing[i]}, but expert ids are 0 to "
                f"{self.num_experts - 1}."
            )

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """Whether each node needs each expert, bool[N, L, E]."""
        n, layers, _ = self.routing.shape
        mask = np.zeros((n, layers, self.num_experts), bool)
        np.put_along_axis(mask, self.routing.astype(np.intp), True, axis=2)
        return mask

    def union(self, nodes: NDArray[np.bool_] | NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return the experts that the given nodes need together, bool[L, E]."""
        union: NDArray[np.bool_] = np.logical_or.reduce(self.mask[nodes], axis=0)
        return union


@dataclass(frozen=True, eq=False)
class ExpertProbs:
    """Predicted routing: the calibrated probability that a node is routed to an expert.

    Parameters
    ----------
    probs : float32[N, L, E], or [N, l, E] of some l layers
        Sums to K over the experts of a layer (up to 1e-3 relative). An oracle holds 0 and 1.
    source : str
        The predictor that said so.
    novelty : float
        See `CoveragePredictor.novelty`.

    Raises
    ------
    InvalidInputError
        The novelty is not from 0 to 1.
    """

    probs: NDArray[np.float32]
    source: str
    novelty: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.novelty <= 1.0:
            raise InvalidInputError(
                f"{self.source}'s novelty must be from 0 to 1; got {self.novelty}."
            )
        self.probs.setflags(write=False)

    def given_path(self, depths: NDArray[np.int32], first: int = 0) -> NDArray[np.float32]:
        """Return the probability that a node needs an expert that no ancestor of it needs.

        Parameters
        ----------
        depths : int32[N]
            Depth of each node.
        first : int
            First node of the answer.

        Returns
        -------
        float32[N - first, L, E]
            Given that no ancestor needs the expert; at the root what is predicted.
        """
        if self.novelty == 1.0:
            return self.probs[first:]
        found = np.empty_like(self.probs[first:])
        size = len(found)
        fill_given_path(
            self.probs[first:].reshape(size, -1), depths[first:], self.novelty,
            found.reshape(size, -1),
        )  # fmt: skip
        return found
