"""The CSV of `llama-moe-trace`: ``position,layer,id,id,...``, one row a token and layer.

Prompt tokens have negative positions; within a layer they stand in order. A llama.cpp build leaves
out, in its last layer, the prompt tokens whose output is not needed: such tokens are dropped.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

from specfit.core.errors import InvalidInputError
from specfit.sim.importers.imported import Imported, ImportedText, ImportOptions, stack_layers

Experts = dict[int, tuple[int, ...]]


def read(path: Path, options: ImportOptions) -> Imported:
    """Read one file: one text."""
    prompt: dict[int, Experts] = defaultdict(dict)
    generated: dict[int, Experts] = defaultdict(dict)
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.reader(file), 1):
            if not row:
                continue
            position, layer, experts = _parse(path, number, row)
            tokens = prompt if position < 0 else generated
            if layer in tokens[position]:
                raise InvalidInputError(
                    f"{path}, line {number}: position {position}, layer {layer} comes twice. One "
                    f"file must hold one text."
                )
            tokens[position][layer] = experts
    if not generated:
        raise InvalidInputError(f"{path} holds no generated token (position 0 or more).")
    layers = set(generated[min(generated)])
    whole = [experts for experts in prompt.values() if set(experts) == layers]
    rows = [generated[position] for position in sorted(generated)]
    unknown = [
        "token ids: all tokens are the same to a replay",
        "what was drafted: nothing",
        "the temperature and the probabilities of tokens",
    ]
    if len(whole) < len(prompt):
        unknown.append(
            f"the experts of {len(prompt) - len(whole)} of {len(prompt)} prompt tokens in some "
            f"layer; these tokens are left out"
        )
    if not whole:
        whole, rows = rows[:1], rows[1:]
        unknown.append("the prompt: the first generated token stands for it")
    texts = stack_layers(whole, "prompt token")[0], stack_layers(rows, "generated token")[0]
    return Imported([ImportedText(*texts)], tuple(unknown))


def _parse(path: Path, number: int, row: list[str]) -> tuple[int, int, tuple[int, ...]]:
    try:
        values = [int(cell) for cell in row]
    except ValueError as error:
        raise InvalidInputError(
            f"{path}, line {number}: expected position,layer,id,...; got '{','.join(row)[:60]}'."
        ) from error
    if len(values) < 3 or values[1] < 0:
        raise InvalidInputError(
            f"{path}, line {number}: expected a position, a layer and at least one expert; "
            f"got '{','.join(row)[:60]}'."
        )
    return values[0], values[1], tuple(values[2:])
