"""A sweep's report: which pictures and tables it has, and what is said of where they come from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from specfit.report.best_chart import draw_best
from specfit.report.growth_charts import draw_acceptance, draw_unions
from specfit.report.naming import Look, looks_of, trace_names
from specfit.report.panels import Words
from specfit.report.speed_charts import draw_by_cache, draw_by_link
from specfit.report.sweep_tables import Table, summary, tables_of
from specfit.report.time_chart import draw_time
from specfit.report.words import counted
from specfit.sim.results import Results


@dataclass(frozen=True)
class Picture:
    """A picture of the report.

    Parameters
    ----------
    key : str
        Name of its file.
    title : str
        What it shows, also for those who cannot see it.
    figure : Figure
        The picture.
    """

    key: str
    title: str
    figure: Figure


@dataclass(frozen=True)
class Report:
    """All that a report shows.

    Parameters
    ----------
    title : str
        Heading.
    source : str
        Where seconds and traces come from, in one sentence.
    findings : list of str
        The results in sentences.
    pictures : list of Picture
        In order.
    tables : list of Table
        In order.
    manifest : list of (str, str)
        What made the results, by name.
    """

    title: str
    source: str
    findings: list[str]
    pictures: list[Picture]
    tables: list[Table]
    manifest: list[tuple[str, str]]


def report_of(results: Results) -> Report:
    """Return the report of a sweep."""
    return Report(
        title=f"Sweep: {counted(len(results.policies), 'policy', 'policies')}, "
        f"{counted(len(results.caches), 'cache')}, "
        f"{counted(len(results.links), 'link')}, "
        f"{counted(len(results.traces), 'trace')}",
        source=source_of(results),
        findings=summary(results),
        pictures=pictures_of(results),
        tables=tables_of(results),
        manifest=manifest_of(results),
    )


def pictures_of(results: Results) -> list[Picture]:
    """Return the pictures that these results have something to show in."""
    looks = looks_of(results.policies)
    found: list[Picture] = []

    def add(key: str, title: str, caption: str, draw: Draw, part: Results) -> None:
        figure = draw(part, looks, Words(title, (caption, source_of(part))))
        if figure is not None:
            found.append(Picture(key, title, figure))

    for number, (trace, name) in enumerate(trace_names(results.traces).items()):
        part = results.of_trace(trace)
        for key, title, caption, draw in PER_TRACE:
            add(f"{key}-{number}", f"{name}: {title}", caption, draw, part)
    for key, title, caption, draw in OVERALL:
        add(key, title, caption, draw, results)
    return found


Draw = Callable[[Results, dict[str, Look], Words], Figure | None]
PER_TRACE: tuple[tuple[str, str, str, Draw], ...] = (
    (
        "best",
        "fastest policy by cache and link",
        "In each field the fastest policy, its speed-up over plain decoding with the same cache, "
        "and its lead on the second.",
        draw_best,
    ),
    (
        "speed-by-cache",
        "speed against the size of the cache",
        "Committed tokens a second; the cache holds this share of every layer's experts.",
        draw_by_cache,
    ),
    (
        "speed-by-link",
        "speed against the bandwidth of the link",
        "Committed tokens a second; a panel for each cache.",
        draw_by_link,
    ),
    (
        "time",
        "where the time of a committed token goes",
        "Parts of the cycle, over the tokens that it commits. Stall: compute waits for copies.",
        draw_time,
    ),
)
OVERALL: tuple[tuple[str, str, str, Draw], ...] = (
    (
        "unions",
        "Growth of the union of experts",
        "Distinct experts that a pass needs, by the nodes it verifies, over all caches and links. "
        "Below the dotted line tokens share experts more than by chance.",
        draw_unions,
    ),
    (
        "acceptance",
        "Acceptance by depth",
        "Over all caches and links. A policy that verifies only what is likely is higher here.",
        draw_acceptance,
    ),
)


def source_of(results: Results) -> str:
    """Return where the seconds and the traces come from, in one sentence."""
    profiles = dict.fromkeys((row["profile"], row["profile_kind"]) for row in results.rows)
    hardware = ", ".join(f"'{name}' ({kind})" for name, kind in profiles)
    traces = trace_names(results.traces)
    origins = dict.fromkeys((traces[row["trace"]], row["origin"]) for row in results.rows)
    recorded = ", ".join(f"{name} ({origin})" for name, origin in origins)
    return f"Seconds are {results.seconds} from hardware profile {hardware}; traces: {recorded}."


def manifest_of(results: Results) -> list[tuple[str, str]]:
    """Return what made the results: versions, specs, fingerprints, profiles."""
    rows = results.rows
    names = (
        *("specfit", "commit", "cost", "model", "predictor", "acceptance", "inputs_sha256"),
        *("overlap", "prefetch", "host", "max_prompts"),
    )
    lines = [(name, _values(str(row.get(name)) for row in rows)) for name in names]
    lines.append(("policies", "; ".join(results.policies)))
    lines.append(("seeds", _values(str(row["policy_key"]) for row in rows)))
    for trace in results.traces:
        row = next(r for r in rows if r["trace"] == trace)
        lines.append(
            (
                f"trace {trace}",
                f"{row['origin']}, of {row['trace_model']}, {row['num_prompts']} texts, "
                f"fingerprint {row['trace_fingerprint']}, "
                f"{row['num_layers']} layers of {row['num_experts']} experts, "
                f"{row['experts_per_token']} a token, {row['expert_bytes']:,} bytes each",
            )
        )
    for values in dict.fromkeys(_without_link(row) for row in rows):
        lines.append(("profile", values))
    lines.append(("near ties", _values(str(row["num_near_ties"]) for row in rows)))
    lines.append(("to repeat a row", str(rows[0]["repeat"])))
    return lines


def _without_link(row: dict[str, Any]) -> str:
    values = json.loads(row["profile_values"])
    values.pop("h2d_bandwidth_bytes_per_s")
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _values(texts: Any) -> str:
    return ", ".join(dict.fromkeys(texts))
