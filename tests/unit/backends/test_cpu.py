"""Copies on the CPU: the bytes arrive, not before their time, and failures reach the waiter."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch

from specfit.backends import cpu
from specfit.backends.cpu import CpuDevice
from specfit.backends.device import Copy, EmulatedLink
from specfit.core.errors import BackendError, InvalidInputError

LINK = EmulatedLink(latency_s=0.02, bandwidth_bytes_per_s=4e5)  # 4000 bytes take 30 ms


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    device = CpuDevice()
    yield device
    device.close()


def copies(number: int, size: int = 1000) -> list[Copy]:
    return [(torch.full((size,), float(i)), torch.zeros(size)) for i in range(number)]


def test_bytes_arrive(device: CpuDevice) -> None:
    pairs = copies(5)
    device.wait(device.copy(pairs, None))
    assert all(torch.equal(source, target) for source, target in pairs)
    assert device.counters.num_copies == 5
    assert device.counters.num_bytes == 5 * 4000
    assert device.counters.busy_s > 0
    assert device.counters.stall_s > 0


def test_an_emulated_copy_takes_latency_and_bytes_over_bandwidth(device: CpuDevice) -> None:
    device.link = LINK
    assert LINK.copy_s(4000) == pytest.approx(0.03)
    started = time.perf_counter()
    device.wait(device.copy(copies(3), None))
    took = time.perf_counter() - started
    assert took >= 0.09
    assert device.counters.busy_s == pytest.approx(0.09)
    assert took / 2 < device.counters.stall_s <= took


def test_copies_queue_behind_one_another(device: CpuDevice) -> None:
    device.link = LINK
    started = time.perf_counter()
    first, second = device.copy(copies(2), None), device.copy(copies(1), None)
    device.wait(second)
    assert time.perf_counter() - started >= 0.09
    stalled = device.counters.stall_s
    device.wait(first)  # long since there
    assert device.counters.stall_s - stalled < 0.03


def test_time_counts_from_submission(device: CpuDevice) -> None:
    device.link = LINK
    event = device.copy(copies(3), None)
    time.sleep(0.1)
    device.wait(event)
    assert device.counters.stall_s < 0.05


def test_busy_time_is_the_sum_of_the_copies(device: CpuDevice) -> None:
    device.link = EmulatedLink(1e-5, 1e9)
    started = time.perf_counter()
    for _ in range(50):
        device.wait(device.copy(copies(4, 12288), None))
    expected = 200 * (1e-5 + 4 * 12288 / 1e9)
    assert device.counters.busy_s == pytest.approx(expected, rel=0.05)
    assert time.perf_counter() - started >= expected


def test_a_failing_copy_reaches_the_waiter_and_the_next_one_works(device: CpuDevice) -> None:
    event = device.copy([(torch.zeros(3), torch.zeros(4))], None)
    with pytest.raises(BackendError, match="a copy of expert weights failed"):
        device.wait(event)
    pairs = copies(1)
    device.wait(device.copy(pairs, None))
    assert torch.equal(*pairs[0])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_copy_thread_that_ends_is_an_error_and_the_next_copy_works(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(pairs: list[Copy]) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(cpu, "_move", end)
        lost = [device.copy(copies(1), None), device.copy(copies(1), None)]
        for event in lost:
            with pytest.raises(BackendError, match="the copy thread has ended"):
                device.wait(event)
    pairs = copies(2)
    device.wait(device.copy(pairs, None))
    assert all(torch.equal(source, target) for source, target in pairs)


def test_closing_twice_is_harmless_and_copies_go_on(device: CpuDevice) -> None:
    device.close()
    device.close()
    pairs = copies(1)
    device.wait(device.copy(pairs, None))
    assert torch.equal(*pairs[0])


def test_the_link_is_labelled(device: CpuDevice) -> None:
    assert device.describe_link()["kind"] == "measured"
    device.link = LINK
    assert device.describe_link() == {
        "kind": "emulated",
        "latency_s": 0.02,
        "bandwidth_bytes_per_s": 4e5,
    }


@pytest.mark.parametrize(("latency_s", "bandwidth"), [(-1.0, 1e9), (0.0, 0.0), (float("nan"), 1e9)])
def test_impossible_links_are_refused(latency_s: float, bandwidth: float) -> None:
    with pytest.raises(InvalidInputError):
        EmulatedLink(latency_s, bandwidth)
