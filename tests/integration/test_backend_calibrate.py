"""Calibration: the fit finds what made the numbers, and a real backend gives a usable profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specfit.backends import calibrate as calibration
from specfit.backends import load
from specfit.backends.calibrate import (
    NUM_ROUNDS,
    SIZES,
    ar_token_s,
    calibrate,
    fit_nonnegative,
    pcie4_link,
)
from specfit.backends.device import EmulatedLink
from specfit.core.cache import make_cache
from specfit.core.experts import ModelGeometry
from specfit.testing.examples import example_geometry, example_profile
from tests.unit.backends.models import PROMPT, random_backend, random_model


def measurements(coefficients: list[float]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    nodes = rng.integers(1, 65, 300)
    experts = 50 * (1 - 0.9**nodes) * rng.uniform(0.9, 1.1, 300)
    design = np.column_stack([np.ones(300), nodes, experts])
    seconds = design @ coefficients * rng.normal(1, 0.01, 300)
    seconds[::17] *= 4  # the machine did something else
    return design, seconds


def test_the_fit_finds_the_constants_despite_outliers() -> None:
    found = fit_nonnegative(*measurements([5e-3, 1e-4, 2e-4]))
    np.testing.assert_allclose(found, [5e-3, 1e-4, 2e-4], rtol=0.1)


def test_the_fit_is_never_negative() -> None:
    found = fit_nonnegative(*measurements([5e-3, 3e-4, -1e-5]))
    assert (found >= 0).all()
    assert found[0] > 4e-3


def test_the_pcie4_link_keeps_the_published_ratio() -> None:
    geometry, profile = example_geometry(), example_profile()
    link = pcie4_link(profile, geometry)
    copies = geometry.num_layers * geometry.experts_per_token
    ratio = copies * link.copy_s(geometry.expert_bytes) / ar_token_s(profile, geometry)
    assert ratio == pytest.approx(384 * 0.377 / 13.5)
    qwen = ModelGeometry(48, 128, 8, 9_437_184, 151_936)
    measured = replace(
        profile,
        verify_fixed_s=13.5e-3,
        verify_node_s=0.0,
        resident_expert_s=0.0,
        expert_bytes=qwen.expert_bytes,
    )
    real = pcie4_link(measured, qwen)
    assert real.copy_s(qwen.expert_bytes) == pytest.approx(0.377e-3)
    assert real.latency_s == pytest.approx(10e-6)


@pytest.mark.slow
def test_a_backend_is_calibrated_and_left_as_it_was() -> None:
    steps: list[tuple[int, int]] = []
    with random_backend("lru:5") as backend:
        profile = calibrate(
            backend, prompts=[PROMPT], on_step=lambda done, total: steps.append((done, total))
        )
        assert backend.cache.capacity == make_cache("lru:5", backend.geometry).capacity
        assert backend.device.link is None
    assert profile.kind == "measured"
    assert "held-out passes: median" in profile.provenance
    assert "% of a core" in profile.provenance
    assert profile.verify_fixed_s + profile.verify_node_s + profile.resident_expert_s > 0
    assert profile.first_level_s > 0
    assert profile.level_s > 0
    assert profile.copy_s > 0
    assert steps[-1][0] == steps[-1][1]


@pytest.mark.slow
def test_an_emulated_link_is_taken_at_its_word() -> None:
    link = EmulatedLink(1e-5, 2e9)
    with random_backend("lru:5", link=link) as backend:
        profile = calibrate(backend, prompts=[PROMPT])
        assert backend.device.link == link
    assert profile.kind == "emulated"
    assert (profile.copy_latency_s, profile.h2d_bandwidth_bytes_per_s) == (1e-5, 2e9)


@pytest.mark.slow
def test_experts_that_memory_does_not_hold_are_read_while_calibrating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with load(random_model()[0], device="ssd", packed=tmp_path, cache="lru:5") as backend:
        shape = backend.geometry
        per_slot = shape.num_layers * shape.expert_bytes
        monkeypatch.setattr(calibration, "available_bytes", lambda: int(10.5 * per_slot))
        assert calibration._largest_cache(backend) == "lru:8"
        profile = calibrate(backend, prompts=[PROMPT])
        monkeypatch.setattr(calibration, "available_bytes", lambda: 10**12)
        assert calibration._largest_cache(backend) == f"lru:{shape.num_experts}"
        monkeypatch.setattr(calibration, "available_bytes", lambda: 0)
        assert calibration._largest_cache(backend) == f"lru:{shape.experts_per_token}"
    num_passes = int(profile.provenance.split(" passes")[0].split()[-1])
    assert num_passes == NUM_ROUNDS * len(SIZES), "passes that read count too"
    assert profile.verify_fixed_s + profile.verify_node_s + profile.resident_expert_s > 0
    assert profile.copy_s > 0
