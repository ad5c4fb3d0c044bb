"""The ``.pt`` file of SGLang's expert distribution recorder in its mode ``per_token``.

A dict of ``records``, one a forward pass, with ``input_ids``, ``positions``, ``forward_mode`` and
``topk_ids_of_layer`` (int32 [L, T, k], -1 where there is none), and the map from the physical
experts of those ids to the model's. The loader is the caller's, since this package does without
torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.sim.importers.imported import Imported, ImportedText, ImportOptions

_KEYS = ("input_ids", "positions", "topk_ids_of_layer")


class _Builder:
    """Gathers the passes of one text."""

    def __init__(self) -> None:
        self.prompt: list[NDArray[np.int16]] = []
        self.generated: list[NDArray[np.int16]] = []
        self.prompt_tokens: list[int] = []
        self.tokens: list[int] = []

    def text(self) -> ImportedText:
        shape = self.prompt[0].shape[1:]
        generated = self.generated or [np.zeros((0, *shape), np.int16)]
        return ImportedText(
            np.concatenate(self.prompt),
            np.concatenate(generated),
            tuple(self.prompt_tokens),
            tuple(self.tokens),
            tuple(len(part) for part in self.prompt),
        )


def read(path: Path, options: ImportOptions) -> Imported:
    """Read one file: a text wherever the positions start anew."""
    table = _load(path, options)
    to_model = np.asarray(table["last_physical_to_logical_map"])
    texts: list[_Builder] = []
    end = -1  # the position after the last token
    gaps = 0
    for number, record in enumerate(table["records"]):
        tokens, positions = list(record["input_ids"]), list(record["positions"])
        routing = _routing(record["topk_ids_of_layer"], to_model, path, number)
        _check_one_request(path, number, record, positions)
        is_prefill = len(tokens) > 1 or positions[0] != end or not texts
        if is_prefill and (positions[0] != end or not texts):
            texts.append(_Builder())
            gaps += positions[0] > 0
        current = texts[-1]
        if is_prefill and current.generated:
            raise InvalidInputError(
                f"{path}, record {number}: {len(tokens)} tokens are run after decoding began. "
                f"Record without speculation and with one request at a time."
            )
        (current.prompt if is_prefill else current.generated).append(routing)
        (current.prompt_tokens if is_prefill else current.tokens).extend(tokens)
        end = positions[-1] + 1
    unknown = [
        "what was drafted: nothing",
        "the temperature and the probabilities of tokens",
        "the last token of each text: it was not run",
    ]
    if gaps:
        unknown.append(f"the start of {gaps} prompts, which came from SGLang's prefix cache")
    return Imported([text.text() for text in texts], tuple(unknown), int(to_model.max()) + 1)


def _load(path: Path, options: ImportOptions) -> dict[str, Any]:
    if options.load_tensors is None:
        raise InvalidInputError(f"{path} needs a loader of .pt files: ImportOptions.load_tensors.")
    table = options.load_tensors(path)
    known = {"records", "last_physical_to_logical_map"}
    if not isinstance(table, dict) or not known <= set(table):
        raise InvalidInputError(
            f"{path} must hold {' and '.join(sorted(known))}. Record with "
            f"--expert-distribution-recorder-mode per_token; other modes keep counts only."
        )
    if not isinstance(table["records"], list) or not table["records"]:
        raise InvalidInputError(f"{path} holds no records.")
    for number, record in enumerate(table["records"]):
        missing = [key for key in _KEYS if not isinstance(record, dict) or key not in record]
        if missing:
            raise InvalidInputError(f"{path}, record {number} lacks {', '.join(missing)}.")
    loaded: dict[str, Any] = table
    return loaded


def _check_one_request(
    path: Path, number: int, record: dict[str, Any], positions: list[int]
) -> None:
    lengths = record.get("extend_seq_lens")
    follows = positions == list(range(positions[0], positions[0] + len(positions)))
    if (lengths is not None and len(lengths) > 1) or not follows:
        raise InvalidInputError(
            f"{path}, record {number} holds several requests, which the file cannot tell apart. "
            f"Record with --max-running-requests 1."
        )


def _routing(ids: Any, to_model: NDArray[Any], path: Path, number: int) -> NDArray[np.int16]:
    """Return the model's experts of a pass, int16[T, L, K], without layers that have none."""
    physical = np.asarray(ids)
    if physical.ndim != 3 or physical.shape[1] == 0:
        raise InvalidInputError(
            f"{path}, record {number}: topk_ids_of_layer must be [L, T, k]; "
            f"got {list(physical.shape)}."
        )
    used = physical >= 0
    layers, slots = used.any(axis=(1, 2)), used.any(axis=(0, 1))
    physical, rows = physical[layers][:, :, slots], to_model[layers]
    if (physical < 0).any() or physical.max(initial=-1) >= rows.shape[1]:
        raise InvalidInputError(
            f"{path}, record {number}: a token lacks experts in some layer, or an id is outside "
            f"the {rows.shape[1]} physical experts."
        )
    logical = np.take_along_axis(rows[:, None, :].repeat(physical.shape[1], 1), physical, 2)
    return np.moveaxis(logical, 0, 1).astype(np.int16)
