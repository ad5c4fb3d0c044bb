"""Which cycle of a run makes a good picture, and what the picture says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from specfit.core.decode import CycleRecord, DecodeResult
from specfit.report.marginal import marginal_expert_s
from specfit.report.tree import TreeView
from specfit.report.words import counted

MAX_NODES = 45
"""Larger trees make a crowded picture."""


def cycle_to_show(results: Sequence[DecodeResult]) -> CycleRecord | None:
    """Return the cycle that shows most: nodes accepted, rejected and left out, many chosen.

    None if nothing was ever drafted. Of equally telling cycles the first.
    """
    cycles = [c for result in results for c in result.cycles if c.outcome.cycle.levels]
    return max(cycles, key=_worth_showing, default=None)


def view_of(
    record: CycleRecord,
    decode: Callable[[Sequence[int]], str],
    *,
    title: str,
    rules: Mapping[str, NDArray[np.bool_]] = MappingProxyType({}),
) -> TreeView:
    """Return the picture's content for a finished cycle.

    Parameters
    ----------
    decode : callable
        Returns the text of some tokens.
    rules : mapping of str to bool[N], optional
        What other rules would verify of the same tree.
    """
    outcome = record.outcome
    cycle, selection = outcome.cycle, outcome.selection
    accepted = np.zeros(len(cycle.tree), bool)
    accepted[[0, *outcome.accepted]] = True
    expert_s = marginal_expert_s(cycle, selection)
    return TreeView(
        tree=cycle.tree,
        texts=tuple(decode([token]) for token in cycle.tree.tokens.tolist()),
        accept_probs=cycle.accept_probs,
        expert_s=expert_s,
        selected=selection.mask,
        accepted=accepted,
        title=title,
        caption=_caption(record, decode),
        rules=rules,
    )


def _worth_showing(record: CycleRecord) -> tuple[bool, int, int]:
    outcome = record.outcome
    num_nodes, num_chosen = len(outcome.cycle.tree), len(outcome.selection)
    has_both = 1 < num_chosen < num_nodes and len(outcome.accepted) > 0
    num_rejected = num_chosen - 1 - len(outcome.accepted)
    return (
        has_both and num_nodes <= MAX_NODES,
        min(num_chosen, 12) + len(outcome.accepted) + min(num_rejected, 2),
        -num_nodes,
    )


def _caption(record: CycleRecord, decode: Callable[[Sequence[int]], str]) -> str:
    outcome = record.outcome
    committed = decode(outcome.committed).replace("\n", "↵")
    return (
        f"{counted(len(outcome.cycle.tree), 'node')} drafted in "
        f"{counted(outcome.cycle.levels, 'level')}, {len(outcome.selection)} verified, "
        f"{counted(len(outcome.committed), 'token')} committed: “{committed}”.\n"
        f"On each node: the calibrated probability that it is accepted after its parent, "
        f"and the expert time it adds."
    )
