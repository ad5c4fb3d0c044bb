"""Three tiers: right bytes in every order, the simulator's bookkeeping, one clear error."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specfit.backends import direct_file
from specfit.backends.calibrate import read_bytes_per_s
from specfit.backends.cpu import CpuDevice
from specfit.backends.cuda import CudaDevice
from specfit.backends.device import Event
from specfit.backends.file_bank import FileBank
from specfit.backends.ssd import SsdDevice
from specfit.backends.tiers import HostBank, Shipment, TieredStore, host_cache, make_store
from specfit.core.cache import make_cache
from specfit.core.cache.ahead import AheadOfPass
from specfit.core.errors import BackendError, InvalidInputError
from specfit.sim.ahead import TimedAhead
from specfit.sim.expert_pass import run_pass
from specfit.testing.adversarial_device import (
    AdversarialDevice,
    Choose,
    every_order,
    random_orders,
)
from tests.unit.backends.fake_cuda import FakeCuda
from tests.unit.backends.test_ahead_protocol import SMALL as AHEAD
from tests.unit.backends.test_ahead_protocol import Cycle, by_layer
from tests.unit.backends.test_ahead_protocol import run as run_protocol
from tests.unit.backends.test_protocol import (
    BANK,
    BLOCK,
    EXPERTS,
    GEOMETRY,
    LAYERS,
    Passes,
    WrongBytesError,
    run,
)

Spec = tuple[str, str]
SMALL: dict[str, tuple[Spec, Passes]] = {
    "a read": (("lru:2", "lru:2"), [(0, (0, 1))]),
    "in host memory": (("none", "lru:2"), [(0, (0, 1)), (0, (0, 1))]),
    "a block given away": (("lru:2", "lru:2"), [(0, (0, 1)), (0, (2,))]),
    "more than host memory": (("lru:3", "lru:2"), [(0, (0, 1, 2))]),
    "waves of both": (("lru:3", "lru:2"), [(0, (0, 1, 2, 3))]),
}
"""Cases of which every order is tried: both caches, and the experts of each layer in turn."""


class LateReads(Executor):
    """Reads when somebody waits for it, and no sooner."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return LateRead(lambda: fn(*args, **kwargs))


class LateRead(Future[Any]):
    def __init__(self, action: Callable[[], Any]) -> None:
        super().__init__()
        self.action = action

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.done():
            try:
                self.set_result(self.action())
            except Exception as error:
                self.set_exception(error)
        return super().exception(timeout)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> FileBank:
    path = tmp_path_factory.mktemp("tiers") / "experts.bin"
    path.write_bytes(BANK.numpy().tobytes())
    return FileBank.open(path, (LAYERS, EXPERTS, BLOCK), BANK.dtype)


def make(
    bank: FileBank,
    specs: Spec,
    choose: Choose,
    kind: type[TieredStore] = TieredStore,
    *,
    is_eager: bool = False,
) -> TieredStore:
    """Return a store whose reads are late, on a device whose copies come in a chosen order."""
    device = AdversarialDevice(choose, is_eager=is_eager)
    host = HostBank(bank, device, make_cache(specs[1], GEOMETRY))
    host._pool = LateReads()
    return kind(host, make_cache(specs[0], GEOMETRY))


def run_cycles(store: TieredStore, cycles: Sequence[Cycle]) -> int:
    """Run some cycles, and wait for what no pass has waited for."""
    copies = run_protocol(store, cycles)
    for layer in range(LAYERS):
        store._land(layer)
    return copies


@pytest.mark.parametrize("case", SMALL)
def test_right_in_every_order(bank: FileBank, case: str) -> None:
    specs, passes = SMALL[case]
    for choose in every_order():
        assert run(make(bank, specs, choose), passes) == sum(len(experts) for _, experts in passes)


@pytest.mark.parametrize("case", SMALL)
def test_right_where_copies_may_come_at_once(bank: FileBank, case: str) -> None:
    """In some of the orders: all of them are too many."""
    specs, passes = SMALL[case]
    for choose in random_orders(50):
        store = make(bank, specs, choose, is_eager=True)
        assert run(store, passes) == sum(len(experts) for _, experts in passes)


GIVEN_AWAY: Sequence[Cycle] = [
    ({}, {0: (0, 1)}),
    ({}, {0: (2, 3)}),
    ({0: (4,)}, {0: (0, 3)}),
    ({}, {0: (0,)}),
    ({0: (5,)}, {0: (0,)}),
]
"""What is read ahead is not needed, and its slot goes to an expert that is in host memory."""


@pytest.mark.parametrize("case", [case for case in AHEAD if case != "two layers"])
@pytest.mark.parametrize("host", ["lru:2", "lru:3"])
def test_right_in_every_order_of_what_is_sent_ahead(bank: FileBank, case: str, host: str) -> None:
    spec, cycles = AHEAD[case]
    for choose in every_order():
        store = make(bank, (spec, host), choose)
        assert run_cycles(store, cycles) == store.device.counters.num_copies


@given(
    device=st.sampled_from(["none", "lru:2", "lru:3", "lru:6", "fifo:2"]),
    host=st.sampled_from(["none", "lru:2", "lru:3", "lru:6", "sieve:3"]),
    cycles=st.lists(st.tuples(by_layer, by_layer), min_size=1, max_size=8),
    key=st.integers(0, 1000),
)
@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_right_in_random_orders(
    bank: FileBank, device: str, host: str, cycles: list[Cycle], key: int
) -> None:
    for choose in random_orders(3, key):
        store = make(bank, (device, host), choose)
        assert run_cycles(store, cycles) == store.device.counters.num_copies
        run_cycles(make(bank, (device, host), choose, is_eager=True), GIVEN_AWAY)


# Mutants: each breaks one rule, and is found in some order.


class OverwritesWhatIsCopied(TieredStore):
    """Reads into a block of host memory without a look at the copies from it."""

    def __init__(self, host: HostBank, *rest: Any) -> None:
        host._wait_for_copies = lambda layer, block: None  # type: ignore[method-assign]
        super().__init__(host, *rest)


class CopiesBeforeTheRead(TieredStore):
    """Queues copies from blocks that are still to be read into."""

    def _queued(self, arrival: Event) -> list[Event]:
        assert isinstance(arrival, Shipment)
        late: list[tuple[int, Sequence[Future[None]]]] = []
        check = arrival._check
        arrival._check = lambda *given: late.append(given)  # type: ignore[method-assign]
        queued = super()._queued(arrival)
        arrival._check = check  # type: ignore[method-assign]
        for given_expert, reads in late:
            check(given_expert, reads)
        return queued


class LetsWhatWasSentAheadComeLater(TieredStore):
    """Gives slots away that a copy is still to be queued into."""

    def _bring(self, plan: Any) -> Iterator[Any]:
        self._ahead.arrivals = lambda layer: []  # type: ignore[method-assign]
        waves = super()._bring(plan)
        yield next(waves)
        del self._ahead.arrivals
        yield from waves


@pytest.mark.parametrize(
    "kind", [OverwritesWhatIsCopied, CopiesBeforeTheRead, LetsWhatWasSentAheadComeLater]
)
def test_every_mutant_is_found(bank: FileBank, kind: type[TieredStore]) -> None:
    def is_found() -> bool:
        for choose in random_orders(20):
            for is_eager in (False, True):
                try:
                    for specs, passes in SMALL.values():
                        run(make(bank, specs, choose, kind, is_eager=is_eager), passes)
                    store = make(bank, ("lru:2", "lru:6"), choose, kind, is_eager=is_eager)
                    run_cycles(store, GIVEN_AWAY)
                except WrongBytesError:
                    return True
        return False

    assert is_found()


# The same bookkeeping as the simulator's.


@pytest.mark.parametrize("host", ["none", "lru:2", "lru:3", "fifo:4", "random:50%", "lru:100%"])
@pytest.mark.parametrize("device", ["none", "lru:2", "lru:4", "random:50%"])
def test_every_pass_has_the_simulators_counts(bank: FileBank, device: str, host: str) -> None:
    rng = np.random.default_rng(7)
    where = CpuDevice()
    cache, in_host = make_cache(device, GEOMETRY), make_cache(host, GEOMETRY)
    held = HostBank(bank, where, make_cache(host, GEOMETRY), num_threads=2)
    store = TieredStore(held, make_cache(device, GEOMETRY))
    ahead, simulated = AheadOfPass(GEOMETRY), TimedAhead(GEOMETRY)
    for _ in range(60):
        wanted = (rng.random((LAYERS, EXPERTS)) * (rng.random((LAYERS, EXPERTS)) < 0.2)).astype(
            "f4"
        )
        store.bring_ahead(ahead.fetch(wanted, store.cache))
        simulated.fetch(wanted, cache, in_host, 0.0)
        routing = rng.integers(0, EXPERTS, (rng.integers(1, 5), LAYERS, 2)).astype(np.int16)
        store.begin_pass()
        for layer in range(LAYERS):
            for _wave in store.waves(layer, np.unique(routing[:, layer])):
                pass
        store.end_pass()
        made, _ = simulated.take(routing, 0.0)
        counts = run_pass(cache, routing, in_host)
        for name in ("num_hits", "num_misses", "num_evictions"):
            assert np.array_equal(getattr(counts, name), getattr(store.counts, name))
        assert store.counts.num_reads.sum() == counts.num_reads.sum() + made.num_reads
        assert np.array_equal(cache.residency().mask, store.cache.residency().mask)
        assert np.array_equal(in_host.residency().mask, held.cache.residency().mask)
        assert store.slot_bytes_are_current()
        ahead.take(routing)
    held.close()
    where.close()


# Faults.


def test_a_failing_read_names_file_layer_and_expert_and_the_next_request_works(
    bank: FileBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_DIRECT", raising=False)
    bank = FileBank.open(bank.file.path, (LAYERS, EXPERTS, BLOCK), BANK.dtype)
    device = CpuDevice()
    host = HostBank(bank, device, make_cache("lru:3", GEOMETRY), num_threads=2)
    store, preadv, fails = TieredStore(host, make_cache("lru:2", GEOMETRY)), os.preadv, [True]
    place = (1 * EXPERTS + 4) * BLOCK * 4

    def read(file: int, views: list[memoryview], offset: int) -> int:
        if fails[0] and offset <= place < offset + len(views[0]):
            raise OSError(5, "Input/output error")
        return preadv(file, views, offset)

    monkeypatch.setattr(direct_file.os, "preadv", read)
    list(store.waves(1, np.array([0, 1])))
    said = r"layer 1, expert 4: .*experts\.bin cannot be read: .*Input/output error"
    with pytest.raises(BackendError, match=said):
        list(store.waves(1, np.array([1, 4, 5])))
    assert not store.cache.residency().mask.any()
    assert not host.cache.residency().mask.any()
    with pytest.raises(BackendError, match=said):
        store.bring_ahead(AheadOfPass(GEOMETRY).fetch(wanting(1, 4), store.cache))
        list(store.waves(1, np.array([4])))
    fails[0] = False
    for _ in range(2):
        waves = store.waves(1, np.array([1, 3, 4, 5]))
        assert sorted(e for wave in waves for e in wave.experts.tolist()) == [1, 3, 4, 5]
        assert store.slot_bytes_are_current()
    host.close()
    device.close()


@pytest.mark.parametrize("fail_at", [0, 1, 2])
def test_any_failing_copy_of_several_is_told(bank: FileBank, fail_at: int) -> None:
    """Each expert that was read is a copy of its own: the last one's arrival says not enough."""
    device = AdversarialDevice(lambda options: 0, is_eager=True, fail_at=fail_at)
    store = TieredStore(
        HostBank(bank, device, make_cache("lru:3", GEOMETRY)), make_cache("lru:3", GEOMETRY)
    )
    with pytest.raises(BackendError, match="layer 0: a copy of expert weights failed"):
        list(store.waves(0, np.array([0, 1, 2])))
    list(store.waves(0, np.array([0, 1, 2])))
    assert store.slot_bytes_are_current()


def wanting(layer: int, expert: int) -> np.ndarray:
    wanted = np.zeros((LAYERS, EXPERTS), np.float32)
    wanted[layer, expert] = 1
    return wanted


def test_what_is_read_when_all_is_forgotten_does_no_harm(bank: FileBank) -> None:
    for choose in every_order():
        store = make(bank, ("lru:2", "lru:2"), choose)
        store.bring_ahead(AheadOfPass(GEOMETRY).fetch(wanting(0, 3), store.cache))
        store.reset()
        assert run(store, [(0, (0, 1))]) == 2


def test_host_memory_is_pinned_where_the_device_pins(bank: FileBank) -> None:
    """Against a stand-in for `torch.cuda`: says nothing of a GPU's seconds."""
    cuda = FakeCuda()
    device = CudaDevice(0, cuda, torch.device("cpu"))
    host = HostBank(bank, device, make_cache("lru:3", GEOMETRY), num_threads=2)
    assert host.memory.data_ptr() in cuda.runtime.registered
    store = TieredStore(host, make_cache("lru:2", GEOMETRY))
    rng = np.random.default_rng(5)
    for _ in range(40):
        needed = np.flatnonzero(rng.random(EXPERTS) < 0.5)
        for wave in store.waves(1, needed):
            found = store.pools[1][torch.from_numpy(wave.slots)]
            assert torch.equal(found, BANK[1, torch.from_numpy(wave.experts)])
        store.end_pass()
    assert store.slot_bytes_are_current()
    assert any(entry[0] == "synchronize" for entry in cuda.log)
    assert device.counters.stall_s > 0
    host.close()
    device.close()


def test_reading_is_timed_and_leaves_nothing(bank: FileBank) -> None:
    device = CpuDevice()
    store = TieredStore(
        HostBank(bank, device, make_cache("lru:3", GEOMETRY)), make_cache("lru:3", GEOMETRY)
    )
    list(store.waves(0, np.array([0, 1, 2])))
    assert read_bytes_per_s(store.host) > 0
    assert not store.host.cache.residency().mask.any()
    store.reset()
    list(store.waves(0, np.array([0, 3])))
    assert store.slot_bytes_are_current()
    store.host.close()
    device.close()


def test_a_device_that_reads_its_slots_from_disk_has_no_host_tier() -> None:
    device = SsdDevice()
    with pytest.raises(InvalidInputError, match="leave the host tier out"):
        host_cache(device, "lru:50%", GEOMETRY)
    with pytest.raises(InvalidInputError, match="must be replayed"):
        host_cache(CpuDevice(), "pool:50%", GEOMETRY)


def test_without_a_host_bank_the_store_is_a_plain_one(bank: FileBank) -> None:
    store = make_store(bank, CpuDevice(), make_cache("lru:2", GEOMETRY), None)
    assert not isinstance(store, TieredStore)
