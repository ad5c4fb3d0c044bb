"""What predictors share that read fitted numbers from a folder, whatever the numbers are."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from specfit.core.experts import ModelGeometry
from specfit.core.predictor import CoveragePredictor
from specfit.policies.fitted_file import FittedFile
from specfit.policies.fitted_numbers import PredictorNumbers
from specfit.policies.predictors.geometry import check_same_shape


class FittedPredictor(CoveragePredictor):
    """A predictor of fitted numbers; it is bound to the target that they were fitted on."""

    folder: str
    file: ClassVar[FittedFile]

    @property
    @abstractmethod
    def fit(self) -> PredictorNumbers:
        """The fitted numbers; read when first needed."""

    @property
    def geometry(self) -> ModelGeometry:
        """Shape of the target that it was fitted on."""
        return self.fit.geometry

    @property
    def fitted_on(self) -> str:
        """Fingerprint of the target that it was fitted on."""
        return self.fit.fitted_on

    def check_geometry(self, geometry: ModelGeometry) -> None:
        """Raise `CheckpointError` if it was fitted on a model of another shape."""
        check_same_shape(self.geometry, geometry, f"the {self.file.kind} in {self.folder}")
