"""Rows to table values: the inverse of `decode`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidTreeError
from specfit.core.experts import ModelGeometry
from specfit.core.tree import DraftTree
from specfit.sim.trace.metadata import TraceMetadata
from specfit.sim.trace.rows import Answers, CycleRow, Decisions, PositionRow, PromptRow, Row
from specfit.sim.trace.schema import DECISIONS, pack_routing


def encode_prompt(
    prompt: PromptRow, first_row: int, num_rows: int, geometry: ModelGeometry
) -> dict[str, Any]:
    """Return a prompt as a row of the prompts table."""
    request = prompt.request
    return {
        "prompt": prompt.index,
        "first_row": first_row,
        "num_rows": num_rows,
        "tokens": list(request.prompt),
        "text": list(prompt.text),
        "stop_reason": prompt.stop_reason,
        "max_new_tokens": request.max_new_tokens,
        "stop_ids": sorted(request.stop_ids),
        "temperature": request.sampling.temperature,
        "top_k": request.sampling.top_k,
        "top_p": request.sampling.top_p,
        "noise_key": request.sampling.noise_key,
        "chunks": list(prompt.chunks),
        "routing": pack_routing(prompt.routing, geometry),
        "prefill_s": prompt.prefill_s,
    }


def encode_row(row: Row, metadata: TraceMetadata) -> dict[str, Any]:
    """Return a cycle or a position as a row of its table."""
    if isinstance(row, CycleRow):
        encoded, tree = _encode_cycle(row, metadata.geometry), row.tree
    else:
        encoded, tree = _encode_position(row, metadata.geometry), row.trie
    return {**encoded, "states": _encode_states(tree)} if metadata.state_width else encoded


def _encode_cycle(row: CycleRow, geometry: ModelGeometry) -> dict[str, Any]:
    if (np.diff(row.tree.depths) < 0).any():
        raise InvalidTreeError(
            "a recorded tree is drafted level by level, each one deeper than the last; "
            "got a node above the level before it. This drafter cannot be recorded."
        )
    timings = row.timings
    return {
        "prompt": row.prompt,
        "position": row.position,
        **_encode_tree(row.tree),
        **_encode_answers(row.answers, geometry),
        "cycle": row.cycle,
        "plan_depth": row.plan.depth,
        "plan_top_k": row.plan.top_k,
        "plan_max_nodes": row.plan.max_nodes,
        "is_exhausted": row.is_exhausted,
        "answered": row.answered,
        **_encode_decisions(row.decisions),
        "draft_s": timings.draft_s,
        "select_s": timings.select_s,
        "stall_s": timings.stall_s,
        "compute_s": timings.compute_s,
        "commit_s": timings.commit_s,
    }


def _encode_position(row: PositionRow, geometry: ModelGeometry) -> dict[str, Any]:
    return {
        "prompt": row.prompt,
        "position": row.position,
        **_encode_tree(row.trie),
        **_encode_answers(row.answers, geometry),
        "plan_nodes": np.concatenate([np.zeros(0, np.int32), *row.plan_nodes]),
        "plan_sizes": [len(nodes) for nodes in row.plan_nodes],
        "plan_levels": list(row.plan_levels),
    }


def _encode_tree(tree: DraftTree) -> dict[str, Any]:
    return {
        "tokens": tree.tokens.astype(np.int32),
        "parents": tree.parents,
        "log_probs": tree.log_probs,
        "ranks": tree.ranks,
        "entropies": tree.entropies,
    }


def _encode_states(tree: DraftTree) -> NDArray[np.float32]:
    """Return the state at each node that has children, one after the other, as they are stored."""
    if len(tree) == 1:
        return np.zeros(0, np.float32)
    if tree.states is None:
        raise InvalidTreeError(
            "a trace with hidden states holds one of every drafted node; got a tree without. Call "
            "keep_states of the backend before it drafts."
        )
    _, first_children = np.unique(tree.parents[1:], return_index=True)
    return tree.states[1 + first_children].ravel()


def _encode_answers(answers: Answers, geometry: ModelGeometry) -> dict[str, Any]:
    return {
        "target_tokens": answers.target_tokens.astype(np.int32),
        "target_probs": answers.target_probs,
        "margins": answers.margins,
        "routing": pack_routing(answers.routing, geometry),
    }


def _encode_decisions(decisions: Decisions | None) -> dict[str, Any]:
    if decisions is None:
        return dict.fromkeys(DECISIONS)
    expected = decisions.prediction
    return {
        "selected": decisions.selected,
        "accepted": decisions.accepted,
        "committed": decisions.committed,
        "num_hits": decisions.num_hits.astype(np.int32),
        "num_misses": decisions.num_misses.astype(np.int32),
        "num_evictions": decisions.num_evictions.astype(np.int32),
        "predicted_committed": expected.committed if expected else None,
        "predicted_misses": expected.misses if expected else None,
        "predicted_cycle_s": expected.cycle_s if expected else None,
    }
