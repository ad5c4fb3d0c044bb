"""What a verification cycle costs: the terms that the search works on, and the model behind them.

Every time is in seconds. A cost model answers one question, `terms`; the cost of a given selection
is derived from the terms in one place, so that the search and the report cannot disagree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core._kernels import are_terms, fill_by_place, first_table_fault, first_weight_fault
from specfit.core.copies import CopyTerms
from specfit.core.errors import InvalidInputError
from specfit.core.experts import Residency
from specfit.core.profile import HardwareProfile
from specfit.core.registry import Registry


@dataclass(frozen=True, eq=False)
class CostTerms:
    """The parts of a cycle's time: ``draft_s[d] + tau_s[n] + weight_s`` of each activated expert.

    Parameters
    ----------
    draft_s : float64[D+1]
        Seconds that ``d`` drafted levels take together; ``draft_s[0] == 0``, non-decreasing.
    tau_s : float64[M+1]
        Seconds of verifying ``n`` nodes with nothing to wait for; ``tau_s[0] == 0`` is not used,
        non-decreasing. ``M`` is the most nodes that may be verified.
    weight_s : float64[L, E]
        Seconds that an expert adds once when any verified node needs it; 0 or more.
    copies : CopyTerms, optional
        Copies that cost by a table, or that compute hides; then `weight_s` is compute alone.

    Raises
    ------
    InvalidInputError
        A table decreases, or a value is negative or not finite.
    """

    draft_s: NDArray[np.float64]
    tau_s: NDArray[np.float64]
    weight_s: NDArray[np.float64]
    copies: CopyTerms | None = None

    def __post_init__(self) -> None:
        if self.weight_s.ndim != 2:
            raise InvalidInputError(f"weight_s must be [L, E]; got {list(self.weight_s.shape)}.")
        if self.copies is not None and self.copies.units.shape != self.weight_s.shape:
            raise InvalidInputError(
                f"copies.units must have the shape of weight_s, {list(self.weight_s.shape)}; "
                f"got {list(self.copies.units.shape)}."
            )
        is_flat = self.draft_s.ndim == self.tau_s.ndim == 1
        if not (is_flat and are_terms(self.draft_s, self.tau_s, self.weight_s.reshape(-1))):
            _check_table("draft_s", self.draft_s)
            _check_table("tau_s", self.tau_s)
            _check_weights(self.weight_s)
        for array in (self.draft_s, self.tau_s, self.weight_s):
            array.setflags(write=False)

    @property
    def is_priced(self) -> NDArray[np.bool_]:
        """Whether each expert can cost time at all, bool[L, E]."""
        priced = self.weight_s > 0
        return priced if self.copies is None else priced | (self.copies.units > 0)

    def pass_s(self, num_nodes: int, activation: NDArray[np.float64]) -> float:
        """Return the seconds of a pass over `num_nodes` nodes, drafting not counted.

        `activation`, float64[L, E], is 1 where an expert is needed, 0 where not, a probability
        where it is only predicted.
        """
        tau_s = float(self.tau_s[num_nodes])
        expert_s = (self.weight_s * activation).sum(axis=1)
        if self.copies is None:
            return tau_s + float(expert_s.sum())
        return self.copies.pass_seconds(tau_s, expert_s, activation)

    def with_misses_scaled(self, residency: Residency, scale: float) -> CostTerms:
        """Return the terms with the cost of missing experts scaled.

        Where copies are apart, the experts' seconds are compute, which no miss adds to.
        """
        scales = np.where(residency.mask, 1.0, scale)
        if self.copies is None:
            return replace(self, weight_s=self.weight_s * scales)
        return replace(self, copies=replace(self.copies, units=self.copies.units * scales))

    @property
    def node_s(self) -> float:
        """Slope of an affine `tau_s`, seconds a node."""
        if len(self.tau_s) < 3:
            return 0.0
        return float((self.tau_s[-1] - self.tau_s[1]) / (len(self.tau_s) - 2))

    @property
    def fixed_s(self) -> float:
        """Intercept of an affine `tau_s`, seconds a pass."""
        return float(self.tau_s[1]) - self.node_s


@dataclass(frozen=True)
class CycleCost:
    """Predicted seconds of one cycle, by part.

    ``total_s = draft_s + compute_s + stall_s``. `h2d_s` is the busy time of the transfer link: what
    of it compute does not hide is `stall_s`, so it is not a summand.
    """

    draft_s: float
    compute_s: float
    stall_s: float
    h2d_s: float

    @property
    def total_s(self) -> float:
        """Seconds of the whole cycle."""
        return self.draft_s + self.compute_s + self.stall_s


class CostModel(ABC):
    """Predicts the seconds of a verification cycle. One method to write: `terms`."""

    @abstractmethod
    def terms(self, residency: Residency, context_len: int) -> CostTerms:
        """Return the parts of a cycle's time for this residency and context.

        Parameters
        ----------
        residency : Residency
            Experts on the device when the cycle starts.
        context_len : int
            Committed tokens, prompt included.
        """

    def cycle_cost(
        self,
        num_nodes: int,
        activation: NDArray[np.float64],
        *,
        levels: int,
        residency: Residency,
        context_len: int,
    ) -> CycleCost:
        """Return the cost of verifying `num_nodes` nodes that activate the given experts.

        Parameters
        ----------
        num_nodes : int
            Verified nodes, root included.
        activation : float64[L, E]
            1 where an expert is needed, 0 where not; a probability where it is only predicted.
        levels : int
            Drafted levels.
        """
        terms = self.terms(residency, context_len)
        most_nodes, most_levels = len(terms.tau_s) - 1, len(terms.draft_s) - 1
        if not (1 <= num_nodes <= most_nodes and 0 <= levels <= most_levels):
            raise InvalidInputError(
                f"this cost model covers 1 to {most_nodes} nodes and 0 to {most_levels} levels; "
                f"got {num_nodes} nodes and {levels} levels."
            )
        if terms.copies is None:
            # What an expert costs beyond what it costs once it is resident is its copy.
            resident = Residency(np.ones(residency.mask.shape, bool))
            expert_s = np.minimum(terms.weight_s, self.terms(resident, context_len).weight_s)
            compute_s = float(terms.tau_s[num_nodes]) + float((expert_s * activation).sum())
            h2d_s = stall_s = float(((terms.weight_s - expert_s) * activation).sum())
        else:
            h2d_s = float(terms.copies.layer_seconds(activation).sum())
            compute_s = float(terms.tau_s[num_nodes] + (terms.weight_s * activation).sum())
            stall_s = max(0.0, terms.pass_s(num_nodes, activation) - compute_s)
        return CycleCost(float(terms.draft_s[levels]), compute_s, stall_s, h2d_s)

    def to_spec(self) -> dict[str, Any]:
        """Return the name and parameters from which an equal cost model can be made."""
        return costs.spec_of(self)


costs: Registry[CostModel] = Registry("cost model", "specfit.costs")


@costs.register("profile")
@dataclass(frozen=True)
class ProfileCost(CostModel):
    """The cost of a cycle from a hardware profile, as the simulator charges it.

    Parameters
    ----------
    profile : HardwareProfile
        Measured or cited constants.
    max_nodes : int
        Length of the compute table, root included.
    max_depth : int
        Length of the draft table.
    """

    profile: HardwareProfile
    max_nodes: int = 1024
    max_depth: int = 32

    def terms(self, residency: Residency, context_len: int) -> CostTerms:
        """See `CostModel.terms`. The context length does not enter this model."""
        draft_s, tau_s = self._tables
        profile = self.profile
        if profile.overlap == "none":
            return CostTerms(draft_s, tau_s, self._expert_s(residency, profile.resident_expert_s))
        copy_s = self._expert_s(residency, 0.0)
        weight_s = np.full(copy_s.shape, profile.resident_expert_s)
        unit_s = profile.copy_s or 1.0
        layer_s = np.tile([0.0, unit_s], (len(copy_s), 1))
        return CostTerms(
            draft_s, tau_s, weight_s, CopyTerms(copy_s / unit_s, layer_s, profile.overlap)
        )

    def _expert_s(self, residency: Residency, resident_s: float) -> NDArray[np.float64]:
        """Return the seconds of each expert, float64[L, E], given those of a resident one."""
        profile, mask = self.profile, residency.mask
        in_host = mask if residency.in_host is None else mask | residency.in_host
        ssd_s = 0.0 if residency.in_host is None else profile.ssd_s
        expert_s = np.empty(mask.shape)
        fill_by_place(mask, in_host, resident_s, profile.copy_s, ssd_s, expert_s)
        return expert_s

    @cached_property
    def _tables(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        profile = self.profile
        levels = np.arange(self.max_depth + 1, dtype=np.float64)
        draft_s = np.where(levels > 0, profile.first_level_s + (levels - 1) * profile.level_s, 0.0)
        return draft_s, profile.tau_table_s(self.max_nodes)


def _check_weights(weight_s: NDArray[np.float64]) -> None:
    fault = first_weight_fault(weight_s.reshape(-1))
    if fault >= 0:
        bad = tuple(int(x) for x in np.unravel_index(fault, weight_s.shape))
        raise InvalidInputError(
            f"weight_s{list(bad)} = {weight_s[bad]}, but an expert costs 0 or more finite seconds."
        )


def _check_table(name: str, table: NDArray[np.float64]) -> None:
    if table.ndim != 1 or len(table) < 1 or table[0] != 0:
        raise InvalidInputError(f"{name} must be one-dimensional and start with 0; got {table!r}.")
    i = first_table_fault(table)
    if i < 0:
        return
    if not np.isfinite(table[i]):
        raise InvalidInputError(f"{name}[{i}] = {table[i]}, but seconds are finite.")
    raise InvalidInputError(
        f"{name}[{i}] = {table[i]} is below {name}[{i - 1}] = {table[i - 1]}; "
        f"more work never takes less time."
    )
