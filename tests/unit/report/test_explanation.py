import pytest

from specfit.core.backend import Request
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop
from specfit.policies import Autoregressive, Eagle3, SpecFit
from specfit.report.example_cycle import cycle_to_show, view_of
from specfit.report.explanation import expectation_text, facts_of
from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile
from specfit.testing.toy import toy_backend


def decoded(policy):
    with toy_backend() as backend:
        inputs = UniformPredictor(backend.geometry), DrafterAcceptance()
        loop = DecodeLoop(backend, policy, ProfileCost(example_profile()), *inputs)
        return loop.run(Request((1, 2, 3), 40))


@pytest.fixture(scope="module")
def result():
    return decoded(Eagle3(depth=3, top_k=3, max_nodes=6))


def test_every_node_is_told_of_once_below_its_parent(result):
    record = cycle_to_show([result])
    facts = facts_of(record)
    places = {fact.node: i for i, fact in enumerate(facts)}
    assert sorted(places) == list(range(len(record.outcome.cycle.tree)))
    assert all(places[f.parent] < places[f.node] for f in facts if f.node)


def test_verdicts_are_what_became_of_the_nodes(result):
    outcome = cycle_to_show([result]).outcome
    verdicts = {f.node: f.verdict for f in facts_of(cycle_to_show([result]))}
    told = {node for node, verdict in verdicts.items() if verdict}
    assert told == set(outcome.selection.nodes.tolist())
    assert {n for n, v in verdicts.items() if v == "accepted"} == set(outcome.accepted)


def test_eagle_verifies_the_first_ranks(result):
    chosen = [f.draft_rank for f in facts_of(cycle_to_show([result])) if f.verdict]
    assert sorted(chosen) == list(range(6))


def test_an_expectation_is_told_where_there_is_one(result):
    assert "Expected" not in expectation_text(cycle_to_show([result]))
    drafted = decoded(SpecFit())
    assert "Expected: " in expectation_text(drafted.cycles[0])


def test_nothing_to_show_where_nothing_was_drafted():
    assert cycle_to_show([decoded(Autoregressive())]) is None


def test_the_view_marks_the_nodes_of_the_cycle(result):
    record = cycle_to_show([result])
    view = view_of(record, str, title="t")
    assert view.selected.sum() == len(record.outcome.selection)
    assert view.accepted.sum() == 1 + len(record.outcome.accepted)
    assert f"{len(view.texts)} nodes drafted" in view.caption
