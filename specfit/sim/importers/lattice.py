"""The JSON lines of lattice: ``{layer_idx, token_idx, selected_ids, gate_weights}`` a line."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specfit.core.errors import InvalidInputError
from specfit.sim.importers.imported import Imported, ImportedText, ImportOptions, stack_layers

KEYS = ("layer_idx", "token_idx", "selected_ids")


def read(path: Path, options: ImportOptions) -> Imported:
    """Read one file: one text."""
    tokens: dict[int, dict[int, tuple[int, ...]]] = defaultdict(dict)
    for number, record in _records(path):
        layer, token, ids = (record[key] for key in KEYS)
        if layer in tokens[token]:
            raise InvalidInputError(
                f"{path}, line {number}: token {token}, layer {layer} comes twice. One file must "
                f"hold one text."
            )
        tokens[token][layer] = tuple(ids)
    if len(tokens) < 2:
        raise InvalidInputError(f"{path} must hold at least two tokens; it has {len(tokens)}.")
    routing, _ = stack_layers([tokens[token] for token in sorted(tokens)], "token")
    unknown = (
        "token ids: all tokens are the same to a replay",
        "where the prompt ends: the first token stands for it",
        "what was drafted: nothing",
        "the temperature and the probabilities of tokens",
    )
    return Imported([ImportedText(routing[:1], routing[1:])], unknown)


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise InvalidInputError(f"{path}, line {number} is not JSON: {error}.") from error
            if not isinstance(record, dict) or not _is_record(record):
                raise InvalidInputError(
                    f"{path}, line {number}: expected integers layer_idx and token_idx and a list "
                    f"of integers selected_ids; got '{line.strip()[:60]}'."
                )
            yield number, record


def _is_record(record: dict[str, Any]) -> bool:
    ids = record.get("selected_ids")
    numbers = [record.get("layer_idx"), record.get("token_idx")]
    return (
        isinstance(ids, list)
        and bool(ids)
        and all(type(value) is int and value >= 0 for value in [*numbers, *ids])
    )
