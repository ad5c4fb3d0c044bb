"""The command line on the bundled model: what it prints, what it leaves behind, what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from specfit import data
from specfit.backends.reference import StockModel
from specfit.cli.live import open_live
from specfit.cli.live_options import LiveOptions
from specfit.cli.main import app
from specfit.cli.prompts import read_prompts
from specfit.testing.examples import example_profile

PROMPTS = data.PROMPTS / "heldout.jsonl"
TINY = data.model_folder("tiny")
QUESTION = "Question: Tom has 3 apples and buys 4 more. How many apples has he?\nAnswer:"
POLICIES = ["autoregressive", "eagle3:depth=4,top_k=3,max_nodes=12", "specfit"]


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads of torch wait for each other on a busy machine, and help nothing here."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile in which drafting pays, so that the tests do not wait for a calibration."""
    path = tmp_path_factory.mktemp("profile") / "machine.toml"
    replace(example_profile(), level_s=1e-4, first_level_s=1e-4, copy_latency_s=1e-5).write(path)
    return path


@pytest.fixture(scope="module")
def stock_texts(profile: Path) -> list[tuple[tuple[int, ...], str]]:
    """Tokens and text that unmodified transformers generates for the first 20 held-out prompts."""
    options = LiveOptions(cache="lru:100%", profile=str(profile))
    with open_live(options) as live:
        stock = StockModel(TINY)
        requests = [live.request(p.text, 24) for p in read_prompts(PROMPTS)[:20]]
        return [(tokens, live.text(tokens)) for tokens in map(stock.generate, requests)]


@pytest.fixture(scope="module")
def twenty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "twenty.jsonl"
    path.write_text("\n".join(PROMPTS.read_text("utf-8").splitlines()[:20]) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "two.jsonl"
    path.write_text("\n".join(PROMPTS.read_text("utf-8").splitlines()[:2]) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module")
def run_trace(tmp_path_factory: pytest.TempPathFactory, two: Path, profile: Path) -> Path:
    out = tmp_path_factory.mktemp("traces") / "run"
    made = run(
        "record", "-o", out, "--prompts", two, "-n", 16, "--profile", profile, "-c", "lru:50%"
    )
    assert made.exit_code == 0, made.stderr
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "cache"), list(zip(POLICIES, ["none", "lru:25%", "lru:8"], strict=True))
)
def test_the_text_is_that_of_stock_transformers(twenty, profile, stock_texts, policy, cache):
    """Every policy with every cache: `test_lossless.py`, without the command line."""
    made = run(
        "decode", "-p", policy, "-c", cache, "--prompts", twenty, "-n", 24, "--profile", profile
    )
    assert made.exit_code == 0, made.stderr
    assert made.stdout == "".join(text + "\n" for _, text in stock_texts)


def test_json_rows_hold_the_tokens_and_what_made_them(two, profile, stock_texts):
    made = run("decode", "--prompts", two, "-n", 24, "--profile", profile, "--json")
    rows = [json.loads(line) for line in made.stdout.splitlines()]
    assert [tuple(row["tokens"]) for row in rows] == [tokens for tokens, _ in stock_texts[:2]]
    assert [row["text"] for row in rows] == [text for _, text in stock_texts[:2]]
    assert rows[0]["policy"]["name"] == "specfit"
    assert rows[0]["id"] == "heldout-00"
    assert {"specfit", "cache", "link", "profile", "seed", "tokens_per_s"} <= set(rows[0])
    said = {key: rows[0][key] for key in ("head", "drafter", "device", "precision")}
    assert said == {"head": None, "drafter": "eagle3", "device": "cpu", "precision": "float32"}
    assert rows[0]["sampling"]["temperature"] == 0


def test_statistics_go_to_stderr_and_call_an_emulated_link_so(profile):
    link = "10us+500MB/s"
    made = run(
        "decode", "--prompt", QUESTION, "-n", 8, "--profile", profile, "--link", link, "-c", "none"
    )
    assert "EMULATED (10 us + 0.5 GB/s)" in made.stderr
    assert "tokens/s" in made.stderr
    assert "tokens/s" not in made.stdout


def test_a_text_of_one_token_has_no_cycle_and_no_figures(tmp_path, profile):
    one = ("--prompt", "Once", "-n", 1, "--profile", profile)
    made = run("decode", *one, "--json")
    assert made.exit_code == 0, made.exception
    row = json.loads(made.stdout)
    assert len(row["tokens"]) == 1
    assert row["tokens_per_s"] is None
    said = run("decode", *one).stderr
    assert "1 tokens (length), no cycle" in said
    assert "nan" not in said
    assert run("record", "-o", tmp_path / "run", *one, "--plans", "specfit").exit_code == 0
    both = (tmp_path / "run", "-p", "autoregressive", "-p", "specfit", "-c", "lru:50%", "--json")
    assert "nan" not in run("replay", *both[:-1]).stdout
    made = run("replay", *both)
    assert made.exit_code == 0, (made.stderr, made.exception)
    rows = [json.loads(line) for line in made.stdout.splitlines()]
    assert [row["simulated_tokens_per_s"] for row in rows] == [None, None]
    assert [row["simulated_speedup"] for row in rows] == [[None] * 3] * 2
    drawn = ("replay", "--plot", tmp_path / "speed.png")
    for verb in (drawn, ("sweep", "-o", tmp_path / "sweep", "--jobs", 1)):
        refused = run(*verb, *both)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "Record longer ones." in refused.stderr
    assert not list(tmp_path.glob("speed.*"))


def test_what_is_copied_ahead_is_told_recorded_and_replayed(tmp_path, two, profile):
    ahead = (
        "--prefetch",
        "previous:num_tokens=4",
        "--cache",
        "lru:25%",
        "--profile",
        profile,
        "-n",
        "12",
    )
    row = json.loads(run("decode", "--prompt", "Once", *ahead, "--json").stdout)
    assert row["prefetch"] == ahead[1] and 0 < row["num_wasted"] < row["num_prefetched"]
    said = run("decode", "--prompt", "Once", *ahead).stderr
    assert f"({row['num_prefetched']} ahead, {row['num_wasted']} of them for nothing)" in said
    run("record", "-o", tmp_path / "trace", "--prompts", two, *ahead, "--policy", POLICIES[1])
    again = json.loads(run("replay", tmp_path / "trace", "--json").stdout)
    assert again["prefetch"] == ahead[1] and again["num_prefetched"] > 0
    without = json.loads(run("replay", tmp_path / "trace", "--prefetch", "none", "--json").stdout)
    assert without["num_prefetched"] == 0
    refused = run("decode", "--prompt", "Once", "--prefetch", "oracle", "--profile", profile)
    assert refused.exit_code == 2 and "must be replayed" in refused.stderr


def test_two_seeds_sample_two_texts_and_one_seed_one(profile):
    args = ("decode", "--prompt", QUESTION, "-n", 24, "--profile", profile, "--temperature", 1)
    texts = [run(*args, "--seed", seed).stdout for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_a_policy_of_ones_own_decodes_the_same_text(tmp_path, profile, stock_texts, two):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from specfit.core.policy import Policy\n"
        "from specfit.core.selection import Selection\n"
        "@dataclass\n"
        "class Mine(Policy):\n"
        "    least: float = 0.5\n"
        "    def select(self, cycle):\n"
        "        return Selection(cycle.tree, cycle.tree.path_probs >= self.least)\n"
    )
    made = run(
        "decode", "--prompts", two, "-n", 24, "--profile", profile,
        "-p", f"{tmp_path}/mine.py:Mine", "--set", "least=0.2", "--json",
    )  # fmt: skip
    rows = [json.loads(line) for line in made.stdout.splitlines()]
    assert [tuple(row["tokens"]) for row in rows] == [tokens for tokens, _ in stock_texts[:2]]
    assert rows[0]["policy"]["params"] == {"least": 0.2}


def test_a_run_is_replayed_with_the_cost_model_of_its_recording(tmp_path, profile):
    own = "from specfit.core.cost import ProfileCost\n\n\nclass Own(ProfileCost):\n    pass\n"
    (tmp_path / "own.py").write_text(own, "utf-8")
    cost = f"{tmp_path / 'own.py'}:Own"
    options = ("--prompt", "Once", "-n", 8, "--profile", profile, "--cost", f"{cost}:max_nodes=80")
    assert run("record", "-o", tmp_path / "run", *options).exit_code == 0
    for given, name, most in (([], cost, 80), (["--cost", "profile"], "profile", 1024)):
        row = json.loads(run("replay", tmp_path / "run", "--json", *given).stdout)
        assert row["cost"]["name"] == name
        assert row["cost"]["params"]["max_nodes"] == most


def test_a_recorded_run_is_whole_described_and_replayed(run_trace):
    checked, shown = run("check", "trace", run_trace), run("show", "trace", run_trace)
    assert (checked.exit_code, shown.exit_code) == (0, 0)
    assert "is whole: 2 prompts" in checked.stdout
    assert "6 layers of 64, 8 a token" in shown.stdout
    table = run("replay", run_trace, "-p", "specfit", "-c", "lru:50%")
    assert table.exit_code == 0, table.stderr
    assert "tokens/s, simulated" in table.stdout
    row = json.loads(run("replay", run_trace, "--json").stdout)
    assert (row["policy"].partition(":")[0], row["cache"]) == ("specfit", "lru:50%")
    assert row["num_prompts"] == 2
    assert 0 < row["hit_rate"] < 1


def test_one_recording_of_positions_replays_every_policy(tmp_path, two, profile):
    out = tmp_path / "positions"
    made = run(
        "record", "-o", out, "--prompts", two, "-n", 10, "--profile", profile, "-c", "lru:100%",
        "--plans", "eagle3:depth=6,top_k=4", "--plans", "specfit",
    )  # fmt: skip
    assert made.exit_code == 0, made.stderr
    policies = ("-p", "autoregressive", "-p", "eagle3:depth=3,top_k=4", "-p", "specfit")
    lines = run("replay", out, *policies, "-c", "lru:25%", "-c", "none", "--json").stdout
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [(row["policy"].split(":")[0], row["cache"]) for row in rows] == [
        (policy, cache)
        for cache in ("lru:25%", "none")
        for policy in ("autoregressive", "eagle3", "specfit")
    ]
    assert rows[0]["simulated_speedup"] == [1.0, 1.0, 1.0]
    assert rows[3]["hit_rate"] == 0.0
    refused = run("replay", out, "-p", "eagle3:depth=3,top_k=9")
    assert refused.exit_code == 2
    assert "--plans" in refused.stderr


def test_a_cycle_is_explained_as_text_json_and_picture(tmp_path, run_trace):
    given = ("explain", run_trace, "--prompt", 1)
    table = run(*given, "-o", tmp_path / "deep" / "cycle.png")
    assert table.exit_code == 0, table.stderr
    assert "Expected: " in table.stdout
    assert {p.name for p in (tmp_path / "deep").iterdir()} == {"cycle.png", "cycle.svg"}
    rows = [json.loads(line) for line in run(*given, "--json").stdout.splitlines()]
    assert rows[0]["verdict"] == "root"
    assert sum(row["verdict"] != "" for row in rows) >= 2
    assert all(isinstance(row["text"], str) for row in rows)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--prompt", 2], "--prompt must be 0 to 1; got 2"),
        (["--cycle", 999], "--cycle must be 0 to"),
        (["-c", "lru:7"], "one token's experts"),
    ],
)
def test_what_cannot_be_explained_is_refused(run_trace, given, message):
    made = run("explain", run_trace, *given)
    assert made.exit_code == 2
    assert message in made.stderr


def test_the_demo_leaves_a_table_two_pictures_and_traces(tmp_path, two):
    out = tmp_path / "results"
    made = run("demo", "--prompts", two, "-n", 8, "-o", out, "-c", "lru:50%")
    assert made.exit_code == 0, made.stderr
    assert "Link EMULATED" in made.stdout
    assert "All 8 texts are those of transformers' own greedy generate." in made.stdout
    assert "repeats it cycle by cycle" in made.stdout
    names = {path.name for path in out.iterdir()}
    pictures = {"speed.png", "speed.svg", "tree.png", "tree.svg"}
    assert names == {"results.json", "profile.toml", "trace", "trace-run", *pictures}
    assert len(json.loads((out / "results.json").read_text("utf-8"))["rows"]) == 4


REFUSED = {
    "missing prompt file": (["--prompts", "{tmp}/none.txt"], "no prompt file"),
    "empty prompt file": (["--prompts", "{tmp}/empty.txt"], "holds no prompt"),
    "prompt file not UTF-8": (["--prompts", "{tmp}/latin.txt"], "must be UTF-8; byte 3"),
    "no prompt": ([], "--prompt TEXT"),
    "prompt too long": (["--prompt", "a b " * 400], "must fit in a context of 512"),
    "unknown policy": (["--prompt", "x", "-p", "specfitt"], "Did you mean 'specfit'"),
    "unknown parameter": (["--prompt", "x", "--set", "dept=3"], "Did you mean 'depth'"),
    "unknown cache": (["--prompt", "x", "-c", "lrv:25%"], "Did you mean 'lru'"),
    "no cache size": (["--prompt", "x", "-c", "lru:x"], "a cache size is"),
    "cache too small": (["--prompt", "x", "-c", "lru:7"], "one token's experts, 8 a layer"),
    "unknown profile": (["--prompt", "x", "--profile", "{tmp}/machin.toml"], "machine.toml'"),
    "damaged profile": (["--prompt", "x", "--profile", "{tmp}/bad.toml"], "unknown key nane"),
    "unknown link": (["--prompt", "x", "--link", "pcie"], "Did you mean 'pcie4'"),
    "unknown cost model": (["--prompt", "x", "--cost", "profil"], "Did you mean 'profile'"),
    "unknown model": (["--prompt", "x", "-m", "tinny"], "Did you mean 'tiny'"),
    "another architecture": (["--prompt", "x", "-m", "{tmp}/llama"], "model_type 'llama'"),
    "head that does not fit": (["--prompt", "x", "--head", "{tmp}/head"], "{tmp}/head"),
    "damaged tokenizer": (["--prompt", "x", "-m", "{tmp}/mute"], "no readable tokenizer"),
    "temperature below 0": (["--prompt", "x", "--temperature", "-1"], "temperature must be"),
}


@pytest.fixture
def bad_files(tmp_path: Path, profile: Path) -> Path:
    (tmp_path / "empty.txt").write_bytes(b"\n")
    (tmp_path / "latin.txt").write_bytes("caf\u00e9 noir".encode("latin-1"))
    shutil.copy(profile, tmp_path / "machine.toml")
    (tmp_path / "bad.toml").write_text(profile.read_text("utf-8") + "nane = 3\n", "utf-8")
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "config.json").write_text('{"model_type": "llama"}', "utf-8")
    shutil.copytree(TINY, tmp_path / "mute", ignore=shutil.ignore_patterns("predictor", "accept*"))
    (tmp_path / "mute" / "tokenizer.json").write_text("{}", "utf-8")
    shutil.copytree(TINY / "eagle3", tmp_path / "head")
    config = json.loads((tmp_path / "head" / "config.json").read_text("utf-8"))
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = [0, 2, 9]
    (tmp_path / "head" / "config.json").write_text(json.dumps(config), "utf-8")
    return tmp_path


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_line_status_2_and_leaves_nothing(bad_files, profile, case):
    given, message = REFUSED[case]
    args = [arg.replace("{tmp}", str(bad_files)) for arg in given]
    if "--profile" not in args:
        args += ["--profile", str(profile)]
    before = sorted(bad_files.rglob("*"))
    for verb in (["decode"], ["record", "-o", str(bad_files / "trace")]):
        made = run(*verb, "-n", 8, *args)
        assert made.exit_code == 2, (made.stdout, made.stderr)
        assert made.stdout == ""
        errors = [e for e in made.stderr.splitlines() if not e.startswith("warning: ")]
        assert len(errors) == 1
        assert errors[0].startswith("error: ")
        assert message.replace("{tmp}", str(bad_files)) in made.stderr
        assert sorted(bad_files.rglob("*")) == before


def test_a_trace_cut_in_the_middle_is_refused_and_said_to_be_damaged(tmp_path, run_trace):
    cut = tmp_path / "cut"
    shutil.copytree(run_trace, cut)
    part = next(cut.glob("cycles-*.parquet"))
    part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])
    replayed = run("replay", cut, "-p", "specfit", "-c", "lru:50%")
    assert replayed.exit_code == 2
    assert part.name in replayed.stderr
    assert "Traceback" not in replayed.stderr
    assert replayed.stdout == ""
    assert run("check", "trace", cut).exit_code == 1


def test_a_folder_that_is_no_trace_is_refused(tmp_path):
    for verb in (["replay"], ["show", "trace"]):
        made = run(*verb, tmp_path)
        assert made.exit_code == 2
        assert "Is this a trace?" in made.stderr


def test_an_interrupted_demo_keeps_the_older_results(tmp_path, two, monkeypatch):
    out = tmp_path / "results"
    out.mkdir()
    (out / "results.json").write_text("older", "utf-8")

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("specfit.cli.demo_run.decode_interleaved", interrupt)
    made = run("demo", "--prompts", two, "-n", 4, "-o", out)
    assert made.exit_code == 130
    assert "is as it was" in made.stderr
    assert (out / "results.json").read_text("utf-8") == "older"
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_an_interrupted_recording_says_what_is_kept(tmp_path, two, profile, monkeypatch):
    out, calls = tmp_path / "trace", []
    from specfit.core.decode import DecodeLoop

    whole = DecodeLoop.run

    def interrupt_second(self, request):
        calls.append(request)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(self, request)

    monkeypatch.setattr(DecodeLoop, "run", interrupt_second)
    made = run("record", "-o", out, "--prompts", two, "-n", 8, "--profile", profile)
    assert made.exit_code == 130
    assert "marked unfinished" in made.stderr
    checked = run("check", "trace", out)
    assert checked.exit_code == 1
    assert "1 prompts can be read" in checked.stdout
