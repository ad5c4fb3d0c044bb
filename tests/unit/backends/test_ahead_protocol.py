"""Copies made ahead of a pass keep the protocol in every order, and each of its rules is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfit.backends import store as store_module
from specfit.backends.device import Event
from specfit.backends.store import ExpertStore, Wave
from specfit.core.cache import LoadPlan, make_cache
from specfit.core.cache.ahead import AheadOfPass
from specfit.core.errors import BackendError
from specfit.testing.adversarial_device import AdversarialDevice, every_order, random_orders
from tests.unit.backends.models import late_device
from tests.unit.backends.test_protocol import (
    BANK,
    EXPERTS,
    GEOMETRY,
    LAYERS,
    WrongBytesError,
    make,
    reader,
)

Needs = Mapping[int, Sequence[int]]
Cycle = tuple[Needs, Needs]
"""What is wanted ahead of a pass, and what the pass needs, by layer."""

FIRST: Cycle = ({}, {0: (0, 1)})
SMALL: dict[str, tuple[str, Sequence[Cycle]]] = {
    "needed": ("lru:2", [FIRST, ({0: (2,)}, {0: (1, 2)})]),
    "in vain, and its slot given away": ("lru:2", [FIRST, ({0: (2,)}, {0: (1, 3)})]),
    "in vain, and needed later": ("lru:2", [FIRST, ({0: (2,)}, {0: (1,)}), ({}, {0: (2,)})]),
    "two layers": ("lru:2", [({0: (2,), 1: (3,)}, {0: (2,), 1: (0, 3)})]),
    "a layer alone": ("lru:2", [({1: (2, 3)}, {1: (2, 3)})]),
    "waves": ("lru:2", [({0: (2,)}, {0: (1, 2, 3)})]),
    "asked twice": ("lru:2", [({0: (2,)}, {}), ({0: (3,)}, {0: (3,)})]),
    "no cache": ("none", [({0: (0, 1)}, {0: (0, 2)}), ({0: (1,)}, {0: (1,)})]),
}
"""Cases of which every order is tried: a cache, and its cycles."""


@pytest.fixture(params=[1, store_module.LAYERS_AHEAD], autouse=True)
def layers_ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(store_module, "LAYERS_AHEAD", request.param)
    return int(request.param)


def run(store: ExpertStore, cycles: Sequence[Cycle]) -> int:
    """Queue the reads of some cycles, run everything; return how many copies there must be."""
    device = store.device
    assert isinstance(device, AdversarialDevice)
    copies = 0
    for wanted, needs in cycles:
        store.begin_pass()
        copies += prefetch(store, wanted)
        for layer, experts in needs.items():
            for wave in store.waves(layer, np.array(experts, np.int64)):
                device.compute(reader(store, layer, wave))
        store.end_pass()
        copies += int(store.counts.num_misses.sum())
    store._send_ahead(LAYERS)  # to layers that no pass has run
    device.finish()
    return copies


def prefetch(store: ExpertStore, wanted: Needs) -> int:
    matrix = np.zeros((LAYERS, EXPERTS), np.float32)
    for layer, experts in wanted.items():
        matrix[layer, list(experts)] = np.linspace(1, 0.5, len(experts))
    plans = AheadOfPass(GEOMETRY).fetch(matrix, store.cache)
    store.bring_ahead(plans)
    return sum(len(plan.loads) for plan in plans)


@pytest.mark.parametrize("case", SMALL)
def test_right_in_every_order(case: str) -> None:
    spec, cycles = SMALL[case]
    for choose in every_order():
        store = make(ExpertStore, spec, choose)
        assert run(store, cycles) == store.device.counters.num_copies


some = st.lists(st.integers(0, EXPERTS - 1), min_size=1, unique=True).map(sorted)
by_layer = st.dictionaries(st.integers(0, LAYERS - 1), some)


@given(
    spec=st.sampled_from(["none", "lru:2", "lru:3", "lru:6", "fifo:2", "sieve:3"]),
    cycles=st.lists(st.tuples(by_layer, by_layer), min_size=1, max_size=8),
    key=st.integers(0, 1000),
)
@settings(max_examples=120)
def test_right_in_random_orders(spec: str, cycles: list[Cycle], key: int) -> None:
    for choose in random_orders(4, key):
        store = make(ExpertStore, spec, choose)
        assert run(store, cycles) == store.device.counters.num_copies


def test_what_is_resident_is_computed_before_what_flies() -> None:
    store = make(ExpertStore, "lru:3", lambda options: 0)
    list(store.waves(0, np.array([0, 1])))
    prefetch(store, {0: (2,)})
    waves = store.waves(0, np.array([1, 2, 3]))
    assert [wave.experts.tolist() for wave in waves] == [[1], [2], [3]]


def test_what_is_asked_for_waits_for_a_few_layers_at_most(
    monkeypatch: pytest.MonkeyPatch, layers_ahead: int
) -> None:
    """Behind the copies of layer 0 that its pass asks for come those of the last layer."""
    sent: list[int] = []

    class Notes(ExpertStore):
        def _copy(self, plan: LoadPlan) -> Event:
            sent.append(plan.layer)
            return super()._copy(plan)

    store = make(Notes, "lru:2", lambda options: 0)
    prefetch(store, {0: (2,), 1: (3,)})
    list(store.waves(0, np.array([0])))
    assert sent == ([0, 0, 1] if layers_ahead == 1 else [0, 1, 0])


def test_a_failed_copy_is_told_when_the_expert_is_needed() -> None:
    store = ExpertStore(BANK, late_device(fail_at=1), make_cache("lru:2", GEOMETRY), GEOMETRY)
    list(store.waves(0, np.array([0, 1])))
    prefetch(store, {0: (2,)})
    with pytest.raises(BackendError, match="layer 0: a copy of expert weights failed"):
        list(store.waves(0, np.array([1, 2])))
    assert not store.cache.residency().mask.any()
    list(store.waves(0, np.array([1, 2])))
    assert store.slot_bytes_are_current()


def test_a_failed_copy_that_no_pass_needed_is_told_with_the_next_one() -> None:
    store = ExpertStore(BANK, late_device(fail_at=1), make_cache("lru:3", GEOMETRY), GEOMETRY)
    list(store.waves(0, np.array([0, 1])))
    prefetch(store, {0: (2,)})
    list(store.waves(0, np.array([0])))
    with pytest.raises(BackendError, match="layer 0: a copy of expert weights failed"):
        prefetch(store, {0: (3,)})
    assert not store.cache.residency().mask.any()


def test_what_flies_when_all_is_forgotten_does_no_harm() -> None:
    for choose in every_order():
        store = make(ExpertStore, "lru:2", choose)
        prefetch(store, {0: (2, 3)})
        store.reset()
        for wave in store.waves(0, np.array([0, 1])):
            store.device.compute(reader(store, 0, wave))  # type: ignore[attr-defined]
        store.device.finish()  # type: ignore[attr-defined]


# Mutants: each breaks one rule, and is found in some order.


class TakesWhatFliesAsThere(ExpertStore):
    """Computes on experts that were sent ahead without waiting for them."""

    def _land(self, layer: int) -> None:
        self._ahead.land(layer)


class ForgetsTheReader(ExpertStore):
    """Sends ahead without a look at who still reads the slots."""

    def _send_ahead(self, last_layer: int) -> None:
        readers, self._last_read = self._last_read, [None] * LAYERS
        super()._send_ahead(last_layer)
        self._last_read = readers


class SendsBehindWhatIsAskedFor(ExpertStore):
    """Queues a layer's copies ahead after those that its pass asks for."""

    is_asked = False

    def _bring(self, plan: LoadPlan) -> Iterator[Wave]:
        self.is_asked = True
        yield from super()._bring(plan)
        self.is_asked = False

    def _send_ahead(self, last_layer: int) -> None:
        super()._send_ahead(last_layer if self.is_asked else -1)


class NeverSends(ExpertStore):
    """Counts experts as resident, and does not copy them."""

    def _send_ahead(self, last_layer: int) -> None:
        self._ahead.take_planned(last_layer)


class ForgetsWhatFlies(ExpertStore):
    """Knows nothing any more of copies that the pass did not need."""

    def end_pass(self) -> None:
        super().end_pass()
        for layer in range(LAYERS):
            self._ahead.land(layer)


MUTANTS = [
    TakesWhatFliesAsThere,
    ForgetsTheReader,
    SendsBehindWhatIsAskedFor,
    NeverSends,
    ForgetsWhatFlies,
]


@pytest.mark.parametrize("kind", MUTANTS)
def test_every_mutant_is_found(kind: type[ExpertStore]) -> None:
    for spec, cycles in SMALL.values():
        for choose in every_order():
            try:
                run(make(kind, spec, choose), cycles)
            except WrongBytesError:
                return
    raise AssertionError("no order shows it")
