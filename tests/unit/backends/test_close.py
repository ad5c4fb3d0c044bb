"""What closing a backend over three tiers waits for, and in which order."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specfit.backends import cpu, load
from specfit.backends.direct_file import DirectFile
from specfit.backends.file_bank import in_memory
from specfit.backends.random_bank import RandomMachine, random_machine
from specfit.backends.torch_backend import TorchBackend
from specfit.core.expert_format import ExpertFormat
from tests.unit.backends.test_protocol import GEOMETRY

SHAPE = replace(GEOMETRY, expert_bytes=4 * 3 * 64)


@pytest.mark.parametrize("kind", ["machine", "backend"])
def test_reads_and_then_copies_have_ended_when_a_backend_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Both are slow here and under way: nobody writes any more to what is given back then."""
    read, deliver, log = DirectFile.read, cpu.deliver, []

    def read_late(file: DirectFile, offset: int, target: torch.Tensor) -> None:
        time.sleep(0.05)
        read(file, offset, target)
        log.append("read")

    def deliver_late(source: torch.Tensor, destination: torch.Tensor) -> None:
        time.sleep(0.15)
        deliver(source, destination)
        log.append("copied")

    opened: AbstractContextManager[RandomMachine | TorchBackend] = (
        random_machine(
            "cpu",
            replace(GEOMETRY, expert_bytes=4 * 3 * 64),
            tmp_path,
            ExpertFormat("float32"),
            host="lru:2",
        )
        if kind == "machine"
        else load("tiny", cache="lru:8", host="lru:8", packed=tmp_path)
    )
    with opened as backend:
        host, device = backend.host, backend.device
        assert host is not None
        close = device.close
        monkeypatch.setattr(device, "close", lambda: (log.append("device"), close()))
        monkeypatch.setattr(DirectFile, "read", read_late)
        monkeypatch.setattr(cpu, "deliver", deliver_late)
        source = host.memory[0, 0].clone()
        copied = torch.empty_like(source)
        device.copy([(host.memory[0, 0], copied)], None)
        reads = host.read(0, 1, 1)
    assert log == [*["read"] * len(reads), "device", "copied"]
    assert copied.equal(source)
    assert host.memory[0, 1].equal(in_memory(host.bank[0][1]))
    threads = {thread.name.partition("_")[0] for thread in threading.enumerate()}
    assert not threads & {"specfit-read", "specfit-copy"}
