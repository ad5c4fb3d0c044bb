"""Whether a fitted predictor belongs to the target that it is used with."""

from __future__ import annotations

from specfit.core.errors import CheckpointError
from specfit.core.experts import ModelGeometry

_SHAPE = ("num_layers", "num_experts", "experts_per_token", "vocab_size")


def check_same_shape(fitted: ModelGeometry, target: ModelGeometry, what: str) -> None:
    """Raise `CheckpointError` unless the two agree in all but the bytes of an expert."""
    wrong = [
        f"{name} {getattr(fitted, name)} where the target has {getattr(target, name)}"
        for name in _SHAPE
        if getattr(fitted, name) != getattr(target, name)
    ]
    if wrong:
        raise CheckpointError(
            f"{what} was made for a model of another shape: {', '.join(wrong)}. "
            f"Fit it again on traces of this target."
        )
