"""Fits a predictor of a named kind from observed texts and writes it to a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError, did_you_mean
from specfit.core.experts import ModelGeometry
from specfit.core.observed import ObservedText
from specfit.core.predictor import CoveragePredictor, predictors
from specfit.policies.fitting.ensemble import fit_ensemble
from specfit.policies.fitting.expert_table import fit_expert_table
from specfit.policies.fitting.samples import routing_sample, split_texts
from specfit.policies.fitting.scored import (
    fit_decayed_frequency,
    fit_previous_token,
    fit_routing_probe,
)
from specfit.policies.fitting.states import fit_hidden_probe, fit_target_routers
from specfit.policies.predictors.decayed_frequency import DecayedFrequency
from specfit.policies.predictors.ensemble import ENSEMBLE_FILE
from specfit.policies.predictors.expert_table import TABLE_FILE
from specfit.policies.predictors.hidden_probe import HiddenProbe
from specfit.policies.predictors.previous_token import PreviousToken
from specfit.policies.predictors.routing_probe import RoutingProbe
from specfit.policies.predictors.scored import ScoredPredictor, ScoreFit
from specfit.policies.predictors.target_routers import TargetRouters

MEMBERS = ("token-table", "decayed-frequency", "routing-probe")
"""What an ensemble is made of."""

STATE_KINDS = ("hidden-probe", "target-routers")
"""Predictors that look at the drafter's hidden states: bound to the head too, not to the target
alone."""

KINDS = (
    "token-table",
    "previous-token",
    "decayed-frequency",
    "routing-probe",
    *STATE_KINDS,
    "ensemble",
)
"""Predictors that can be fitted."""

_ScoreFitter = Callable[
    [Sequence[ObservedText], Sequence[ObservedText], ModelGeometry, str], ScoreFit
]
_SCORED: dict[str, tuple[type[ScoredPredictor], _ScoreFitter]] = {
    "previous-token": (PreviousToken, fit_previous_token),
    "decayed-frequency": (DecayedFrequency, fit_decayed_frequency),
    "routing-probe": (RoutingProbe, fit_routing_probe),
    "hidden-probe": (HiddenProbe, fit_hidden_probe),
}


@dataclass(frozen=True)
class PredictorFit:
    """What a fit of a predictor is made from, whatever its kind.

    Parameters
    ----------
    texts : sequence of ObservedText
        At least 2; an ensemble needs 3. A third of them calibrates what the others taught.
    geometry : ModelGeometry
        Shape of the target.
    fitted_on : str
        Fingerprint of the target; of `STATE_KINDS` of the target and the head.
    provenance : mapping
        Written beside the numbers.
    max_nodes : int
        Nodes that are looked at, at most, where memory grows with them.
    temperature : float
        Of the target in those texts; 0 is greedy.
    routers : float32[L, E, D], optional
        Of the target, as they act on a hidden state of unit size; ``target-routers`` needs them.
    """

    texts: Sequence[ObservedText]
    geometry: ModelGeometry
    fitted_on: str
    provenance: Mapping[str, Any]
    max_nodes: int = 40_000
    temperature: float = 0.0
    routers: NDArray[np.float32] | None = None

    def write(self, kind: str, folder: Path) -> CoveragePredictor:
        """Fit a predictor of this kind, write it to `folder`, and return it as read from there.

        Raises
        ------
        InvalidInputError
            There is no such kind, there are too few texts, or something that the kind looks at is
            missing.
        """
        if kind not in KINDS:
            raise InvalidInputError(
                f"no predictor of kind '{kind}' can be fitted.{did_you_mean(kind, KINDS)} "
                f"Kinds: {', '.join(KINDS)}."
            )
        if kind == "ensemble":
            self._write_ensemble(folder)
        else:
            self._write_one(kind, self.texts, folder)
        return predictors.build(kind, {"folder": str(folder)})

    def _write_one(self, kind: str, texts: Sequence[ObservedText], folder: Path) -> None:
        train, held_out = split_texts(texts, max(1, len(texts) // 3))
        if kind == "token-table":
            sample = routing_sample(train, self.max_nodes)
            validation = {self.temperature: routing_sample(held_out, self.max_nodes)}
            table = fit_expert_table(sample, validation, self.geometry, self.fitted_on)
            table.save(TABLE_FILE, folder, self.provenance)
            return
        if kind == "target-routers":
            matched = fit_target_routers(texts, self.geometry, self.fitted_on, self._routers())
            matched.save(TargetRouters.file, folder, self.provenance)
            return
        cls, fit = _SCORED[kind]
        scored = fit(train, held_out, self.geometry, self.fitted_on)
        scored.save(cls.file, folder, self.provenance)

    def _routers(self) -> NDArray[np.float32]:
        if self.routers is None:
            raise InvalidInputError(
                "target-routers applies the target's own routers, and none were given. Name the "
                "checkpoint's folder: --model FOLDER."
            )
        return self.routers

    def _write_ensemble(self, folder: Path) -> None:
        """Weigh members that have not seen the texts they are weighed on; then fit them on all."""
        teach, weigh = split_texts(self.texts, max(1, len(self.texts) // 3))
        fit = fit_ensemble(
            self._members(teach, folder),
            weigh,
            self.geometry,
            self.fitted_on,
            self.max_nodes // 4,
        )
        self._members(self.texts, folder)
        fit.save(ENSEMBLE_FILE, folder, self.provenance)

    def _members(self, texts: Sequence[ObservedText], folder: Path) -> dict[str, CoveragePredictor]:
        members: dict[str, CoveragePredictor] = {}
        for kind in MEMBERS:
            self._write_one(kind, texts, folder / kind)
            members[kind] = predictors.build(kind, {"folder": str(folder / kind)})
        return members
