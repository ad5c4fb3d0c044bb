"""Copies that cost by a table, or that compute hides: what of a cycle's time is not affine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError, did_you_mean

Overlap = Literal["none", "layer", "resident", "pass"]
"""How a pass combines compute and copies; `pass_seconds` says what each one means."""


def check_overlap(overlap: str) -> None:
    """Raise unless `overlap` is one of `Overlap`."""
    known = get_args(Overlap)
    if overlap not in known:
        raise InvalidInputError(
            f"overlap must be one of {', '.join(known)}; got '{overlap}'."
            f"{did_you_mean(overlap, known)}"
        )


def pass_seconds(
    overlap: Overlap,
    tau_s: float,
    expert_s: NDArray[np.float64],
    copy_s: NDArray[np.float64],
    *,
    ahead_s: float = 0.0,
    lead_s: float = 0.0,
) -> float:
    """Return the seconds of a pass: the one formula of cost models and of the simulator's clock.

    With c the compute of each layer's experts, x the copies that the layer waits for, a those that
    were asked for ahead of the pass and b the head start that they had::

        none      tau + sum(c) + sum(x) + a
        layer     sum(max(tau / L + c, x)) + a
        resident  tau + sum(max(c, x)) + a
        pass      max(tau + sum(c), a - b) + sum(x)

    Parameters
    ----------
    overlap : {"none", "layer", "resident", "pass"}
        Nothing is hidden; a layer's copies run beside all of its compute; beside its experts only,
        residents first, each expert as it arrives; copies made ahead run beside the whole pass.
    tau_s : float
        Compute of the pass without its experts.
    expert_s, copy_s : float64[L]
        Compute of each layer's experts, and the link's time for those that it waits for.
    ahead_s, lead_s : float
        The link's time for copies asked for before the pass, and how long before it they began.
    """
    if overlap == "layer":
        return float(np.maximum(tau_s / len(copy_s) + expert_s, copy_s).sum()) + ahead_s
    if overlap == "resident":
        return tau_s + float(np.maximum(expert_s, copy_s).sum()) + ahead_s
    compute_s = tau_s + float(expert_s.sum())
    if overlap == "pass":
        return max(compute_s, ahead_s - lead_s) + float(copy_s.sum())
    return compute_s + float(copy_s.sum()) + ahead_s


@dataclass(frozen=True, eq=False)
class CopyTerms:
    """Seconds that copying experts takes, a layer at a time, and what of it compute hides.

    Layer l copies ``x_l``, the sum of `units` over its activated experts, in ``h_l(x_l)`` seconds:
    `layer_s` at whole numbers, straight lines between them, and beyond the last number the last
    line goes on. Fractions of a copy stand for expected copies.

    Parameters
    ----------
    units : float64[L, E]
        Copies that an expert takes when it is needed: 1 for a missing one, 0 for a resident one.
    layer_s : float64[L, H+1]
        Seconds of 0 to H copies in each layer, ``H >= 1``; non-decreasing, 0 or more. A free
        allowance is a row that starts with zeros.
    overlap : {"none", "layer", "resident", "pass"}
        What compute hides; see `pass_seconds`. For "pass" all copies count as made ahead.

    Raises
    ------
    InvalidInputError
        A table decreases, a value is negative or not finite, or the shapes do not fit.
    """

    units: NDArray[np.float64]
    layer_s: NDArray[np.float64]
    overlap: Overlap = "none"

    def __post_init__(self) -> None:
        check_overlap(self.overlap)
        if self.layer_s.ndim != 2 or self.layer_s.shape[1] < 2:
            raise InvalidInputError(
                f"layer_s must be [L, H+1] with H >= 1; got {list(self.layer_s.shape)}."
            )
        if self.units.ndim != 2 or len(self.units) != len(self.layer_s):
            raise InvalidInputError(
                f"units must be [L, E] with the L = {len(self.layer_s)} of layer_s; "
                f"got {list(self.units.shape)}."
            )
        for name in ("units", "layer_s"):
            array = getattr(self, name)
            wrong = ~(np.isfinite(array) & (array >= 0))
            _refuse(name, array, wrong, "must be finite and 0 or more")
            array.setflags(write=False)
        falls = np.zeros(self.layer_s.shape, bool)
        falls[:, 1:] = np.diff(self.layer_s, axis=1) < 0
        _refuse("layer_s", self.layer_s, falls, "may not be below the entry before it")

    def layer_seconds(self, activation: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the seconds that each layer's copies take, float64[L], for activation [L, E]."""
        copies = (self.units * activation).sum(axis=1)
        last = self.layer_s.shape[1] - 1
        low = np.minimum(copies.astype(np.intp), last - 1)
        layers = np.arange(len(copies))
        start, end = self.layer_s[layers, low], self.layer_s[layers, low + 1]
        seconds: NDArray[np.float64] = start + (copies - low) * (end - start)
        return seconds

    def pass_seconds(
        self, tau_s: float, expert_s: NDArray[np.float64], activation: NDArray[np.float64]
    ) -> float:
        """Return the seconds of a pass: `tau_s` and `expert_s`, float64[L], are its compute."""
        copy_s = self.layer_seconds(activation)
        if self.overlap == "pass":
            ahead_s, copy_s = float(copy_s.sum()), np.zeros_like(copy_s)
            return pass_seconds("pass", tau_s, expert_s, copy_s, ahead_s=ahead_s)
        return pass_seconds(self.overlap, tau_s, expert_s, copy_s)


def _refuse(name: str, array: NDArray[np.float64], wrong: NDArray[np.bool_], rule: str) -> None:
    if wrong.any():
        where = [int(i) for i in np.argwhere(wrong)[0]]
        raise InvalidInputError(f"{name}{where} = {array[tuple(where)]}, but it {rule}.")
