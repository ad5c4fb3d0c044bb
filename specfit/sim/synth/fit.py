"""How near a synthetic trace comes to what was published: every target, its source, and the trace.

The union curve is measured in prompts and the hit curve in generated texts, because they cannot be
those of one text: from one token to the next a union grows by 8 times the miss rate of a cache that
holds it, and hits of 42.4, 64.7, 81.0 and 91.8 % make unions of about 8, 19, 28 and 40, not of 8,
22, 36 and 56. Prompts are the less local texts in the source of the hit curve, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from specfit.core.errors import InvalidInputError
from specfit.core.tree import DraftTree, most_probable
from specfit.sim.drawn import drawn_by_plan
from specfit.sim.synth import measures
from specfit.sim.synth.parameters import (
    ACCEPTANCE_BY_LEVEL,
    MEAN_OVERLAP,
    MEASURED_OVERLAP,
    task_named,
)
from specfit.sim.synth.texts import Text, draw_text
from specfit.sim.synth.world import RoutingWorld
from specfit.sim.trace import TraceReader
from specfit.sim.trace.reader import RecordedPrompt
from specfit.sim.trace.rows import PositionRow

RELATIVE = 0.10
POINTS = 0.02

MOE_TRACE = "github.com/gajsanders/moe-trace"
NOTE = "a note of several models; not confirmed by a second source"
EVICT = "EVICT, arXiv 2605.00342: 32 nodes, depth 4, top-k 8"
SPECFORGE = "SpecForge, chains of 3, 5 and 7 on GSM8K"

_KNOWN_SEED = 7
_NUM_KNOWN = 1000
_KNOWN_TOKENS = 6


@dataclass(frozen=True)
class Line:
    """One target.

    Parameters
    ----------
    what : str
        The measure.
    target : float
        What was published; NaN where nothing was, and the figure is for information.
    found : float
        What the trace has.
    source : str
        Where the target is from.
    tolerance : float
        How far off is near enough, in the measure's own unit.
    """

    what: str
    target: float
    found: float
    source: str
    tolerance: float

    @property
    def is_met(self) -> bool | None:
        """Whether the trace is near enough; None where there is no target."""
        if np.isnan(self.target):
            return None
        return abs(self.found - self.target) <= self.tolerance


def fit_lines(reader: TraceReader) -> list[Line]:
    """Measure a synthetic trace.

    Raises
    ------
    InvalidInputError
        It is not one of `specfit synth`.
    """
    said = reader.metadata.specs.get("synthetic")
    if not isinstance(said, dict) or "task" not in said:
        raise InvalidInputError(f"{reader.folder} is no trace of `specfit synth`.")
    world = RoutingWorld()
    texts = [_text(prompt, world) for prompt in reader.prompts()]
    return [*routing_lines(texts, world), *_acceptance(reader, str(said["task"]))]


def routing_lines(texts: list[Text], world: RoutingWorld) -> list[Line]:
    """Measure the routing of some texts, and how well others foretell it."""
    rng = np.random.default_rng(_KNOWN_SEED)
    known = [draw_text(world, rng, 4, _KNOWN_TOKENS) for _ in range(_NUM_KNOWN)]
    return [*_locality(texts, world), *_predictability(texts, known, world)]


def _locality(texts: list[Text], world: RoutingWorld) -> Iterator[Line]:
    overlaps = measures.overlap_by_layer(texts)
    yield _relative("overlap with the token before", MEAN_OVERLAP, overlaps.mean(), MOE_TRACE)
    for layer, target in MEASURED_OVERLAP.items():
        yield _relative(f"  in layer {layer}", target, overlaps[layer], MOE_TRACE)
    in_prompt = measures.overlap_by_layer(texts, in_prompt=True).mean()
    yield _relative("overlap in the prompt", 0.365, in_prompt, MOE_TRACE)
    for count, target in ((1, 8.0), (4, 22.0), (8, 36.0), (16, 56.0)):
        size = measures.union_size(texts, count)
        yield _relative(f"experts of {count} tokens of a prompt", target, size, NOTE)
    for count in (4, 8, 16):
        size = measures.union_size(texts, count, in_prompt=False)
        yield Line(f"experts of {count} generated tokens", np.nan, size, "", 0.0)
    for slots, target in ((8, 0.424), (16, 0.647), (32, 0.810), (64, 0.918)):
        rate = measures.lru_hit_rate(texts, world.geometry, slots)
        yield Line(f"LRU hits with {slots} slots", target, rate, MOE_TRACE, POINTS)


def _predictability(texts: list[Text], known: list[Text], world: RoutingWorld) -> Iterator[Line]:
    by_layer = measures.token_table_precision(known, texts, world.geometry.vocab_size)
    yield _relative("precision at 8: token table", 0.354, by_layer.mean(), NOTE)
    yield _relative("  in layer 0", 0.55, by_layer[0], NOTE)
    persistence = measures.overlap_by_layer(texts).mean()
    yield _relative("precision at 8: token before", 0.47, persistence, NOTE)
    for horizon in (1, 4, 8):
        found = measures.decayed_frequency_precision(texts, horizon)
        yield _relative(f"precision at 8: frequency, {horizon} ahead", 0.45, found, NOTE)
    ridge = measures.ridge_precision(known, texts, (1, 4))
    for horizon, target, found in zip((1, 4), (0.55, 0.37), ridge, strict=True):
        yield _relative(f"precision at 8: ridge, {horizon} ahead", target, found, NOTE)


def _acceptance(reader: TraceReader, task: str) -> Iterator[Line]:
    committed = _committed(reader, top_k=8, depth=4, max_nodes=32)
    target = task_named(task).committed
    yield _relative("committed tokens a cycle, EAGLE-3 tree", target, committed, EVICT)
    falls = _fall_by_level(reader, top_k=8, depth=4)
    what = "acceptance of the best guess, level to level"
    yield _relative(what, ACCEPTANCE_BY_LEVEL, falls, SPECFORGE)


def _relative(what: str, target: float, found: float, source: str) -> Line:
    return Line(what, target, float(found), source, RELATIVE * target)


def _text(prompt: RecordedPrompt, world: RoutingWorld) -> Text:
    rows = list(_rows(prompt))
    routing = np.stack([row.answers.routing[0] for row in rows])
    tokens = np.array([*prompt.request.prompt, *prompt.text[: len(rows)]], np.int64)
    return Text(
        tokens,
        np.concatenate([prompt.row.routing, routing]),
        len(prompt.request.prompt),
        world.geometry.num_experts,
    )


def _rows(prompt: RecordedPrompt) -> Iterator[PositionRow]:
    first = len(prompt.request.prompt)
    finders = prompt.cursor()
    finder = next(finders)
    for position in range(first, first + len(prompt.text) - 1):
        if finder.last_position < position:
            finder = next(finders)
        row = finder.at(position)
        assert isinstance(row, PositionRow), "a position-complete trace has every position"
        yield row


def _committed(reader: TraceReader, *, top_k: int, depth: int, max_nodes: int) -> float:
    """Return the tokens a cycle commits that verifies the likeliest nodes of a drawn tree."""
    cycles = tokens = 0
    for prompt in reader.prompts():
        rows = list(_rows(prompt))
        place = 0
        while place < len(rows) - depth:
            tree, answers = _tree(reader, rows[place], top_k, depth)
            order = most_probable(tree, tree.path_probs)[:max_nodes]
            accepted = _num_accepted(tree, answers, frozenset(order.tolist()))
            place += accepted + 1
            tokens += accepted + 1
            cycles += 1
    return tokens / cycles


def _tree(
    reader: TraceReader, row: PositionRow, top_k: int, depth: int
) -> tuple[DraftTree, np.ndarray]:
    """Return the tree that a plan draws, cut at `depth`, and the target's token after each node."""
    drawn = drawn_by_plan(row, reader.metadata.plans, top_k, depth)
    count = drawn.num_nodes(min(depth, drawn.num_levels))
    return drawn.tree.first(count), row.answers.target_tokens[drawn.answer_rows[:count]]


def _num_accepted(tree: DraftTree, answers: np.ndarray, selected: frozenset[int]) -> int:
    node, count = 0, 0
    while True:
        ahead = [n for n in tree.children(node).tolist() if tree.tokens[n] == answers[node]]
        if not ahead or ahead[0] not in selected:
            return count
        node, count = ahead[0], count + 1


def _fall_by_level(reader: TraceReader, *, top_k: int, depth: int) -> float:
    """Return the mean factor from one level's acceptance of best guesses to the next's."""
    right = np.zeros(depth + 1)
    tried = np.zeros(depth + 1)
    for prompt in reader.prompts():
        for row in _rows(prompt):
            tree, answers = _tree(reader, row, top_k, depth)
            best = np.flatnonzero(tree.ranks[1:] == 0) + 1
            hits = tree.tokens[best] == answers[tree.parents[best]]
            np.add.at(right, tree.depths[best], hits)
            np.add.at(tried, tree.depths[best], 1)
    rates = right[1:] / tried[1:]
    return float((rates[-1] / rates[0]) ** (1.0 / (depth - 1)))
