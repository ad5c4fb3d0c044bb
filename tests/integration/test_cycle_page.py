"""The page of a cycle in a headless browser: what it shows is what the library answers."""

from __future__ import annotations

import html
import json
import random
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from specfit.cli.main import app
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.policies import SpecFit
from specfit.policies.acceptance.identity import Identity
from specfit.policies.predictors.uniform import Uniform
from specfit.report.what_if import BANDWIDTH_FACTORS
from specfit.sim.replay import replay
from specfit.sim.trace import TraceReader
from specfit.testing.examples import example_profile
from tests.unit.sim.traces import write_positions

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PROFILE = replace(example_profile(), first_level_s=1e-6, level_s=1e-6)
VISIT = """
<pre id="visited"></pre><script>
const visited = [];
for (const [bandwidth, cache] of STOPS) {
  for (const [id, value] of [["bandwidth", bandwidth], ["cache", cache]]) {
    document.getElementById(id).value = value;
    document.getElementById(id).dispatchEvent(new Event("input"));
  }
  const nodes = selector => [...document.querySelectorAll(selector)].map(c => +c.dataset.node);
  visited.push({chosen: nodes(".card.chosen"), undrafted: nodes(".card.undrafted"),
    cache: document.getElementById("cache-text").textContent,
    sum: document.getElementById("sum").textContent});
}
document.querySelector('[data-node="1"]').dispatchEvent(new Event("mouseenter"));
visited.push({chips: document.querySelectorAll("#node .chip").length,
  node: document.getElementById("node").textContent});
document.getElementById("visited").textContent = JSON.stringify(visited);
</script></body>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    write_positions(folder / "trace")
    PROFILE.write(folder / "profile.toml")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text('{"model_type": "none"}')
    return folder


def explain(folder: Path, *arguments: object):
    given = ["--profile", folder / "profile.toml", "--model", folder / "model"]
    everything = ["explain", folder / "trace", *given, *arguments]
    return CliRunner().invoke(app, [str(argument) for argument in everything])


def visit(page: Path, stops: list[tuple[int, int]]) -> list[dict]:
    """Move the sliders to each stop in a browser and return what the page then shows."""
    assert CHROMIUM is not None
    script = VISIT.replace("STOPS", json.dumps(stops))
    page.write_text(page.read_text("utf-8").replace("</body>", script), "utf-8")
    dumped = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    found = re.search(r'<pre id="visited">(.*?)</pre>', dumped, re.DOTALL)
    assert found is not None, dumped[-2000:]
    return json.loads(html.unescape(found[1]))


@pytest.mark.skipif(CHROMIUM is None, reason="needs a chromium on the path")
def test_at_20_stops_the_page_shows_what_a_replay_there_chooses(folder: Path):
    """The first cycle of a text: a replay with that cache and link has the same state there."""
    page = folder / "cycle.html"
    made = explain(folder, "--cycle", 0, "-p", "specfit", "-c", "lru:8", "-o", page)
    assert made.exit_code == 0, made.stderr
    data = json.loads(re.search(r'application/json">(.*?)</script>', page.read_text("utf-8"))[1])
    caches = data["caches"]
    within = [
        (b, c)
        for c, row in enumerate(data["stops"])
        for b, stop in enumerate(row)
        if not stop["wantsMore"]
    ]
    stops = random.Random(7).sample(within, 20)
    *shown, last = visit(page, stops)
    assert len({tuple(seen["chosen"]) for seen in shown}) > 1
    trace = TraceReader(folder / "trace")
    inputs = {
        "predictor": Uniform(trace.metadata.geometry),
        "acceptance": Identity(),
    }
    for (b, c), seen in zip(stops, shown, strict=True):
        bandwidth = PROFILE.h2d_bandwidth_bytes_per_s * BANDWIDTH_FACTORS[b]
        profile = replace(PROFILE, h2d_bandwidth_bytes_per_s=bandwidth)
        cache = make_cache(caches[c], trace.metadata.geometry)
        replayed = replay(
            trace, SpecFit(), cache, profile, cost=ProfileCost(profile), max_prompts=1, **inputs
        )
        there = next(replayed).cycles[0].outcome
        assert seen["cache"].startswith(caches[c])
        assert seen["chosen"] == there.selection.nodes.tolist()
        assert f"{there.cycle.levels} levels drafted" in seen["sum"]
    assert last["chips"] >= trace.metadata.geometry.num_layers * 2
    assert "marginal expected tokens" in last["node"]


def test_explain_without_drafts_says_so(folder: Path, tmp_path: Path):
    made = explain(folder, "-p", "autoregressive", "-o", tmp_path / "plain.html")
    assert made.exit_code == 0, made.stderr
    assert "no cycle of this prompt drafted anything" in made.stderr
    assert "1 node in 0 levels" in made.stdout
    assert (tmp_path / "plain.html").stat().st_size > 10_000


def test_an_unknown_tokenizer_gives_token_ids(folder: Path):
    made = explain(folder, "--json", "--cycle", 1)
    assert made.exit_code == 0, made.stderr
    assert "token ids are shown" in made.stderr
    rows = [json.loads(line) for line in made.stdout.splitlines()]
    assert all(row["text"] == str(row["token"]) for row in rows)
    assert np.isfinite([row["gain_tokens"] for row in rows]).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--cycle", 999], "--cycle must be 0 to"),
        (["--prompt", 9], "--prompt must be 0 to 2"),
        (["-o", "cycle.pdf"], "--out must end in .html, .png or .svg"),
        (["-p", "reference-truth"], "no decision to explain"),
    ],
)
def test_what_cannot_be_explained_is_one_line(folder: Path, given: list[object], message: str):
    made = explain(folder, *given)
    assert made.exit_code == 2
    assert message in made.stderr
    assert made.stdout == ""


def test_a_read_only_folder_is_one_line_and_leaves_nothing(folder: Path, monkeypatch):
    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "write_text", refuse)
    made = explain(folder, "-o", folder / "shut" / "cycle.html")
    assert made.exit_code == 2
    assert "Permission denied" in made.stderr.splitlines()[-1]
    assert list((folder / "shut").iterdir()) == []


def test_a_terminal_of_40_columns_gets_short_lines(folder: Path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    made = explain(folder, "-p", "eagle3:depth=4,top_k=3,max_nodes=12")
    assert made.exit_code == 0, made.stderr
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in made.stdout.splitlines()]
    assert max(map(len, lines)) <= 40
    assert any(line.split()[-1:] == ["A"] for line in lines)


def test_a_trace_whose_model_is_not_at_hand_needs_its_inputs_named(folder: Path):
    given = ["explain", str(folder / "trace"), "--profile", str(folder / "profile.toml")]
    refused = CliRunner().invoke(app, given)
    assert refused.exit_code == 2
    assert "recorded with the model 'synthetic', which is not at hand" in refused.stderr
    named = ["--predictor", "uniform", "--acceptance", "identity", "--json"]
    assert all(word in refused.stderr for word in named[:-1])
    made = CliRunner().invoke(app, [*given, *named])
    assert made.exit_code == 0, made.stderr
    assert "token ids are shown" in made.stderr


@pytest.mark.parametrize("name", ["cycle.html", "cycle.png"])
def test_a_path_that_cannot_be_is_said_before_anything_is_replayed(folder: Path, name: str):
    made = explain(folder, "-o", folder / "profile.toml" / name)
    assert made.exit_code == 2
    assert f"{folder / 'profile.toml'} is a file" in made.stderr
    assert made.stdout == ""
