"""The Parquet of moe-policylang: a row a token and layer, with the experts the router selected.

Columns: ``prompt_id``, ``token_idx``, ``layer_idx``, ``selected_experts``, and, where they were
recorded, ``token_id``, ``phase`` (``prefill`` or ``decode``) and ``router_softmax``.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specfit.core.errors import InvalidInputError
from specfit.sim.importers.imported import Imported, ImportedText, ImportOptions, stack_layers

REQUIRED = ("prompt_id", "token_idx", "layer_idx", "selected_experts")
OPTIONAL = ("token_id", "phase")


def read(path: Path, options: ImportOptions) -> Imported:
    """Read one file: a text for each prompt id."""
    table = _table(path)
    has = set(table.schema.names)
    rows: dict[int, dict[int, dict[int, tuple[int, ...]]]] = defaultdict(lambda: defaultdict(dict))
    said: dict[tuple[int, int], tuple[Any, Any]] = {}
    for record in table.to_pylist():
        prompt, token, layer = (record[key] for key in REQUIRED[:3])
        experts = record["selected_experts"]
        if None in (prompt, token, layer) or not experts:
            raise InvalidInputError(f"{path}: a row lacks an index or its experts: {record}.")
        if layer in rows[prompt][token]:
            raise InvalidInputError(
                f"{path}: prompt {prompt}, token {token}, layer {layer} comes twice."
            )
        rows[prompt][token][layer] = tuple(experts)
        said[prompt, token] = record.get("token_id"), record.get("phase")
    texts = [_text(prompt, tokens, said) for prompt, tokens in sorted(rows.items())]
    unknown = ["what was drafted: nothing", "the temperature and the probabilities of tokens"]
    if "token_id" not in has:
        unknown.append("token ids: all tokens are the same to a replay")
    if "phase" not in has:
        unknown.append("where a prompt ends: its first token stands for it")
    return Imported(texts, tuple(unknown), _num_experts(path))


def write(path: Path, texts: list[ImportedText]) -> None:
    """Write texts in this format, for moe-policylang to replay."""
    columns: dict[str, list[Any]] = {key: [] for key in (*REQUIRED, *OPTIONAL)}
    for prompt, text in enumerate(texts):
        ids = (*(text.prompt_tokens or ()), *(text.tokens or ()))
        for token, routing in enumerate([*text.prompt, *text.generated]):
            phase = "prefill" if token < len(text.prompt) else "decode"
            for layer, experts in enumerate(routing.tolist()):
                values = (prompt, token, layer, experts, ids[token] if ids else 0, phase)
                for key, value in zip(columns, values, strict=True):
                    columns[key].append(value)
    kinds = [pa.int32(), pa.int32(), pa.int32(), pa.list_(pa.int32()), pa.int32(), pa.string()]
    schema = pa.schema(list(zip(columns, kinds, strict=True)))
    pq.write_table(pa.table(columns, schema), path, compression="zstd")


def _table(path: Path) -> pa.Table:
    try:
        names = pq.read_schema(path).names
        wanted = [name for name in (*REQUIRED, *OPTIONAL) if name in names]
        missing = [name for name in REQUIRED if name not in names]
        if missing:
            raise InvalidInputError(
                f"{path} must have the columns {', '.join(REQUIRED)}; it lacks "
                f"{', '.join(missing)}."
            )
        return pq.read_table(path, columns=wanted)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError(f"{path} is not a Parquet file: {error}.") from error


def _num_experts(path: Path) -> int | None:
    """Return the length of the recorded router distribution, if it was recorded."""
    if "router_softmax" not in pq.read_schema(path).names:
        return None
    first = next(pq.ParquetFile(path).iter_batches(1, columns=["router_softmax"]), None)
    values = first.column(0)[0].as_py() if first is not None and len(first) else None
    return len(values) if values else None


def _text(
    prompt: int,
    tokens: dict[int, dict[int, tuple[int, ...]]],
    said: dict[tuple[int, int], tuple[Any, Any]],
) -> ImportedText:
    order = sorted(tokens)
    routing, _ = stack_layers([tokens[token] for token in order], f"prompt {prompt}, token")
    num_prompt = sum(said[prompt, token][1] == "prefill" for token in order) or 1
    ids = [said[prompt, token][0] for token in order]
    if None in ids:
        return ImportedText(routing[:num_prompt], routing[num_prompt:])
    return ImportedText(
        routing[:num_prompt], routing[num_prompt:], tuple(ids[:num_prompt]), tuple(ids[num_prompt:])
    )
