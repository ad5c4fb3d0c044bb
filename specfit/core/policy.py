"""The policy interface: what to draft, when to stop drafting, what to verify.

`Cycle` is all that a policy may know. A policy cannot tell a simulated cycle from a live one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Foresight, Verification
from specfit.core.cache.base import needed_by
from specfit.core.cost import CostTerms
from specfit.core.errors import InvalidInputError
from specfit.core.experts import ExpertProbs, ModelGeometry, Residency
from specfit.core.predictor import AcceptanceModel
from specfit.core.registry import Registry
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree, path_products


@dataclass(frozen=True, eq=False)
class Cycle:
    """One verification cycle as a policy sees it, before the target has run.

    Parameters
    ----------
    tree : DraftTree
        What is drafted so far; the root alone when `Policy.plan` is asked.
    levels : int
        Levels drafted so far.
    plan : DraftPlan
        The plan in force; that of a plain step when `Policy.plan` is asked.
    max_depth : int
        Deepest useful level: one less than the tokens that may still be committed.
    geometry : ModelGeometry
        Shape of the target.
    residency : Residency
        Experts on the device at the start of the cycle.
    context_len : int
        Committed tokens, the root included.
    cycle_index : int
        0 for the first cycle of a request.
    acceptance : AcceptanceModel
        Calibration of the drafter's probabilities.
    rng : numpy.random.Generator
        The only source of randomness that a policy may use.
    is_exhausted : bool
        Whether the drafter had nothing to add when it was last asked for a level.
    """

    tree: DraftTree
    levels: int
    plan: DraftPlan
    max_depth: int
    geometry: ModelGeometry
    residency: Residency
    context_len: int
    cycle_index: int
    acceptance: AcceptanceModel
    rng: np.random.Generator
    _terms: Callable[[], CostTerms] = field(repr=False)
    _predict: Callable[[DraftTree, NDArray[np.bool_] | None], ExpertProbs] = field(repr=False)
    is_exhausted: bool = False
    _foresee: Callable[[DraftPlan, DraftTree], Foresight] | None = field(default=None, repr=False)

    def foresee(self, plan: DraftPlan) -> Foresight:
        """Return the whole tree of a plan and the target's answers to it, before either is run.

        For reference policies in a simulator, asked in `Policy.plan`.

        Raises
        ------
        InvalidInputError
            The policy is not a reference.
        """
        if self._foresee is None:
            raise InvalidInputError(
                "a policy must not look ahead of the target. Set is_reference = True if it is a "
                "reference for the simulator."
            )
        return self._foresee(plan, self.tree)

    @cached_property
    def terms(self) -> CostTerms:
        """The parts of this cycle's predicted time."""
        return self._terms()

    @cached_property
    def expert_probs(self) -> ExpertProbs:
        """Predicted routing of every node, float32[N, L, E]; computed when first asked for."""
        return self._predict(self.tree, None)

    def path_needs(
        self, first: int = 0, layers: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float32]:
        """Return the probability that a node needs an expert that no ancestor of it needs.

        Given that no ancestor does: float32[N - first, L, E], or [N - first, l, E] in l layers.

        Parameters
        ----------
        first : int
            First node of the answer.
        layers : bool[L], optional
            The l layers to look at; no others are predicted. By default all L.
        """
        probs = self.expert_probs if layers is None else self._predict(self.tree, layers)
        return probs.given_path(self.tree.depths, first)

    @cached_property
    def accept_probs(self) -> NDArray[np.float64]:
        """Calibrated probability that each node is accepted given its parent, float64[N]."""
        return self.acceptance.calibrate(self.tree)

    @cached_property
    def path_probs(self) -> NDArray[np.float64]:
        """Calibrated probability that the whole path to each node is accepted, float64[N]."""
        return path_products(self.tree.parents, self.accept_probs)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a cycle.

    Parameters
    ----------
    cycle : Cycle
        The cycle when its selection was made.
    selection : Selection
        The nodes that were verified.
    verification : Verification
        The target's answer for each of them.
    accepted : tuple of int
        The accepted nodes below the root, in order, without the next root: one less than committed.
    committed : tuple of int
        The tokens committed by the cycle: the accepted ones and the next root, cut at a stop token
        or at the token limit.
    """

    cycle: Cycle
    selection: Selection
    verification: Verification
    accepted: tuple[int, ...]
    committed: tuple[int, ...]

    @property
    def num_missing(self) -> int:
        """Experts that the pass needed and that were not resident when the cycle began.

        What a policy predicts as misses. Those that were copied ahead in time count too, though
        the pass itself did not miss them.
        """
        answer = self.verification
        if not answer.num_prefetched:
            return int(answer.num_misses.sum())
        needed = needed_by(answer.routing, self.cycle.geometry)
        return int((needed & ~self.cycle.residency.mask).sum())


class Policy(ABC):
    """Decides what is drafted and which nodes are verified. One method to write: `select`.

    Dataclass fields are the parameters: they make the constructor, ``--set name=value`` and the
    spec in results. Whatever a policy learns from `observe` is forgotten by `reset`.
    """

    is_reference: ClassVar[bool] = False
    """Whether it looks ahead of the target: a reference that only a simulator can run."""

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Return what to draft; the cycle's tree is the root alone. Default: depth 5, top-k 4."""
        return DraftPlan(depth=5, top_k=4, max_nodes=60)

    def after_level(self, cycle: Cycle) -> bool:
        """Return whether to draft another level. Default: until the plan is done."""
        return True

    @abstractmethod
    def select(self, cycle: Cycle) -> Selection:
        """Return the nodes to verify, at most ``cycle.plan.max_nodes`` of them."""

    def observe(self, outcome: Outcome) -> None:  # noqa: B027 - optional hook
        """Take note of what came of a cycle."""

    def reset(self) -> None:  # noqa: B027 - optional hook
        """Forget what earlier requests taught."""

    def to_spec(self) -> dict[str, Any]:
        """Return the name and parameters from which an equal policy can be made."""
        return policies.spec_of(self)


policies: Registry[Policy] = Registry("policy", "specfit.policies")
register_policy = policies.register
"""Class decorator that registers a policy under a name."""
