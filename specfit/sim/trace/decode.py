"""Table values to rows, every one checked: what comes out of here obeys the format."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from specfit.core._kernels import counts_up
from specfit.core.backend import Request
from specfit.core.decode import Timings
from specfit.core.errors import SpecfitError, TraceFormatError
from specfit.core.experts import ModelGeometry
from specfit.core.noise import Sampling
from specfit.core.selection import Prediction, Selection
from specfit.core.tree import DraftPlan, DraftTree
from specfit.sim.trace.columns import ListColumn, has_nulls, list_column, scalar_column
from specfit.sim.trace.metadata import TraceMetadata
from specfit.sim.trace.rows import Answers, CycleRow, Decisions, PositionRow, PromptRow, Row
from specfit.sim.trace.schema import DECISIONS, PROMPTS, routing_dtype, row_schema, unpack_routing

STOP_REASONS = ("stop", "length")


def decode_prompts(
    table: pa.Table, metadata: TraceMetadata
) -> Iterator[tuple[PromptRow, int, int]]:
    """Yield each prompt of a prompts table, its first row in the part, and the number of its rows.

    Raises
    ------
    TraceFormatError
        A column or a value breaks the format.
    """
    columns = _Columns(table, PROMPTS)
    columns.check_routing(metadata.geometry)
    for row in range(table.num_rows):
        try:
            first_row, num_rows = int(columns["first_row"][row]), int(columns["num_rows"][row])
            _check_extent(first_row, num_rows)
            yield _prompt(columns, row, metadata.geometry), first_row, num_rows
        except (SpecfitError, ValueError) as error:
            raise TraceFormatError(f"row {row}: {error}") from error


class RowTable:
    """Rows of one prompt; the columns are checked at once, a row when it is taken.

    Raises
    ------
    TraceFormatError
        A column breaks the format.
    """

    def __init__(self, table: pa.Table, metadata: TraceMetadata) -> None:
        self._metadata = metadata
        schema = row_schema(metadata.kind, with_states=metadata.state_width > 0)
        self._columns = _Columns(table, schema)
        self._columns.check_routing(metadata.geometry)
        _check_trees(self._columns, metadata.geometry)
        if (np.diff(self.positions) <= 0).any():
            raise TraceFormatError("the positions of a prompt's rows must ascend.")

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def positions(self) -> NDArray[np.int32]:
        """Index of each row's root in its whole text."""
        positions: NDArray[np.int32] = self._columns["position"]
        return positions

    def row(self, number: int) -> Row:
        """Return one row.

        Raises
        ------
        TraceFormatError
            A value breaks the format.
        """
        decode = _cycle if self._metadata.kind == "run" else _position
        try:
            return decode(self._columns, number, self._metadata)
        except (SpecfitError, ValueError) as error:
            raise TraceFormatError(f"row {number}: {error}") from error


class _Columns:
    """The columns of a table under their names, of the types of the schema."""

    def __init__(self, table: pa.Table, schema: pa.Schema) -> None:
        _check_schema(table.schema, schema)
        self._columns: dict[str, Any] = {}
        for column in schema:
            chunked = table.column(column.name)
            if not column.nullable and has_nulls(chunked):
                raise TraceFormatError(f"column {column.name} must have no null.")
            is_scalar = not (pa.types.is_list(column.type) or pa.types.is_binary(column.type))
            self._columns[column.name] = (
                scalar_column(chunked) if is_scalar else list_column(chunked)
            )

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def check_routing(self, geometry: ModelGeometry) -> None:
        """Raise unless every expert id exists and every row holds whole tokens."""
        column: ListColumn = self["routing"]
        dtype = routing_dtype(geometry)
        token_bytes = geometry.num_layers * geometry.experts_per_token * dtype.itemsize
        if (column.sizes % token_bytes).any():
            raise TraceFormatError(
                f"routing must hold {token_bytes} bytes a token; got rows of other sizes."
            )
        used = column.values[column.offsets[0] : column.offsets[-1]].view(dtype)
        if len(used) and int(used.max()) >= geometry.num_experts:
            raise TraceFormatError(
                f"expert ids are 0 to {geometry.num_experts - 1}; got {used.max()} in routing."
            )


def _check_schema(found: pa.Schema, expected: pa.Schema) -> None:
    unknown = sorted(set(found.names) - set(expected.names))
    missing = sorted(set(expected.names) - set(found.names))
    if unknown or missing or len(found.names) != len(expected.names):
        raise TraceFormatError(
            f"the columns must be those of the format; unknown: "
            f"{', '.join(unknown)[:200] or 'none'}, missing: {', '.join(missing) or 'none'}."
        )
    for column in expected:
        kind = found.field(column.name).type
        if _plain(kind) != _plain(column.type):
            raise TraceFormatError(f"column {column.name} must be {column.type}; got {kind}.")


def _plain(kind: pa.DataType) -> str:
    return f"list<{kind.value_type}>" if pa.types.is_list(kind) else str(kind)


def _check_trees(columns: _Columns, geometry: ModelGeometry) -> None:
    sizes = columns["tokens"].sizes
    for name in ("parents", "log_probs", "ranks", "entropies"):
        _check_same_sizes(columns, name, sizes)
    answers = columns["target_tokens"].sizes
    for name in ("target_probs", "margins"):
        _check_same_sizes(columns, name, answers)
    for name in ("tokens", "target_tokens"):
        _check_range(name, columns[name].values, 0, geometry.vocab_size)
    _check_range("ranks", columns["ranks"].values, 0, geometry.vocab_size)
    for name in ("entropies", "margins", "target_probs"):
        if not (columns[name].values >= 0).all():
            raise TraceFormatError(f"{name} must be 0 or more; got a negative value or NaN.")


def _check_same_sizes(columns: _Columns, name: str, sizes: NDArray[np.int64]) -> None:
    if (columns[name].sizes != sizes).any():
        row = int(np.argmax(columns[name].sizes != sizes))
        raise TraceFormatError(
            f"row {row}: {name} must hold {sizes[row]} values; got {columns[name].sizes[row]}."
        )


def _check_range(name: str, values: NDArray[Any], low: int, high: int) -> None:
    if len(values) and not (low <= int(values.min()) and int(values.max()) < high):
        raise TraceFormatError(
            f"{name} must be {low} to {high - 1}; got {values.min()} to {values.max()}."
        )


def _prompt(columns: _Columns, row: int, geometry: ModelGeometry) -> PromptRow:
    tokens, text = columns["tokens"][row], columns["text"][row]
    _check_range("tokens", tokens, 0, geometry.vocab_size)
    _check_range("text", text, 0, geometry.vocab_size)
    request = Request(
        prompt=tuple(tokens.tolist()),
        max_new_tokens=int(columns["max_new_tokens"][row]),
        stop_ids=frozenset(columns["stop_ids"][row].tolist()),
        sampling=Sampling(
            temperature=float(columns["temperature"][row]),
            top_k=int(columns["top_k"][row]),
            top_p=float(columns["top_p"][row]),
            noise_key=int(columns["noise_key"][row]),
        ),
    )
    prompt = PromptRow(
        index=int(columns["prompt"][row]),
        request=request,
        text=tuple(text.tolist()),
        stop_reason=str(columns["stop_reason"][row]),
        routing=unpack_routing(columns["routing"][row].tobytes(), geometry),
        chunks=tuple(columns["chunks"][row].tolist()),
        prefill_s=float(columns["prefill_s"][row]),
    )
    _check_prompt(prompt)
    return prompt


def _check_extent(first_row: int, num_rows: int) -> None:
    if first_row < 0 or num_rows < 0:
        raise TraceFormatError(
            f"first_row and num_rows must be 0 or more; got {first_row} and {num_rows}."
        )


def _check_prompt(prompt: PromptRow) -> None:
    if prompt.stop_reason not in STOP_REASONS:
        raise TraceFormatError(
            f"stop_reason must be {' or '.join(STOP_REASONS)}; got '{prompt.stop_reason[:40]}'."
        )
    if not 1 <= len(prompt.text) <= prompt.request.max_new_tokens:
        raise TraceFormatError(
            f"text must hold 1 to max_new_tokens, {prompt.request.max_new_tokens}, tokens; "
            f"got {len(prompt.text)}."
        )
    num_tokens = len(prompt.request.prompt)
    if len(prompt.routing) != num_tokens:
        raise TraceFormatError(
            f"routing must cover the {num_tokens} prompt tokens; it covers {len(prompt.routing)}."
        )
    if sum(prompt.chunks) != num_tokens or min(prompt.chunks, default=0) < 1:
        raise TraceFormatError(
            f"chunks must be positive and sum to the {num_tokens} prompt tokens; "
            f"they sum to {sum(prompt.chunks)}."
        )


def _tree(columns: _Columns, row: int, metadata: TraceMetadata) -> DraftTree:
    return DraftTree(
        tokens=columns["tokens"][row].astype(np.int64),
        parents=columns["parents"][row],
        log_probs=columns["log_probs"][row],
        ranks=columns["ranks"][row],
        entropies=columns["entropies"][row],
        states=_states(columns, row, metadata.state_width) if metadata.state_width else None,
    )


def _states(columns: _Columns, row: int, width: int) -> NDArray[np.float32]:
    """Return the state of every node: that of its parent, of which one is stored."""
    stored, parents = columns["states"][row], columns["parents"][row]
    above, place = np.unique(parents[1:], return_inverse=True)
    if len(stored) != len(above) * width:
        raise TraceFormatError(
            f"states must hold {width} numbers for each of the {len(above)} nodes that have "
            f"children; got {len(stored)}."
        )
    states = np.zeros((len(parents), width), np.float32)
    states[1:] = stored.reshape(-1, width)[place]
    return states


def _answers(columns: _Columns, row: int, num_nodes: int, geometry: ModelGeometry) -> Answers:
    answers = Answers(
        target_tokens=columns["target_tokens"][row].astype(np.int64),
        target_probs=columns["target_probs"][row],
        margins=columns["margins"][row],
        routing=unpack_routing(columns["routing"][row].data, geometry),
    )
    if len(answers) != num_nodes or len(answers.routing) != num_nodes:
        raise TraceFormatError(
            f"there must be {num_nodes} answers; got {len(answers)} tokens "
            f"and the routing of {len(answers.routing)} nodes."
        )
    return answers


def _cycle(columns: _Columns, row: int, metadata: TraceMetadata) -> CycleRow:
    tree = _tree(columns, row, metadata)
    answered = columns["answered"][row]
    _check_ascending("answered", answered, len(tree))
    if (np.diff(tree.depths) < 0).any():
        raise TraceFormatError("the nodes of a tree must be ordered by depth.")
    return CycleRow(
        prompt=int(columns["prompt"][row]),
        cycle=int(columns["cycle"][row]),
        position=int(columns["position"][row]),
        plan=DraftPlan(
            int(columns["plan_depth"][row]),
            int(columns["plan_top_k"][row]),
            int(columns["plan_max_nodes"][row]),
        ),
        tree=tree,
        is_exhausted=bool(columns["is_exhausted"][row]),
        answered=answered,
        answers=_answers(columns, row, len(answered), metadata.geometry),
        decisions=_decisions(columns, row, tree, metadata.geometry),
        timings=_timings(columns, row),
    )


def _timings(columns: _Columns, row: int) -> Timings:
    seconds = {
        name: float(columns[name][row])
        for name in ("draft_s", "select_s", "stall_s", "compute_s", "commit_s")
    }
    for name, value in seconds.items():
        if not np.isfinite(value):
            raise TraceFormatError(f"{name} must be finite; got {value}.")
    return Timings(**seconds)


def _decisions(
    columns: _Columns, row: int, tree: DraftTree, geometry: ModelGeometry
) -> Decisions | None:
    lists = [name for name in DECISIONS if not name.startswith("predicted")]
    absent = [bool(columns[name].is_null[row]) for name in lists]
    if all(absent):
        return None
    if any(absent):
        raise TraceFormatError(f"the columns {', '.join(lists)} are all present or all absent.")
    selected, accepted = columns["selected"][row], columns["accepted"][row]
    _check_ascending("selected", selected, len(tree))
    _check_ascending("accepted", accepted, len(tree), needs_root=False)
    Selection.from_nodes(tree, selected)
    counts = {}
    for name in ("num_hits", "num_misses", "num_evictions"):
        counts[name] = columns[name][row].astype(np.int64)
        if len(counts[name]) != geometry.num_layers:
            raise TraceFormatError(
                f"{name} must hold {geometry.num_layers} layers; got {len(counts[name])}."
            )
        _check_range(name, counts[name], 0, geometry.num_experts + 1)
    return Decisions(
        selected=selected,
        accepted=accepted,
        committed=columns["committed"][row],
        prediction=_prediction(columns, row),
        **counts,
    )


def _prediction(columns: _Columns, row: int) -> Prediction | None:
    committed, misses, cycle_s = (
        float(columns[name][row])
        for name in ("predicted_committed", "predicted_misses", "predicted_cycle_s")
    )
    if np.isnan(committed):
        return None
    return Prediction(committed=committed, misses=misses, cycle_s=cycle_s)


def _check_ascending(
    name: str, nodes: NDArray[np.int32], num_nodes: int, *, needs_root: bool = True
) -> None:
    if needs_root and (len(nodes) == 0 or nodes[0] != 0):
        raise TraceFormatError(f"{name} must start with node 0.")
    if (np.diff(nodes) <= 0).any():
        raise TraceFormatError(f"{name} must ascend.")
    _check_range(name, nodes, 0, num_nodes)


def _position(columns: _Columns, row: int, metadata: TraceMetadata) -> PositionRow:
    trie = _tree(columns, row, metadata)
    sizes, levels = columns["plan_sizes"][row].tolist(), columns["plan_levels"][row].tolist()
    nodes = columns["plan_nodes"][row]
    num_plans = len(metadata.plans)
    if len(sizes) != num_plans or len(levels) != num_plans or sum(sizes) != len(nodes):
        raise TraceFormatError(
            f"plan_sizes and plan_levels must hold one value for each of the {num_plans} plans, "
            f"and plan_sizes must sum to the {len(nodes)} plan_nodes."
        )
    for size in sizes:
        if not 1 <= size <= len(trie):
            raise TraceFormatError(f"plan_sizes must be 1 to {len(trie)}; got {size}.")
    bounds = accumulate(sizes, initial=0)
    plan_nodes = tuple(nodes[start:stop] for start, stop in pairwise(bounds))
    for one_plan, num_levels in zip(plan_nodes, levels, strict=True):
        _check_plan(trie, one_plan, num_levels)
    return PositionRow(
        prompt=int(columns["prompt"][row]),
        position=int(columns["position"][row]),
        trie=trie,
        answers=_answers(columns, row, len(trie), metadata.geometry),
        plan_nodes=plan_nodes,
        plan_levels=tuple(levels),
    )


def _check_plan(trie: DraftTree, nodes: NDArray[np.int32], num_levels: int) -> None:
    """Raise unless the nodes are a tree by level: the root, and each parent before its children."""
    if len(nodes) == len(trie) and counts_up(nodes):  # a single plan's are all, in order
        depths = trie.depths
    else:
        _check_range("plan_nodes", nodes, 0, len(trie))
        order = np.arange(len(nodes))
        seen = np.full(len(trie), len(nodes), np.int64)
        seen[nodes] = order
        if nodes[0] != 0 or (seen[nodes] != order).any():
            raise TraceFormatError("plan_nodes must start with the root and name each node once.")
        if (seen[trie.parents[nodes[1:]]] >= order[1:]).any():
            raise TraceFormatError("plan_nodes must name a parent before its child.")
        depths = trie.depths[nodes]
    if (depths[1:] < depths[:-1]).any() or depths[-1] != num_levels:
        raise TraceFormatError("plan_nodes must be ordered by depth, plan_levels deep.")
