"""What a policy would choose in one cycle over other links and with other caches: a grid.

Each answer is the policy's own, from its state at the start of the cycle, on the tree as drafted.
The other cache is taken to have seen the same passes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache import ExpertCache
from specfit.core.cost import CostModel
from specfit.core.errors import SpecfitError
from specfit.core.experts import Residency
from specfit.core.policy import Cycle, Policy
from specfit.core.profile import HardwareProfile
from specfit.core.search import SearchProblem, SearchResult, greedy
from specfit.core.tree import first_need_probs
from specfit.report.marginal import marginal_gain, marginal_use
from specfit.report.reenact import Decision, Scene, decide, search_plainly

BANDWIDTH_FACTORS = tuple(2.0 ** (i / 2) for i in range(-6, 7))
"""Stops of the bandwidth slider, as multiples of the profile's."""

MAX_CACHES = 9
"""Stops of the cache slider."""

KEPT_CHOICES = 4
"""Choices whose marginal use is kept; each is as large as the prediction."""


@dataclass(frozen=True)
class Expectation:
    """What is expected of verifying some nodes.

    Parameters
    ----------
    committed, copies : float
        Expected tokens, and experts to copy, as the policy corrects them.
    cycle_s : float
        Expected seconds of the cycle at full price.
    """

    committed: float
    copies: float
    cycle_s: float


@dataclass(frozen=True, eq=False)
class Answer:
    """What a policy chooses at one stop, and what others would make of the same tree.

    Parameters
    ----------
    cycle : Cycle
        The cycle with the stop's costs and residency.
    decision : Decision
        The policy's.
    problem : SearchProblem
        The whole tree by the policy's beliefs; by the cycle's own for a policy without a search.
    best : SearchResult
        The search behind the choice; for a policy without one, the exact search of `problem`.
    rules : mapping of str to bool[N]
        What other rules would verify of the whole tree.
    use : callable
        Returns the marginal use of each expert, float64[N, L, E], given a choice.
    """

    cycle: Cycle
    decision: Decision
    problem: SearchProblem
    best: SearchResult
    rules: Mapping[str, NDArray[np.bool_]]
    use: Callable[[NDArray[np.bool_]], NDArray[np.float64]]

    def expect(self, mask: NDArray[np.bool_], levels: int) -> Expectation:
        """Return what to expect of verifying some nodes after so many drafted levels."""
        at_full_price = 1.0 / self.decision.lost
        terms = self.problem.terms.with_misses_scaled(self.cycle.residency, at_full_price)
        activation = self.problem.demand.activation(mask)
        pass_s = terms.pass_s(int(mask.sum()), activation)
        usual_s = self.cycle.terms.weight_s
        corrected = np.where(usual_s > 0, terms.weight_s, 1.0) / np.where(usual_s > 0, usual_s, 1.0)
        return Expectation(
            committed=float(self.problem.path_probs[mask].sum()),
            copies=float((activation * corrected)[~self.cycle.residency.mask].sum()),
            cycle_s=float(terms.draft_s[levels]) + pass_s,
        )

    def node_costs(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return each node's marginal copies, expert seconds and gain in tokens, given the choice.

        The first two at full price; the gain as the search charges it, see `marginal_gain`.
        """
        mask = self.decision.mask
        use = self.use(mask).reshape(len(mask), -1)
        gains = marginal_gain(self.problem, mask, self.best.price)
        copies: NDArray[np.float64] = use @ np.ravel(~self.cycle.residency.mask).astype(np.float64)
        return copies, use @ np.ravel(self.cycle.terms.weight_s), gains


@dataclass(frozen=True, eq=False)
class WhatIf:
    """A scene, and how to change its link and its cache.

    Parameters
    ----------
    scene : Scene
        The cycle.
    profile : HardwareProfile
        Where seconds come from; its bandwidth is what changes.
    make_cost : callable
        Returns the cost model of a profile.
    make_cache : callable
        Returns an empty cache from its spec.
    rivals : mapping of str to Policy
        Policies whose choice from the same tree is shown.
    host : str, optional
        Spec of the cache of experts in host memory, where it does not hold all.
    """

    scene: Scene
    profile: HardwareProfile
    make_cost: Callable[[HardwareProfile], CostModel]
    make_cache: Callable[[str], ExpertCache]
    rivals: Mapping[str, Policy]
    host: str | None = None

    def residency_in(self, cache: str) -> Residency:
        """Return what a cache of this spec would hold, and host memory behind it."""
        host = None if self.host is None else self.make_cache(self.host)
        return self.scene.residency_in(self.make_cache(cache), host)

    def at(self, bandwidth_bytes_per_s: float, cache: str | Residency) -> Answer:
        """Return the answer for a bandwidth and for a cache spec, or for what is resident."""
        profile = replace(self.profile, h2d_bandwidth_bytes_per_s=bandwidth_bytes_per_s)
        if isinstance(cache, str):
            cache = self.residency_in(cache)
        return self.answer(self.scene.with_costs(self.make_cost(profile), cache))

    def answer(self, cycle: Cycle) -> Answer:
        """Return the answer for the cycle with some costs and residency."""
        decision = decide(copy.deepcopy(self.scene.policy), cycle)
        best, rules = decision.best, {}
        if best is None:
            problem, best = search_plainly(cycle)
            rules["exact search"] = best.mask
        else:
            whole = decide(copy.deepcopy(self.scene.policy), cycle, to_the_end=True)
            assert whole.problem is not None, "a policy with a search always searches"
            problem = whole.problem
        rules["greedy"] = greedy(problem).mask
        for name, rival in self.rivals.items():
            mask = _choice_of(rival, cycle)
            if mask is not None:
                rules[name] = mask
        return Answer(cycle, decision, problem, best, rules, self._use)

    @cached_property
    def _use(self) -> Callable[[NDArray[np.bool_]], NDArray[np.float64]]:
        """What depends on the choice alone is computed once a choice: most stops share theirs."""
        tree = self.scene.cycle.tree
        needs = first_need_probs(tree.parents, self.scene.cycle.path_needs())

        @lru_cache(maxsize=KEPT_CHOICES)
        def use(packed: bytes) -> NDArray[np.float64]:
            return marginal_use(tree.parents, np.frombuffer(packed, bool), needs)

        return lambda mask: use(mask.tobytes())


def caches_to_try(spec: str, num_experts: int, experts_per_token: int) -> list[str]:
    """Return cache specs from the smallest to all experts, the recorded one among them.

    Parameters
    ----------
    spec : str
        The recorded cache with its capacity in experts a layer: ``lru:16`` or ``none``.
    """
    name, _, rest = spec.partition(":")
    size, comma, params = rest.partition(",")
    keeps = size.isdigit()
    rule, tail = (name, comma + params) if keeps else ("lru", "")
    sizes = np.linspace(experts_per_token, num_experts, MAX_CACHES).round().astype(int).tolist()
    if keeps:
        nearest = min(range(len(sizes)), key=lambda i: abs(sizes[i] - int(size)))
        sizes[nearest] = int(size)
    specs = [f"{rule}:{n}{tail}" for n in sorted(set(sizes))]
    return specs if keeps else [spec, *specs]


def _choice_of(policy: Policy, cycle: Cycle) -> NDArray[np.bool_] | None:
    """Return what a policy would choose of the tree; None where it cannot be asked."""
    fresh = copy.deepcopy(policy)
    fresh.reset()
    try:
        return decide(fresh, cycle, to_the_end=True).mask
    except SpecfitError:
        return None
