"""`specfit replay --backend`: random experts of a trace's shape, moved and computed for real."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="forced decoding computes with torch")

import torch
from typer.testing import CliRunner, Result

from specfit.backends.cpu import CpuDevice
from specfit.backends.file_bank import in_memory
from specfit.backends.int4_layout import Int4Layout
from specfit.backends.random_bank import memory_bank, near_square, random_machine, write_bank
from specfit.cli.forced import recorded_format
from specfit.cli.main import app
from specfit.core.cache import make_cache
from specfit.core.errors import CheckpointError, InvalidInputError
from specfit.core.expert_format import ExpertFormat
from specfit.core.experts import ModelGeometry
from specfit.report.measures import COUNTS
from specfit.sim.record_positions import record_positions
from specfit.sim.trace import TraceWriter, metadata_of
from specfit.testing.toy import toy_backend
from tests.unit.sim.traces import (
    PLANS,
    REQUESTS,
)

D, WIDTH = 8, 6
SHAPE: ModelGeometry = toy_backend().geometry


@pytest.fixture(scope="module")
def command_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a trace whose experts can be three matrices of bfloat16."""
    folder = tmp_path_factory.mktemp("forced-cli")
    write_command_trace(folder, 3 * D * WIDTH * 2)
    return folder


def write_command_trace(folder: Path, expert_bytes: int) -> None:
    """Write a trace, a profile and a folder that stands for its model."""
    backend = toy_backend(geometry=replace(SHAPE, expert_bytes=expert_bytes))
    with TraceWriter.create(folder / "trace", metadata_of(backend, "positions", PLANS)) as writer:
        record_positions(backend, REQUESTS, PLANS, writer)
    backend.profile.write(folder / "profile.toml")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text('{"model_type": "none"}')


def run_cli(folder: Path, *words: object) -> Result:
    given = ("--profile", folder / "profile.toml", "--model", folder / "model")
    tree = ("-p", "autoregressive", "-p", "eagle3:depth=4,top_k=3,max_nodes=12")
    arguments = ("replay", folder / "trace", *given, *tree, "--cache", "lru:25%", *words)
    return CliRunner().invoke(app, [str(word) for word in arguments])


@pytest.mark.parametrize("name", ["cpu", "ssd"])
def test_replay_runs_passes_for_real(command_trace: Path, tmp_path: Path, name: str) -> None:
    ahead = ("--json", "--prefetch", "previous")
    told = run_cli(command_trace, *ahead)
    forced_too = run_cli(command_trace, *ahead, "--backend", name, "--folder", tmp_path)
    assert forced_too.exit_code == 0, forced_too.stderr
    pairs = zip(told.stdout.splitlines(), forced_too.stdout.splitlines(), strict=True)
    for simulated, measured in ((json.loads(a), json.loads(b)) for a, b in pairs):
        for key in (*(measure.key for measure in COUNTS), "num_prefetched", "wasted_bytes"):
            assert simulated[key] == measured[key]
        assert measured["num_prefetched"] > 0
        assert measured["copied_per_token"] > 0
        assert measured["measured_tokens_per_s"] > 0
        assert "simulated_tokens_per_s" not in measured
        assert "measured on cpu" in measured["seconds"]
        assert "no attention, drafting or text" in measured["seconds"]
    assert list(tmp_path.iterdir()) == [], "what was written is removed"


def test_three_tiers_run_for_real(command_trace: Path, tmp_path: Path) -> None:
    disk = "ssd_bandwidth_bytes_per_s = "
    profile = (command_trace / "profile.toml").read_text()
    (tmp_path / "disk.toml").write_text(profile.replace(f"{disk}0.0", f"{disk}1e9"))
    given = ("--json", "--prefetch", "previous", "--host", "lru:25%", "--profile")
    made = [
        run_cli(command_trace, *given, tmp_path / "disk.toml", *words)
        for words in ((), ("--backend", "cpu", "--folder", tmp_path))
    ]
    for result in made:
        assert result.exit_code == 0, result.stderr
    rows, others = ([json.loads(row) for row in result.stdout.splitlines()] for result in made)
    assert len(rows) == 2, "one a policy"
    for simulated, measured in zip(rows, others, strict=True):
        for key in (*(measure.key for measure in COUNTS), "num_prefetched", "num_reads", "host"):
            assert simulated[key] == measured[key]
        assert measured["num_reads"] > 0
        assert "direct" in measured["seconds"] or "BUFFERED" in measured["seconds"]
    assert [path.name for path in tmp_path.iterdir()] == ["disk.toml"], "the rest is removed"


def test_the_table_says_that_it_was_measured(command_trace: Path, tmp_path: Path) -> None:
    made = run_cli(command_trace, "--backend", "ssd", "--folder", tmp_path)
    assert "tokens/s, measured" in made.stdout
    assert "imulated" not in made.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--backend", "tpu"), "device must be"),
        (("--backend", "cpu", "--plot", "speeds.png"), "Leave"),
        (("--backend", "ssd", "--host", "lru:50%"), "leave the host tier out"),
        (("--experts", "int4"), "no --backend was given"),
        (("--backend", "cpu", "--experts", "int4"), "no whole groups of 128"),
    ],
)
def test_what_cannot_run_for_real_is_refused(
    command_trace: Path, words: tuple[str, ...], said: str
) -> None:
    made = run_cli(command_trace, *words)
    assert made.exit_code == 2
    assert said in made.stderr


def test_experts_of_any_size_are_near_square() -> None:
    kept = ExpertFormat("bfloat16")
    assert near_square(kept.num_weights(9_437_184)) == (2048, 768)
    assert near_square(kept.num_weights(3 * 64 * 64 * 2)) == (64, 64)
    with pytest.raises(InvalidInputError, match="multiple of 6"):
        kept.num_weights(1_000_000)


@pytest.mark.parametrize("group_size", [None, 32, 128])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_size_of_a_block_tells_its_weights(dtype: str, group_size: int | None) -> None:
    kept = ExpertFormat(dtype, group_size)
    assert kept.num_weights(kept.expert_bytes(256, 128)) == 3 * 256 * 128
    with pytest.raises(InvalidInputError, match=f"three matrices in {kept.name}"):
        kept.num_weights(kept.expert_bytes(256, 128) + 1)


@pytest.fixture(scope="module")
def wide_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a trace whose experts are wide enough for 4-bit groups of 32."""
    folder = tmp_path_factory.mktemp("forced-int4")
    write_command_trace(folder, 3 * 64 * 32 * 2)
    return folder


@pytest.mark.parametrize("name", ["cpu", "ssd"])
def test_random_experts_in_4_bits_have_the_bytes_of_their_blocks(
    wide_trace: Path, tmp_path: Path, name: str
) -> None:
    ahead = ("--json", "--prefetch", "previous")
    told = [
        json.loads(run_cli(wide_trace, *ahead, *words).stdout.splitlines()[0])
        for words in ((), ("--backend", name, "--experts", "int4:32", "--folder", tmp_path))
    ]
    simulated, measured = told
    assert all(simulated[measure.key] == measured[measure.key] for measure in COUNTS)
    share = measured["wasted_bytes"] / simulated["wasted_bytes"]
    assert share == pytest.approx((1 / 2 + 2 * 2 / 32) / 2)
    assert "random weights in int4:32" in measured["seconds"]


def test_passes_over_4_bit_blocks_copy_them_and_compute_what_their_codes_stand_for(
    tmp_path: Path,
) -> None:
    kept = ExpertFormat("bfloat16", 32)
    geometry = replace(SHAPE, expert_bytes=kept.expert_bytes(64, 32))
    with random_machine("ssd", geometry, tmp_path, kept) as machine:
        passes = machine.passes(make_cache("lru:2", geometry))
        entered = passes._states[:1]
        seen: list[torch.Tensor] = []
        passes._experts[0].register_forward_hook(lambda m, i, o: seen.append(o.clone()))
        routing = np.zeros((1, SHAPE.num_layers, SHAPE.experts_per_token), np.int16)
        routing[..., 1] = 1
        ran = passes.run(routing)
        assert ran.counts.num_misses.tolist() == [2] * SHAPE.num_layers
        copied = machine.device.counters.num_bytes
        assert copied == 2 * SHAPE.num_layers * geometry.expert_bytes
        assert isinstance(machine.layout, Int4Layout)
        blocks = [in_memory(machine.bank[0][expert]) for expert in (0, 1)]
        outputs = [dense(machine.layout, block, entered) for block in blocks]
    right = torch.stack(outputs).mean(0)
    assert torch.allclose(seen[0].float(), right, rtol=0.05, atol=0.05 * float(right.abs().max()))


def dense(layout: Int4Layout, block: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return an expert's output from its matrices, which the kernel's products with 1 spell out."""
    unpacked = [
        layout.kernel.multiply(torch.eye(size, dtype=rows.dtype), part.packed, 32, part.scales)
        for size, part in zip((64, 32), layout.parts(block, 64, 32), strict=True)
    ]
    gate, up = (rows.float() @ unpacked[0].float()).chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up) @ unpacked[1].float()


def test_experts_of_a_trace_in_4_bits_stay_so() -> None:
    metadata = metadata_of(toy_backend(), "run")
    assert recorded_format(metadata) == ExpertFormat("bfloat16")
    told = replace(metadata, weight_format="one block an expert, int4:64", precision="float32")
    assert recorded_format(told) == ExpertFormat("float32", 64)


def test_random_experts_differ(tmp_path: Path) -> None:
    shape = (2, 16, 96)
    bank = write_bank(tmp_path / "experts.bin", shape, torch.bfloat16)
    memory = memory_bank(CpuDevice(), shape, torch.bfloat16)
    blocks = {tuple(in_memory(bank[i][j]).tolist()) for i in range(2) for j in range(16)}
    assert len(blocks) == 32
    assert len({tuple(block.tolist()) for block in memory.view(32, 96)}) == 32
    assert bank.file.num_bytes == memory.nbytes
    assert memory.isfinite().all()


def test_no_room_for_random_experts_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="Name a folder on another disk"):
        write_bank(tmp_path / "experts.bin", (48, 128, 2**40), torch.bfloat16)
    assert list(tmp_path.iterdir()) == []
