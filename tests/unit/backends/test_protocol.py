"""The stream and slot protocol: right in every order that its events allow, and each wait needed.

Computing on a wave is queued as reads that look at the slots when their turn comes: a read that is
not ordered behind the copy, or a copy that is not ordered behind the read, finds other bytes in
some order. Each mutant breaks one rule of the protocol, and some order must show it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specfit.backends.device import Event
from specfit.backends.file_bank import Bank, FileBank
from specfit.backends.store import ExpertStore, Wave
from specfit.core.cache import LoadPlan, Lru, make_cache
from specfit.core.errors import BackendError
from specfit.core.experts import ModelGeometry
from specfit.testing.adversarial_device import (
    AdversarialDevice,
    Choose,
    every_order,
    random_orders,
)

LAYERS, EXPERTS, BLOCK = 2, 6, 3
GEOMETRY = ModelGeometry(LAYERS, EXPERTS, experts_per_token=2, expert_bytes=12, vocab_size=9)
BANK = torch.arange(1.0, LAYERS * EXPERTS * BLOCK + 1).view(LAYERS, EXPERTS, BLOCK)
Passes = Sequence[tuple[int, Sequence[int]]]

SMALL: dict[str, tuple[str, Passes]] = {
    "a miss": ("lru:2", [(0, (0, 1))]),
    "a hit beside a miss": ("lru:2", [(0, (0, 1)), (0, (1, 2))]),
    "waves": ("lru:2", [(0, (0, 1, 2, 3))]),
    "waves that begin with a hit": ("lru:2", [(0, (0, 1)), (0, (1, 2, 3))]),
    "two layers": ("lru:2", [(0, (0, 1)), (1, (0, 1)), (0, (2,))]),
    "no cache": ("none", [(0, (0, 1)), (0, (0, 2))]),
}
"""Cases of which every order is tried: a cache, and the experts of each layer in turn."""
STRICT = ("a miss", "waves", "no cache")
"""Cases in which everything waits for the step before: one order is all there is."""


class WrongBytesError(Exception):
    """A read found other bytes than its expert's."""


def run(store: ExpertStore, passes: Passes) -> int:
    """Queue the reads of some layers, run everything, and return how many reads there were."""
    device = store.device
    assert isinstance(device, AdversarialDevice)
    reads = 0
    for layer, experts in passes:
        for wave in store.waves(layer, np.array(experts, np.int64)):
            device.compute(reader(store, layer, wave))
            reads += len(wave.experts)
        store.end_pass()
    device.finish()
    return reads


def reader(store: ExpertStore, layer: int, wave: Wave):  # type: ignore[no-untyped-def]
    experts, slots = torch.from_numpy(wave.experts), torch.from_numpy(wave.slots)

    def read() -> None:
        found, expected = store.pools[layer][slots], BANK[layer, experts]
        if not torch.equal(found, expected):
            raise WrongBytesError(f"layer {layer}, experts {wave.experts.tolist()}: {found}")

    return read


def make(kind: type[ExpertStore], spec: str, choose: Choose, bank: Bank = BANK) -> ExpertStore:
    cache = make_cache(spec, GEOMETRY)
    return kind(bank, AdversarialDevice(choose), cache, GEOMETRY)


@pytest.fixture(scope="module")
def file_bank(tmp_path_factory: pytest.TempPathFactory) -> FileBank:
    """Return the bank on disk."""
    path = tmp_path_factory.mktemp("bank") / "experts.bin"
    path.write_bytes(BANK.numpy().tobytes())
    return FileBank.open(path, (LAYERS, EXPERTS, BLOCK), BANK.dtype)


@pytest.mark.parametrize("case", SMALL)
def test_right_in_every_order(case: str) -> None:
    spec, passes = SMALL[case]
    orders = 0
    for choose in every_order():
        assert run(make(ExpertStore, spec, choose), passes) == sum(len(e) for _, e in passes)
        orders += 1
    assert orders > 1 or case in STRICT, "a case without a choice proves nothing"


@pytest.mark.parametrize("case", [case for case in SMALL if case != "two layers"])  # the slowest
def test_right_in_every_order_where_experts_are_on_disk(case: str, file_bank: FileBank) -> None:
    spec, passes = SMALL[case]
    for choose in every_order():
        store = make(ExpertStore, spec, choose, file_bank)
        assert run(store, passes) == sum(len(e) for _, e in passes)


needs = st.lists(st.integers(0, EXPERTS - 1), min_size=1, unique=True).map(sorted)


@given(
    spec=st.sampled_from(["none", "lru:2", "lru:3", "lru:6", "fifo:2"]),
    passes=st.lists(st.tuples(st.integers(0, LAYERS - 1), needs), min_size=1, max_size=12),
    key=st.integers(0, 1000),
)
@settings(max_examples=150)
def test_right_in_random_orders(spec: str, passes: list[tuple[int, list[int]]], key: int) -> None:
    for choose in random_orders(4, key):
        assert run(make(ExpertStore, spec, choose), passes) == sum(len(e) for _, e in passes)


def test_a_backend_waits_only_for_what_it_needs() -> None:
    """Hits are handed over before the copies of the same layer have arrived."""
    copies_last = make(ExpertStore, "lru:2", lambda options: 0)
    list(copies_last.waves(0, np.array([0, 1])))
    waves = copies_last.waves(0, np.array([1, 2]))
    assert next(waves).experts.tolist() == [1]
    assert [w.experts.tolist() for w in waves] == [[2]]


# Mutants: each breaks one rule, and is found in some order.


class DropsTheWait(ExpertStore):
    """Computes on copied experts without waiting for their arrival."""

    def _bring(self, plan: LoadPlan) -> Iterator[Wave]:
        wait, self.device.wait = self.device.wait, lambda event: None  # type: ignore[method-assign]
        try:
            yield from super()._bring(plan)
        finally:
            self.device.wait = wait  # type: ignore[method-assign]


class PublishesAtEnqueue(ExpertStore):
    """Calls an expert resident as soon as its copy is queued, and waits afterwards."""

    def _bring(self, plan: LoadPlan) -> Iterator[Wave]:
        later: list[Event] = []
        wait, self.device.wait = self.device.wait, later.append  # type: ignore[method-assign]
        try:
            yield from super()._bring(plan)
        finally:
            self.device.wait = wait  # type: ignore[method-assign]
        for event in later:
            self.device.wait(event)


class FreesEarly(ExpertStore):
    """Records the point from which slots are free before they are read."""

    def _bring(self, plan: LoadPlan) -> Iterator[Wave]:
        early = self.device.record()
        yield from super()._bring(plan)
        self.device.record = lambda: early  # type: ignore[method-assign]

    def waves(self, layer: int, experts: np.ndarray) -> Iterator[Wave]:
        yield from super().waves(layer, experts)
        del self.device.record


class ForgetsTheReader(ExpertStore):
    """Queues copies without a look at who still reads the slots."""

    def _bring(self, plan: LoadPlan) -> Iterator[Wave]:
        self._last_read[plan.layer] = None
        yield from super()._bring(plan)


class LooksAtAnotherLayer(ExpertStore):
    """Waits for the readers of the first layer, whichever layer is copied into."""

    def _bring(self, plan: LoadPlan) -> Iterator[Wave]:
        self._last_read[plan.layer] = self._last_read[1 - plan.layer]
        yield from super()._bring(plan)


class EvictsInUse(Lru):
    """Gives the slot of a needed expert to another one."""

    def request(self, layer: int, experts: np.ndarray) -> LoadPlan:
        plan = super().request(layer, experts)
        if len(plan.hits) and len(plan.loads):
            plan.load_slots[0] = plan.hit_slots[0]
        return plan


MUTANTS = [DropsTheWait, PublishesAtEnqueue, FreesEarly, ForgetsTheReader, LooksAtAnotherLayer]


def is_found(kind: type[ExpertStore]) -> bool:
    for spec, passes in SMALL.values():
        for choose in every_order():
            try:
                run(make(kind, spec, choose), passes)
            except WrongBytesError:
                return True
    return False


@pytest.mark.parametrize("kind", MUTANTS)
def test_every_mutant_is_found(kind: type[ExpertStore]) -> None:
    assert is_found(kind)


def test_an_expert_that_is_evicted_in_use_is_found() -> None:
    cache = EvictsInUse()
    cache.allocate(GEOMETRY, 2)
    device = AdversarialDevice(lambda options: options - 1)
    store = ExpertStore(BANK, device, cache, GEOMETRY)
    with pytest.raises(WrongBytesError):
        run(store, SMALL["a hit beside a miss"][1])


@pytest.mark.parametrize("kind", MUTANTS)
def test_luck_hides_mutants(kind: type[ExpertStore]) -> None:
    """In the order in which things were queued no mutant shows: the orders are what finds them."""

    class InOrder(kind):  # type: ignore[misc, valid-type]
        """Runs all that is queued before anything more is."""

        def _bring(self, plan: LoadPlan) -> Iterator[Wave]:
            self.device.finish()
            for wave in super()._bring(plan):
                self.device.finish()
                yield wave
                self.device.finish()

    for spec, passes in SMALL.values():
        run(make(InOrder, spec, lambda options: options - 1), passes)


def test_two_queues_that_wait_for_each_other_are_an_error() -> None:
    device = AdversarialDevice(lambda options: 0)
    never = AdversarialDevice(lambda options: 0).record()
    device.copy([(torch.zeros(2), device.allocate((2,), torch.float32))], never)
    with pytest.raises(BackendError, match="nothing can go on"):
        device.finish()


def test_too_many_orders_are_an_error() -> None:
    with pytest.raises(BackendError, match="more than 3 orders"):
        for choose in every_order(3):
            run(make(ExpertStore, "lru:2", choose), SMALL["two layers"][1])
