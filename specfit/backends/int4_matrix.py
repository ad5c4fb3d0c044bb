"""A matrix in 4-bit codes: quantised from numbers, and what its codes stand for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST = 15
MIDDLE = 8


@dataclass(frozen=True, eq=False)
class Int4Matrix:
    """The matrix ``(codes - 8) * scales + zeros``, whose rows are in G groups of N columns each.

    Parameters
    ----------
    codes : uint8 Tensor [R, G * N]
        0 to 15.
    scales, zeros : Tensor [R, G]
        Of each group, in one type.
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor

    @property
    def group_size(self) -> int:
        """Columns of a group."""
        return self.codes.shape[1] // self.scales.shape[1]

    def to(self, dtype: torch.dtype) -> Int4Matrix:
        """Return the matrix with scales and zeros in another type, rounded."""
        return Int4Matrix(self.codes, self.scales.to(dtype), self.zeros.to(dtype))

    def numbers(self) -> Tensor:
        """Return what the codes stand for, float32[R, C]."""
        groups = self.codes.view(*self.scales.shape, -1).float() - MIDDLE
        scaled = groups * self.scales.float()[..., None] + self.zeros.float()[..., None]
        return scaled.view(self.codes.shape)


def quantize(numbers: Tensor, group_size: int, dtype: torch.dtype) -> Int4Matrix:
    """Return the codes nearest to a matrix [R, C], its extremes in each group at 0 and 15.

    Scales and zeros are rounded to `dtype` first, so that the codes are nearest to what they will
    stand for.
    """
    groups = numbers.float().view(len(numbers), -1, group_size)  # [R, G, N]
    low, high = groups.aminmax(dim=-1)
    scales = ((high - low) / LARGEST).to(dtype)
    scales = torch.where(scales == 0, torch.ones_like(scales), scales)
    zeros = (low + MIDDLE * scales.float()).to(dtype)
    places = (groups - zeros.float()[..., None]) / scales.float()[..., None] + MIDDLE
    codes = places.round_().clamp_(0, LARGEST).to(torch.uint8)
    return Int4Matrix(codes.view(numbers.shape), scales, zeros)


def stack(matrices: list[Int4Matrix]) -> Int4Matrix:
    """Return matrices of equal groups, one below the other."""
    return Int4Matrix(
        torch.cat([m.codes for m in matrices]),
        torch.cat([m.scales for m in matrices]),
        torch.cat([m.zeros for m in matrices]),
    )
