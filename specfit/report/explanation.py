"""One cycle node by node: what was believed of each node, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specfit.core.decode import CycleRecord
from specfit.core.tree import DraftTree
from specfit.report.marginal import marginal_expert_s, marginal_misses


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
        ``"accepted"``, ``"chosen"`` or ``""``.
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
    order = np.lexsort((tree.depths, -tree.path_probs))
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
    misses = int(outcome.verification.num_misses.sum())
    came = (
        f"{len(outcome.committed)} tokens committed, {misses} experts copied, "
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
        f"{len(outcome.cycle.tree)} nodes in {outcome.cycle.levels} levels drafted, "
        f"{len(outcome.selection)} verified; {resident:.0%} of the experts were resident. "
        f"{believed}Came: {came}."
    )
