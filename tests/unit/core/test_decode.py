"""The decode loop: walking, cutting, counting, cancelling, and what a wrong policy is told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from specfit.core.backend import Prefill, Request, Verification
from specfit.core.cost import ProfileCost
from specfit.core.decode import CycleRecord, DecodeLoop, DecodeResult, Observer, truncate, walk
from specfit.core.errors import BackendError, InvalidPlanError, InvalidSelectionError
from specfit.core.history import RoutingHistory
from specfit.core.policy import Cycle, Outcome, Policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree
from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile
from specfit.testing.toy import ToyBackend, toy_backend

PROMPT = (3, 1, 4, 1, 5)


@dataclass
class Everything(Policy):
    """Verify all that was drafted."""

    depth: int = 4
    top_k: int = 3

    def plan(self, cycle: Cycle) -> DraftPlan:
        return DraftPlan(self.depth, self.top_k, max_nodes=1024)

    def select(self, cycle: Cycle) -> Selection:
        return Selection(cycle.tree, np.ones(len(cycle.tree), bool))


def loop(policy: Policy, backend: ToyBackend | None = None, **parts: Any) -> DecodeLoop:
    backend = backend or toy_backend()
    return DecodeLoop(
        backend,
        policy,
        ProfileCost(example_profile()),
        UniformPredictor(backend.geometry),
        DrafterAcceptance(),
        **parts,
    )


def plain_text(num_tokens: int) -> tuple[int, ...]:
    return loop(Everything(depth=0)).run(Request(PROMPT, num_tokens)).tokens


def answer(tree: DraftTree, selection: Selection, target_tokens: list[int]) -> Verification:
    n = len(selection)
    counts = np.zeros(1, np.int64)
    return Verification(
        nodes=selection.nodes,
        target_tokens=np.array(target_tokens),
        target_probs=np.ones(n, np.float32),
        margins=np.ones(n, np.float32),
        routing=np.zeros((n, 1, 1), np.int16),
        num_hits=counts,
        num_misses=counts,
        num_evictions=counts,
        stall_s=0.0,
        compute_s=0.0,
    )


def tree_of(parents: list[int], tokens: list[int]) -> DraftTree:
    return DraftTree.from_arrays(
        np.array(parents, np.int32), np.ones(len(parents)), np.array(tokens)
    )


TREE = tree_of([-1, 0, 0, 1, 2, 2], [9, 1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("nodes", "target_tokens", "accepted", "emitted"),
    [
        ([0], [7], (), (7,)),
        ([0, 1, 2], [7, 0, 0], (), (7,)),
        ([0, 1, 2], [2, 0, 8], (2,), (2, 8)),
        ([0, 1, 2, 5], [2, 0, 5, 6], (2, 5), (2, 5, 6)),
        ([0, 1, 2, 4], [2, 0, 5, 6], (2,), (2, 5)),  # node 5 matches but was not selected
        ([0, 1, 2, 3, 4, 5], [1, 3, 0, 6, 0, 0], (1, 3), (1, 3, 6)),
        ([0, 2, 5], [2, 5, 6], (2, 5), (2, 5, 6)),
    ],
)
def test_walk_follows_the_target_through_the_selection(
    nodes: list[int], target_tokens: list[int], accepted: tuple[int, ...], emitted: tuple[int, ...]
) -> None:
    selection = Selection.from_nodes(TREE, nodes)
    assert walk(TREE, answer(TREE, selection, target_tokens)) == (accepted, emitted)


def test_walk_does_not_take_a_cousin_with_the_right_token() -> None:
    tree = tree_of([-1, 0, 0, 1, 2], [9, 1, 2, 7, 6])
    selection = Selection(tree, np.ones(5, bool))
    assert walk(tree, answer(tree, selection, [2, 0, 7, 0, 0])) == ((2,), (2, 7))


@pytest.mark.parametrize("cap", [3, 4, 5])
def test_a_stop_token_inside_the_block_ends_it_there(cap: int) -> None:
    assert truncate((10, 11, 99, 20, 21, 22), frozenset({99}), cap) == (10, 11, 99)


def test_the_cap_cuts_before_a_stop_token_that_lies_behind_it() -> None:
    assert truncate((10, 11, 99, 20), frozenset({99}), 2) == (10, 11)


@pytest.mark.parametrize("num_tokens", range(1, 9))
def test_exactly_as_many_tokens_as_asked_for(num_tokens: int) -> None:
    result = loop(Everything(depth=6)).run(Request(PROMPT, num_tokens))
    assert result.tokens == plain_text(num_tokens)
    assert len(result.tokens) == num_tokens
    assert result.stop_reason == "length"
    assert sum(c.num_committed for c in result.cycles) == result.num_decoded == num_tokens - 1


@pytest.mark.parametrize("cap", [2, 3, 4, 5, 12])
@pytest.mark.parametrize("at", range(8))
def test_a_stop_token_ends_the_text_wherever_it_falls(at: int, cap: int) -> None:
    """Position 0 is the prefill's token; the others fall at every place of a block."""
    text = plain_text(12)
    end = text.index(text[at])
    request = Request(PROMPT, cap, stop_ids=frozenset({text[at]}))
    result = loop(Everything(depth=6)).run(request)
    assert result.tokens == text[: min(end + 1, cap)]
    assert result.stop_reason == ("stop" if end < cap else "length")


def test_a_rejected_stop_token_in_the_draft_ends_nothing() -> None:
    text = plain_text(20)
    drafted: set[int] = set()

    class Note(Observer):
        def on_cycle(self, record: CycleRecord) -> None:
            drafted.update(record.outcome.cycle.tree.tokens.tolist())

    loop(Everything(), observers=[Note()]).run(Request(PROMPT, 20))
    rejected = drafted - set(text)
    result = loop(Everything()).run(Request(PROMPT, 20, stop_ids=frozenset(rejected)))
    assert rejected
    assert result.tokens == text


def test_committed_is_accepted_and_one_more() -> None:
    result = loop(Everything()).run(Request(PROMPT, 40))
    accepted = [len(c.outcome.accepted) for c in result.cycles]
    assert [c.num_committed for c in result.cycles] == [n + 1 for n in accepted]
    assert sum(accepted) > 0
    assert all(n <= c.num_verified - 1 for n, c in zip(accepted, result.cycles, strict=True))


def test_nothing_is_drafted_that_could_not_be_committed() -> None:
    result = loop(Everything(depth=6)).run(Request(PROMPT, 6))
    for record in result.cycles:
        cycle = record.outcome.cycle
        assert cycle.levels <= cycle.max_depth


def test_the_parts_of_the_time_sum_to_the_clock() -> None:
    backend = toy_backend()
    result = loop(Everything(), backend).run(Request(PROMPT, 40))
    assert result.decode_s + result.prefill.seconds == pytest.approx(backend.clock(), rel=1e-12)
    for record in result.cycles:
        timings, misses = record.timings, record.outcome.verification.num_misses.sum()
        assert timings.stall_s == pytest.approx(misses * 1e-3)
        assert timings.draft_s == pytest.approx(1e-3 + 5e-4 * (record.outcome.cycle.levels - 1))
        assert timings.select_s == timings.commit_s == 0.0


def test_what_a_policy_learns_is_charged_to_it() -> None:
    class Slow(Everything):
        def observe(self, outcome: Outcome) -> None:
            backend._now_s += 0.25

    backend = toy_backend()
    result = loop(Slow(), backend).run(Request(PROMPT, 10))
    assert [c.timings.select_s for c in result.cycles] == pytest.approx([0.25] * len(result.cycles))


@dataclass
class Impatient(Everything):
    """Drafts level by level and stops when it has seen enough."""

    levels: int = 2
    seen: list[tuple[int, int]] = field(default_factory=list)

    def after_level(self, cycle: Cycle) -> bool:
        self.seen.append((cycle.levels, len(cycle.tree)))
        return cycle.levels < self.levels


def test_the_policy_is_asked_after_each_level_but_the_last() -> None:
    policy = Impatient(depth=4, top_k=2, levels=9)
    loop(policy).run(Request(PROMPT, 7))
    assert policy.seen[:3] == [(1, 3), (2, 7), (3, 11)]


def test_drafting_stops_when_the_policy_says_so() -> None:
    result = loop(Impatient(depth=4, top_k=2)).run(Request(PROMPT, 30))
    assert {c.outcome.cycle.levels for c in result.cycles[:-2]} == {2}


def test_a_drafter_that_runs_dry_is_not_asked_again() -> None:
    class Dry(ToyBackend):
        asked = 0

        def draft_level(self, plan: DraftPlan, tree: DraftTree) -> Any:
            self.asked += 1
            level = super().draft_level(plan, tree)
            none = slice(0, 0) if len(tree) > 1 else slice(None)
            parts = ("parents", "tokens", "log_probs", "ranks", "entropies")
            return type(level)(**{name: getattr(level, name)[none] for name in parts})

    toy = toy_backend()
    backend = Dry(toy.model, toy.cache, toy.profile)
    result = loop(Everything(), backend).run(Request(PROMPT, 20))
    assert all(c.outcome.cycle.is_exhausted for c in result.cycles[:-3])
    assert backend.asked <= 2 * len(result.cycles)
    assert result.tokens == plain_text(20)


def test_observers_see_the_start_every_cycle_and_the_end() -> None:
    seen: list[Any] = []

    class Note(Observer):
        def on_start(self, request: Request, prefill: Prefill) -> None:
            seen.append(prefill.first_token)

        def on_cycle(self, record: CycleRecord) -> None:
            seen.extend(record.outcome.committed)

        def on_end(self, tokens: tuple[int, ...], stop_reason: str) -> None:
            seen.append((tokens, stop_reason))

    result = loop(Everything(), observers=[Note()]).run(Request(PROMPT, 15))
    assert seen == [*result.tokens, (result.tokens, "length")]


def test_a_cancelled_request_leaves_nothing_behind() -> None:
    backend = toy_backend()
    cancelled = loop(Everything(), backend).stream(Request((7, 7, 7), 30))
    for _ in range(4):
        next(cancelled)
    cancelled.close()  # type: ignore[attr-defined]
    again = loop(Everything(), backend).run(Request(PROMPT, 30))
    assert_same_run(again, loop(Everything()).run(Request(PROMPT, 30)))


def test_a_failure_in_the_middle_of_a_verification_leaves_nothing_behind() -> None:
    backend = toy_backend()

    class Failing(Everything):
        def select(self, cycle: Cycle) -> Selection:
            if cycle.cycle_index == 2:
                backend.verify(cycle.tree, Selection.root_only(cycle.tree))
                raise KeyboardInterrupt
            return super().select(cycle)

    with pytest.raises(KeyboardInterrupt):
        loop(Failing(), backend).run(Request((7, 7, 7), 30))
    again = loop(Everything(), backend).run(Request(PROMPT, 30))
    assert_same_run(again, loop(Everything()).run(Request(PROMPT, 30)))


def assert_same_run(one: DecodeResult, other: DecodeResult) -> None:
    assert one.tokens == other.tokens
    for a, b in zip(one.cycles, other.cycles, strict=True):
        assert a.outcome.accepted == b.outcome.accepted
        assert np.array_equal(a.outcome.selection.mask, b.outcome.selection.mask)
        assert np.array_equal(a.outcome.verification.num_misses, b.outcome.verification.num_misses)


def test_a_second_request_forgets_the_first() -> None:
    backend = toy_backend()
    loop(Everything(), backend).run(Request((9, 9), 25))
    again = loop(Everything(), backend).run(Request(PROMPT, 25))
    assert_same_run(again, loop(Everything()).run(Request(PROMPT, 25)))


def wrong(**methods: Any) -> Policy:
    return type("Wrong", (Everything,), methods)()


def test_a_plan_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidPlanError, match=r"plan must return a DraftPlan; got NoneType"):
        loop(wrong(plan=lambda self, cycle: None)).run(Request(PROMPT, 5))


def test_a_selection_that_is_a_mask_is_refused() -> None:
    with pytest.raises(InvalidSelectionError, match=r"must return a Selection; got ndarray"):
        loop(wrong(select=lambda self, cycle: np.ones(1, bool))).run(Request(PROMPT, 5))


def test_a_selection_of_another_tree_is_refused() -> None:
    def select(self: Policy, cycle: Cycle) -> Selection:
        return Selection.root_only(DraftTree.root(0))

    with pytest.raises(InvalidSelectionError, match=r"belongs to another tree"):
        loop(wrong(select=select)).run(Request(PROMPT, 5))


def test_a_selection_over_the_plan_is_refused() -> None:
    def plan(self: Policy, cycle: Cycle) -> DraftPlan:
        return DraftPlan(2, 2, max_nodes=3)

    with pytest.raises(InvalidSelectionError, match=r"allows 3 verified nodes; .* has 7"):
        loop(wrong(plan=plan)).run(Request(PROMPT, 5))


def test_the_toy_refuses_what_it_did_not_ask_for() -> None:
    backend = toy_backend()
    tree = DraftTree.root(0)
    with pytest.raises(BackendError, match=r"no request. Call start first"):
        backend.verify(tree, Selection.root_only(tree))
    first = backend.start(Request(PROMPT, 5)).first_token
    tree = DraftTree.root(first + 1)
    with pytest.raises(BackendError, match=r"root must be the last committed token"):
        backend.verify(tree, Selection.root_only(tree))


def test_a_prediction_asked_for_afterwards_is_that_of_the_cycle() -> None:
    """Reports ask for what a policy did not; they must not see the routing that came since."""

    class Recency(UniformPredictor):
        def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> Any:
            probs = super().predict(tree, history, first)
            return probs + np.minimum(history.ages, 1_000).astype(np.float32)

    class Asks(Everything):
        def select(self, cycle: Cycle) -> Selection:
            asked.append(cycle.expert_probs.probs.copy())
            return super().select(cycle)

    asked: list[np.ndarray] = []
    backend = toy_backend()
    for policy in (Asks(), Everything()):
        decode = replace(loop(policy, backend), predictor=Recency(backend.geometry))
        cycles = decode.run(Request(PROMPT, 20)).cycles
    for during, record in zip(asked, cycles, strict=True):
        np.testing.assert_array_equal(record.outcome.cycle.expert_probs.probs, during)


def test_finished_cycles_do_not_keep_their_predictions() -> None:
    """N x L x E numbers a cycle would fill the memory of a long run."""

    class Asks(Everything):
        def select(self, cycle: Cycle) -> Selection:
            assert cycle.expert_probs.probs.shape[0] == len(cycle.tree)
            return super().select(cycle)

    for record in loop(Asks()).run(Request(PROMPT, 20)).cycles:
        cycle = record.outcome.cycle
        assert "expert_probs" not in vars(cycle)
        assert not cycle._predict._by_layers  # type: ignore[attr-defined]


def test_a_belief_asked_for_afterwards_is_that_of_the_cycle() -> None:
    class Learns(DrafterAcceptance):
        trust = 1.0

        def calibrate(self, tree: DraftTree) -> Any:
            return super().calibrate(tree) * self.trust

        def observe(self, outcome: Outcome) -> None:
            self.trust *= 0.5

    decode = replace(loop(Everything()), acceptance=Learns())
    for i, record in enumerate(decode.run(Request(PROMPT, 12)).cycles):
        assert record.outcome.cycle.accept_probs[0] == 0.5**i
