"""Exact counts of every policy with several caches on two small synthetic texts.

The table is `tests/golden/counters.txt`. When a change of it is meant, look at the difference, then
rewrite it: ``python -m tests.golden.test_counters > tests/golden/counters.txt``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import specfit.policies  # noqa: F401 - registers the shipped policies
from specfit.core.backend import Request
from specfit.core.decode import DecodeResult
from specfit.core.noise import Sampling
from specfit.core.policy import policies
from specfit.testing.examples import example_geometry
from specfit.testing.toy import toy_backend
from specfit.testing.worlds import run_toy
from tests.contract.shipped import shipped

TABLE = Path(__file__).with_name("counters.txt")
GEOMETRY = example_geometry(num_layers=6, num_experts=32, experts_per_token=4, vocab_size=64)
POLICIES = ("autoregressive", "eagle3", "eagle3:depth=3,top_k=1,max_nodes=4", "specfit")
RIVALS = (
    "adaedl",
    "cascade:trial_cycles=2,set_cycles=4",
    "chain",
    "ddd:depth=7,top_k=4,max_nodes=24,first_check=2",
    "draftexpert",
    "dyspec:top_k=4,max_nodes=24",
    "ecospec",
    "evict",
    "moe-speq",
    "opt-tree:top_k=4,max_nodes=24",
    "reference-experts",
    "reference-truth",
    "s2-moe:expert_scale=0.1",
    "s2-moe-static:expert_scale=0.2",
    "sequoia:top_k=4,max_nodes=24",
    "specexec:top_k=4,max_nodes=48,depth=8",
    "svip",
    "talon:top_k=4,max_nodes=24",
    "yggdrasil:depth=5,top_k=4,max_nodes=24",
)
RIVAL_CACHES = ("lru:25%", "lru:100%")
CACHES = ("none", "fifo:50%", "lru:4", "lru:25%", "lru:50%", "lru:100%")
TEXTS = {
    "greedy": Request((11, 7, 5, 3, 2), 40),
    "sampled": Request(tuple(range(20)), 40, sampling=Sampling(0.8, noise_key=9)),
}
COLUMNS = "text policy cache cycles committed verified levels hits misses evictions simulated_ms"


def counters(result: DecodeResult) -> list[str]:
    """Return the counts of a run in the order of the columns."""
    verifications = [c.outcome.verification for c in result.cycles]
    counts = (
        len(result.cycles),
        result.num_decoded,
        sum(c.num_verified for c in result.cycles),
        sum(c.outcome.cycle.levels for c in result.cycles),
        sum(int(v.num_hits.sum()) for v in verifications),
        sum(int(v.num_misses.sum()) for v in verifications),
        sum(int(v.num_evictions.sum()) for v in verifications),
    )
    return [*map(str, counts), f"{1e3 * result.decode_s:.1f}"]


def row(text: str, policy: str, cache: str) -> str:
    backend = toy_backend(cache, geometry=GEOMETRY)
    result = run_toy(policies.make(policy), backend, TEXTS[text])
    return " ".join([text, policy, cache, *counters(result)])


def keys() -> list[tuple[str, str, str]]:
    ours = [(t, p, c) for t in TEXTS for p in POLICIES for c in CACHES]
    return ours + [(t, p, c) for t in TEXTS for p in RIVALS for c in RIVAL_CACHES]


@pytest.mark.parametrize(("text", "policy", "cache"), keys())
def test_counts_are_those_of_the_table(text: str, policy: str, cache: str) -> None:
    table = {tuple(line.split()[:3]): line for line in TABLE.read_text("utf-8").splitlines()}
    assert row(text, policy, cache) == table[text, policy, cache], "see the head of this file"


def test_every_shipped_policy_is_in_the_table() -> None:
    named = {policies.get(policy.partition(":")[0]) for policy in (*POLICIES, *RIVALS)}
    assert named == shipped(policies)


if __name__ == "__main__":
    print(COLUMNS)
    for key in keys():
        print(row(*key))
