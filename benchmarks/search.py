"""Microseconds of the exact search, beside other solvers on the same closure, in one run.

``python -m benchmarks.search [--trace DIR]...`` prints one table; each row with a limit says
whether it is met, and the exit status is 1 if one is not. Instances are seeded and of the shape of
Qwen3-30B-A3B (48 layers, 128 experts, top-8), and cycles of the bundled model: of the position
traces that `--trace` names, or of demo prompts that are recorded first.
Other solvers build and solve *one* cut, from the same numpy arrays and by array operations
alone, at the price that the search has to find.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import search_peers as peers
from benchmarks.search_instances import Instance, draw, with_general_costs
from benchmarks.search_recorded import record_demo, recorded
from benchmarks.search_rows import Row, write_rows
from benchmarks.search_share import share_rows
from benchmarks.search_union import NUM_NODES, draw_cheap, loss_of_pricing
from specfit.core.cost import CostTerms
from specfit.core.search import (
    LevelSearch,
    ProbPricer,
    RoutingPricer,
    SearchProblem,
    SearchResult,
    exact,
    warm_up,
)
from specfit.sim.trace import TraceReader

RESIDENT = (0.25, 0.5, 0.75, 0.9)
TIMES_FASTER = {0.25: 7.0, 0.5: 7.0, 0.75: 10.0, 0.9: 10.0}


def seconds_of(work: Callable[[], Any], repeats: int) -> np.ndarray:
    """Return the seconds of each of `repeats` runs after one that is not counted.

    Seconds of this thread on a core: what else the machine does in between is not counted.
    """
    work()
    found = np.empty(repeats)
    for i in range(repeats):
        start = time.thread_time()
        work()
        found[i] = time.thread_time() - start
    return found


def affine_rows(instances: int, repeats: int) -> tuple[list[Row], dict[float, float]]:
    """Time 0/1 coverage of 61 nodes, from numpy arrays to the answer; and the faster peer."""
    rows, budgets = [], {}
    for resident in RESIDENT:
        ours: list[np.ndarray] = []
        fast: dict[str, list[np.ndarray]] = {name: [] for name in peers.FAST}
        for seed in range(instances):
            time_affine(draw(seed, 61, resident), repeats, ours, fast)
        own = np.concatenate(ours) * 1e3
        medians = {name: median_ms(times) for name, times in fast.items()}
        faster = min(medians.values())
        budgets[resident] = faster / TIMES_FASTER[resident]
        label = f"affine, 61 nodes, {resident:.0%} resident"
        note = ", ".join(f"{name} {ms:.2f} ms" for name, ms in medians.items())
        rows += [
            Row(f"{label}: median", float(np.median(own)), "ms"),
            Row(f"{label}: p99", float(np.percentile(own, 99)), "ms"),
            Row(f"{label}: faster peer / ours", faster / float(np.median(own)), "times",
                TIMES_FASTER[resident], True, note),
        ]  # fmt: skip
    return rows, budgets


def time_affine(
    instance: Instance, repeats: int, ours: list[np.ndarray], fast: dict[str, list[np.ndarray]]
) -> None:
    """Add the times of one instance, interleaved so that a noisy machine is noisy for all."""
    answer = exact(instance.problem())
    search_all = partial(
        LevelSearch(RoutingPricer()).search_tree, instance.terms, instance.parents,
        instance.path_probs, instance.routing, levels=instance.levels,
    )  # fmt: skip
    assert (search_all().mask == answer.mask).all()
    beyond_root_s = answer.cycle_s - root_seconds(instance.problem())
    gain = answer.expected_committed - 1.0 - answer.price * beyond_root_s
    for _ in range(4):
        ours.append(seconds_of(search_all, repeats // 4))
        for name, solve in peers.FAST.items():
            cut = partial(cut_from_arrays, solve, instance, answer.price)
            assert abs(cut() - gain) < 1e-6, name
            fast[name].append(seconds_of(cut, max(1, repeats // 16)))


def cut_from_arrays(
    solve: Callable[[peers.Closure], float], instance: Instance, price: float
) -> float:
    """Return a peer's best gain at a price, from the same arrays as the search."""
    return solve(peers.closure_of(instance, price))


def root_seconds(problem: SearchProblem) -> float:
    """Return T of the root alone."""
    return float(problem.draft_s + problem.terms.tau_s[1] + problem.demand.full_s[0])


def stage_rows(instances: int, repeats: int) -> list[Row]:
    """Time the stages: pricing, the search, and the even shares that the stop rule needs."""
    rows = []
    for resident in (0.25, 0.75):
        stages: dict[str, list[np.ndarray]] = {"pricing": [], "search": [], "even shares": []}
        for seed in range(instances):
            instance, pricer = draw(seed, 61, resident), RoutingPricer()
            problem = instance.problem_with(pricer)
            stages["even shares"].append(seconds_of(partial(share_anew, problem), repeats))
            stages["search"].append(seconds_of(partial(exact, problem), repeats))
            stages["pricing"].append(seconds_of(partial(instance.problem_with, pricer), repeats))
        rows += [
            Row(f"stage, 61 nodes, {resident:.0%} resident: {name}", median_ms(times), "ms")
            for name, times in stages.items()
        ]
    return rows


def share_anew(problem: SearchProblem) -> None:
    """Compute the even shares of the whole tree."""
    vars(problem.demand).pop("shared_s", None)
    _ = problem.demand.shared_s


def slow_peer_rows() -> list[Row]:
    """Time the other solvers, and the faster ones, on a graph that is ready beforehand."""
    rows = []
    for resident in (0.25, 0.75):
        instance = draw(0, 61, resident)
        closure = peers.closure_of(instance, exact(instance.problem()).price)
        for name, solve in (peers.SLOW | peers.FAST).items():
            ms = median_ms([seconds_of(partial(solve, closure), 3)])
            label = f"{name}, one cut of a ready graph, {resident:.0%} resident"
            rows.append(Row(label, ms, "ms"))
    return rows


def growth_rows(repeats: int) -> list[Row]:
    """Time ten times the nodes."""
    rows = []
    for resident in RESIDENT:
        search, times = LevelSearch(RoutingPricer()), {}
        for nodes in (61, 610):
            drawn = [draw(seed, nodes, resident) for seed in range(3)]
            times[nodes] = np.median(
                [np.median(seconds_of(partial(search_anew, i, search), repeats)) for i in drawn]
            )
        label = f"affine, 610 nodes, {resident:.0%} resident"
        grown = f"{times[610] / times[61]:.1f} times that of 61 nodes"
        rows.append(Row(f"{label}: median", float(times[610]) * 1e3, "ms", 3.0, note=grown))
    return rows


def expected_rows(instances: int, repeats: int, budgets: dict[float, float]) -> list[Row]:
    """Time expected coverage: pricing a whole tree, and the search after it."""
    rows = []
    for resident in RESIDENT:
        pricer, pricing, searching = ProbPricer(), [], []
        for seed in range(instances):
            instance = draw(seed, 61, resident)
            pricing.append(seconds_of(partial(instance.problem_with, pricer), repeats))
            problem = instance.problem_with(pricer)
            searching.append(seconds_of(partial(exact, problem), repeats))
        label = f"expected, 61 nodes, {resident:.0%} resident"
        rows += [
            Row(f"{label}: pricing", median_ms(pricing), "ms", 0.5),
            Row(f"{label}: search", median_ms(searching), "ms", budgets[resident]),
        ]
    return rows


def search_anew(instance: Instance, search: LevelSearch) -> SearchResult:
    """Price and search, from numpy arrays to the answer."""
    predicted = instance.routing if isinstance(search.pricer, RoutingPricer) else instance.probs
    return search.search_tree(
        instance.terms, instance.parents, instance.path_probs, predicted, levels=instance.levels
    )


def search_at(instance: Instance, price: float) -> SearchResult:
    """Price and search at a given price."""
    return exact(instance.problem(), price=price)


def median_ms(times: Sequence[np.ndarray]) -> float:
    """Return the median over all runs, in ms."""
    return float(np.median(np.concatenate(times))) * 1e3


def general_rows(instances: Sequence[Instance], label: str) -> list[Row]:
    """Time branch and bound under kernel cliffs, free copies and overlap by layer."""
    times, open_ones = [], 0
    for instance in map(with_general_costs, instances):
        problem = instance.problem()
        result = exact(problem)
        open_ones += result.status != "optimal"
        times.append(float(np.median(seconds_of(partial(exact, problem), 5))) * 1e3)
    within = np.mean(np.array(times) <= 5.0) if not open_ones else 0.0
    note = f"median {np.median(times):.2f} ms, worst {max(times):.2f} ms, {open_ones} not proved"
    return [Row(f"{label}: proved within 5 ms", 100.0 * float(within), "%", 95.0, True, note)]


def worst_rows() -> list[Row]:
    """Time the families where nothing can be pruned, and a general search that hits its limit."""
    rng = np.random.default_rng(0)
    parents = np.array([-1] + [0] * 60, np.int32)
    path_probs = np.array([1.0] + [1.0 / 60] * 60)
    routing = rng.integers(0, 128, (61, 48, 8)).astype(np.int16)
    terms = CostTerms(np.zeros(1), np.append(0.0, np.ones(61)), np.full((48, 128), 1e-3))
    star = Instance(parents, path_probs, routing, np.zeros((0, 48, 128), np.float32), terms, 0)
    price = tipping_price(star.problem())
    rows = []
    for factor in (0.999, 1.0, 1.001):
        result = exact(star.problem(), price=factor * price)
        ms = median_ms([seconds_of(partial(search_at, star, factor * price), 20)])
        note = f"{result.num_nodes} nodes, {result.num_cuts} cuts"
        rows.append(
            Row(f"worst case, affine, price {factor:g} of tipping", ms, "ms", 10.0, note=note)
        )
    limited = exact(with_general_costs(star).problem(), price=price, max_expansions=50)
    gap = limited.upper_bound - limited.objective
    note = f"{limited.status} after {limited.num_expansions} subproblems"
    rows.append(Row("worst case, general: gap of its bound", gap, "tokens", 0.0, True, note))
    return rows


def tipping_price(problem: SearchProblem) -> float:
    """Return the price at which the best selection turns from many nodes to the root alone."""
    low, high = 0.0, 1e3
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if exact(problem, price=middle).num_nodes > 1 else (low, middle)
    return low


def level_rows(instances: int, repeats: int) -> list[Row]:
    """Time a cycle's searches after every level against one search of the final tree."""
    rows = []
    for hard in (True, False):
        ratios, stops = [], []
        for seed in range(instances):
            instance = draw(seed, 61, 0.5)
            search = LevelSearch(RoutingPricer() if hard else ProbPricer())
            once = np.median(seconds_of(partial(search_anew, instance, search), repeats))
            by_level, with_stops = (
                np.median(seconds_of(partial(search_levels, search, instance, levels), repeats))
                for levels in (levels_of(instance, hard, False), levels_of(instance, hard, True))
            )
            ratios.append(by_level / once)
            stops.append((with_stops - by_level) / once)
        label = "0/1 coverage" if hard else "expected coverage"
        rows += [
            Row(f"all levels / final tree, {label}", float(np.median(ratios)), "times", 2.0),
            Row(f"all stop tests / final tree, {label}", float(np.median(stops)), "times", 2.0),
        ]
    return rows


def level_ends(parents: np.ndarray) -> list[int]:
    """Return how many nodes the tree has after each level."""
    depths = np.zeros(len(parents), int)
    for node in range(1, len(parents)):
        depths[node] = depths[parents[node]] + 1
    return np.searchsorted(depths, np.arange(depths.max() + 1), side="right").tolist()


def levels_of(instance: Instance, hard: bool, stops: bool) -> list[tuple[Any, ...]]:
    """Return what `LevelSearch.advance` takes, by level; without stop tests it looks 0 ahead."""
    predicted = instance.routing if hard else instance.probs
    ends = level_ends(instance.parents)
    return [
        (
            instance.parents[:end], instance.path_probs[:end], predicted[first:end],
            np.full(len(ends) - 1 - level if stops else 0, 0.6), np.arange(end) >= first,
        )
        for level, (first, end) in enumerate(zip([0, *ends], ends, strict=False))
    ]  # fmt: skip


def search_levels(
    search: LevelSearch, instance: Instance, levels: Sequence[tuple[Any, ...]]
) -> None:
    """Search the tree level by level."""
    search.start(instance.terms)
    for level in levels:
        search.advance(*level)
        search.best()


def union_row(instances: Sequence[Instance], label: str) -> Row:
    """Measure what pricing loses against the exact expected union."""
    found = [loss_of_pricing(instance) for instance in instances]
    lost = [100.0 * loss for loss, _ in found]
    proved = sum(status == "optimal" for _, status in found)
    note = f"mean {np.mean(lost):.3f} %, {proved} of {len(found)} proved"
    return Row(f"{label}: rate lost by pricing, worst", max(lost), "%", note=note)


def recorded_rows(trace: TraceReader, name: str, repeats: int, count: int) -> list[Row]:
    """Time recorded cycles, and measure what pricing loses on them."""
    rows: list[Row] = []
    for resident in (0.25, 0.75):
        cycles = list(islice(recorded(trace, resident), count))
        nodes = f"{len(cycles)} cycles of {np.median([len(c.parents) for c in cycles]):.0f} nodes"
        label = f"{name}, {resident:.0%} resident"
        for hard in (True, False):
            search = LevelSearch(RoutingPricer() if hard else ProbPricer())
            times = [seconds_of(partial(search_anew, c, search), repeats) for c in cycles]
            what = f"{label}: affine, {'0/1' if hard else 'expected'} coverage, median"
            rows.append(Row(what, median_ms(times), "ms", note=nodes))
        rows += general_rows(cycles, f"{label}: general")
        some = cycles[:: max(1, len(cycles) // 10)]
        rows.append(union_row([cycle.first(NUM_NODES) for cycle in some], label))
    return rows


def all_recorded_rows(folders: Sequence[Path], repeats: int, count: int) -> list[Row]:
    """Time the cycles of the traces, or of demo prompts recorded now if none is given.

    Then also what part of a demo cycle its searches take.
    """
    rows: list[Row] = []
    for folder in folders:
        rows += recorded_rows(TraceReader(folder), f"recorded {folder.name}", repeats, count)
    if not folders:
        print("recording demo prompts ...", flush=True)
        with tempfile.TemporaryDirectory(prefix="specfit-search-") as scratch:
            trace = record_demo(Path(scratch) / "trace")
            rows += recorded_rows(trace, "recorded demo", repeats, count)
            rows += share_rows(Path(scratch) / "run")
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a row with a limit misses it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, action="append", default=[], help="a position trace")
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument(
        "--json", type=Path, help="write the rows and a manifest here, as JSON lines"
    )
    options = parser.parse_args(arguments)
    if lacking := peers.missing():
        packages = " ".join(lacking)
        print(f"not installed: {packages}. Run make bench-search, or install the extra bench.")
        return 2
    instances, repeats = (3, 16) if options.quick else (12, 160)
    start = time.perf_counter()
    warm_up()
    print(f"kernels ready after {time.perf_counter() - start:.1f} s")
    print("one thread, its time on a core, medians over instances and runs")
    rows: list[Row] = []

    def show(more: list[Row]) -> None:
        rows.extend(more)
        print("\n".join(map(str, more)), flush=True)

    affine, budgets = affine_rows(instances, repeats)
    show(affine)
    show(stage_rows(instances, repeats // 4))
    show(slow_peer_rows())
    show(growth_rows(max(5, repeats // 8)))
    show(expected_rows(instances, repeats // 2, budgets))
    for resident in RESIDENT:
        drawn = [draw(seed, 61, resident) for seed in range(2 * instances)]
        show(general_rows(drawn, f"general, 61 nodes, {resident:.0%} resident"))
    show(worst_rows())
    show(level_rows(instances, repeats // 4))
    pairs = [draw_cheap(seed, resident) for seed in range(instances) for resident in RESIDENT]
    show([union_row(pairs, f"drawn, {NUM_NODES} nodes")])
    show(all_recorded_rows(options.trace, max(3, repeats // 8), 4 * instances))
    missed = [row.what for row in rows if not row.is_met]
    if options.json:
        write_rows(options.json, rows)
    print(f"{len(missed)} of {len(rows)} rows missed" + "".join(f"\n  {what}" for what in missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
