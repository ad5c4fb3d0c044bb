from dataclasses import replace

import pytest

from specfit.cli.demo_run import affordable_tokens, entries_of, rotated, same_cycles
from specfit.core.backend import Request
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop
from specfit.policies import Autoregressive, Eagle3
from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile
from specfit.testing.toy import toy_backend


@pytest.mark.parametrize(("copy_s", "tokens"), [(1e-5, 48), (1.9e-3, 18), (1.0, 16)])
def test_slow_machines_decode_shorter_texts(copy_s, tokens):
    profile = replace(example_profile(), copy_latency_s=copy_s, h2d_bandwidth_bytes_per_s=1e18)
    assert affordable_tokens(profile, 10) == tokens


def test_every_entry_comes_first_in_turn():
    orders = [rotated(range(4), turn) for turn in range(8)]
    assert [order[0] for order in orders] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)


def test_the_policies_share_a_cache_and_one_has_none():
    entries = entries_of("lru:25%")
    assert [entry.policy.partition(":")[0] for entry in entries] == [
        "autoregressive",
        "eagle3",
        "specfit",
        "eagle3",
    ]
    assert [entry.cache for entry in entries] == ["lru:25%", "lru:25%", "lru:25%", "none"]


def test_cycles_are_the_same_only_if_every_decision_is():
    def decoded(policy):
        with toy_backend() as backend:
            inputs = UniformPredictor(backend.geometry), DrafterAcceptance()
            loop = DecodeLoop(backend, policy, ProfileCost(example_profile()), *inputs)
            return [loop.run(Request((1, 2, 3), 20))]

    tree = decoded(Eagle3(3, 3, 6))
    assert same_cycles(tree, decoded(Eagle3(3, 3, 6)))
    assert not same_cycles(tree, decoded(Eagle3(3, 3, 7)))
    assert not same_cycles(tree, decoded(Autoregressive()))
