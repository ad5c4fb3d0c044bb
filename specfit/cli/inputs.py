"""The fitted inputs of selection that a model ships: experts and acceptance of draft nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specfit.cli.console import warnings_as_notes
from specfit.core.errors import CheckpointError
from specfit.data import model_folder

if TYPE_CHECKING:
    from specfit.core.experts import ModelGeometry
    from specfit.core.noise import Sampling
    from specfit.core.predictor import AcceptanceModel, CoveragePredictor
    from specfit.sim.trace import TraceMetadata


@dataclass(frozen=True)
class Inputs:
    """What a selection rests on beside the cost model."""

    predictor: CoveragePredictor
    acceptance: AcceptanceModel


def inputs_of_model(folder: Path, geometry: ModelGeometry, sampling: Sampling) -> Inputs:
    """Return the inputs in a model folder and say on stderr where a model ships none."""
    from specfit.policies.inputs import UnfittedInputsWarning, load_inputs

    with warnings_as_notes(UnfittedInputsWarning):
        return Inputs(*load_inputs(folder, geometry, sampling))


def inputs_of_trace(metadata: TraceMetadata, model: str | None) -> Inputs:
    """Return the inputs of the named model, or of the one that the trace was recorded with."""
    return inputs_of_model(_folder_of(metadata, model), metadata.geometry, metadata.sampling)


def digest_of_inputs(metadata: TraceMetadata, model: str | None, given: Sequence[Path]) -> str:
    """Return a digest of the files that `inputs_of_trace` reads, and of those in other folders."""
    try:
        folder = _folder_of(metadata, model)
        own = [folder / part for part in ("predictor", "acceptance")]
    except CheckpointError:  # then both are given, or making them says what is missing
        own = []
    digest = hashlib.sha256()
    for folder in (*own, *given):
        for path in sorted(p for p in folder.glob("*") if p.is_file()):
            digest.update(f"{folder.name}/{path.name} ".encode() + path.read_bytes())
    return digest.hexdigest()


def _folder_of(metadata: TraceMetadata, model: str | None) -> Path:
    if model is not None:
        return model_folder(model)
    recorded = str(metadata.specs.get("model", metadata.model))
    try:
        return model_folder(recorded)
    except CheckpointError:
        raise CheckpointError(
            f"the trace was recorded with the model '{recorded}', which is not at hand, nor is "
            f"what was fitted on it. Give --model FOLDER, or name both inputs: --predictor uniform "
            f"--acceptance identity."
        ) from None
