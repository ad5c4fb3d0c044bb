"""The memory planner against the sizes of the real checkpoint, and its errors."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specfit.cli.main import app
from specfit.cli.memory import (
    GIB,
    expected_hit_rate,
    expected_read_rate,
    expected_tokens_per_s,
    model_shape,
    plan_memory,
    with_disk,
)
from specfit.cli.specs import profile_from
from specfit.core.shapes import KNOWN_SHAPES, QWEN3_30B_A3B
from specfit.core.units import BYTES
from tests.sources import ROOT


def plan(device: float = 24, host: float = 64, **changes: Any):
    given = {"dtype": "bfloat16", "context": 8192, "head_bytes": 0} | changes
    return plan_memory(
        QWEN3_30B_A3B,
        device_bytes=int(device * GIB),
        host_bytes=int(host * GIB),
        **given,
    )


def test_sizes_are_those_of_the_checkpoint() -> None:
    found = plan()
    assert found.expert_bytes == 9_437_184
    assert found.experts_bytes == 54 * GIB
    assert found.others_bytes == 3_082_186_752
    assert found.context_bytes == 98_304 * 8192
    large = plan_memory(
        KNOWN_SHAPES["qwen3-235b-a22b"],
        device_bytes=0,
        host_bytes=0,
        dtype="bfloat16",
        context=1,
        head_bytes=0,
    )
    assert (large.expert_bytes, large.experts_bytes) == (36 * 2**20, 423 * GIB)


def test_what_is_planned_fits_and_one_slot_more_does_not() -> None:
    found = plan()
    taken = found.others_bytes + found.context_bytes + GIB
    slot = 48 * found.expert_bytes
    assert taken + found.slots_per_layer * slot <= 24 * GIB
    assert taken + (found.slots_per_layer + 1) * slot > 24 * GIB


def test_too_little_memory_is_said() -> None:
    assert not plan(device=6).fits_device
    assert not plan(host=50).fits_host
    assert plan(device=80, host=64).slots_per_layer == 128
    ran = CliRunner().invoke(app, ["memory", "--gpu", "5GiB", "--host", "32GiB"])
    assert ran.exit_code == 0
    assert "TOO FEW" in ran.stdout and "DOES NOT FIT" in ran.stdout


def test_a_disk_holds_what_host_memory_does_not() -> None:
    found = plan(host=32, has_disk=True)
    beside = found.others_bytes + 2 * GIB
    layer = 48 * found.expert_bytes
    assert found.fits_host and found.host_bytes <= 32 * GIB
    assert beside + (found.host_per_layer + 1) * layer > 32 * GIB
    assert found.disk_bytes == (128 - found.host_per_layer) * layer
    whole = plan(host=64, has_disk=True)
    assert (whole.host_per_layer, whole.disk_bytes) == (128, 0)
    assert not plan(host=6, has_disk=True).fits_host
    assert found.cpu_slots_per_layer * layer + found.others_bytes < 32 * GIB


def test_reading_from_disk_takes_its_seconds() -> None:
    profile = with_disk(profile_from("pcie4-x16"), "3.5GB/s")
    found = plan(host=16, has_disk=True)
    rate = expected_read_rate(found)
    assert 0 < rate < 1
    hit_rate = expected_hit_rate(found.slots_per_layer / 128)
    with_reads = 1 / expected_tokens_per_s(profile, QWEN3_30B_A3B, found, hit_rate, rate)
    without = 1 / expected_tokens_per_s(profile, QWEN3_30B_A3B, found, hit_rate)
    assert with_reads - without == pytest.approx(384 * rate * 9_437_184 / 3.5e9)
    assert "3.5GB/s, as given" in profile.provenance
    assert with_disk(profile_from("pcie4-x16-ssd"), "profile").ssd_bandwidth_bytes_per_s == 7e9


def test_the_disk_stands_in_the_table() -> None:
    ran = CliRunner().invoke(app, ["memory", "--host", "32GiB", "--ssd", "3.5GB/s"])
    words = " ".join(ran.stdout.split() + ran.stderr.split())
    assert "experts that only the disk holds" in words and "DOES NOT FIT" not in words
    found = plan(host=32, has_disk=True)
    assert f"--cache lru:44 --host lru:{found.host_per_layer}" in words


def test_hit_rates_rise_with_the_slots() -> None:
    rates = [expected_hit_rate(i / 128) for i in range(129)]
    assert rates == sorted(rates)
    assert (rates[0], rates[-1]) == (0, 1)
    assert rates[24] == pytest.approx(0.741)


def test_a_folder_is_read_in_both_spellings(tmp_path: Path) -> None:
    raw = {"model_type": "qwen3_moe", **asdict(QWEN3_30B_A3B)}
    raw["num_local_experts"] = raw.pop("num_experts")
    (tmp_path / "config.json").write_text(json.dumps(raw))
    assert model_shape(str(tmp_path)) == QWEN3_30B_A3B


def test_the_row_is_given_as_json() -> None:
    ran = CliRunner().invoke(app, ["memory", "--json"])
    row = json.loads(ran.stdout)
    assert row["slots_per_layer"] == 44
    assert row["predicted_tokens_per_s"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "24"], "size like 24GiB"),
        (["--dtype", "int8"], "--dtype must be"),
        (["--ssd", "fast"], "must read like 25GB/s"),
        (["--ssd", "0GB/s"], "above 0 B/s"),
        (["--ssd", "profile"], "has no disk"),
        (["--model", "qwen3-30b"], "Did you mean 'qwen3-30b-a3b'"),
    ],
)
def test_bad_options_are_one_line(arguments: list[str], message: str) -> None:
    ran = CliRunner().invoke(app, ["memory", *arguments])
    assert ran.exit_code == 2
    assert message in " ".join(ran.stderr.split())


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    ran = CliRunner().invoke(app, ["memory", "--model", str(tmp_path)])
    assert ran.exit_code == 2 and "'llama'" in ran.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON file"),
        ("[]", "model_type 'None'"),
        ('{"model_type": "mixtral"}', "model_type 'mixtral'"),
        ('{"model_type": "qwen3_moe", "hidden_size": 8}', "none for num_hidden_layers"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_one_line(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    ran = CliRunner().invoke(app, ["memory", "--model", str(tmp_path)])
    assert ran.exit_code == 2
    assert message in ran.stderr and ran.stderr.count("\n") == 1


def test_the_page_on_the_real_checkpoint_says_these_sizes() -> None:
    page = (ROOT / "docs" / "how-to" / "run-qwen3-30b-a3b.md").read_text("utf-8")
    found, quantised = plan(), plan(experts="int4")
    assert f"{found.experts_bytes / GIB:.0f} GiB of experts in host memory" in page
    assert f"{found.others_bytes / GIB:.1f} GiB of other weights on the device" in page
    block, plain = quantised.expert_bytes / BYTES["MiB"], found.expert_bytes / BYTES["MiB"]
    assert f"A block is then {block:.2f} MiB instead of {plain:.0f}" in page
    slots = int(16 * GIB // (48 * found.expert_bytes))
    assert f"`lru:{slots}` of 48 layers fits 16 GiB" in page
