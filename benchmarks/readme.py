"""The README's table, from the results of the decoding benchmark; see `benchmarks.pages`."""

from __future__ import annotations

from typing import Any

PARTS = ("eagle3", "eagle3-tuned", "specfit")


def block(report: dict[str, Any]) -> str:
    """Return the table and what one must know to read it."""
    rows = {(row["cache"], row["policy"]): row for row in report["rows"]}
    caches = list(dict.fromkeys(row["cache"] for row in report["rows"]))
    counts = sorted({row["num_prompts"] for row in report["rows"]})
    prompts = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    lines = [
        f"Measured {report['date']} on {report['machine']}, with an *emulated* link: copies cost,",
        "relative to compute, what they do for Qwen3-30B-A3B on PCIe 4 x16. The bundled model in",
        f"float32, greedy, {prompts} held-out prompts a cache, {report['new_tokens']} tokens each,",
        f"medians over runs, `{report['command']}`. Speed-up over plain decoding with the same",
        "cache and its 95 % interval; every text is the stock model's own. *Over tuned*: specfit",
        "over tuned EAGLE-3. *Ceiling* is simulated: perfect drafting that takes no time.",
        "",
        "| cache | plain, tokens/s | EAGLE-3 default | EAGLE-3 tuned | **specfit** | over tuned "
        "| ceiling |",
        "|---|---|---|---|---|---|---|",
    ]
    for cache in caches:
        plain = rows[cache, "autoregressive"]
        cells = [_interval(rows[cache, policy]["speedup"]) for policy in PARTS]
        over = _interval(rows[cache, "specfit"]["against_tuned"])
        tree = rows[cache, "eagle3-tuned"]["params"]
        cells[1] += f" ({tree['depth']}/{tree['top_k']}/{tree['max_nodes']})"
        ceiling = plain["ceiling_tokens_per_s"] / plain["tokens_per_s"]
        speed = f"{plain['tokens_per_s']:.1f}"
        row = (f"`{cache}`", speed, *cells[:2], f"**{cells[2]}**", over, f"{ceiling:.2f}")
        lines.append(f"| {' | '.join(row)} |")
    lines += [
        "",
        "EAGLE-3 by default: depth 7, top-k 10, 60 nodes; the tuned tree, in brackets, was chosen",
        "for that cache size on training prompts. Plain decoding with everything resident runs at",
        f"{report['stock_ratio']:.2f} times the speed of stock `transformers.generate`.",
    ]
    return "\n".join(lines)


def _interval(ratios: list[float]) -> str:
    ratio, low, high = ratios
    return f"{ratio:.2f} [{low:.2f}, {high:.2f}]"
