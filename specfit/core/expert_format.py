"""How an expert's numbers are kept: as they are, or as 4-bit codes in groups."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from specfit.core.errors import InvalidInputError

ITEM_BYTES = {"float32": 4, "bfloat16": 2}
"""Bytes of a number of each type that weights may have."""
GROUP_SIZES = (32, 64, 128, 256)
DEFAULT_GROUP_SIZE = 128


@dataclass(frozen=True)
class ExpertFormat:
    """How the experts of a model are kept, copied and computed.

    A 4-bit code q stands for ``(q - 8) * scale + zero``. Consecutive numbers of a row form a group,
    which shares a scale and a zero; a block is the codes and the scales of gate and up, then those
    of down, and its bytes are what a copy moves.

    Parameters
    ----------
    dtype : str
        Of numbers that are kept as they are, of scales and zeros, and of the products: a key of
        `ITEM_BYTES`.
    group_size : int, optional
        Numbers of a group, one of `GROUP_SIZES`; None: nothing is quantised.
    """

    dtype: str
    group_size: int | None = None

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise InvalidInputError(f"dtype must be {' or '.join(ITEM_BYTES)}; got '{self.dtype}'.")
        if self.group_size is not None and self.group_size not in GROUP_SIZES:
            raise InvalidInputError(
                f"4-bit groups have {', '.join(map(str, GROUP_SIZES))} numbers; got "
                f"{self.group_size}."
            )

    @classmethod
    def parse(cls, text: str | None, dtype: str) -> ExpertFormat:
        """Return the format of ``int4``, ``int4:64`` or, where nothing is said, of `dtype`.

        Raises
        ------
        InvalidInputError
            The text is none of these.
        """
        if text is None:
            return cls(dtype)
        match = re.fullmatch(r"int4(?::(\d+))?", text)
        if match is None:
            raise InvalidInputError(
                f"experts are kept as int4 or int4:GROUP, and as the other weights where nothing "
                f"is said; got '{text}'."
            )
        return cls(dtype, int(match[1] or DEFAULT_GROUP_SIZE))

    @property
    def name(self) -> str:
        """The format for results: ``float32``, or ``int4:128``."""
        return self.dtype if self.group_size is None else f"int4:{self.group_size}"

    def num_weights(self, expert_bytes: int) -> int:
        """Return the weights of an expert's three matrices together, from the size of its block.

        Raises
        ------
        InvalidInputError
            No expert has a block of this size.
        """
        item_bytes = ITEM_BYTES[self.dtype]
        weight_bytes = Fraction(item_bytes)
        if self.group_size is not None:
            weight_bytes = Fraction(1, 2) + Fraction(2 * item_bytes, self.group_size)
        count = expert_bytes / (3 * weight_bytes)
        if count.denominator != 1:
            raise InvalidInputError(
                f"an expert must be three matrices in {self.name}; {expert_bytes} bytes are not. "
                f"Give experts whose size is a multiple of {3 * weight_bytes} bytes."
            )
        return 3 * count.numerator

    def matrix_bytes(self, rows: int, columns: int) -> int:
        """Return the size of a matrix [rows, columns]; groups lie along its columns.

        Raises
        ------
        InvalidInputError
            The columns are no whole groups.
        """
        item_bytes = ITEM_BYTES[self.dtype]
        if self.group_size is None:
            return rows * columns * item_bytes
        if columns % self.group_size:
            fit = [str(size) for size in GROUP_SIZES if columns % size == 0]
            raise InvalidInputError(
                f"rows of {columns} numbers are no whole groups of {self.group_size}. "
                + (f"Use int4:{' or int4:'.join(fit)}." if fit else "They cannot be kept as int4.")
            )
        return rows * columns // 2 + 2 * rows * (columns // self.group_size) * item_bytes

    def expert_bytes(self, hidden_size: int, intermediate_size: int) -> int:
        """Return the size of an expert's block, as it is copied."""
        return self.matrix_bytes(2 * intermediate_size, hidden_size) + self.matrix_bytes(
            hidden_size, intermediate_size
        )
