"""One cycle node by node: what was believed of each node, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.decode import CycleRecord
from specfit.core.tree import DraftTree, most_probable
from specfit.report.marginal import marginal_expert_s, marginal_misses
from specfit.report.reenact import Look
from specfit.report.what_if import Answer
from specfit.report.words import counted


@dataclass(frozen=True)
class NodeFacts:
    """What there is to say about a node of a finished cycle.

    Parameters
    ----------
    node, parent, depth, token : int
        Its place in the tree, and its token.
    draft_prob, accept_prob : float
        Probability given its parent: the drafter's own, and calibrated.
    path_prob : float
        Calibrated probability that the whole path to it is accepted: the tokens it is worth.
    draft_rank : int
        Place in the order of the drafter's path probabilities, 0 the root: EAGLE-3 verifies the
        first so many.
    copies, expert_s : float
        Expected copies and expert seconds that it adds to the nodes chosen.
    verdict : str
        ``"root"``, ``"accepted"``, ``"chosen"`` or ``""``.
    """

    node: int
    parent: int
    depth: int
    token: int
    draft_prob: float
    accept_prob: float
    path_prob: float
    draft_rank: int
    copies: float
    expert_s: float
    verdict: str


def facts_of(record: CycleRecord) -> list[NodeFacts]:
    """Return the facts of every node, each followed by the nodes below it."""
    outcome = record.outcome
    cycle, selection, tree = outcome.cycle, outcome.selection, outcome.cycle.tree
    order = most_probable(tree, tree.path_probs)
    ranks = np.argsort(order)
    copies, expert_s = marginal_misses(cycle, selection), marginal_expert_s(cycle, selection)
    verdicts = ["chosen" if is_chosen else "" for is_chosen in selection.mask]
    for node in (0, *outcome.accepted):
        verdicts[node] = "accepted" if node else "root"
    return [
        NodeFacts(
            node=node,
            parent=int(tree.parents[node]),
            depth=int(tree.depths[node]),
            token=int(tree.tokens[node]),
            draft_prob=float(tree.cond_probs[node]),
            accept_prob=float(cycle.accept_probs[node]),
            path_prob=float(cycle.path_probs[node]),
            draft_rank=int(ranks[node]),
            copies=float(copies[node]),
            expert_s=float(expert_s[node]),
            verdict=verdicts[node],
        )
        for node in _depth_first(tree)
    ]


def _depth_first(tree: DraftTree) -> list[int]:
    ordered, pending = [], [0]
    while pending:
        ordered.append(pending.pop())
        pending.extend(reversed(tree.children(ordered[-1]).tolist()))
    return ordered


def expectation_text(record: CycleRecord) -> str:
    """Return what was expected of the cycle and what came of it, in one line."""
    outcome = record.outcome
    resident = outcome.cycle.residency.mask.mean()
    came = (
        f"{counted(len(outcome.committed), 'token')} committed, "
        f"{counted(outcome.verification.num_copied, 'expert')} copied, "
        f"{record.timings.cycle_s * 1e3:.1f} ms"
    )
    expected = outcome.selection.prediction
    believed = (
        ""
        if expected is None
        else f"Expected: {expected.committed:.2f} tokens, {expected.misses:.1f} copies, "
        f"{expected.cycle_s * 1e3:.1f} ms; "
        f"that is {expected.committed / expected.cycle_s:.1f} tokens/s. "
    )
    return (
        f"{counted(len(outcome.cycle.tree), 'node')} in "
        f"{counted(outcome.cycle.levels, 'level')} drafted, "
        f"{len(outcome.selection)} verified; {resident:.0%} of the experts were resident. "
        f"{believed}Came: {came}."
    )


def rule_texts(answer: Answer, policy: str) -> list[str]:
    """Return a line for the policy and for each other rule: nodes, expected tokens and rate."""
    levels = answer.cycle.levels
    masks = {policy: (answer.decision.mask, answer.decision.levels)}
    masks |= {name: (mask, levels) for name, mask in answer.rules.items()}
    lines = []
    for name, (mask, drafted) in masks.items():
        expected = answer.expect(mask, drafted)
        rate = expected.committed / expected.cycle_s
        lines.append(
            f"{name}: {counted(int(mask.sum()), 'node')}, {expected.committed:.2f} tokens and "
            f"{expected.copies:.1f} copies in {expected.cycle_s * 1e3:.1f} ms, "
            f"{rate:.2f} tokens/s{_difference(mask, answer.decision.mask)}"
        )
    return lines


def price_text(answer: Answer) -> str:
    """Return what a second costs in tokens, and so what a node has to bring."""
    price, decision = answer.best.price, answer.decision
    expected = answer.expect(decision.mask, decision.levels)
    full = expected.committed / expected.cycle_s
    discounted = (
        f" The search forgives part of the copies, as the text needs some anyway and finds others "
        f"again: by what it charges the choice has {price:.2f} tokens/s, at full price {full:.2f}."
        if decision.best is not None and price > full * (1 + 1e-9)
        else ""
    )
    return (
        f"price: {price:.2f} tokens/s, so a node has to bring {price / 1e3:.4f} tokens for each "
        f"millisecond it adds, or help others to.{discounted}"
    )


def look_texts(looks: Sequence[Look]) -> list[str]:
    """Return a line a level: the best selection so far, and whether more drafting could beat it."""
    lines = []
    for look in looks:
        best, decision = look.best, look.decision
        line = (
            f"level {look.levels}: best {counted(best.num_nodes, 'node')} of {len(best.mask)}, "
            f"{best.expected_committed:.2f} tokens in {best.cycle_s * 1e3:.1f} ms; "
        )
        if decision is None:
            line += "no search asked whether to draft on"
        elif decision.draft:
            surplus = float(decision.surplus[decision.levels_ahead - 1])
            line += (
                f"draft on: {counted(decision.levels_ahead, 'more level')} may gain "
                f"{surplus:.3f} tokens over stopping"
            )
        else:
            line += "stop: no number of further levels looks worth its time"
        lines.append(line)
    return lines


def _difference(mask: NDArray[np.bool_], chosen: NDArray[np.bool_]) -> str:
    """Return which nodes a rule would add and leave out; nothing where it agrees."""
    more, less = np.flatnonzero(mask & ~chosen), np.flatnonzero(chosen & ~mask)
    parts = [f"also {_listed(more)}"] if len(more) else []
    parts += [f"not {_listed(less)}"] if len(less) else []
    return "".join(f"; {part}" for part in parts)


def _listed(nodes: NDArray[np.intp]) -> str:
    shown = ", ".join(map(str, nodes[:8].tolist()))
    return shown if len(nodes) <= 8 else f"{shown} and {len(nodes) - 8} more"
