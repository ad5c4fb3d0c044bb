"""Predictors and acceptance models by spec, and whether they belong to the model of a trace."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specfit.cli.inputs import Inputs, inputs_of_model, inputs_of_trace
from specfit.core.errors import CheckpointError, InvalidInputError
from specfit.data import model_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from specfit.core.experts import ModelGeometry
    from specfit.core.noise import Sampling
    from specfit.core.predictor import AcceptanceModel, CoveragePredictor
    from specfit.sim.trace import TraceMetadata

Predictor = Annotated[
    str | None,
    typer.Option(
        "--predictor",
        help="Of experts: oracle, ensemble:folder=DIR, my.py:Mine; by default the model's own.",
    ),
]
Acceptance = Annotated[
    str | None,
    typer.Option(
        "--acceptance",
        help="Acceptance model: identity, online, isotonic:folder=DIR, my.py:Mine; by default the "
        "model's own.",
    ),
]


@dataclass(frozen=True)
class Named:
    """The specs of inputs that the command line names; None stands for the model's own."""

    predictor: str | None = None
    acceptance: str | None = None


def predictor_from(
    spec: str, geometry: ModelGeometry, temperature: float = 0.0
) -> CoveragePredictor:
    """Return the predictor of a spec; its geometry and temperature are the target's by default."""
    import specfit.policies.predictors
    import specfit.sim.oracle  # noqa: F401 - registers the references
    from specfit.cli.specs import build
    from specfit.core.predictor import CoveragePredictor, predictors

    name, params = predictors.parse(spec)
    kind = CoveragePredictor
    given = {"geometry": geometry, "temperature": temperature}
    predictor = build(predictors, name, params, kind, **given)  # type: ignore[type-abstract]
    predictor.check_geometry(geometry)
    return predictor


def acceptance_from(spec: str, temperature: float) -> AcceptanceModel:
    """Return the acceptance model of a spec; a field `temperature` is the target's by default."""
    import specfit.policies.acceptance  # noqa: F401 - registers the shipped ones
    from specfit.cli.specs import build
    from specfit.core.predictor import AcceptanceModel, acceptance_models

    name, params = acceptance_models.parse(spec)
    kind, given = AcceptanceModel, {"temperature": temperature}
    return build(acceptance_models, name, params, kind, **given)  # type: ignore[type-abstract]


def chosen_inputs(
    metadata: TraceMetadata, model: str | None, predictor: str | None, acceptance: str | None
) -> Inputs:
    """Return the inputs that are named, and the model's own in place of those that are not.

    Raises
    ------
    CheckpointError
        One was fitted on another model or head than the trace was recorded with.
    """
    return _chosen(
        Named(predictor, acceptance),
        lambda: inputs_of_trace(metadata, model),
        lambda with_head: weights_of(metadata, model, with_head=with_head),
        metadata.geometry,
        metadata.sampling.temperature,
    )


def chosen_live(
    folder: Path, head: Path | None, named: Named, geometry: ModelGeometry, sampling: Sampling
) -> Inputs:
    """Return the inputs that are named, and a model folder's own in place of those that are not.

    Raises
    ------
    CheckpointError
        One was fitted on another model or head than is decoded with.
    InvalidInputError
        The predictor looks into a trace, and live decoding has none.
    """
    from specfit.backends import HEAD_FOLDER
    from specfit.policies.fingerprint import fingerprint
    from specfit.sim.replay import TraceReference

    head = folder / HEAD_FOLDER if head is None else head
    chosen = _chosen(
        named,
        lambda: inputs_of_model(folder, geometry, sampling),
        lambda with_head: fingerprint(folder, head) if with_head else fingerprint(folder),
        geometry,
        sampling.temperature,
    )
    if isinstance(chosen.predictor, TraceReference):
        raise InvalidInputError(
            f"{named.predictor} looks up the true experts in a trace, which live decoding has not. "
            f"Name a predictor that predicts, or use specfit replay."
        )
    return chosen


def _chosen(
    named: Named,
    own: Callable[[], Inputs],
    weights: Callable[[bool], str],
    geometry: ModelGeometry,
    temperature: float,
) -> Inputs:
    """Return what is named, bound to the model's weights, and its own for what is not."""
    if named.predictor is None and named.acceptance is None:
        return own()
    predictor = acceptance = None
    if named.predictor is not None:
        predictor = predictor_from(named.predictor, geometry, temperature)
    if named.acceptance is not None:
        acceptance = acceptance_from(named.acceptance, temperature)
        _check(acceptance, named.acceptance, weights(True))
    if predictor is not None and named.predictor is not None:
        _check(predictor, named.predictor, weights(predictor.needs_states))
    if predictor is None or acceptance is None:
        shipped = own()
        predictor, acceptance = predictor or shipped.predictor, acceptance or shipped.acceptance
    return Inputs(predictor, acceptance)


def weights_of(metadata: TraceMetadata, model: str | None, *, with_head: bool) -> str:
    """Return the fingerprint of the model, and its head, that a trace was recorded with.

    Where the model is not at hand, a digest of what the trace says of it.
    """
    from specfit.backends import HEAD_FOLDER
    from specfit.policies.fingerprint import fingerprint

    said = metadata.specs.get("model", metadata.model)
    try:
        folder = model_folder(model or str(said))
        head = Path(metadata.specs.get("head") or folder / HEAD_FOLDER)
        return fingerprint(folder, head) if with_head else fingerprint(folder)
    except CheckpointError:
        if model is not None:
            raise
    texts = [metadata.model, metadata.tokenizer_hash, metadata.weight_format, metadata.precision]
    texts += [metadata.drafter] if with_head else []
    return hashlib.sha256(repr((*texts, metadata.geometry)).encode()).hexdigest()


def routers_of(metadata: TraceMetadata, model: str | None) -> NDArray[np.float32]:
    """Return the routers of the model that a trace was recorded with; see `read_routers`.

    Raises
    ------
    CheckpointError
        The model is not at hand.
    """
    from specfit.backends.routers import read_routers

    return read_routers(model_folder(model or str(metadata.specs.get("model", metadata.model))))


def _check(plugin: object, spec: str, expected: str) -> None:
    fitted_on = getattr(plugin, "fitted_on", expected)
    if fitted_on != expected:
        raise CheckpointError(
            f"{spec} was fitted on another model or head (fingerprint {fitted_on[:12]}) than the "
            f"one in hand ({expected[:12]}). Fit it again on traces of this one."
        )
