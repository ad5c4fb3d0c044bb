"""Samples for fits, from observed texts: every node that the target has run, rejected ones too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.observed import ObservedDraft, ObservedText
from specfit.policies.acceptance._repeats import WINDOW, find_repeats, longest_run
from specfit.policies.fitting.acceptance_curves import AcceptanceSample
from specfit.policies.fitting.routing_sample import RoutingSample
from specfit.policies.predictors.expert_table import NO_PARENT


def split_texts(
    texts: Sequence[ObservedText], num_held_out: int
) -> tuple[list[ObservedText], list[ObservedText]]:
    """Return the texts to fit on and `num_held_out` others, taken evenly.

    Raises
    ------
    InvalidInputError
        There are too few texts for both.
    """
    if not 0 < num_held_out < len(texts):
        raise InvalidInputError(
            f"a fit needs at least 2 texts, and some of them held out; got {len(texts)}, of which "
            f"{num_held_out} are to be held out. Record more prompts."
        )
    held = set(np.linspace(0, len(texts) - 1, num_held_out).round().astype(int).tolist())
    fitted = [text for i, text in enumerate(texts) if i not in held]
    return fitted, [texts[i] for i in sorted(held)]


def acceptance_sample(
    texts: Sequence[ObservedText], looping: Sequence[ObservedText] = ()
) -> AcceptanceSample:
    """Return the drafted nodes whose parents lie on the true path, and whether each does.

    Parameters
    ----------
    texts : sequence of ObservedText
        That do not repeat themselves: `specfit.sim.observe.without_looping` tells them.
    looping : sequence of ObservedText, optional
        Those that do; their nodes are marked so.
    """
    parts = [
        _judged(draft, before, loops)
        for loops, of_kind in ((False, texts), (True, looping))
        for text in of_kind
        for draft, before in _followed(text)
    ]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return AcceptanceSample(*columns)


def _followed(text: ObservedText) -> Iterator[tuple[ObservedDraft, NDArray[np.int64]]]:
    """Yield each draft with the tokens that were committed before its root; the prompt is not."""
    tokens = np.array(text.tokens, np.int64)
    for draft in text.drafts:
        place = draft.root - text.drafts[0].root
        yield draft, tokens[max(place - WINDOW, 0) : place]


def _judged(
    draft: ObservedDraft, before: NDArray[np.int64], loops: bool
) -> tuple[NDArray[np.generic], ...]:
    nodes, accepted = draft.judged()
    tree = draft.tree
    repeats = np.empty(len(tree), np.int8)
    find_repeats(before, tree.tokens, tree.parents, repeats)
    run, _ = longest_run(np.append(before, tree.tokens[0]), len(before), len(before))
    return (
        tree.depths[nodes],
        tree.ranks[nodes],
        tree.log_probs[nodes],
        tree.entropies[nodes],
        accepted,
        repeats[nodes],
        np.full(len(nodes), run, np.int8),
        np.full(len(nodes), loops),
    )


def routing_sample(texts: Sequence[ObservedText], max_nodes: int) -> RoutingSample:
    """Return the nodes with their routing; of more than `max_nodes`, that many taken evenly."""
    lengths = [len(text.routing) for text in texts]
    starts = np.cumsum([0, *lengths[:-1]])
    parts = [
        _routed(draft, start, len(text.routing))
        for text, start in zip(texts, starts.tolist(), strict=True)
        for draft in text.drafts
        if draft.root < len(text.routing)
    ]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    num_nodes = len(columns[0])
    kept = np.arange(num_nodes)
    if num_nodes > max_nodes:
        kept = np.linspace(0, num_nodes - 1, max_nodes).round().astype(np.intp)
    tokens, parent_tokens, depths, roots, routing, follows = (column[kept] for column in columns)
    return RoutingSample(
        stream=np.concatenate([text.routing for text in texts]),
        texts=np.repeat(np.arange(len(texts), dtype=np.int32), lengths),
        tokens=tokens,
        parent_tokens=parent_tokens,
        depths=depths,
        roots=roots,
        routing=routing,
        follows=follows,
    )


def _routed(draft: ObservedDraft, start: int, length: int) -> tuple[NDArray[np.generic], ...]:
    """Return the columns of a draft's nodes; its text is `length` tokens long, from `start` on."""
    tree, nodes = draft.tree, draft.nodes
    parents = tree.parents[nodes]
    is_above = draft.on_path()[np.maximum(parents, 0)]
    return (
        tree.tokens[nodes],
        np.where(parents < 0, NO_PARENT, tree.tokens[np.maximum(parents, 0)]),
        tree.depths[nodes],
        np.full(len(nodes), start + draft.root, np.int64),
        draft.routing,
        is_above & (draft.root + tree.depths[nodes] <= length),
    )
