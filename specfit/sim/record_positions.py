"""Records a position-complete trace: at each position, the union of what named plans draw there.

The text is the target's own, one token a pass, so it does not depend on the plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Backend, Prefill, Request
from specfit.core.decode import reason_to_stop
from specfit.core.selection import Selection
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree
from specfit.sim.trace.rows import Answers, PositionRow, PromptRow
from specfit.sim.trace.writer import TraceWriter


def record_positions(
    backend: Backend,
    requests: Iterable[Request],
    plans: Sequence[DraftPlan],
    writer: TraceWriter,
    on_position: Callable[[int, int], None] | None = None,
) -> None:
    """Write a position-complete trace of the target's texts for these requests.

    Parameters
    ----------
    backend : Backend
        Its drafter must answer from the committed tokens, the plan and the noise key alone.
    plans : sequence of DraftPlan
        Those named in the writer's metadata, in their order.
    writer : TraceWriter
        Of a trace of kind ``"positions"``.
    on_position : callable, optional
        Called with the index of the prompt and the number of its tokens so far.
    """
    for index, request in enumerate(requests):
        prefill = backend.start(request)
        text = [prefill.first_token]
        reason = reason_to_stop(request, text[-1], len(text))
        while reason is None:
            row, token = _record_position(backend, request, plans, text, index)
            writer.add(row)
            text.append(token)
            if on_position is not None:
                on_position(index, len(text))
            reason = reason_to_stop(request, token, len(text))
        writer.end_prompt(_prompt_row(index, request, prefill, tuple(text), reason))


@dataclass
class _Trie:
    """The union of several trees with one root, keyed by token path."""

    tree: DraftTree
    children: dict[tuple[int, int], int] = field(default_factory=dict)

    def add_level(self, level: DraftLevel, nodes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Add a level of a tree whose nodes so far are the trie's `nodes`; return the new ones'."""
        parents = nodes[level.parents]
        known = [
            self.children.get(key)
            for key in zip(parents.tolist(), level.tokens.tolist(), strict=True)
        ]
        new = np.array([node is None for node in known], bool)
        first = len(self.tree)
        if new.any():
            self.tree = self.tree.grow(replace(level, parents=parents).take(new))
        for node in range(first, len(self.tree)):
            key = int(self.tree.parents[node]), int(self.tree.tokens[node])
            self.children[key] = node
        keys = zip(parents.tolist(), level.tokens.tolist(), strict=True)
        return np.array([self.children[key] for key in keys], np.int32)


def _record_position(
    backend: Backend,
    request: Request,
    plans: Sequence[DraftPlan],
    text: list[int],
    prompt: int,
) -> tuple[PositionRow, int]:
    """Return the row of the position whose root is the text's last token, and the next token."""
    max_depth = request.max_new_tokens - len(text) - 1
    root = DraftTree.root(text[-1])
    trie = _Trie(root)
    drawn = [_draw(backend, plan, min(plan.depth, max_depth), trie) for plan in plans]
    everything = Selection(trie.tree, np.ones(len(trie.tree), bool))
    answers = backend.verify(trie.tree, everything)
    plain = backend.verify(root, Selection.root_only(root))
    token = int(plain.target_tokens[0])
    backend.commit(root, (), (token,))
    row = PositionRow(
        prompt=prompt,
        position=len(request.prompt) + len(text) - 1,
        trie=trie.tree,
        answers=Answers(
            answers.target_tokens, answers.target_probs, answers.margins, answers.routing
        ),
        plan_nodes=tuple(nodes for nodes, _ in drawn),
        plan_levels=tuple(levels for _, levels in drawn),
    )
    return row, token


def _draw(
    backend: Backend, plan: DraftPlan, depth: int, trie: _Trie
) -> tuple[NDArray[np.int32], int]:
    """Draw a plan's whole pool into the trie; return its nodes in order, and its levels."""
    tree = DraftTree.root(int(trie.tree.tokens[0]))
    in_force = DraftPlan(depth, plan.top_k, plan.max_nodes)
    nodes = np.zeros(1, np.int32)
    for levels in range(depth):
        level = backend.draft_level(in_force, tree)
        if len(level) == 0:
            return nodes, levels
        tree = tree.grow(level)
        nodes = np.concatenate([nodes, trie.add_level(level, nodes)])
    return nodes, depth


def _prompt_row(
    index: int, request: Request, prefill: Prefill, text: tuple[int, ...], reason: str
) -> PromptRow:
    return PromptRow(
        index=index,
        request=request,
        text=text,
        stop_reason=reason,
        routing=prefill.routing,
        chunks=prefill.chunks,
        prefill_s=prefill.seconds,
    )
