"""200 prompts over a pairwise covering of what can be chosen: each text is that of `generate`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import groupby

import numpy as np
import pytest

pytest.importorskip("torch", reason="the live backend needs torch")

import torch

from specfit.backends import load
from specfit.backends.reference import StockModel
from specfit.backends.torch_backend import TorchBackend
from specfit.cli.prompts import read_prompts
from specfit.cli.specs import prefetcher_from
from specfit.core.backend import Request
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop
from specfit.core.noise import Sampling
from specfit.core.policy import Policy, policies
from specfit.data import FOLDER, PROMPTS
from specfit.policies.inputs import load_inputs
from specfit.testing.examples import example_profile
from tests.contract.shipped import shipped
from tests.covering import Combination, all_pairs, covering, pairs_of

NUM_PROMPTS = 200
NUM_TOKENS = 20
TINY = FOLDER / "tiny"
SIZES = {
    "small": {"depth": "2", "first_depth": "2", "top_k": "2", "max_nodes": "5"},
    "middle": {"depth": "4", "top_k": "3", "max_nodes": "16"},
    "large": {"depth": "7", "top_k": "8", "max_nodes": "64"},
}


def is_usable(policy: type[Policy]) -> bool:
    """Return whether it is shipped and needs no trace."""
    return policy in shipped(policies) and not policy.is_reference


FACTORS = {
    "policy": tuple(name for name in policies.names() if is_usable(policies.get(name))),
    "cache": ("none", "lru:8", "lru:25%", "sieve:50%", "lru:100%"),
    "drafter": ("eagle3", "ngram", f"model:{TINY}", "none"),
    "size": tuple(SIZES),
    "prefetch": ("none", "previous:num_tokens=3", "predicted:min_prob=0.3"),
}


@cache
def rows() -> tuple[Combination, ...]:
    """Return what each prompt is decoded with; drawn where it is asked for, since it takes long."""
    return tuple(covering(FACTORS, NUM_PROMPTS, key=5))


def test_every_two_choices_meet() -> None:
    assert all(policy_of(row) for row in rows())
    met = set().union(*map(pairs_of, rows()))
    assert met == all_pairs(FACTORS)
    assert len(rows()) == NUM_PROMPTS


@pytest.mark.slow
def test_200_texts_are_those_of_generate() -> None:
    stock, jobs = StockModel(TINY), list(zip(rows(), prompts(), strict=True))
    jobs.sort(key=lambda job: (job[0]["drafter"], job[0]["cache"]))
    different, decoded = [], 0
    for drafter, of_drafter in groupby(jobs, key=lambda job: job[0]["drafter"]):
        with loaded(drafter) as backend:
            for spec, of_cache in groupby(of_drafter, key=lambda job: job[0]["cache"]):
                backend.set_cache(spec)
                for row, prompt in of_cache:
                    request = Request(prompt, NUM_TOKENS, backend.stop_ids)
                    tokens = decode(backend, row, request)
                    decoded += len(tokens)
                    if tokens != stock.generate(request):
                        different.append(row)
    assert different == []
    assert decoded > NUM_PROMPTS * NUM_TOKENS / 2


def decode(backend: TorchBackend, row: Combination, request: Request) -> tuple[int, ...]:
    predictor, acceptance = load_inputs(TINY, backend.geometry, Sampling())
    loop = DecodeLoop(
        backend,
        policy_of(row),
        ProfileCost(example_profile()),
        predictor,
        acceptance,
        prefetcher=prefetcher_from(row["prefetch"], live=True),
    )
    return loop.run(request).tokens


def policy_of(row: Combination) -> Policy:
    """Return the policy with as much of the tree's size as it has parameters for."""
    cls = policies.get(row["policy"])
    sizes = {k: v for k, v in SIZES[row["size"]].items() if k in cls.__dataclass_fields__}
    return policies.build(row["policy"], sizes)


@contextmanager
def loaded(drafter: str) -> Iterator[TorchBackend]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with load("tiny", drafter=None if drafter == "eagle3" else drafter) as backend:
            yield backend
    finally:
        torch.set_num_threads(threads)


def prompts() -> list[tuple[int, ...]]:
    """Return different prompts: pieces of 4 to 40 tokens of the shipped texts."""
    with loaded("none") as backend:
        texts = [
            tuple(backend.tokenizer(prompt.text)["input_ids"])
            for name in ("heldout", "tune")
            for prompt in read_prompts(PROMPTS / f"{name}.jsonl")
        ]
    rng, found = np.random.default_rng(6), dict[tuple[int, ...], None]()
    while len(found) < NUM_PROMPTS:
        text = texts[int(rng.integers(len(texts)))]
        first = int(rng.integers(max(1, len(text) - 4)))
        found[text[first : first + int(rng.integers(4, 41))]] = None
    return list(found)
