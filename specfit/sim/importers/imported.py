"""What a foreign trace gives: the experts of a text's tokens, and what it does not say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Request
from specfit.core.errors import InvalidInputError
from specfit.core.experts import ModelGeometry
from specfit.core.tree import DraftPlan, DraftTree
from specfit.sim.trace import Answers, PositionRow, PromptRow, TraceMetadata, TraceWriter

NO_TOKEN = 0
"""Stands for every token of a text whose tokens were not recorded."""

PLAIN_PLAN = DraftPlan.plain()


@dataclass(frozen=True)
class ImportOptions:
    """What a file may leave out.

    Parameters
    ----------
    num_experts : int, optional
        Experts of a layer; by default one more than the largest id seen.
    expert_bytes : int, optional
        Size of one expert; no format says it.
    load_tensors : callable, optional
        Returns what a ``.pt`` file holds; `specfit.backends.tensor_file.load_plain` does so safely.
    """

    num_experts: int | None = None
    expert_bytes: int | None = None
    load_tensors: Callable[[Path], Any] | None = None


@dataclass(frozen=True, eq=False)
class ImportedText:
    """A text and the experts of its tokens, in the order in which they were run.

    Parameters
    ----------
    prompt : int16[T, L, K]
        Experts of each prompt token, T >= 1.
    generated : int16[n, L, K]
        Experts of each generated token that was run.
    prompt_tokens : tuple of int, optional
        Ids of the prompt.
    tokens : tuple of int, optional
        Ids of the generated tokens that were run, and the one after them if it is known.
    chunks : tuple of int, optional
        Tokens of each prefill pass; by default one pass.
    """

    prompt: NDArray[np.int16]
    generated: NDArray[np.int16]
    prompt_tokens: tuple[int, ...] | None = None
    tokens: tuple[int, ...] | None = None
    chunks: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Imported:
    """A foreign file.

    Parameters
    ----------
    texts : sequence of ImportedText
        In the order of the file.
    unknown : tuple of str
        What the file does not say, a sentence each.
    num_experts : int, optional
        Experts of a layer where the file says so.
    """

    texts: Sequence[ImportedText]
    unknown: tuple[str, ...] = field(default=())
    num_experts: int | None = None


def write_texts(folder: Path, imported: Imported, options: ImportOptions, source: str) -> None:
    """Write the texts as a position-complete trace of plain decoding: nothing was drafted."""
    metadata = _metadata(imported, options, source)
    with TraceWriter.create(folder, metadata) as writer:
        for index, text in enumerate(imported.texts):
            for row in _rows(index, text):
                writer.add(row)
            writer.end_prompt(_prompt(index, text))


def geometry_of(
    routings: Iterable[NDArray[np.int16]],
    said: int | None,
    options: ImportOptions,
    max_token: int = NO_TOKEN,
) -> ModelGeometry:
    """Return the geometry of imported routing, each [n, L, K], with the options filling the gaps.

    Raises
    ------
    InvalidInputError
        The size of an expert is not given, or an id is outside the layer.
    """
    if options.expert_bytes is None:
        raise InvalidInputError(
            "the file does not say how large an expert is. Give --expert-bytes; an expert of "
            "Qwen3-30B-A3B has 9437184 bytes in bfloat16."
        )
    shapes = {routing.shape[1:] for routing in routings if len(routing)}
    if len(shapes) != 1:
        raise InvalidInputError(
            f"every token must have the same layers and experts a layer; got {sorted(shapes)}."
        )
    (num_layers, k) = shapes.pop()
    largest = max(int(routing.max()) for routing in routings if len(routing))
    num_experts = options.num_experts or said or largest + 1
    if largest >= num_experts:
        raise InvalidInputError(
            f"expert ids must be 0 to {num_experts - 1}; the file holds {largest}. "
            f"Give a larger --num-experts."
        )
    return ModelGeometry(num_layers, num_experts, k, options.expert_bytes, max_token + 1)


def stack_layers(
    rows: Sequence[dict[int, tuple[int, ...]]], what: str
) -> tuple[NDArray[np.int16], tuple[int, ...]]:
    """Return the routing of tokens, int16[n, L, K], from each one's experts by layer id, and L ids.

    Raises
    ------
    InvalidInputError
        A token lacks a layer, or has another number of experts than the first.
    """
    layers = tuple(sorted(rows[0])) if rows else ()
    for place, row in enumerate(rows):
        if tuple(sorted(row)) != layers:
            raise InvalidInputError(
                f"{what} {place} must have the layers {_ids(layers)}; it has {_ids(sorted(row))}."
            )
        sizes = {len(row[layer]) for layer in layers}
        if sizes != {len(rows[0][layers[0]])}:
            raise InvalidInputError(
                f"{what} {place} must have {len(rows[0][layers[0]])} experts in each layer; "
                f"it has {sorted(sizes)}."
            )
    stacked = np.array([[row[layer] for layer in layers] for row in rows], np.int32)
    if len(stacked) and not 0 <= stacked.min() <= stacked.max() < 2**15:
        raise InvalidInputError(
            f"expert ids must be 0 to {2**15 - 1}; got {stacked.min()} to {stacked.max()}."
        )
    return stacked.astype(np.int16), layers


def _ids(layers: Sequence[int]) -> str:
    listed = list(layers)
    if len(listed) > 4 and listed == list(range(listed[0], listed[-1] + 1)):
        return f"{listed[0]} to {listed[-1]}"
    return ", ".join(map(str, listed)) or "none"


def _metadata(imported: Imported, options: ImportOptions, source: str) -> TraceMetadata:
    if not imported.texts:
        raise InvalidInputError(f"{source} holds no text.")
    routings = [r for text in imported.texts for r in (text.prompt, text.generated)]
    tokens = [t for text in imported.texts for t in _all_tokens(text)]
    return TraceMetadata(
        kind="positions",
        origin="recorded",
        geometry=geometry_of(routings, imported.num_experts, options, max(tokens)),
        plans=(PLAIN_PLAN,),
        backend={"backend": "imported", "source": source, "unknown": list(imported.unknown)},
    )


def _all_tokens(text: ImportedText) -> tuple[int, ...]:
    return _prompt_tokens(text) + _text(text)


def _prompt_tokens(text: ImportedText) -> tuple[int, ...]:
    return text.prompt_tokens or (NO_TOKEN,) * len(text.prompt)


def _text(text: ImportedText) -> tuple[int, ...]:
    """Return the generated tokens: those that were run, and one more."""
    tokens = text.tokens or (NO_TOKEN,) * len(text.generated)
    return tokens if len(tokens) > len(text.generated) else (*tokens, NO_TOKEN)


def _rows(index: int, text: ImportedText) -> Iterable[PositionRow]:
    tokens = _text(text)
    for place, routing in enumerate(text.generated):
        answers = Answers(
            target_tokens=np.array([tokens[place + 1]], np.int64),
            target_probs=np.ones(1, np.float32),
            margins=np.ones(1, np.float32),
            routing=routing[None],
        )
        yield PositionRow(
            prompt=index,
            position=len(text.prompt) + place,
            trie=DraftTree.root(tokens[place]),
            answers=answers,
            plan_nodes=(np.zeros(1, np.int32),),
            plan_levels=(0,),
        )


def _prompt(index: int, text: ImportedText) -> PromptRow:
    tokens = _text(text)
    return PromptRow(
        index=index,
        request=Request(_prompt_tokens(text), len(tokens)),
        text=tokens,
        stop_reason="length",
        routing=text.prompt,
        chunks=text.chunks or (len(text.prompt),),
        prefill_s=0.0,
    )
