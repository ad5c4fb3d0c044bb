"""What the demo leaves behind: the table, two pictures, and one file with every number."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specfit.cli.demo_run import EAGLE3, DemoRun
from specfit.cli.manifest import manifest
from specfit.report.comparison import Contender
from specfit.report.example_cycle import cycle_to_show, view_of
from specfit.report.speed import SpeedBar, draw_speed
from specfit.report.style import save
from specfit.report.tree import draw_tree
from specfit.report.words import speedup_text, verdict


def write_results(run: DemoRun, folder: Path) -> None:
    """Write ``results.json`` and the pictures ``speed`` and ``tree`` (PNG and SVG)."""
    table = {
        "title": title(run),
        "note": note(run),
        "verdict": closing_line(run),
        "rows": json_rows(run),
    }
    text = json.dumps(table, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / "results.json").write_text(text, encoding="utf-8")
    bars = [_bar(run, contender) for contender in run.comparison.contenders]
    speed = draw_speed(
        bars,
        title="Decode throughput by policy",
        caption=f"{title(run)}\n{link_note(run)}",
        reference=bars[0],
    )
    save(speed, folder / "speed")
    record = cycle_to_show(run.comparison.contenders[2].live.results)
    if record is not None:
        view = view_of(
            record, run.live.text, title="One drafted tree, and the nodes that specfit chose"
        )
        save(draw_tree(view), folder / "tree")


def title(run: DemoRun) -> str:
    """Return what was decoded, in one line."""
    geometry = run.live.backend.geometry
    num_tokens = run.comparison.baseline.live.metrics.num_committed + len(run.prompts)
    return (
        f"{run.live.options.model}: {len(run.prompts)} prompts, {num_tokens} tokens, greedy, "
        f"float32; "
        f"{geometry.num_layers} layers of {geometry.num_experts} experts, all offloaded"
    )


def link_note(run: DemoRun) -> str:
    """Return what must be said about the link: its copies are emulated."""
    return (
        f"Link EMULATED: one expert takes {run.live.profile.copy_s * 1e3:.2f} ms, which relative "
        f"to compute is what it takes on PCIe 4."
    )


def note(run: DemoRun) -> str:
    """Return what must be known to read the table."""
    threads = run.live.backend.describe()["threads"]
    return (
        f"eagle3 is {EAGLE3.partition(':')[2]}, not tuned. "
        f"Measured: wall clock, {platform.machine()}, {threads} threads, prefill left out. "
        f"Simulated: the recorded trace replayed with the measured profile. "
        f"Off: relative error, median / 95th percentile of the cycles. "
        f"Profile: {run.live.profile.provenance}."
    )


def losslessness(run: DemoRun) -> str:
    """Return whether every text is the stock model's own."""
    differing = run.differing_texts()
    num_texts = len(run.prompts) * len(run.comparison.contenders)
    exact = "repeats it cycle by cycle" if run.is_replay_exact else "DIFFERS from it"
    texts = (
        f"All {num_texts} texts are those of transformers' own greedy generate."
        if not differing
        else f"{len(differing)} of {num_texts} texts DIFFER from transformers' greedy generate: "
        f"{', '.join(differing)}."
    )
    return f"{texts} The replay of specfit's run {exact}."


def closing_line(run: DemoRun) -> str:
    """Return what happened, in words."""
    baseline, fixed, ours, _ = run.comparison.contenders
    return verdict(ours.live, fixed.live, baseline.live)


def json_rows(run: DemoRun) -> list[dict[str, Any]]:
    """Return one row a policy, each with all that is needed to make it again."""
    told = {
        **run.live.specs(),
        "backend": run.live.backend.describe(),
        "machine": platform.platform(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "num_differing_texts": len(run.differing_texts()),
        "is_replay_exact": run.is_replay_exact,
    }
    return [{**manifest(**told), **row} for row in run.comparison.json_rows()]


def _bar(run: DemoRun, contender: Contender) -> SpeedBar:
    base = run.comparison.baseline.live.metrics.tokens_per_s
    gain = run.comparison.speedup(contender)
    is_base = contender is run.comparison.baseline
    tree = f"{EAGLE3.rpartition('=')[2]} nodes, " if contender.live.policy == EAGLE3 else ""
    return SpeedBar(
        label=contender.label,
        detail=f"{tree}cache {contender.live.cache}",
        tokens_per_s=contender.live.metrics.tokens_per_s,
        low=gain.low * base,
        high=gain.high * base,
        simulated_tokens_per_s=contender.replayed.metrics.tokens_per_s,
        speedup="plain decoding" if is_base else speedup_text(gain),
        is_ours=contender.live.policy == "specfit",
    )
