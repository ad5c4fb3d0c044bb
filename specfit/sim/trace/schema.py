"""The columns of a trace's tables; `docs/reference/trace-format.md` says what each one means."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from specfit.core.experts import ModelGeometry

FORMAT_VERSION = 3
"""Newest version that this package writes and reads; it reads every version up to this one."""

PLAIN_VERSION = 2
"""Version that is written where a trace holds no states of the drafter: nothing else is new."""

KINDS = ("run", "positions")
ORIGINS = ("recorded", "synthetic")

_INTS = pa.list_(pa.field("item", pa.int32(), nullable=False))
_FLOATS = pa.list_(pa.field("item", pa.float32(), nullable=False))


def _required(**types: pa.DataType) -> list[pa.Field]:
    return [pa.field(name, kind, nullable=False) for name, kind in types.items()]


def _optional(**types: pa.DataType) -> list[pa.Field]:
    return [pa.field(name, kind, nullable=True) for name, kind in types.items()]


PROMPTS = pa.schema(
    _required(
        prompt=pa.int32(),
        first_row=pa.int64(),
        num_rows=pa.int32(),
        tokens=_INTS,
        text=_INTS,
        stop_reason=pa.string(),
        max_new_tokens=pa.int32(),
        stop_ids=_INTS,
        temperature=pa.float64(),
        top_k=pa.int32(),
        top_p=pa.float64(),
        noise_key=pa.uint64(),
        chunks=_INTS,
        routing=pa.binary(),
        prefill_s=pa.float64(),
    )
)

_TREE = _required(
    prompt=pa.int32(),
    position=pa.int32(),
    tokens=_INTS,
    parents=_INTS,
    log_probs=_FLOATS,
    ranks=_INTS,
    entropies=_FLOATS,
    target_tokens=_INTS,
    target_probs=_FLOATS,
    margins=_FLOATS,
    routing=pa.binary(),
)

CYCLES = pa.schema(
    [
        *_TREE,
        *_required(
            cycle=pa.int32(),
            plan_depth=pa.int32(),
            plan_top_k=pa.int32(),
            plan_max_nodes=pa.int32(),
            is_exhausted=pa.bool_(),
            answered=_INTS,
        ),
        *_optional(
            selected=_INTS,
            accepted=_INTS,
            committed=_INTS,
            num_hits=_INTS,
            num_misses=_INTS,
            num_evictions=_INTS,
            predicted_committed=pa.float64(),
            predicted_misses=pa.float64(),
            predicted_cycle_s=pa.float64(),
        ),
        *_required(
            draft_s=pa.float64(),
            select_s=pa.float64(),
            stall_s=pa.float64(),
            compute_s=pa.float64(),
            commit_s=pa.float64(),
        ),
    ]
)

POSITIONS = pa.schema(
    [
        *_TREE,
        *_required(plan_nodes=_INTS, plan_sizes=_INTS, plan_levels=_INTS),
    ]
)

DECISIONS = (
    "selected",
    "accepted",
    "committed",
    "num_hits",
    "num_misses",
    "num_evictions",
    "predicted_committed",
    "predicted_misses",
    "predicted_cycle_s",
)
"""Columns of a run that follow from policy and cache, and that `strip_decisions` removes."""

STATES = pa.field("states", _FLOATS, nullable=False)
"""Column of both row tables, where a trace holds the drafter's hidden states."""

ROW_TABLES = {"run": ("cycles", CYCLES), "positions": ("positions", POSITIONS)}


def row_schema(kind: str, *, with_states: bool) -> pa.Schema:
    """Return the columns of a trace's rows."""
    schema = ROW_TABLES[kind][1]
    return schema.append(STATES) if with_states else schema


def routing_dtype(geometry: ModelGeometry) -> np.dtype[np.unsignedinteger]:
    """Return the type of a stored expert id: a byte where that is enough, else two."""
    return np.dtype("u1" if geometry.num_experts <= 256 else "<u2")


def pack_routing(routing: NDArray[np.int16], geometry: ModelGeometry) -> bytes:
    """Return routing int16[n, L, K] as stored: row-major expert ids of `routing_dtype`."""
    return routing.astype(routing_dtype(geometry)).tobytes()


def unpack_routing(stored: bytes | memoryview, geometry: ModelGeometry) -> NDArray[np.int16]:
    """Return stored routing as int16[n, L, K].

    Raises
    ------
    ValueError
        The bytes do not make whole tokens.
    """
    flat = np.frombuffer(stored, routing_dtype(geometry)).astype(np.int16)
    return flat.reshape(-1, geometry.num_layers, geometry.experts_per_token)
