"""Qwen3-MoE checkpoints: what is in a folder, and its weights in the layout that offloading wants.

One expert is one contiguous block, gate | up | down, so that one copy brings it to the device.
Everything else is returned by name for the model to load. Both spellings of the experts are read:
one tensor an expert and projection (all releases), and the fused ones that transformers can write.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import Qwen3MoeConfig

from specfit.backends.quantized import Quantization, QuantizedFiles
from specfit.backends.safetensors_file import TensorFile
from specfit.backends.threads import finish
from specfit.core.errors import CheckpointError
from specfit.core.experts import ModelGeometry

SUPPORTED = "qwen3_moe"
SIZES = (
    "num_hidden_layers", "num_experts", "num_local_experts", "num_experts_per_tok", "vocab_size",
    "hidden_size", "moe_intermediate_size",
)  # fmt: skip
NUM_READERS = 8
"""Tensors, or parts of a large one, that are read at once."""
PARTS = ("gate_proj", "up_proj", "down_proj")
PER_EXPERT = re.compile(
    r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight"
)
FUSED = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up_proj|down_proj)")


class Layers(Protocol):
    """Blocks by layer: a bank [L, E, B], or what stands for one while it is written."""

    def __getitem__(self, layer: int) -> Tensor: ...

    def __len__(self) -> int: ...


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
    quantization : Quantization, optional
        How its matrices are quantised, if they are.
    """

    folder: Path
    config: Qwen3MoeConfig
    files: tuple[Path, ...]
    stop_ids: frozenset[int]
    quantization: Quantization | None = None

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Look at a folder; nothing but the small files is read.

        Raises
        ------
        CheckpointError
            There is no checkpoint, or it is of another architecture or quantised as no other.
        """
        raw = read_json(folder / "config.json")
        _check_architecture(folder, raw)
        quantization = Quantization.parse(folder, raw)
        _check_sizes(folder, raw)
        config = Qwen3MoeConfig.from_dict(raw)
        if config.num_experts_per_tok > config.num_experts:
            raise CheckpointError(
                f"{folder}: config.json routes a token to {config.num_experts_per_tok} of "
                f"{config.num_experts} experts."
            )
        files, stop_ids = safetensors_files(folder), _stop_ids(folder, raw)
        return cls(folder, config, files, stop_ids, quantization)

    def geometry(self, expert_bytes: int) -> ModelGeometry:
        """Return the shape constants with experts of this size."""
        config = self.config
        return ModelGeometry(
            num_layers=config.num_hidden_layers,
            num_experts=config.num_experts,
            experts_per_token=config.num_experts_per_tok,
            expert_bytes=expert_bytes,
            vocab_size=config.vocab_size,
        )

    @property
    def tokenizer_hash(self) -> str:
        """SHA-256 of ``tokenizer.json``; empty if there is none."""
        path = self.folder / "tokenizer.json"
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""

    def load_others(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """Return every tensor but the experts', by name, in `dtype`.

        Raises
        ------
        CheckpointError
            A file is damaged.
        """
        others: dict[str, Tensor] = {}
        with ThreadPoolExecutor(NUM_READERS, "specfit-load") as pool:
            for path in self.files:
                with TensorFile(path) as file:
                    names = [name for name in file.entries if self._is_plain(name)]
                    others.update((name, file.read(name, pool).to(dtype)) for name in names)
        if self.quantization is not None:
            with self.open_quantized() as source:
                names = [n for n in source.matrices() if expert_place(f"{n}.weight") is None]
                for name in names:
                    others[f"{name}.weight"] = source.matrix(name).numbers().to(dtype)
                    source.check_bias(name, others.pop(f"{name}.bias", None))
        return others

    def expert_dtype(self) -> torch.dtype:
        """Return the type that the experts' numbers have in the files."""
        for path in self.files:
            with TensorFile(path) as file:
                for name, entry in file.entries.items():
                    if expert_place(name) is not None:
                        return entry.dtype
        raise CheckpointError(f"{self.folder} holds no experts. Is the download complete?")

    def open_quantized(self) -> QuantizedFiles:
        """Return the codes of a quantised checkpoint, open."""
        assert self.quantization is not None, "a checkpoint of codes"
        return QuantizedFiles(self.quantization, self.files)

    def _is_plain(self, name: str) -> bool:
        """Return whether a tensor is no expert's and stands for itself."""
        if self.quantization is None:
            return expert_place(name) is None
        matrix = self.quantization.matrix_of(name)
        place = expert_place(f"{name.rpartition('.')[0]}.weight")  # of a bias, too
        return matrix is None and place is None

    def load_experts(
        self,
        bank: Layers,
        layers: Sequence[int] | None = None,
        on_layer: Callable[[int, int], None] | None = None,
    ) -> None:
        """Fill the bank with the experts, a layer at a time, in the bank's dtype.

        Parameters
        ----------
        bank : Tensor [L, E, 3 I D]
            Host memory; each block becomes gate | up | down, codes become their numbers.
        layers : sequence of int, optional
            Only these.
        on_layer : callable, optional
            Called with the index of each layer that is complete, and the number of layers.

        Raises
        ------
        CheckpointError
            A tensor is missing, has another shape, or a file is damaged.
        """
        wanted = range(len(bank)) if layers is None else layers
        if self.quantization is not None:
            self._load_numbers(bank, wanted, on_layer)
            return
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(TensorFile(path)) for path in self.files]
            parts = self._parts(files, len(bank))
            pool = stack.enter_context(ThreadPoolExecutor(NUM_READERS, "specfit-load"))
            for layer in wanted:
                experts = _ExpertLayer(bank[layer], layer, self)
                finish([pool.submit(experts.take, file, name) for file, name in parts[layer]])
                experts.check_complete()
                if on_layer is not None:
                    on_layer(layer, len(bank))

    def _load_numbers(
        self, bank: Layers, layers: Sequence[int], on_layer: Callable[[int, int], None] | None
    ) -> None:
        with self.open_quantized() as source:
            for layer in layers:
                for expert, block in enumerate(bank[layer]):
                    parts = [matrix.numbers().view(-1) for matrix in source.expert(layer, expert)]
                    block.copy_(torch.cat(parts))
                if on_layer is not None:
                    on_layer(layer, len(bank))

    def _parts(
        self, files: Sequence[TensorFile], num_layers: int
    ) -> list[list[tuple[TensorFile, str]]]:
        """Return where the tensors of each layer's experts are, in the order of the files."""
        parts: list[list[tuple[TensorFile, str]]] = [[] for _ in range(num_layers)]
        for file in files:
            for name in file.entries:
                place = expert_place(name)
                if place is not None and place.layer >= num_layers:
                    raise self.misfit(name, file.entries[name].shape)
                if place is not None:
                    parts[place.layer].append((file, name))
        return parts

    def misfit(self, name: str, shape: Sequence[int]) -> CheckpointError:
        """Return the error for an expert tensor that the configuration has no place for."""
        config = self.config
        return CheckpointError(
            f"{self.folder}: {name} has shape {list(shape)}, but the configuration says "
            f"{config.num_hidden_layers} layers of {config.num_experts} experts of "
            f"{[config.moe_intermediate_size, config.hidden_size]}. "
            f"The files do not belong together."
        )


@dataclass(frozen=True)
class ExpertPlace:
    """Where an expert tensor belongs: its layer, its expert (None: all of them) and its part."""

    layer: int
    expert: int | None
    part: str


def expert_place(name: str) -> ExpertPlace | None:
    """Return where the tensor of this name belongs, or None if it is no expert's."""
    if match := PER_EXPERT.fullmatch(name):
        return ExpertPlace(int(match[1]), int(match[2]), match[3])
    if match := FUSED.fullmatch(name):
        return ExpertPlace(int(match[1]), None, match[2])
    return None


class _ExpertLayer:
    """Sorts the tensors of a layer's experts into their blocks and knows which are missing.

    Parameters
    ----------
    blocks : Tensor [E, 3 I D]
        The layer's blocks.
    """

    def __init__(self, blocks: Tensor, layer: int, checkpoint: Checkpoint) -> None:
        config = checkpoint.config
        self.layer = layer
        self.checkpoint = checkpoint
        size, width = config.moe_intermediate_size, config.hidden_size
        gate, up, down = blocks.split(size * width, dim=1)
        self.targets = {  # by name in the files: where its E tensors go, and their shape
            "gate_proj": (gate, (size, width)),
            "up_proj": (up, (size, width)),
            "down_proj": (down, (width, size)),
            "gate_up_proj": (blocks[:, : 2 * size * width], (2 * size, width)),
        }
        self.missing = {(expert, part) for expert in range(len(blocks)) for part in PARTS}

    def take(self, file: TensorFile, name: str) -> None:
        """Read a tensor into its place; any number of threads may, each another tensor."""
        place, entry = expert_place(name), file.entries[name]
        assert place is not None, "an expert's"
        rows, shape = self.targets[place.part]
        is_whole = place.expert is None
        expected = (len(rows), *shape) if is_whole else shape
        if entry.shape != expected or (not is_whole and place.expert >= len(rows)):
            raise self.checkpoint.misfit(name, entry.shape)
        target = rows if is_whole else rows[place.expert]
        if entry.dtype == target.dtype and target.is_contiguous():
            file.read_into(name, target)
        else:
            target.copy_(file.read(name).view(target.shape))
        experts = range(len(rows)) if is_whole else (place.expert,)
        parts = ("gate_proj", "up_proj") if place.part == "gate_up_proj" else (place.part,)
        self.missing.difference_update((expert, part) for expert in experts for part in parts)

    def check_complete(self) -> None:
        """Raise if an expert's projection has not been seen."""
        if self.missing:
            expert, part = min(self.missing)
            raise CheckpointError(
                f"{self.checkpoint.folder}: {part} of expert {expert} of layer {self.layer} is "
                f"missing. Is the download complete?"
            )


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


def _check_sizes(folder: Path, raw: dict[str, Any]) -> None:
    """Refuse sizes that no model has; those that it merely lacks are the configuration's own."""
    for name in SIZES:
        if name in raw and (type(raw[name]) is not int or raw[name] < 1):
            raise CheckpointError(
                f"{folder}: config.json's {name} must be a number, 1 or more; got {raw[name]!r}."
            )


def _stop_ids(folder: Path, raw: dict[str, Any]) -> frozenset[int]:
    generation = folder / "generation_config.json"
    settings = read_json(generation) if generation.exists() else {}
    ids = settings.get("eos_token_id", raw.get("eos_token_id"))
    if ids is None:
        return frozenset()
    return frozenset(ids if isinstance(ids, list) else [ids])
