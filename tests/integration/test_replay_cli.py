"""`specfit sweep` and `specfit repair` on traces of the toy backend: no model needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
from typer.testing import CliRunner, Result

from specfit.cli.main import app
from specfit.sim.record_positions import record_positions
from specfit.sim.trace import TraceReader, TraceWriter, check_trace, metadata_of
from specfit.testing.examples import example_profile
from specfit.testing.toy import toy_backend
from tests.unit.sim.traces import PLANS, REQUESTS, write_positions, write_run

HOSTS = ("none", "trace", "lru:60%", "lru:100%")
MODEL = """{"model_type": "none"}"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    write_positions(folder / "positions")
    write_run(folder / "run")
    example_profile().write(folder / "profile.toml")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(MODEL)
    return folder


def sweep(folder: Path, out: Path, *arguments: object) -> Result:
    """Sweep with a model that ships no fitted tables."""
    given = ("--profile", folder / "profile.toml", "--model", folder / "model", "--jobs", 1)
    return run("sweep", folder / "positions", "-o", out, *given, *arguments)


def test_a_sweep_prints_every_cell_with_its_speedup(folder: Path, tmp_path: Path) -> None:
    policies = ("-p", "autoregressive", "-p", "eagle3:depth=3,top_k=3,max_nodes=8")
    caches = ("-c", "lru:25%", "-c", "sieve:50%")
    links = ("-b", "1GB/s", "-b", "100GB/s")
    made = sweep(folder, tmp_path / "out", *policies, *caches, *links)
    assert made.exit_code == 0, made.stderr
    assert made.stdout.count("1.00x") >= 4
    assert "imulated tokens a second" in made.stdout
    rows = sweep(folder, tmp_path / "out", *policies, *caches, *links, "--json").stdout
    table = [json.loads(line) for line in rows.splitlines()]
    assert len(table) == 8
    assert all(0 < row["belady_misses"] <= row["num_misses"] for row in table)
    speeds = {
        row["h2d_bandwidth_bytes_per_s"]: row["simulated_tokens_per_s"]
        for row in table
        if (row["policy"], row["cache"]) == ("autoregressive", "lru:25%")
    }
    assert speeds[1e11] > speeds[1e9]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-p", "eagel3"), "Did you mean 'eagle3'"),
        (("-c", "lrv:25%"), "Did you mean"),
        (("-c", "lru:1"), "one token's experts"),
        (("-b", "25"), "25GB/s"),
        (("-c", "lru:25%", "-c", "lru:25%"), "all different"),
    ],
)
def test_a_wrong_spec_is_refused_before_any_cell_runs(
    folder: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    made = sweep(folder, tmp_path / "out", *arguments)
    assert made.exit_code == 2
    assert message in made.stderr
    assert not (tmp_path / "out").exists()


def test_an_uncovered_policy_names_the_plan_to_record(folder: Path, tmp_path: Path) -> None:
    made = sweep(folder, tmp_path / "out", "-p", "eagle3:depth=3,top_k=9")
    assert made.exit_code == 2
    assert "--plans eagle3:depth=3,top_k=9" in made.stderr


def test_near_ties_are_counted_and_shown(folder: Path, tmp_path: Path) -> None:
    contradict(folder / "positions", tmp_path / "ties")
    given = ("--profile", folder / "profile.toml", "--model", folder / "model")
    policies = ("-p", "autoregressive", "-p", "eagle3:depth=3,top_k=3,max_nodes=8")
    made = run("replay", tmp_path / "ties", *given, *policies)
    assert made.exit_code == 0, made.stderr
    assert "near ties: at 3 positions" in made.stderr
    assert "near ties" not in run("replay", folder / "positions", *given, *policies).stderr


def test_a_timeline_shows_one_policy(folder: Path, tmp_path: Path) -> None:
    given = ("--profile", folder / "profile.toml", "--model", folder / "model")
    out = tmp_path / "timeline.json"
    made = run("replay", folder / "positions", *given, "-p", "autoregressive", "--timeline", out)
    assert made.exit_code == 0, made.stderr
    assert "simulated" in json.loads(out.read_text("utf-8"))["otherData"]["title"]
    two = ("-p", "autoregressive", "-p", "eagle3:depth=3,top_k=3")
    refused = run("replay", folder / "positions", *given, *two, "--timeline", tmp_path / "two.json")
    assert refused.exit_code == 2
    assert "one policy with one cache" in refused.stderr
    assert not (tmp_path / "two.json").exists()


def contradict(folder: Path, out: Path) -> None:
    """Copy a trace with another answer at the first root of each text."""
    trace = TraceReader(folder)
    with TraceWriter.create(out, trace.metadata.finished(None)) as writer:
        for prompt in trace.prompts():
            for number, row in enumerate(prompt.rows()):
                tokens = row.answers.target_tokens.copy()
                tokens[0] = (tokens[0] + (number == 0)) % trace.metadata.geometry.vocab_size
                writer.add(replace(row, answers=replace(row.answers, target_tokens=tokens)))
            writer.end_prompt(prompt.row)


def test_repair_saves_what_is_good(folder: Path, tmp_path: Path) -> None:
    copytree(folder / "run", tmp_path / "bad")
    next((tmp_path / "bad").glob("cycles-000001-*")).write_bytes(b"PAR1")
    made = run("repair", tmp_path / "bad", "-o", tmp_path / "good")
    assert made.exit_code == 0, made.stderr
    assert "2 of 3 prompts are in" in made.stdout
    assert "it is damaged" in made.stderr
    assert check_trace(tmp_path / "good").is_good


def test_repair_of_nothing_writes_nothing(folder: Path, tmp_path: Path) -> None:
    copytree(folder / "run", tmp_path / "bad")
    for path in (tmp_path / "bad").glob("cycles-*"):
        path.unlink()
    made = run("repair", tmp_path / "bad", "-o", tmp_path / "good")
    assert made.exit_code == 2
    assert not (tmp_path / "good").exists()


def test_overlap_prefetching_and_a_disk_are_options(folder: Path) -> None:
    given = ("--profile", folder / "profile.toml", "--model", folder / "model", "-p")
    policy = "eagle3:depth=3,top_k=3,max_nodes=8"

    def rows(*arguments: object) -> dict[str, float]:
        made = run("replay", folder / "positions", *given, policy, *arguments, "--json")
        assert made.exit_code == 0, made.stderr
        row: dict[str, float] = json.loads(made.stdout)
        return row

    plain, ahead = rows(), rows("--prefetch", "oracle", "--overlap", "pass")
    assert (plain["prefetch"], plain["overlap"], plain["num_prefetched"]) == ("none", "none", 0)
    assert (ahead["prefetch"], ahead["overlap"], ahead["wasted_bytes"]) == ("oracle", "pass", 0)
    assert ahead["num_prefetched"] > 0
    assert ahead["simulated_tokens_per_s"] > plain["simulated_tokens_per_s"]
    assert rows("--overlap", "resident")["simulated_tokens_per_s"] > plain["simulated_tokens_per_s"]
    wasteful = rows("--prefetch", "previous:num_tokens=3")
    assert wasteful["wasted_bytes"] > 0


def test_the_host_tier_is_named_none_or_the_traces_in_a_replay_and_in_a_sweep(
    folder: Path, tmp_path: Path
) -> None:
    """The same three answers by the same option; only what it is by default differs."""
    backend, hardware = toy_backend(), replace(example_profile(), ssd_bandwidth_bytes_per_s=1e8)
    specs = {"host": "lru:60%"}
    metadata = metadata_of(backend, "positions", PLANS, hardware=hardware, specs=specs)
    with TraceWriter.create(tmp_path / "trace", metadata) as writer:
        record_positions(backend, REQUESTS, PLANS, writer)
    given = ("--model", folder / "model", "--policy", "autoregressive", "--cache", "lru:25%")

    def found(verb: str, *host: str) -> tuple[str | None, float]:
        others = () if verb == "replay" else ("-o", tmp_path / "".join(host), "--jobs", 1)
        made = run(verb, tmp_path / "trace", *given, *others, *host, "--json")
        assert made.exit_code == 0, made.stderr
        row = json.loads(made.stdout)
        return row["host"], row["simulated_tokens_per_s"]

    rows = {option: found("replay", "--host", option) for option in HOSTS}
    assert [host for host, _ in rows.values()] == [None, "lru:60%", "lru:60%", "lru:100%"]
    assert rows["none"][1] > rows["lru:100%"][1] > rows["trace"][1] == rows["lru:60%"][1]
    assert all(found("sweep", "--host", option) == row for option, row in rows.items())
    assert found("replay") == rows["trace"]
    assert found("sweep") == rows["none"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--overlap", "pas"), "Did you mean 'pass'"),
        (("--overlap", "pass"), "Give a prefetcher"),
        (("--prefetch", "orcale"), "Did you mean 'oracle'"),
        (("--host", "lru:50%"), "needs a disk"),
        (("-c", "pool:50%", "--host", "lru:50%"), "slots of its own"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    given = ("--profile", folder / "profile.toml", "--model", folder / "model")
    made = run("replay", folder / "positions", *given, "-p", "autoregressive", *arguments)
    assert made.exit_code == 2
    assert message in " ".join(made.stderr.split())


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ((), "got 2, autoregressive, specfit. Give one"),
        (("-p", "evict", "-p", "eagle3", "-p", "specfit"), "got 3, evict, eagle3, specfit."),
    ],
)
def test_settings_need_one_policy_those_by_default_counted(
    folder: Path, policies: tuple[str, ...], message: str
) -> None:
    """The trace names no policy, so that by default there are two."""
    given = ("--profile", folder / "profile.toml", "--model", folder / "model")
    made = run("replay", folder / "positions", *given, *policies, "--set", "max_nodes=5")
    assert made.exit_code == 2
    assert message in " ".join(made.stderr.split())
