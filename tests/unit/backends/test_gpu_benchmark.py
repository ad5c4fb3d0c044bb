"""The GPU benchmark's steps run; on a stand-in device, so none of the numbers means anything."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from benchmarks import gpu
from specfit.backends import cuda
from specfit.backends.cuda import CudaDevice
from specfit.backends.torch_backend import TorchBackend
from tests.sources import ROOT
from tests.unit.backends.fake_cuda import FakeCuda
from tests.unit.backends.models import random_backend

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> CudaDevice:
        return CudaDevice(0, FakeCuda(), torch.device("cpu"))

    monkeypatch.setattr(gpu, "median_s", lambda action, repeats=1: (action(), 1e-3)[1])
    monkeypatch.setattr(gpu, "NUM_COPIES", (1, 2))
    monkeypatch.setattr(gpu, "NODES", (1, 3))
    monkeypatch.setattr(gpu, "CONTEXTS", (8, 10_000))
    monkeypatch.setattr(cuda, "CudaDevice", make)


@needs_no_gpu
def test_without_a_device_it_says_why() -> None:
    assert "is_available" in gpu.why_not()


@needs_no_gpu
@pytest.mark.slow
def test_the_program_skips_with_its_reason() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu"], cwd=ROOT, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout[:8]) == (0, "skipped:")
    assert "no CUDA device" in ran.stdout


def test_the_links_curve_has_every_batch(stand_in: None) -> None:
    found = gpu.link_curve(4096)
    assert [row["copies"] for row in found["batches"]] == [1, 2]
    assert found["unpinned_bytes"] == 0


def test_verifying_is_timed_where_the_context_allows(stand_in: None) -> None:
    with random_backend() as backend:
        rows = gpu.verify_grid(backend)
    assert [(row["context"], row["nodes"]) for row in rows] == [(8, 1), (8, 3)]


def test_every_policy_is_measured_at_every_cache(stand_in: None) -> None:
    from specfit.backends import load

    with load("tiny") as backend:
        assert isinstance(backend, TorchBackend)
        rows = gpu.decoding(backend, [[5, 6, 7]], ["lru:50%"], 8)
    assert [row["policy"] for row in rows] == ["autoregressive", "eagle3", "specfit"]
    assert all(row["texts_that_differ"] == 0 for row in rows)
