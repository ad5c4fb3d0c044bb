"""4-bit checkpoints found in the wild: GPTQ, and compressed-tensors' packed integers.

Experts stay codes. Every other quantised matrix becomes the numbers that its codes stand for, since
it is resident anyway.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from specfit.backends.int4_matrix import MIDDLE, Int4Matrix
from specfit.backends.safetensors_file import TensorFile
from specfit.core.errors import CheckpointError

PARTS = {
    "gptq": ("qweight", "qzeros", "scales", "g_idx"),
    "compressed-tensors": ("weight_packed", "weight_scale", "weight_shape"),
}
"""Suffixes of the tensors that stand for one matrix, the codes first."""
PER_WORD = 8


@dataclass(frozen=True)
class Quantization:
    """How a checkpoint is quantised.

    Parameters
    ----------
    method : str
        A key of `PARTS`.
    group_size : int
        Columns that share a scale.
    zero_offset : int
        What is added to a stored zero point: 1 in GPTQ's first format.
    """

    method: str
    group_size: int
    zero_offset: int = 0

    @classmethod
    def parse(cls, folder: Path, raw: dict[str, Any]) -> Quantization | None:
        """Return what a ``config.json`` says; None if the weights are plain.

        Raises
        ------
        CheckpointError
            The weights are quantised in a way that is not read.
        """
        said = raw.get("quantization_config")
        if not said:
            return None
        method = said.get("quant_method")
        readers = {"gptq": cls._gptq, "compressed-tensors": cls._compressed}
        made = readers[method](said) if method in readers else None
        if made is None:
            raise CheckpointError(
                f"{folder} is quantised as {_summary(said)}; 4-bit weights in groups along "
                f"rows are read, of GPTQ (no desc_act) or compressed-tensors (pack-quantized, "
                f"symmetric). Give the original checkpoint with --experts int4."
            )
        return made

    @classmethod
    def _gptq(cls, said: dict[str, Any]) -> Quantization | None:
        group_size = said.get("group_size", -1)
        if said.get("bits") != 4 or said.get("desc_act") or group_size < 1:
            return None
        return cls("gptq", group_size, int(said.get("checkpoint_format", "gptq") == "gptq"))

    @classmethod
    def _compressed(cls, said: dict[str, Any]) -> Quantization | None:
        groups = list(said.get("config_groups", {}).values())
        weights = (groups[0].get("weights") or {}) if len(groups) == 1 else {}
        wanted = {"num_bits": 4, "type": "int", "strategy": "group", "symmetric": True}
        is_known = all(weights.get(key) == value for key, value in wanted.items())
        if said.get("format") != "pack-quantized" or not is_known or weights.get("actorder"):
            return None
        return cls("compressed-tensors", weights["group_size"])

    def matrix_of(self, name: str) -> str | None:
        """Return the name of the matrix that a tensor is a part of, without ``.weight``."""
        prefix, _, suffix = name.rpartition(".")
        return prefix if suffix in PARTS[self.method] else None


class QuantizedFiles:
    """The open files of a quantised checkpoint; a context manager.

    Parameters
    ----------
    quantization : Quantization
        How.
    files : tuple of Path
        Its safetensors files.
    """

    def __init__(self, quantization: Quantization, files: tuple[Path, ...]) -> None:
        self.quantization = quantization
        self._folder = files[0].parent
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(TensorFile(path)) for path in files]
            self._file_of = {name: file for file in opened for name in file.entries}
            self._stack = stack.pop_all()

    def matrices(self) -> list[str]:
        """Return the names of all quantised matrices, without ``.weight``."""
        codes = "." + PARTS[self.quantization.method][0]
        return [name.removesuffix(codes) for name in self._file_of if name.endswith(codes)]

    def expert(self, layer: int, expert: int) -> tuple[Int4Matrix, ...]:
        """Return gate, up and down of an expert."""
        prefix = f"model.layers.{layer}.mlp.experts.{expert}"
        return tuple(self.matrix(f"{prefix}.{part}_proj") for part in ("gate", "up", "down"))

    def matrix(self, name: str) -> Int4Matrix:
        """Return a matrix by name.

        Raises
        ------
        CheckpointError
            A tensor of it is missing or has a shape that does not fit, or its rows are reordered.
        """
        read = self._gptq if self.quantization.method == "gptq" else self._compressed
        matrix = read(name)
        fits = len(matrix.scales) == len(matrix.codes) and matrix.scales.shape == matrix.zeros.shape
        if (
            not fits
            or matrix.scales.shape[1] * self.quantization.group_size != (matrix.codes.shape[1])
        ):
            raise CheckpointError(
                f"{self._folder}: the codes of {name} are {list(matrix.codes.shape)} and its "
                f"scales {list(matrix.scales.shape)}, in groups of "
                f"{self.quantization.group_size}. The files do not belong together."
            )
        return matrix

    def check_bias(self, name: str, bias: Tensor | None) -> None:
        """Raise unless the bias that some writers add to a matrix is 0: the model has none."""
        if bias is not None and bool(bias.any()):
            raise CheckpointError(
                f"{self._folder}: {name} has a bias, and the model has none. The checkpoint is of "
                f"another model."
            )

    def _gptq(self, name: str) -> Int4Matrix:
        codes = _unpacked(self._read(f"{name}.qweight").t())  # [N, K / 8] -> [N, K]
        zero_points = _unpacked(self._read(f"{name}.qzeros"))  # [G, N]
        scales = self._read(f"{name}.scales").float().t().contiguous()  # [N, G]
        group_size = self.quantization.group_size
        if f"{name}.g_idx" in self._file_of:
            order = self._read(f"{name}.g_idx")
            if not torch.equal(order.long(), torch.arange(codes.shape[1]) // group_size):
                raise CheckpointError(
                    f"{self._folder}: the columns of {name} are in the order of their activations "
                    f"(desc_act), which is not read. Give one without."
                )
        points = zero_points.t().float() + self.quantization.zero_offset
        return Int4Matrix(codes, scales, (MIDDLE - points) * scales)

    def _compressed(self, name: str) -> Int4Matrix:
        codes = _unpacked(self._read(f"{name}.weight_packed"))
        scales = self._read(f"{name}.weight_scale").float()
        return Int4Matrix(codes, scales, torch.zeros_like(scales))

    def _read(self, name: str) -> Tensor:
        if name not in self._file_of:
            raise CheckpointError(f"{self._folder}: {name} is missing. Is the download complete?")
        return self._file_of[name].read(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def _unpacked(words: Tensor) -> Tensor:
    """Return the codes of int32[R, C / 8], the first in the lowest bits, uint8[R, C]."""
    shifts = torch.arange(PER_WORD, dtype=torch.int32) * 4
    return (words[..., None] >> shifts & 15).to(torch.uint8).flatten(-2)


def _summary(said: dict[str, Any]) -> str:
    keys = ("quant_method", "bits", "group_size", "desc_act", "format")
    return ", ".join(f"{key} {said[key]}" for key in keys if key in said) or "an unknown method"
