"""Every rule equals its obvious reference; each has a case worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from specfit.core.cache import caches, make_cache
from specfit.core.errors import InvalidInputError
from specfit.testing.examples import example_geometry
from tests.reference import cache_rules

REFERENCES = {
    "fifo": cache_rules.Fifo,
    "lfru": cache_rules.Lfru,
    "lfu": cache_rules.Lfu,
    "lru": cache_rules.Lru,
    "pool": cache_rules.Lru,  # with one layer
    "random": cache_rules.Random,
    "sieve": cache_rules.Sieve,
    "spac": cache_rules.Spac,
    "static": cache_rules.Static,
}
GEOMETRY = example_geometry(num_layers=1, num_experts=24, experts_per_token=2)


def passes(num_passes: int, most: int) -> list[list[int]]:
    """Return what each pass needs: popular experts oftener, and the popular ones drift."""
    rng = np.random.default_rng(9)
    popularity = 1.0 / np.arange(1, 25)
    drawn = []
    for number in range(num_passes):
        shares = np.roll(popularity, number // 200)
        size = int(rng.integers(1, most + 1))
        chosen = rng.choice(24, size, replace=False, p=shares / shares.sum())
        drawn.append(sorted(chosen.tolist()))
    return drawn


def compare(name: str, num_passes: int, most: int, capacity: int) -> None:
    cache = caches.get(name)()
    cache.allocate(GEOMETRY, capacity)
    reference = REFERENCES[name](capacity)
    rng = np.random.default_rng(4)
    for number, experts in enumerate(passes(num_passes, most)):
        tokens = dict(zip(experts, rng.geometric(0.2, len(experts)).tolist(), strict=True))
        cache.note_tokens(0, np.array([tokens.get(e, 0) for e in range(24)]))
        if isinstance(reference, cache_rules.TokenReference):
            reference.note(tokens)
        plan = cache.request(0, np.array(experts))
        cache.end_pass()
        answer = plan.loads.tolist(), plan.evictions.tolist()
        assert answer == reference.request(experts), f"pass {number}"


@pytest.mark.parametrize(("most", "capacity"), [(1, 5), (4, 9), (9, 9)])
@pytest.mark.parametrize("name", REFERENCES)
def test_a_rule_equals_its_reference(name: str, most: int, capacity: int) -> None:
    compare(name, 800, most, capacity)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(REFERENCES) - {"lfu"}))
def test_a_rule_equals_its_reference_for_long(name: str) -> None:
    """LFU is left out: its reference adds up every use again."""
    compare(name, 30_000, 4, 9)


def test_every_rule_has_a_reference() -> None:
    assert set(REFERENCES) == set(caches.names()) - {"none"}


def evicted(spec: str, sequence: list[int]) -> list[int]:
    """Return who left, in order, when single experts are needed one after the other."""
    cache = make_cache(spec, GEOMETRY)
    left = []
    for expert in sequence:
        left += cache.request(0, np.array([expert])).evictions.tolist()
        cache.end_pass()
    return left


@pytest.mark.parametrize(
    ("spec", "sequence", "victims"),
    [
        ("lru:3", [1, 2, 3, 1, 4, 5], [2, 3]),
        ("fifo:3", [1, 2, 3, 1, 4, 5], [1, 2]),
        ("lfu:3", [1, 1, 1, 2, 2, 3, 4, 5], [3, 4]),
        ("lfu:2,decay=0.1", [1, 1, 1, 2, 3], [1]),
        ("lfu:2,decay=1", [1, 1, 1, 2, 3], [2]),
        # uses / age when 4 comes: 1 has 3 / 4, 2 has 1 / 3, 3 has 1 / 2
        ("lfru:3", [1, 1, 1, 2, 3, 4], [2]),
        # 1 is marked: the hand clears it and takes 2; then 3; then, from 4 on, 4
        ("sieve:3", [1, 2, 3, 1, 4, 5, 6], [2, 3, 4]),
        ("pool:3", [1, 2, 3, 1, 4, 5], [2, 3]),
    ],
)
def test_a_case_by_hand(spec: str, sequence: list[int], victims: list[int]) -> None:
    assert evicted(spec, sequence) == victims


def test_two_keys_of_random_differ() -> None:
    sequence = [int(e) for e in np.random.default_rng(1).integers(24, size=100)]
    assert evicted("random:5", sequence) == evicted("random:5,key=0", sequence)
    assert evicted("random:5", sequence) != evicted("random:5,key=1", sequence)


@pytest.mark.parametrize("decay", ["0", "1.5", "nan"])
def test_a_decay_that_is_none_is_refused(decay: str) -> None:
    with pytest.raises(InvalidInputError, match=r"above 0 and at most 1"):
        make_cache(f"lfu:4,decay={decay}", GEOMETRY)


def test_a_parameter_that_the_rule_lacks_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"Lru has no parameter decay"):
        make_cache("lru:4,decay=1", GEOMETRY)
