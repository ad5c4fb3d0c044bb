"""The tables of a sweep's report, as text with a number to sort by; every ratio is named."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specfit.report.measures import DASH, number_text
from specfit.report.naming import OURS, PLAIN, link_name, short_names, trace_names
from specfit.report.time_chart import PARTS, part_s
from specfit.sim.metrics import Interval, regret
from specfit.sim.results import Place, Result, Results, depth_counts

RIVAL = "eagle3"
PLACE = ("trace", "link", "cache", "policy")
"""The first columns of every table that has a row for each cell."""


@dataclass(frozen=True)
class Cell:
    """A table's cell: what is shown, and the number behind it, if it is one."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Parameters
    ----------
    key : str
        Its name in links.
    title, note : str
        Above it; the note says what the columns mean.
    header : tuple of str
        Column names.
    rows : tuple of tuple of Cell
        As many cells in each as columns.
    is_long : bool
        Whether it has a row for each cell of the sweep, with `PLACE` in front.
    """

    key: str
    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    is_long: bool = False


def tables_of(results: Results) -> list[Table]:
    """Return the tables of a report: the overview by trace and link, then a row for each cell."""
    return [
        *overviews(results),
        speed_table(results),
        time_table(results),
        copies_table(results),
        acceptance_table(results),
        prediction_table(results),
    ]


def overviews(results: Results) -> list[Table]:
    """Return a table for each trace and link: policies down, caches across."""
    traces, names = trace_names(results.traces), short_names(results.policies)
    tables = []
    for trace in results.traces:
        part = results.of_trace(trace)
        for number, link in enumerate(part.links):
            rows = []
            for policy in part.policies:
                found = [part.find(Place(trace, link, cache), policy) for cache in part.caches]
                cells = [_overview_cell(part, result) for result in found]
                rows.append((_named(names[policy], part, policy), *cells))
            tables.append(
                Table(
                    key=f"overview-{results.traces.index(trace)}-{number}",
                    title=f"{traces[trace]}, {link_name(link)}: tokens/s, {results.seconds}",
                    note="In brackets the speed-up over plain decoding with the same cache.",
                    header=("policy", *part.caches),
                    rows=tuple(rows),
                )
            )
    return tables


def speed_table(results: Results) -> Table:
    """Return speed, speed-ups and regret, a row for each cell."""

    def cells(result: Result) -> list[Cell]:
        m, best = result.metrics, results.best(result.place).metrics
        return [
            _number(m.tokens_per_s, 1),
            _gain(result, results.baseline(result.place, PLAIN)),
            _gain(result, results.baseline(result.place, RIVAL)),
            _percent(regret(m.tokens_per_s, best.tokens_per_s), 1),
            _number(m.committed_per_cycle, 2),
            _number(m.verified_per_cycle, 1),
            _number(m.levels_per_cycle, 2),
        ]

    return _long(
        results,
        "speed",
        f"Speed, {results.seconds}",
        f"Speed-up over plain decoding and over {_rival(results)}, both with the same cache, on "
        f"the same link and texts, with the 95 % interval of a bootstrap over texts. Regret: how "
        f"much slower than the best policy of the same trace, link and cache; references, which "
        f"look ahead of the target, are not counted as best. Plain decoding commits 1 token a "
        f"cycle and verifies 1 node.",
        (
            "tokens/s",
            "over plain",
            f"over {RIVAL}",
            "regret",
            "committed a cycle",
            "verified a cycle",
            "levels a cycle",
        ),
        cells,
    )


def time_table(results: Results) -> Table:
    """Return where the time of a committed token goes, a row for each cell."""

    def cells(result: Result) -> list[Cell]:
        m = result.metrics
        parts = [1e3 * part_s(m, part) / m.num_committed for part in PARTS]
        return [
            *(_number(ms, 2) for ms in parts),
            _number(1e3 * m.decode_s / m.num_committed, 2),
            _number(1e3 * m.decode_s / m.num_cycles, 2),
            _percent(m.stall_s / m.decode_s, 0),
        ]

    return _long(
        results,
        "time",
        f"Time split, {results.seconds}",
        "Milliseconds a committed token by part of the cycle; their sum; the whole cycle; and the "
        "share of the time in which compute waits for copies. The policy's own search takes no "
        "simulated time.",
        (*(f"{part}, ms" for part in PARTS), "ms a token", "ms a cycle", "stalled"),
        cells,
    )


def copies_table(results: Results) -> Table:
    """Return bytes, hits, Belady's gap and the locality control, a row for each cell."""

    def cells(result: Result) -> list[Cell]:
        m = result.metrics
        return [
            _number(m.bytes_per_token / 1e6, 1),
            _number(m.copied_per_token, 1),
            _percent(m.hit_rate, 1),
            _percent(m.wasted_bytes / m.h2d_bytes if m.h2d_bytes else math.nan, 1),
            _count(result.belady_misses, m.num_committed),
            _above(m.num_misses + m.num_prefetched, result.belady_misses),
            _above(result.shuffled_misses, result.ordered_misses),
            _above(result.dealt_misses, result.ordered_misses),
        ]

    return _long(
        results,
        "copies",
        "Copies and locality",
        "Megabytes and experts copied a committed token, and the share of them that was copied "
        "ahead for nothing. Belady: the fewest experts a token that "
        "any rule of this size could have copied for the same passes, by looking ahead, and how "
        "far above it this cache is. Control: how many more it would copy if the passes of each "
        "text came in an order drawn at random, and if those of all texts were dealt to them at "
        "random. Near 0 % there was no locality to gain from.",
        (
            "MB a token",
            "copies a token",
            "hit rate",
            "wasted",
            "Belady, a token",
            "above Belady",
            "if shuffled",
            "if dealt",
        ),
        cells,
    )


def acceptance_table(results: Results) -> Table:
    """Return accepted over verified nodes by depth, a row for each trace and policy."""
    traces, names = trace_names(results.traces), short_names(results.policies)
    found = [
        (trace, policy, depth_counts(r for x in part if x.policy == policy for r in x.rows))
        for trace in results.traces
        for part in [results.of_trace(trace)]
        for policy in part.policies
    ]
    deepest = max((len(counts) for _, _, counts in found), default=0)
    rows = []
    for trace, policy, counts in found:
        if counts:
            rates = [_number(count.acceptance_rate, 3) for count in counts]
            blank = [Cell(DASH)] * (deepest - len(counts))
            rows.append((Cell(traces[trace]), Cell(names[policy]), *rates, *blank))
    return Table(
        key="acceptance",
        title="Acceptance by depth",
        note="Accepted over verified nodes at each depth of the draft tree, over all caches and "
        "links. A policy that verifies only what is likely shows higher rates on fewer nodes.",
        header=("trace", "policy", *(f"depth {d}" for d in range(1, deepest + 1))),
        rows=tuple(rows),
    )


def prediction_table(results: Results) -> Table:
    """Return predicted over realised tokens and copies of the policies that predict them."""
    traces, names = trace_names(results.traces), short_names(results.policies)
    rows = []
    for trace in results.traces:
        part = results.of_trace(trace)
        for policy in part.policies:
            of_policy = tuple(row for r in part if r.policy == policy for row in r.rows)
            found = Result(part.places[0], policy, of_policy).metrics.calibration
            if found.realised_committed:
                ratios = [found.committed_ratio, found.misses_ratio]
                rows.append(
                    (Cell(traces[trace]), Cell(names[policy]), *(_number(x, 3) for x in ratios))
                )
    return Table(
        key="predictions",
        title="Predicted over real",
        note="What the chosen selections were expected to commit and to copy, over what they did, "
        "over all caches and links. 1 is calibrated; above 1 more was expected than came.",
        header=("trace", "policy", "committed tokens", "copied experts"),
        rows=tuple(rows),
    )


def summary(results: Results) -> list[str]:
    """Return the findings in sentences: how often each policy is fastest, and by how much."""
    names, traces = short_names(results.policies), trace_names(results.traces)
    sentences = []
    for trace in results.traces:
        part = results.of_trace(trace)
        places = part.places
        wins = [part.best(place).policy for place in places]
        counts = {policy: wins.count(policy) for policy in dict.fromkeys(wins)}
        won = ", ".join(
            f"{names[policy]} at {count}" for policy, count in sorted(counts.items(), key=_most)
        )
        text = (
            f"{traces[trace]}: of {len(places)} combinations of cache and link, fastest is {won}."
        )
        sentences.append(text + _ours_in_words(part))
    return sentences


def _ours_in_words(part: Results) -> str:
    texts = []
    for name in (PLAIN, RIVAL):
        gains = []
        for place in part.places:
            ours, other = part.baseline(place, OURS), part.baseline(place, name)
            if ours is not None and other is not None:
                gains.append(ours.metrics.tokens_per_s / other.metrics.tokens_per_s)
        if gains:
            base = "plain decoding" if name == PLAIN else name
            texts.append(f"{min(gains):.2f} to {max(gains):.2f} times {base}")
    return f" {OURS} runs at {' and '.join(texts)}." if texts else ""


def _most(item: tuple[str, int]) -> int:
    return -item[1]


def _long(
    results: Results,
    key: str,
    title: str,
    note: str,
    columns: tuple[str, ...],
    cells: Callable[[Result], Sequence[Cell]],
) -> Table:
    traces, names = trace_names(results.traces), short_names(results.policies)
    rows = []
    for result in results:
        place = result.place
        front = (
            Cell(traces[place.trace]),
            Cell(link_name(place.link_bytes_per_s), place.link_bytes_per_s),
            Cell(place.cache, result.cache_share),
            _named(names[result.policy], results, result.policy),
        )
        rows.append((*front, *cells(result)))
    return Table(key, title, note, (*PLACE, *columns), tuple(rows), is_long=True)


def _named(name: str, results: Results, policy: str) -> Cell:
    found = next(result for result in results if result.policy == policy)
    return Cell(f"{name} (reference)" if found.is_reference else name)


def _overview_cell(results: Results, result: Result | None) -> Cell:
    if result is None:
        return Cell(DASH)
    speed = result.metrics.tokens_per_s
    plain = results.baseline(result.place, PLAIN)
    gain = f" ({speed / plain.metrics.tokens_per_s:.2f})" if plain else ""
    return Cell(f"{number_text(speed, 1)}{gain}", speed)


def _rival(results: Results) -> str:
    found = next((p for p in results.policies if p.partition(":")[0] == RIVAL), None)
    return f"{RIVAL} (not in this sweep)" if found is None else found


def _gain(result: Result, baseline: Result | None) -> Cell:
    if baseline is None:
        return Cell(DASH)
    gain: Interval = result.speedup_over(baseline)
    if result is baseline:
        return Cell("1", 1.0)
    return Cell(f"{gain.estimate:.2f} [{gain.low:.2f}, {gain.high:.2f}]", gain.estimate)


def _number(value: float, digits: int) -> Cell:
    return Cell(number_text(value, digits), None if math.isnan(value) else value)


def _percent(value: float, digits: int) -> Cell:
    return Cell(DASH) if math.isnan(value) else Cell(f"{value:.{digits}%}", value)


def _count(count: int | None, num_tokens: int) -> Cell:
    return Cell(DASH) if count is None else _number(count / num_tokens, 1)


def _above(count: int | None, base: int | None) -> Cell:
    if not base or count is None:
        return Cell(DASH)
    return Cell(f"{count / base - 1:+.1%}", count / base - 1)
