"""The two inputs of a selection as a model ships them: experts and acceptance of draft nodes."""

from __future__ import annotations

import warnings
from pathlib import Path

from specfit.core.errors import CheckpointError
from specfit.core.experts import ModelGeometry
from specfit.core.noise import Sampling
from specfit.core.predictor import AcceptanceModel, CoveragePredictor
from specfit.policies.acceptance.acceptance_curves import CURVES_FILE
from specfit.policies.acceptance.adaptive import Adaptive
from specfit.policies.acceptance.identity import Identity
from specfit.policies.fingerprint import fingerprint
from specfit.policies.predictors.expert_table import TABLE_FILE
from specfit.policies.predictors.token_table import TokenTable
from specfit.policies.predictors.uniform import Uniform

_FIT = "specfit fit {what} TRACE --out FOLDER, then --{what} {kind}:folder=FOLDER"
_FIT_PREDICTOR = _FIT.format(what="predictor", kind="token-table")
_FIT_ACCEPTANCE = _FIT.format(what="acceptance", kind="isotonic")


class UnfittedInputsWarning(UserWarning):
    """A model ships no fitted predictor or acceptance curves, so selection has to guess."""


def load_inputs(
    model_dir: Path, geometry: ModelGeometry, sampling: Sampling
) -> tuple[CoveragePredictor, AcceptanceModel]:
    """Return the fitted predictor and acceptance model of a model folder.

    They lie in its folders ``predictor`` and ``acceptance``, and the head in ``eagle3``. Where a
    folder holds none, `Uniform` or `Identity` takes the place, with an `UnfittedInputsWarning`; one
    that is there but damaged, or was fitted on other weights, is an error.

    Parameters
    ----------
    model_dir : Path
        Folder of the target's checkpoint.
    geometry : ModelGeometry
        Shape of the target.
    sampling : Sampling
        Its temperature chooses among what was fitted; top-k and top-p are not looked at.

    Raises
    ------
    CheckpointError
        A file is damaged, or was fitted on another model or head.
    """
    temperature = sampling.temperature
    predictor = _load_predictor(model_dir, geometry, temperature)
    return predictor, _load_acceptance(model_dir, temperature)


def _load_predictor(
    model_dir: Path, geometry: ModelGeometry, temperature: float
) -> CoveragePredictor:
    folder = model_dir / "predictor"
    if not TABLE_FILE.exists_in(folder):
        _warn(folder, "expert table", "every expert counts as equally likely", _FIT_PREDICTOR)
        return Uniform(geometry)
    predictor = TokenTable(str(folder), temperature)
    predictor.check_geometry(geometry)
    _check_weights(folder, predictor.fitted_on, fingerprint(model_dir), _FIT_PREDICTOR)
    return predictor


def _load_acceptance(model_dir: Path, temperature: float) -> AcceptanceModel:
    folder = model_dir / "acceptance"
    if not CURVES_FILE.exists_in(folder):
        consequence = "the drafter's own probabilities are used"
        _warn(folder, "acceptance curves", consequence, _FIT_ACCEPTANCE)
        return Identity()
    acceptance = Adaptive(str(folder), temperature)
    expected = fingerprint(model_dir, model_dir / "eagle3")
    _check_weights(folder, acceptance.curves.fitted_on, expected, _FIT_ACCEPTANCE)
    return acceptance


def _check_weights(folder: Path, fitted_on: str, expected: str, fit: str) -> None:
    if fitted_on != expected:
        raise CheckpointError(
            f"{folder} was fitted on other weights (fingerprint {fitted_on[:12]}) than the model "
            f"beside it ({expected[:12]}). Move it away; to fit on a trace of this model: {fit}."
        )


def _warn(folder: Path, what: str, consequence: str, fit: str) -> None:
    warnings.warn(
        f"{folder} holds no {what}: {consequence}. To fit on a trace of this model: {fit}.",
        UnfittedInputsWarning,
        stacklevel=4,
    )
