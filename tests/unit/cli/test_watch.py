"""`specfit watch` on the toy backend: what it shows is what happened, at any width."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from specfit.cli.counters import HELP, CounterFile
from specfit.cli.watch_observers import Rows
from specfit.cli.watch_panel import ACCEPTED, Run, log_line, panel
from specfit.core.backend import Request
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop
from specfit.policies import Eagle3
from specfit.sim.metrics import measure
from specfit.sim.plain_estimate import PlainEstimate
from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile
from specfit.testing.toy import toy_backend

WORDS = [f"w{i} " for i in range(30)] + ["\n", "日本 "]


def text(tokens):
    return "".join(WORDS[token] for token in tokens)


def watched(observers=lambda run: [], max_new_tokens=40):
    backend = toy_backend("lru:50%")
    plain = PlainEstimate(make_cache("lru:50%", backend.geometry), example_profile())
    run = Run(text, plain)
    inputs = UniformPredictor(backend.geometry), DrafterAcceptance()
    cost = ProfileCost(example_profile())
    loop = DecodeLoop(backend, Eagle3(4, 3, 12), cost, *inputs, [run, *observers(run)])
    return run, loop.run(Request((1, 2, 3), max_new_tokens))


def test_the_pieces_are_the_text_and_the_marked_ones_were_accepted():
    run, result = watched()
    assert "".join(piece for piece, _ in run.pieces) == text(result.tokens)
    marked = sum(is_accepted for _, is_accepted in run.pieces)
    assert marked == sum(len(c.outcome.accepted) for c in result.cycles) > 0


def test_a_character_is_held_back_until_it_is_whole():
    run, _ = watched()
    halves = Run(lambda tokens: "a\ufffd" if len(tokens) == 1 else "aé", run.plain)
    halves._push(0, is_accepted=False)
    assert halves.pieces == [("a", False)]
    halves._push(1, is_accepted=True)
    assert halves.pieces == [("a", False), ("é", True)]


@pytest.mark.parametrize(("columns", "lines"), [(40, 12), (80, 24), (200, 50)])
def test_the_panel_fits_the_terminal(columns, lines):
    run, _ = watched()
    shown = panel(run, "title " * 30, columns=columns, lines=lines)
    rows = shown.split("\n", allow_blank=True)
    assert len(rows) <= lines
    assert max(row.cell_len for row in rows) <= columns
    plain = shown.plain
    assert "verified" in plain and "stall" in plain and "estimated" in plain
    assert any(span.style == ACCEPTED for span in shown.spans)


def test_without_colour_accepted_tokens_still_differ(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    run, _ = watched()
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80)
    console.print(panel(run, "t", columns=80, lines=20))
    codes = set(re.findall(r"\x1b\[([0-9;]*)m", stream.getvalue()))
    assert "1" in codes  # bold
    assert not any(code.startswith(("3", "4")) and len(code) == 2 for code in codes)


def test_before_the_first_cycle_there_is_a_panel():
    run, _ = watched(max_new_tokens=1)
    assert "no cycle yet" in panel(run, "t", columns=40, lines=10).plain


def test_a_line_and_a_row_tell_the_same_counts():
    rows = []

    class Keep(Rows):
        def on_cycle(self, record):
            rows.append(self.row(record))

    run, result = watched(lambda run: [Keep(run)])
    assert sum(row["num_misses"] for row in rows) == measure([result], 1).num_misses
    assert "".join(row["text"] for row in rows) == text(result.tokens[1:])
    last = result.cycles[-1].outcome
    assert f"{len(last.selection)} verified, {len(last.accepted)} accepted" in log_line(run)
    assert rows[-1]["tokens_per_s"] == pytest.approx(measure([result], 1).tokens_per_s)


def test_the_counters_are_the_metrics(tmp_path):
    path = tmp_path / "deep" / "specfit.prom"
    _, result = watched(lambda run: [CounterFile(path, 1000)])
    found = dict(re.findall(r"^(\w+) (\d+)$", path.read_text("utf-8"), re.MULTILINE))
    m = measure([result], 1000)
    names = {name: name.removesuffix("_total").removeprefix("specfit_") for name in found}
    assert {names[name]: int(count) for name, count in found.items()} == {
        "requests": 1,
        "cycles": m.num_cycles,
        "committed_tokens": m.num_committed,
        "verified_nodes": m.num_verified,
        "accepted_nodes": m.num_accepted,
        "drafted_levels": m.num_levels,
        "expert_hits": m.num_hits,
        "expert_misses": m.num_misses,
        "h2d_bytes": m.h2d_bytes,
    }  # fmt: skip
    parts = re.findall(r'part="(\w+)"} (\S+)', path.read_text("utf-8"))
    assert sum(float(seconds) for _, seconds in parts) == pytest.approx(m.decode_s)
    assert all(f"# TYPE {name} counter" in path.read_text("utf-8") for name in HELP)
    assert list(path.parent.iterdir()) == [path]


def test_what_was_copied_ahead_was_copied(tmp_path):
    run, result = watched()
    outcome = result.cycles[-1].outcome
    ahead = replace(outcome.verification, num_prefetched=3)
    run.last = replace(result.cycles[-1], outcome=replace(outcome, verification=ahead))
    counters = CounterFile(tmp_path / "specfit.prom", 1000)
    counters.on_cycle(run.last)
    copied = int(ahead.num_misses.sum()) + 3
    assert f"specfit_h2d_bytes_total {1000 * copied}\n" in counters.text()
    assert f"specfit_expert_misses_total {copied - 3}\n" in counters.text()
    assert f" {copied} copied;" in log_line(run)
