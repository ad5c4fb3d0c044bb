"""What holds for every test: global state stays, GPU tests need a GPU, examples repeat."""

from __future__ import annotations

import os

# Of a test and of every program that it starts: threads of small models only wait for one another.
os.environ["OMP_NUM_THREADS"] = "1"

import importlib.util
import random
from collections.abc import Iterator

import hypothesis
import numpy as np
import pytest

hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

HAS_TORCH = importlib.util.find_spec("torch") is not None
NEED_TORCH = ["contract/test_torch*", "integration/*", "unit/backends/*"]
collect_ignore_glob = [] if HAS_TORCH else NEED_TORCH


def pytest_report_header() -> str:
    """Say what is left out where the live backend is not installed."""
    return "" if HAS_TORCH else f"torch is not installed: {', '.join(NEED_TORCH)} are left out"


@pytest.fixture(autouse=True)
def _global_random_state_is_left_alone() -> Iterator[None]:
    """Fail a test that draws from or seeds a global generator."""
    before = random.getstate(), _numpy_state()
    yield
    assert random.getstate() == before[0], "the test changed the global state of `random`"
    assert _numpy_state() == before[1], "the test changed the global state of `numpy.random`"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a GPU test with its reason where there is no CUDA device."""
    if item.get_closest_marker("gpu") and (reason := _why_no_gpu()):
        pytest.skip(reason)


def _why_no_gpu() -> str:
    if not HAS_TORCH:
        return "torch is not installed"
    import torch

    return "" if torch.cuda.is_available() else "no CUDA device: torch.cuda.is_available() is False"


def _numpy_state() -> tuple[object, ...]:
    name, keys, *rest = np.random.get_state()  # noqa: NPY002 - it is what must not change
    return (name, keys.tobytes(), *rest)
