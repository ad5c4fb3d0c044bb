"""Forced decoding: a trace decides, real bytes move, and every count is the simulator's."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="forced decoding computes with torch")

import torch

from specfit.backends import direct_file
from specfit.backends.cpu import CpuDevice
from specfit.backends.cuda import CudaDevice
from specfit.backends.device import Device
from specfit.backends.file_bank import Bank, FileBank
from specfit.backends.forced import ForcedExperts
from specfit.backends.ssd import SsdDevice
from specfit.core.backend import Verification
from specfit.core.cache import caches, make_cache
from specfit.core.decode import DecodeLoop, DecodeResult
from specfit.core.errors import BackendError, InvalidInputError
from specfit.core.experts import ModelGeometry
from specfit.core.policy import policies
from specfit.core.prefetch import Prefetcher, PreviousToken
from specfit.sim.forced_backend import ForcedBackend
from specfit.sim.replay_backend import ReplayBackend
from specfit.sim.trace import TraceReader
from specfit.sim.trace.rows import Row
from specfit.testing.toy import toy_backend
from tests.unit.backends.fake_cuda import FakeCuda
from tests.unit.sim.test_replay import assert_same_decisions
from tests.unit.sim.traces import (
    parts,
    replayed,
    write_positions,
    write_run,
)

D, WIDTH = 8, 6
BLOCK = 3 * D * WIDTH
SHAPE: ModelGeometry = toy_backend().geometry
POLICIES = ("autoregressive", "eagle3:depth=4,top_k=3,max_nodes=12", "specfit:depth=4,top_k=3")


@pytest.fixture(scope="module")
def positions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forced") / "positions"
    write_positions(folder)
    return folder


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = (SHAPE.num_layers, SHAPE.num_experts, BLOCK)
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(5)) * 0.3
    path = tmp_path_factory.mktemp("forced") / "experts.bin"
    path.write_bytes(drawn.numpy().tobytes())
    return path


def bank_of(path: Path) -> FileBank:
    return FileBank.open(path, (SHAPE.num_layers, SHAPE.num_experts, BLOCK), torch.float32)


@pytest.fixture
def device() -> Iterator[SsdDevice]:
    device = SsdDevice(num_threads=2)
    yield device
    device.close()


def forced(trace: Path, cache: str, bank: Bank, device: Device) -> ForcedBackend:
    passes = ForcedExperts(bank, device, make_cache(cache, SHAPE), D)
    return ForcedBackend(TraceReader(trace), passes, toy_backend().profile)


def decode(
    backend: ReplayBackend, policy: str, prefetcher: Prefetcher | None = None
) -> list[DecodeResult]:
    given = parts(toy_backend())
    loop = DecodeLoop(backend, policies.make(policy), **given, prefetcher=prefetcher)
    return [loop.run(request) for request in backend.requests()]


@pytest.mark.parametrize("cache", ["lru:50%", "lru:2", "fifo:25%", "none"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_cycle_has_the_simulators_counts(
    positions: Path, weights: Path, device: SsdDevice, policy: str, cache: str
) -> None:
    backend = forced(positions, cache, bank_of(weights), device)
    results = decode(backend, policy)
    again = replayed(positions, policies.make(policy), cache)
    assert_same_decisions(results, again)
    cycles = [cycle for result in results for cycle in result.cycles]
    misses = sum(int(c.outcome.verification.num_misses.sum()) for c in cycles)
    assert misses > 0
    assert device.counters.num_copies == misses + prompt_copies(backend, cache)
    assert device.counters.num_bytes == device.counters.num_copies * BLOCK * 4
    assert backend._passes.store.slot_bytes_are_current()


def prompt_copies(backend: ForcedBackend, spec: str) -> int:
    """Return the copies of every prompt, counted by a cache of its own."""
    copies, cache = 0, make_cache(spec, SHAPE)
    for prompt in backend.trace.prompts():
        cache.reset()
        first = 0
        for size in prompt.row.chunks:
            copies += int(cache.run_pass(prompt.row.routing[first : first + size])[1].sum())
            first += size
    return copies


def test_a_recorded_run_is_forced_too(tmp_path: Path, weights: Path, device: SsdDevice) -> None:
    recorded = write_run(tmp_path / "run")
    policy = "eagle3:depth=4,top_k=3,max_nodes=12"
    results = decode(forced(tmp_path / "run", "lru:50%", bank_of(weights), device), policy)
    assert_same_decisions(recorded, results)


@pytest.mark.parametrize(
    "name", [name for name in caches.names() if not caches.get(name).simulator_only]
)
def test_every_shipped_cache_counts_the_same(
    positions: Path, weights: Path, device: SsdDevice, name: str
) -> None:
    results = decode(forced(positions, f"{name}:25%", bank_of(weights), device), POLICIES[1])
    again = replayed(positions, policies.make(POLICIES[1]), f"{name}:25%")
    assert_same_decisions(results, again)


def test_seconds_are_measured_and_add_up(positions: Path, weights: Path, device: SsdDevice) -> None:
    backend = forced(positions, "lru:25%", bank_of(weights), device)
    started = backend.clock()
    results = decode(backend, POLICIES[0])
    took = backend.clock() - started
    named = sum(result.decode_s + result.prefill.seconds for result in results)
    assert 0.5 * took < named <= took
    timings = [cycle.timings for result in results for cycle in result.cycles]
    assert all(t.stall_s > 0 and t.compute_s > 0 for t in timings[:1])
    assert sum(t.stall_s for t in timings) <= device.counters.stall_s
    assert max(t.draft_s for t in timings) < 1e-3, "a look-up takes no time"


def test_looking_up_takes_no_time(
    positions: Path, weights: Path, device: SsdDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_s, current_row = 0.1, ReplayBackend._current_row

    def slowly(self: ReplayBackend) -> Row:
        time.sleep(slow_s)
        return current_row(self)

    monkeypatch.setattr(ReplayBackend, "_current_row", slowly)
    backend = forced(positions, "lru:25%", bank_of(weights), device)
    loop = DecodeLoop(backend, policies.make(POLICIES[1]), **parts(toy_backend()))
    result = loop.run(next(backend.requests()))
    timings = [cycle.timings for cycle in result.cycles]
    assert float(np.median([t.draft_s for t in timings])) < slow_s / 4
    assert float(np.median([t.cycle_s for t in timings])) < slow_s
    assert backend._looked_up_s > slow_s * len(timings)


def test_it_says_that_no_text_comes_of_it(
    positions: Path, weights: Path, device: SsdDevice
) -> None:
    said = forced(positions, "lru:25%", bank_of(weights), device).describe()
    assert said["backend"] == "forced"
    assert said["text"].startswith("none")
    assert said["seconds"].startswith("measured")
    assert said["link"]["kind"] == "measured"


def test_results_do_not_depend_on_where_experts_are(
    positions: Path, weights: Path, device: SsdDevice
) -> None:
    bank = bank_of(weights)
    memory = torch.from_file(str(weights), size=bank.shape.numel()).view(bank.shape)
    prompt = next(iter(TraceReader(positions).prompts()))
    outputs = []
    for kind, where in ((bank, device), (memory, CpuDevice())):
        passes = ForcedExperts(kind, where, make_cache("lru:2", SHAPE), D)
        seen: list[torch.Tensor] = []
        for experts in passes._experts:
            experts.register_forward_hook(lambda m, i, o, seen=seen: seen.append(o.clone()))
        passes.run(prompt.row.routing[:5])
        outputs.append(torch.stack(seen))
        where.close()
    assert torch.equal(*outputs)
    assert outputs[0].abs().sum() > 0


def test_the_cuda_adapter_counts_the_same(positions: Path, weights: Path) -> None:
    """Against a stand-in for `torch.cuda`: says nothing of a GPU's seconds."""
    memory = torch.from_file(str(weights), size=SHAPE.num_layers * SHAPE.num_experts * BLOCK)
    device = CudaDevice(0, FakeCuda(), torch.device("cpu"))
    bank = memory.view(SHAPE.num_layers, SHAPE.num_experts, BLOCK)
    results = decode(forced(positions, "lru:25%", bank, device), POLICIES[1])
    assert_same_decisions(results, replayed(positions, policies.make(POLICIES[1]), "lru:25%"))
    device.close()


def test_a_failing_disk_ends_the_request_and_the_next_one_is_right(
    positions: Path, weights: Path, device: SsdDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = forced(positions, "lru:25%", bank_of(weights), device)
    preadv, calls = os.preadv, [0]

    def read(file: int, views: list[memoryview], offset: int) -> int:
        calls[0] += 1
        if calls[0] == 90:
            raise OSError(5, "Input/output error")
        return preadv(file, views, offset)

    monkeypatch.setattr(direct_file.os, "preadv", read)
    with pytest.raises(BackendError, match="Input/output error"):
        decode(backend, POLICIES[1])
    assert_same_decisions(
        decode(backend, POLICIES[1]), replayed(positions, policies.make(POLICIES[1]), "lru:25%")
    )


def test_damaged_weights_are_found(positions: Path, tmp_path: Path, device: SsdDevice) -> None:
    path = tmp_path / "experts.bin"
    count = SHAPE.num_layers * SHAPE.num_experts * BLOCK
    path.write_bytes(np.full(count, np.nan, np.float32).tobytes())
    with pytest.raises(BackendError, match="not finite"):
        decode(forced(positions, "lru:25%", bank_of(path), device), POLICIES[0])


def test_weights_of_another_shape_are_refused(positions: Path, device: SsdDevice) -> None:
    other = ModelGeometry(2, 16, 2, 4, 32)
    bank = torch.zeros(2, 16, BLOCK)
    with pytest.raises(InvalidInputError, match="the bank has 2 of 16"):
        ForcedExperts(bank, device, make_cache("lru:2", SHAPE), D)
    with pytest.raises(InvalidInputError, match="multiple of 3 hidden sizes"):
        ForcedExperts(bank, device, make_cache("lru:2", other), D + 1)
    passes = ForcedExperts(bank, device, make_cache("lru:2", other), D)
    with pytest.raises(InvalidInputError, match="Give weights of the trace's shape"):
        ForcedBackend(TraceReader(positions), passes, toy_backend().profile)


@pytest.mark.parametrize("cache", ["lru:50%", "none"])
def test_what_is_copied_ahead_counts_as_in_the_simulator(
    positions: Path, weights: Path, device: SsdDevice, cache: str
) -> None:
    prefetcher = PreviousToken(2)
    backend = forced(positions, cache, bank_of(weights), device)
    results = decode(backend, POLICIES[1], prefetcher)
    simulator = ReplayBackend(
        TraceReader(positions), make_cache(cache, SHAPE), toy_backend().profile
    )
    again = decode(simulator, POLICIES[1], prefetcher)
    assert_same_decisions(results, again)
    ahead = [[(a.num_prefetched, a.num_wasted) for a in answers(r)] for r in (results, again)]
    assert ahead[0] == ahead[1]
    assert 0 < sum(wasted for _, wasted in ahead[0]) < sum(copies for copies, _ in ahead[0])
    copies = sum(int(a.num_misses.sum()) + a.num_prefetched for a in answers(results))
    assert device.counters.num_copies == copies + prompt_copies(backend, cache)
    assert backend._passes.store.slot_bytes_are_current()


def answers(results: list[DecodeResult]) -> list[Verification]:
    return [cycle.outcome.verification for result in results for cycle in result.cycles]
