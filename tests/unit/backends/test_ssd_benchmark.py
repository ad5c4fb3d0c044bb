"""The disk benchmark at a small geometry: its parts, and that it finds a cycle that differs."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import ssd, ssd_decode, ssd_page, ssd_profile, ssd_room
from benchmarks.ssd_decode import PromptedBackend, decode, rotated
from benchmarks.ssd_profile import (
    GRID,
    PROBES,
    Tuned,
    fitted,
    probed,
    simulated,
    tuned,
    unmeasured,
)
from benchmarks.ssd_world import Slice, sequential_bytes_per_s, write_trace
from specfit.backends.file_bank import in_memory
from specfit.backends.forced import ForcedExperts
from specfit.backends.random_bank import RandomBlocks, write_bank
from specfit.backends.ssd import SsdDevice
from specfit.cli.inputs import Inputs
from specfit.cli.specs import policy_from
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop
from specfit.core.profile import HardwareProfile
from specfit.policies.acceptance.identity import Identity
from specfit.policies.predictors.uniform import Uniform
from specfit.sim.forced_backend import ForcedBackend

SMALL = Slice(2, hidden_size=16, width=8, dtype=torch.float32)


def test_a_slice_of_all_layers_is_the_model() -> None:
    whole = Slice(48)
    assert whole.layers.tolist() == list(range(48))
    assert whole.geometry.expert_bytes == 9_437_184
    assert whole.num_bytes == 54 * 2**30
    assert Slice(4).layers.tolist() == [6, 18, 30, 42]


def test_slots_are_the_share_of_a_layer_in_the_cache() -> None:
    assert (ssd_room.slots_for(8), ssd_room.slots_for(16), ssd_room.slots_for(54)) == (18, 37, 128)


def test_sequential_reading_is_timed(tmp_path: Path) -> None:
    wide = replace(SMALL, width=512)
    bank = write_bank(tmp_path / "experts.bin", wide.shape, wide.dtype)
    speeds = sequential_bytes_per_s(bank, 2, range(1, 2))
    assert all(speed > 0 for speed in speeds.values())
    assert list(speeds) == ["one thread", "pool"]


def test_blocks_in_memory_are_those_of_the_file(tmp_path: Path) -> None:
    bank = write_bank(tmp_path / "experts.bin", SMALL.shape, SMALL.dtype)
    blocks = RandomBlocks(SMALL.shape, SMALL.dtype)
    for layer, expert in ((0, 0), (0, 5), (1, 127)):
        assert blocks[layer][expert].equal(in_memory(bank[layer][expert]))
    assert not blocks[0][0].equal(blocks[1][0])


def test_a_prompt_that_is_not_run_leaves_what_it_would(tmp_path: Path) -> None:
    bank = write_bank(tmp_path / "experts.bin", SMALL.shape, SMALL.dtype)
    trace = write_trace(tmp_path / "trace", SMALL, "gsm8k", "test", 1, 4)
    request = next(trace.prompts()).request
    found = []
    for quick in (False, True):
        device = SsdDevice(num_threads=2)
        cache = make_cache("lru:18", SMALL.geometry, live=True)
        passes = ForcedExperts(bank, device, cache, SMALL.hidden_size)
        blank = unmeasured(SMALL.geometry.expert_bytes)
        blocks = RandomBlocks(SMALL.shape, SMALL.dtype)
        backend = (
            PromptedBackend(trace, passes, blank, blocks)
            if quick
            else ForcedBackend(trace, passes, blank)
        )
        next(loop_of(backend, blank).stream(request))
        assert passes.store.slot_bytes_are_current()
        found.append(backend.residency().mask.copy())
        device.close()
    assert found[0].any() and np.array_equal(*found)


def test_policies_share_slots_and_each_finds_what_the_prompt_leaves(tmp_path: Path) -> None:
    bank = write_bank(tmp_path / "experts.bin", SMALL.shape, SMALL.dtype)
    trace = write_trace(tmp_path / "trace", SMALL, "gsm8k", "test", 2, 6)
    blank = unmeasured(SMALL.geometry.expert_bytes)
    blocks = RandomBlocks(SMALL.shape, SMALL.dtype)
    policies = ("autoregressive", PROBES[1], PROBES[2])
    inputs = {name: Inputs(Uniform(SMALL.geometry), Identity()) for name in policies}
    texts = [("gsm8k", trace, prompt.request) for prompt in trace.prompts()]
    with closing(SsdDevice(num_threads=2)) as device:
        cache = make_cache("lru:18", SMALL.geometry, live=True)
        passes = ForcedExperts(bank, device, cache, SMALL.hidden_size)
        probes = probed(PromptedBackend(trace, passes, blank, blocks), 2)
        assert [len(record.outcome.verification.nodes) for record in probes[::2]] == [1, 5, 3]
        found = []
        orders = [policies, rotated(policies, 1, 2)]
        for text in decode(texts, orders, passes, "lru:18", blank, inputs, probes, blocks):
            assert passes.store.slot_bytes_are_current()
            found.append(text)
    assert [text.policy for text in found[:3]] == list(policies)
    assert [text.policy for text in found[3:]] == [*policies[1:], policies[0]]
    ours, theirs = [text.result for text in found], [text.again for text in found]
    assert ssd_decode.differing_cycles(ours, theirs) == 0
    for text in found:
        misses = sum(c.outcome.verification.num_misses.sum() for c in text.result.cycles)
        assert text.link.num_copies == misses, "filling the slots is not counted"


def test_each_text_has_each_policy_first_in_some_round() -> None:
    for num_texts in (1, 2, 3, 6):
        firsts = [rotated(("a", "b", "c"), number, num_texts)[0] for number in range(3 * num_texts)]
        for text in range(num_texts):
            assert set(firsts[text::num_texts]) == {"a", "b", "c"}


@pytest.mark.parametrize(("available", "match"), [(10, "smaller cache"), (40, "another disk")])
def test_too_little_room_is_said_before_anything_is_written(
    available: int, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssd_room, "available_bytes", lambda: available * 2**30)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=50 * 2**30))
    with pytest.raises(SystemExit, match=match):
        ssd.main(["--folder", str(tmp_path), "--layers", "48"])
    ssd_room.check_room(Slice(4), [8, 16], tmp_path)
    assert ssd_room.layers_that_fit(tmp_path) == 40
    assert not list(tmp_path.iterdir())


def test_an_interrupted_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ssd, "Slice", lambda layers: replace(SMALL, num_layers=layers))
    monkeypatch.setattr(ssd, "fitted_inputs", stop)
    words = ["--folder", str(tmp_path), "--layers", "2", "--prompts", "1", "--train-prompts", "1"]
    with pytest.raises(KeyboardInterrupt):
        ssd.main([*words, "--tokens", "4"])
    assert not list(tmp_path.iterdir())


def test_the_page_says_ratios_hiccups_and_the_share_of_sequential() -> None:
    speeds = {"autoregressive": 1.0, "eagle3:depth=4": 1.5, "specfit": 3.0}
    rows = [
        row(
            8,
            task="all",
            policy=policy,
            tokens_per_s=speed,
            read_bytes_per_token=5e8,
            read_bytes_per_s=1e9,
            sequential_bytes_per_s=2e9,
            measured_cycle_s=1.0,
            predicted_cycle_s=0.9,
            cycle_error_median=0.1,
            hiccups=2,
        )
        for policy, speed in speeds.items()
    ]
    manifest = {"commit": "abc", "torch_threads": 2}
    about = {"layers": 48, "prompts": 1, "tokens": 8, "load_average_after": [1, 1, 1]}
    said = ssd_page.block({**about, "manifest": manifest, "rows": rows})
    assert "| 8 GiB | all | plain | 1.00 | 500 | 1.00 | 50% | 1000 ms | 900 ms | 10% | 2 |" in said
    assert "| 8 GiB | all | 3.00 | 2.00 |" in said


def loop_of(backend: ForcedBackend, profile: HardwareProfile) -> DecodeLoop:
    inputs = Uniform(backend.geometry), Identity()
    return DecodeLoop(backend, policy_from("autoregressive"), ProfileCost(profile), *inputs)


def test_a_tree_for_all_tasks_and_one_for_each(tmp_path: Path) -> None:
    traces = {
        task: write_trace(tmp_path / task, SMALL, task, "train", 1, 6)
        for task in ("gsm8k", "cnn-dm")
    }
    trees = tuned(traces, "lru:18", profile := unmeasured(SMALL.geometry.expert_bytes))
    assert set(trees.apart) == set(traces)
    blind = Inputs(Uniform(SMALL.geometry), Identity())
    for task, trace in traces.items():
        (prompt,) = trace.prompts()
        best, seconds = trees.apart[task], {}
        for tree in (best, GRID[0], GRID[-1]):
            result = simulated(trace, prompt.request, tree, "lru:18", profile, blind)
            seconds[tree] = result.decode_s / result.num_decoded
        assert seconds[best] == pytest.approx(min(seconds.values()))
        assert seconds[best] < max(seconds.values())


def test_the_tree_for_all_tasks_need_be_the_best_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hand-made seconds a token; those that are not told are slow."""
    chain, wide, middle = GRID[0], GRID[-1], GRID[7]
    told = {
        "code": {chain: 1.0, middle: 1.5, wide: 3.0},
        "chat": {chain: 4.0, middle: 2.5, wide: 2.0},
    }
    monkeypatch.setattr(
        ssd_profile, "_seconds_a_token", lambda task, tree, *_: told[task].get(tree, 9.0)
    )
    made: Any = {task: task for task in told}
    trees = tuned(made, "lru:18", unmeasured(1))
    assert trees == Tuned(middle, {"code": chain, "chat": wide})


def test_rows_of_other_caches_are_kept(tmp_path: Path) -> None:
    out, settings = tmp_path / "ssd.json", {"layers": 2, "prompts": 1, "tokens": 4}
    out.write_text(json.dumps({**settings, "rows": [row(16), row(8)]}))
    before = ssd.rows_before(out, settings)
    ssd.write({**settings, "rows": [row(8, tokens_per_s=3.0)]}, before, out)
    kept = json.loads(out.read_text("utf-8"))
    assert kept["rows"] == [row(8, tokens_per_s=3.0), row(16)]
    assert [path.name for path in tmp_path.iterdir()] == ["ssd.json"]
    with pytest.raises(SystemExit, match="another tokens"):
        ssd.rows_before(out, {**settings, "tokens": 5})


def row(gib: float, **more: Any) -> dict[str, Any]:
    return {"cache": f"lru:{ssd_room.slots_for(gib)}", "cache_gib_of_48_layers": gib, **more}


def cycle(nodes: int, hits: int, misses: int, select_s: float = 0.0) -> Any:
    answer = SimpleNamespace(
        nodes=np.arange(nodes),
        num_hits=np.array([hits]),
        num_misses=np.array([misses]),
        num_evictions=np.array([misses]),
        compute_s=0.01 + 0.002 * nodes + 0.001 * (hits + misses),
        stall_s=0.004 * misses,
    )
    selection = SimpleNamespace(nodes=np.arange(nodes))
    return SimpleNamespace(
        outcome=SimpleNamespace(verification=answer, selection=selection),
        timings=SimpleNamespace(select_s=select_s),
    )


def test_a_profile_is_found_again_from_what_it_made() -> None:
    rng = np.random.default_rng(0)
    cycles = [cycle(*rng.integers((1, 0, 1), (9, 20, 30)).tolist()) for _ in range(40)]
    profile = fitted(cycles, 4_000_000)
    assert profile.verify_fixed_s == pytest.approx(0.01, rel=1e-3)
    assert profile.verify_node_s == pytest.approx(0.002, rel=1e-3)
    assert profile.resident_expert_s == pytest.approx(0.001, rel=1e-3)
    assert profile.copy_s == pytest.approx(0.004, rel=1e-3)


def test_a_cycle_with_another_count_is_counted() -> None:
    ours = [SimpleNamespace(cycles=[cycle(1, 2, 3), cycle(2, 2, 3), cycle(1, 1, 1)])]
    theirs = [SimpleNamespace(cycles=[cycle(1, 2, 3), cycle(2, 2, 4)])]
    assert ssd_decode.differing_cycles(ours, ours) == 0
    assert ssd_decode.differing_cycles(ours, theirs) == 2


@pytest.mark.slow
def test_the_benchmark_runs_and_agrees_with_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ssd, "Slice", lambda layers: replace(SMALL, num_layers=layers))
    out = tmp_path / "ssd.json"
    words = ["--folder", str(tmp_path), "--layers", "2", "--cache-gib", "8"]
    words += ["--prompts", "1", "--train-prompts", "2", "--tokens", "10", "--out", str(out)]
    assert ssd.main([*words, "--calibration-cycles", "2"]) == 0
    found = json.loads(out.read_text("utf-8"))
    policies = [row["policy"] for row in found["rows"]]
    assert (policies[0], policies[1][:7], policies[2]) == ("autoregressive", "eagle3:", "specfit")
    assert [row["task"] for row in found["rows"][::3]] == ["gsm8k", "cnn-dm", "all"]
    assert all(row["read_bytes_per_token"] > 0 for row in found["rows"])
    assert found["layers"] == 2
    assert "no text" in found["what"]
    assert "cycles that differ from the simulator: 0" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["ssd.json"], "its files are removed"
