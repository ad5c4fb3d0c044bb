"""Qwen3-MoE checkpoints: what is in a folder, and its weights in the layout that offloading wants.

One expert is one contiguous block, gate | up | down, so that one copy brings it to the device.
Everything else is returned by name for the model to load. Both spellings of the experts are read:
one tensor an expert and projection (all releases), and the fused ones that transformers can write.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import Qwen3MoeConfig

from specfit.core.errors import CheckpointError
from specfit.core.experts import ModelGeometry

SUPPORTED = "qwen3_moe"
PARTS = ("gate_proj", "up_proj", "down_proj")
PER_EXPERT = re.compile(
    r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight"
)
FUSED = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up_proj|down_proj)")


@dataclass(frozen=True)
class Checkpoint:
    """A readable Qwen3-MoE checkpoint folder.

    Parameters
    ----------
    folder : Path
        Where it lies.
    config : Qwen3MoeConfig
        Its configuration, as transformers reads it.
    files : tuple of Path
        Its safetensors files.
    stop_ids : frozenset of int
        Tokens that end a text: the generation settings' if there are any, else the configuration's.
    """

    folder: Path
    config: Qwen3MoeConfig
    files: tuple[Path, ...]
    stop_ids: frozenset[int]

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Look at a folder; nothing but the small files is read.

        Raises
        ------
        CheckpointError
            There is no checkpoint, or it is of another architecture.
        """
        raw = read_json(folder / "config.json")
        _check_architecture(folder, raw)
        config = Qwen3MoeConfig.from_dict(raw)
        return cls(folder, config, safetensors_files(folder), _stop_ids(folder, raw))

    def geometry(self, dtype: torch.dtype) -> ModelGeometry:
        """Return the shape constants with experts held in `dtype`."""
        config = self.config
        block = 3 * config.moe_intermediate_size * config.hidden_size
        return ModelGeometry(
            num_layers=config.num_hidden_layers,
            num_experts=config.num_experts,
            experts_per_token=config.num_experts_per_tok,
            expert_bytes=block * dtype.itemsize,
            vocab_size=config.vocab_size,
        )

    @property
    def tokenizer_hash(self) -> str:
        """SHA-256 of ``tokenizer.json``; empty if there is none."""
        path = self.folder / "tokenizer.json"
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""

    def load(self, bank: Tensor) -> dict[str, Tensor]:
        """Fill the host bank with the experts and return every other tensor in the bank's dtype.

        Parameters
        ----------
        bank : Tensor [L, E, 3 I D]
            Host memory; each block becomes gate | up | down.

        Raises
        ------
        CheckpointError
            A tensor is missing, has another shape, or a file is damaged.
        """
        experts = _ExpertBank(bank, self.config, self.folder)
        others: dict[str, Tensor] = {}
        for name, tensor in read_tensors(self.files):
            if not experts.take(name, tensor):
                others[name] = tensor.to(bank.dtype)
        experts.check_complete()
        return others


@dataclass
class _ExpertBank:
    """Sorts expert tensors into their blocks and knows which are still missing."""

    bank: Tensor
    config: Qwen3MoeConfig
    folder: Path
    seen: set[tuple[int, int, str]] = field(default_factory=set)

    def take(self, name: str, tensor: Tensor) -> bool:
        """Store the tensor if it belongs to an expert; return whether it does."""
        if match := PER_EXPERT.fullmatch(name):
            layer, expert, part = int(match[1]), int(match[2]), match[3]
            self._store(name, tensor[None], layer, expert, part)
            return True
        if match := FUSED.fullmatch(name):
            layer, size = int(match[1]), self.config.moe_intermediate_size
            if match[2] == "down_proj":
                self._store(name, tensor, layer, 0, "down_proj")
            else:
                self._store(name, tensor[:, :size], layer, 0, "gate_proj")
                self._store(name, tensor[:, size:], layer, 0, "up_proj")
            return True
        return False

    def _store(self, name: str, tensor: Tensor, layer: int, first: int, part: str) -> None:
        size, width = self.config.moe_intermediate_size, self.config.hidden_size
        shape = (width, size) if part == "down_proj" else (size, width)
        layers, experts, _ = self.bank.shape
        last = first + tensor.shape[0]
        if tuple(tensor.shape[1:]) != shape or layer >= layers or last > experts:
            raise CheckpointError(
                f"{self.folder}: {name} has shape {list(tensor.shape)}, but the configuration says "
                f"{layers} layers of {experts} experts of {list(shape)}. "
                f"The files do not belong together."
            )
        start = PARTS.index(part) * size * width
        block = self.bank[layer, first:last, start : start + size * width]
        block.copy_(tensor.reshape(last - first, -1))
        self.seen.update((layer, expert, part) for expert in range(first, last))

    def check_complete(self) -> None:
        """Raise if an expert's projection has not been seen."""
        layers, experts, _ = self.bank.shape
        for layer in range(layers):
            for expert in range(experts):
                for part in PARTS:
                    if (layer, expert, part) not in self.seen:
                        raise CheckpointError(
                            f"{self.folder}: {part} of expert {expert} of layer {layer} is "
                            f"missing. Is the download complete?"
                        )


def read_tensors(files: tuple[Path, ...]) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of some safetensors files, one at a time.

    Raises
    ------
    CheckpointError
        A file is missing, truncated, or no safetensors file.
    """
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():
                    yield name, file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"{path} cannot be read: {error}. It is damaged or truncated; fetch it again."
            ) from error


def safetensors_files(folder: Path) -> tuple[Path, ...]:
    """Return the weight files of a checkpoint folder: those of its index, or the only one.

    Raises
    ------
    CheckpointError
        There are none, or one that the index names is missing.
    """
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        single = folder / "model.safetensors"
        if not single.is_file():
            raise CheckpointError(
                f"{folder} holds neither model.safetensors nor its index. "
                f"Other formats are not read."
            )
        return (single,)
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise CheckpointError(f"{index} has no weight_map. Fetch the checkpoint again.")
    files = tuple(folder / name for name in sorted(set(table.values())))
    for path in files:
        if not path.is_file():
            raise CheckpointError(f"{path} is missing, but {index.name} names it.")
    return files


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises
    ------
    CheckpointError
        The file is missing, is not JSON, or holds no object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise CheckpointError(f"no checkpoint at {path.parent}: {path.name} is missing.") from None
    except ValueError as error:
        raise CheckpointError(f"{path} is no JSON file: {error}.") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must hold an object; got {type(value).__name__}.")
    return value


def _check_architecture(folder: Path, raw: dict[str, Any]) -> None:
    kind = raw.get("model_type")
    if kind != SUPPORTED:
        raise CheckpointError(
            f"{folder} is a checkpoint of model_type '{kind}'; only '{SUPPORTED}' "
            f"(Qwen3-30B-A3B and its relatives) can be offloaded."
        )
    if raw.get("mlp_only_layers") or raw.get("decoder_sparse_step", 1) != 1:
        raise CheckpointError(
            f"{folder} mixes dense layers with expert layers (mlp_only_layers, "
            f"decoder_sparse_step); only models with experts in every layer are supported."
        )


def _stop_ids(folder: Path, raw: dict[str, Any]) -> frozenset[int]:
    generation = folder / "generation_config.json"
    settings = read_json(generation) if generation.exists() else {}
    ids = settings.get("eos_token_id", raw.get("eos_token_id"))
    if ids is None:
        return frozenset()
    return frozenset(ids if isinstance(ids, list) else [ids])
