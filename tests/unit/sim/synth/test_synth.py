"""The synthetic model: a function of its tokens, calibrated drafts, and a trace that replays."""

from dataclasses import replace

import numpy as np
import pytest

from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop
from specfit.core.errors import InvalidInputError, InvalidPlanError
from specfit.core.noise import Sampling
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree
from specfit.policies.acceptance import Identity
from specfit.policies.eagle3 import Eagle3
from specfit.policies.predictors import Uniform
from specfit.sim.replay import replay
from specfit.sim.synth.backend import SynthBackend, requests_of
from specfit.sim.synth.drafts import NUM_RANKS, SynthDrafter
from specfit.sim.synth.parameters import (
    MEAN_OVERLAP,
    RANK_SHARES,
    ROUTING,
    TASKS,
    layer_overlaps,
    task_named,
)
from specfit.sim.synth.texts import draw_text
from specfit.sim.synth.trace import write_synthetic
from specfit.sim.synth.world import RoutingWorld, correlation_of_overlap
from specfit.sim.trace import TraceReader, check_trace
from specfit.testing.examples import example_profile

PLAN = DraftPlan(3, 4, 12)


@pytest.fixture(scope="module")
def world():
    return RoutingWorld()


def backend_of(world, first_acceptance=0.8, **drafts):
    return SynthBackend(world, SynthDrafter(first_acceptance, **drafts))


def request(seed=0, num_tokens=12):
    return requests_of(replace(task_named("gsm8k"), prompt_tokens=10), seed, 1, num_tokens)[0]


def grown(backend, plan=PLAN):
    tree = DraftTree.root(backend.start(request()).first_token)
    for _ in range(plan.depth):
        tree = tree.grow(backend.draft_level(plan, tree))
    return tree


def test_the_shares_of_a_score_sum_to_one(world):
    total = sum(world.shares.values())
    assert np.allclose(total, 1.0)
    assert all((share >= 0).all() for share in world.shares.values())


def test_overlaps_aim_at_the_measured_mean():
    assert layer_overlaps(1.0, 1.0).mean() == pytest.approx(MEAN_OVERLAP)


def test_parts_of_a_score_that_leave_less_than_nothing_are_refused():
    with pytest.raises(InvalidInputError, match="at most 1"):
        _ = RoutingWorld(replace(ROUTING, topic_tokens=2)).shares


def test_a_topic_stays_for_its_tokens_and_no_longer(world):
    backend = world.start(world.topic((1, 2, 3, 4)))
    contexts = world.grow(backend, np.arange(9, dtype=np.int32), np.arange(9))
    p = world.parameters
    topics = contexts.latents[:, p.num_drifts :].reshape(10, p.topic_tokens, p.num_topics)
    for age in range(1, p.topic_tokens):
        assert (topics[1 + age :, age] == topics[1 : 10 - age, 0]).all()


def test_correlation_of_overlap_is_that_of_simulated_rows():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((4000, 128))
    b = 0.7 * a + np.sqrt(1 - 0.49) * rng.standard_normal(a.shape)
    tops = [np.argsort(-x, axis=1)[:, :8] for x in (a, b)]
    overlap = np.mean([len(set(p) & set(q)) / 8 for p, q in zip(*tops, strict=True)])
    assert correlation_of_overlap(np.array([overlap]))[0] == pytest.approx(0.7, abs=0.02)


def test_routing_names_different_experts_in_order(world):
    text = draw_text(world, np.random.default_rng(1), 5, 6)
    assert text.routing.shape == (11, 48, 8)
    assert (np.diff(text.routing, axis=2) > 0).all()
    assert text.routing.min() >= 0 and text.routing.max() < 128


def test_a_node_answers_as_it_does_when_it_is_the_root(world):
    backend = backend_of(world)
    tree = grown(backend)
    everything = backend.verify(tree, Selection(tree, np.ones(len(tree), bool)))
    child = int(tree.children(0)[0])
    token = int(tree.tokens[child])
    backend.commit(tree, (), (token,))  # as if the target had said so
    alone = DraftTree.root(token)
    again = backend.verify(alone, Selection.root_only(alone))
    assert (again.routing[0] == everything.routing[child]).all()
    assert again.target_tokens[0] == everything.target_tokens[child]


def test_siblings_differ_and_their_probabilities_fall(world):
    tree = grown(backend_of(world))
    for node in range(len(tree)):
        children = tree.children(node)
        if len(children):
            assert len(set(tree.tokens[children].tolist())) == len(children)
            assert (np.diff(tree.cond_probs[children]) <= 1e-7).all()
            assert tree.cond_probs[children].sum() <= 1 + 1e-6


def test_calibrated_drafts_are_right_as_often_as_they_claim():
    keys = np.random.default_rng(2).integers(2**63, size=20_000).astype(np.uint64)
    drafter = SynthDrafter(0.7)
    guesses = drafter.guess(keys, np.zeros(len(keys), np.int32))
    right = guesses.tokens == drafter.own_tokens(keys)[:, None]
    claimed = np.exp(guesses.log_probs)
    assert right[:, 0].mean() == pytest.approx(0.7, abs=0.01)
    for rank in range(4):
        for low, high in ((0.0, 0.1), (0.1, 0.4), (0.4, 0.8), (0.8, 1.01)):
            inside = (claimed[:, rank] >= low) & (claimed[:, rank] < high)
            if inside.sum() > 500:
                found, said = right[inside, rank].mean(), claimed[inside, rank].mean()
                assert found == pytest.approx(said, abs=0.03)


def test_overconfidence_changes_claims_and_nothing_else():
    keys = np.arange(500, dtype=np.uint64)
    depths = np.zeros(500, np.int32)
    honest = SynthDrafter(0.6).guess(keys, depths)
    bold = SynthDrafter(0.6, overconfidence=2.0).guess(keys, depths)
    assert (honest.tokens == bold.tokens).all()
    assert bold.log_probs[:, 0].mean() > honest.log_probs[:, 0].mean()


def test_rank_shares_fall():
    assert (np.diff(RANK_SHARES) <= 0).all() and sum(RANK_SHARES) < 1


def test_a_replay_commits_what_decoding_commits(world, tmp_path):
    task = replace(task_named("gsm8k"), prompt_tokens=10)
    write_synthetic(tmp_path / "t", task, (PLAN,), seed=4, num_prompts=2, max_new_tokens=12)
    assert check_trace(tmp_path / "t").is_good
    reader = TraceReader(tmp_path / "t")
    assert reader.metadata.origin == "synthetic"
    profile = example_profile()
    parts = {
        "cost": ProfileCost(profile),
        "predictor": Uniform(world.geometry),
        "acceptance": Identity(),
    }
    policy = Eagle3(depth=3, top_k=4, max_nodes=12)
    cache = make_cache("lru:16", world.geometry)
    replayed = list(replay(reader, policy, cache, profile, **parts))
    backend = SynthBackend(world, SynthDrafter(task.first_acceptance))
    loop = DecodeLoop(backend, policy, parts["cost"], parts["predictor"], parts["acceptance"])
    for result, again in zip(replayed, requests_of(task, 4, 2, 12), strict=True):
        live = loop.run(again)
        assert live.tokens == result.tokens
        assert [c.num_committed for c in live.cycles] == [c.num_committed for c in result.cycles]


def test_seeds_decide_the_trace(tmp_path):
    task = replace(task_named("cnn-dm"), prompt_tokens=8)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_synthetic(tmp_path / name, task, (PLAN,), seed=seed, num_prompts=1, max_new_tokens=4)
    texts = [next(iter(TraceReader(tmp_path / n).prompts())).text for n in "abc"]
    assert texts[0] == texts[1] != texts[2]


def test_what_the_synthetic_model_cannot_do_is_said(world):
    backend = backend_of(world)
    with pytest.raises(InvalidPlanError, match="16 tokens at most"):
        grown(backend, DraftPlan(1, NUM_RANKS + 1, 64))
    with pytest.raises(InvalidInputError, match="temperature must be 0"):
        backend.start(replace(request(), sampling=Sampling(1.0)))
    with pytest.raises(InvalidInputError, match="tokens are 0 to"):
        backend.start(replace(request(), prompt=(5000,)))
    with pytest.raises(InvalidInputError, match="Did you mean 'gsm8k'"):
        task_named("gsm8")
    with pytest.raises(InvalidInputError, match="first_acceptance"):
        SynthDrafter(0.1)


def test_tasks_have_different_names():
    assert len({task.name for task in TASKS}) == len(TASKS)
