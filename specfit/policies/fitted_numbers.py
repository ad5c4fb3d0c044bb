"""Fitted numbers: what the dataclasses that hold them share, whatever they hold.

`specfit.policies.fitted_file` knows the files; this knows which field goes where in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import CheckpointError, InvalidInputError
from specfit.core.experts import ModelGeometry
from specfit.policies.fitted_file import Arrays, FittedFile


def are_temperatures(values: NDArray[np.float64]) -> bool:
    """Whether the values, float64[M], can be fitted temperatures: one or more, ascending from 0."""
    finite = np.isfinite(values) & (values >= 0)
    return len(values) > 0 and bool(finite.all() and (np.diff(values) > 0).all())


@dataclass(frozen=True, eq=False)
class FittedNumbers:
    """Base of the dataclasses of fitted numbers: one writes itself to a file and is read from it.

    Its arrays are the tensors of the file, read-only once made; every other field is a constant. A
    subclass checks its fields in ``__post_init__`` and raises `InvalidInputError`.
    """

    rest: ClassVar[str | None] = None
    """The field, a mapping, of all tensors that are no field's own; without one there are none."""

    def __post_init__(self) -> None:
        for array in self._split()[0].values():
            array.setflags(write=False)

    def save(self, file: FittedFile, folder: Path, provenance: Mapping[str, Any]) -> None:
        """Write the numbers to `folder`; `provenance` says what they were fitted on and how."""
        tensors, constants = self._split()
        file.save(folder, tensors, constants, provenance)

    @classmethod
    def load(cls, file: FittedFile, folder: Path) -> Self:
        """Read numbers written by `save`.

        Raises
        ------
        CheckpointError
            A file is missing or damaged, or holds something else.
        """
        tensors, constants = file.load(folder)
        entries: dict[str, Any] = dict(tensors)
        if cls.rest is not None:
            own = {f.name for f in fields(cls)}
            entries[cls.rest] = {n: entries.pop(n) for n in tensors if n not in own}
        try:
            return cls(**cls.read_constants(constants), **entries)
        except (KeyError, TypeError, InvalidInputError) as error:
            raise CheckpointError(f"{folder} holds no usable {file.kind}: {error}") from error

    @classmethod
    def read_constants(cls, constants: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that a file's constants stand for."""
        return {**constants}

    def _split(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the tensors and the constants that the fields are written as."""
        tensors: Arrays = {}
        constants: dict[str, Any] = {}
        for name in (f.name for f in fields(self)):
            value = getattr(self, name)
            if name == self.rest:
                tensors |= value
            elif isinstance(value, np.ndarray):
                tensors[name] = value
            else:
                constants[name] = asdict(value) if isinstance(value, ModelGeometry) else value
        return tensors, constants


@dataclass(frozen=True, eq=False)
class PredictorNumbers(FittedNumbers):
    """Fitted numbers of a coverage predictor.

    Parameters
    ----------
    geometry : ModelGeometry
        Shape of the target they were fitted on.
    fitted_on : str
        Fingerprint of that target.
    """

    geometry: ModelGeometry
    fitted_on: str

    @classmethod
    def read_constants(cls, constants: Mapping[str, Any]) -> dict[str, Any]:
        """See `FittedNumbers.read_constants`."""
        return {**constants, "geometry": ModelGeometry(**constants["geometry"])}
