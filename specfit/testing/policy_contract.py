"""What every policy keeps: legal answers, untouched inputs, repeatable choices, lossless text."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from specfit.core.decode import DecodeResult
from specfit.core.errors import ContractError
from specfit.core.noise import Sampling
from specfit.core.policy import Cycle, Outcome, Policy, policies
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan
from specfit.testing._fixed_policies import Plain
from specfit.testing.contract import Contract, check, require
from specfit.testing.worlds import RelabelledToy, RenamedToy, World, run_toy, world

Decision = tuple[int, int, int, int, tuple[int, ...]]
"""Depth, top-k and node limit of the plan, drafted levels, selected nodes."""

PLAIN_WORLDS = (world(cache="lru:50%"), world(cache="lru:100%", num_tokens=23))
EDGE_WORLDS = (
    world("dry"),
    world("chain", num_tokens=40),
    world("star"),
    world("ties"),
    world("impossible"),
    world(cache="none"),
    world("chain", cache="lru:100%", num_tokens=1100, stop_ids=frozenset({0, 1})),
    world(num_tokens=2),
)
OUTCOME_WORLDS = (
    world("right", cache="lru:100%", num_tokens=30),
    world("wrong", cache="lru:100%", num_tokens=12),
)
HISTORY_LENGTHS = (5, 8, 14, 21, 34)
"""Tokens of the histories in which two instances must agree: no common period."""


class PolicyContract(Contract):
    """P1 to P13. ``make`` returns a fresh policy."""

    def test_p1_answers_of_the_right_type(self) -> None:
        """`plan` gives a DraftPlan, `after_level` a bool, `select` a Selection."""
        self._watch("P1", PLAIN_WORLDS)

    def test_p2_the_cycles_own_tree(self) -> None:
        """The selection is of the tree that the cycle holds."""
        self._watch("P2", PLAIN_WORLDS)

    def test_p3_within_the_plan(self) -> None:
        """The selection has at most ``plan().max_nodes`` nodes."""
        self._watch("P3", (*PLAIN_WORLDS, world("ties")))

    def test_p4_inputs_stay_as_they_are(self) -> None:
        """Nothing that the cycle holds is changed."""
        self._watch("P4", PLAIN_WORLDS)

    def test_p5_chance_comes_from_the_cycle(self) -> None:
        """The global generators of `random` and `numpy.random` are left alone."""
        before = _global_state()
        for one in PLAIN_WORLDS:
            one.run(self.make())
        require(_global_state() == before, "P5", "a global generator was used; use cycle.rng")

    def test_p6_equal_histories_equal_decisions(self) -> None:
        """Two fresh instances decide alike, whatever the length of the history."""
        for num_tokens in HISTORY_LENGTHS:
            for cache in ("lru:50%", "lru:100%"):
                one = world(cache=cache, num_tokens=num_tokens)
                _require_equal(one.run(self.make()), one.run(self.make()), "P6", one)

    def test_p7_reset_forgets(self) -> None:
        """After another request the policy decides as a fresh one does."""
        for earlier in OUTCOME_WORLDS:
            for num_tokens in HISTORY_LENGTHS[:3]:
                used = self.make()
                replace(earlier, request=world(num_tokens=num_tokens).request).run(used)
                for later in PLAIN_WORLDS:
                    _require_equal(later.run(used), later.run(self.make()), "P7", later)

    def test_p8_the_spec_makes_an_equal_policy(self) -> None:
        """`to_spec`, through JSON and the registry, gives a policy that decides alike."""
        spec = json.loads(json.dumps(self.make().to_spec()))
        again = policies.build(spec["name"], spec["params"])
        for one in (*PLAIN_WORLDS, EDGE_WORLDS[1]):
            _require_equal(one.run(again), one.run(self.make()), "P8", one)

    def test_p9_edge_shapes(self) -> None:
        """Dry drafters, chains, stars, ties, zero probabilities, nothing and all resident."""
        self._watch("P9", EDGE_WORLDS)

    def test_p10_every_outcome_is_taken(self) -> None:
        """Nothing accepted, the whole path accepted, a stop token in the middle of it."""
        self._watch("P10", OUTCOME_WORLDS)
        whole = OUTCOME_WORLDS[0]
        for token in whole.run(self.make()).tokens[1:5]:
            request = replace(whole.request, stop_ids=frozenset({token}))
            self._watch("P10", (replace(whole, request=request),))

    def test_p11_names_of_tokens_mean_nothing(self) -> None:
        """With other token ids, and all else equal, the same nodes are selected."""
        for one in PLAIN_WORLDS:
            plain = one.make()
            renamed = RenamedToy(plain.model, plain.cache, plain.profile)
            names = renamed.names[list(one.request.prompt)]
            request = replace(one.request, prompt=tuple(names.tolist()))
            _require_equal(run_toy(self.make(), renamed, request), one.run(self.make()), "P11", one)

    def test_p12_the_order_of_nodes_means_nothing(self) -> None:
        """With siblings in another order the same paths are selected; ties are not tried."""
        for one in PLAIN_WORLDS:
            plain = one.make()
            relabelled = RelabelledToy(plain.model, plain.cache, plain.profile)
            result = run_toy(self.make(), relabelled, one.request)
            same = _selected_paths(result) == _selected_paths(one.run(self.make()))
            require(same, "P12", f"{one.name}: siblings in reverse order, other paths selected")

    def test_p13_lossless(self) -> None:
        """The text is that of plain decoding: greedy, and sampled with the same noise, key by key.

        Equal tokens for every key is more than an equal law, so there is no false alarm.
        """
        settings = [Sampling(), *(Sampling(1.0, noise_key=key) for key in range(6))]
        for sampling in settings:
            for one in PLAIN_WORLDS:
                request = replace(one.request, sampling=sampling)
                plain = run_toy(Plain(), one.make(), request).tokens
                tokens = run_toy(self.make(), one.make(), request).tokens
                require(tokens == plain, "P13", f"{one.name}: {tokens}, but plain text is {plain}")

    def _watch(self, rule: str, worlds: tuple[World, ...]) -> None:
        for one in worlds:
            one.run(_Watched(self.make(), rule, one.name))


def check_policy(make: Callable[[], Policy]) -> list[str]:
    """Check a policy against its contract; see `PolicyContract`."""
    return check(PolicyContract, make)


class _Watched(Policy):
    """Passes every call on to a policy and holds the answer against the rules."""

    def __init__(self, policy: Policy, rule: str, where: str) -> None:
        self.policy = policy
        self.rule = rule
        self.where = where
        self.is_reference = policy.is_reference  # type: ignore[misc]

    def plan(self, cycle: Cycle) -> DraftPlan:
        plan: DraftPlan = self._ask("plan", self.rule, cycle)
        self._require_type("plan", plan, DraftPlan)
        return plan

    def after_level(self, cycle: Cycle) -> bool:
        answer = self._ask("after_level", self.rule, cycle)
        self._require_type("after_level", answer, (bool, np.bool_))
        return bool(answer)

    def select(self, cycle: Cycle) -> Selection:
        selection: Selection = self._ask("select", self.rule, cycle)
        self._require_type("select", selection, Selection)
        require(
            selection.tree is cycle.tree, "P2", "the selection is of another tree than cycle.tree"
        )
        most = cycle.plan.max_nodes
        require(
            len(selection) <= most, "P3", f"{len(selection)} nodes selected; the plan has {most}"
        )
        return selection

    def observe(self, outcome: Outcome) -> None:
        self._ask("observe", "P10", outcome)

    def reset(self) -> None:
        self.policy.reset()

    def _ask(self, method: str, rule: str, argument: Cycle | Outcome) -> Any:
        cycle = argument if isinstance(argument, Cycle) else argument.cycle
        before = _digest(cycle)
        try:
            answer = getattr(self.policy, method)(argument)
        except Exception as error:
            raise ContractError(
                rule, f"{method} raised {type(error).__name__} with {self.where}: {error}"
            ) from error
        require(_digest(cycle) == before, "P4", f"{method} changed what the cycle holds")
        return answer

    def _require_type(self, method: str, answer: object, kind: Any) -> None:
        name = kind.__name__ if isinstance(kind, type) else "bool"
        got = type(answer).__name__
        require(isinstance(answer, kind), "P1", f"{method} must return a {name}; got {got}")


def _digest(cycle: Cycle) -> tuple[object, ...]:
    tree, terms = cycle.tree, cycle.terms
    arrays = (
        *(tree.tokens, tree.parents, tree.log_probs, tree.ranks, tree.entropies),
        *(cycle.residency.mask, terms.draft_s, terms.tau_s, terms.weight_s),
        *(cycle.expert_probs.probs, cycle.path_probs, cycle.accept_probs),
    )
    values = (cycle.levels, cycle.plan, cycle.max_depth, cycle.context_len, cycle.cycle_index)
    return (*(array.tobytes() for array in arrays), *values)


def _decisions(result: DecodeResult) -> list[Decision]:
    decisions = []
    for record in result.cycles:
        cycle, nodes = record.outcome.cycle, record.outcome.selection.nodes
        plan = cycle.plan
        decisions.append(
            (plan.depth, plan.top_k, plan.max_nodes, cycle.levels, tuple(nodes.tolist()))
        )
    return decisions


def _selected_paths(result: DecodeResult) -> list[set[tuple[int, ...]]]:
    """Return the selected nodes of each cycle as the tokens that lead to them."""
    paths = []
    for record in result.cycles:
        tree = record.outcome.cycle.tree
        nodes = record.outcome.selection.nodes.tolist()
        paths.append({tuple(tree.tokens[list(tree.path(node))].tolist()) for node in nodes})
    return paths


def _require_equal(result: DecodeResult, other: DecodeResult, rule: str, one: World) -> None:
    pairs = zip(_decisions(result), _decisions(other), strict=False)
    for i, (got, expected) in enumerate(pairs):
        require(got == expected, rule, f"{one.name}, cycle {i}: {got}, but also {expected}")
    same = len(result.cycles) == len(other.cycles)
    require(same, rule, f"{one.name}: {len(result.cycles)} cycles, but also {len(other.cycles)}")


def _global_state() -> tuple[object, ...]:
    state: Any = np.random.get_state()  # noqa: NPY002 - it is what must not change
    name, keys, *rest = state
    return (random.getstate(), name, keys.tobytes(), *rest)
