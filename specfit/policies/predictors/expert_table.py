"""The fitted token table: expert probabilities by token, parent token, expert age and depth.

Knows the arithmetic and the file; how the numbers are fitted is `specfit.policies.fitting`'s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.policies.fitted_file import FittedFile, TensorSpec
from specfit.policies.fitted_numbers import PredictorNumbers, are_temperatures
from specfit.policies.predictors._kernels import table_probs

NO_PARENT = -1
"""Parent token of a node whose parent is not in the draft tree: the root."""

TABLE_FILE = FittedFile(
    kind="expert-table",
    version=2,
    tensors={
        "codes": TensorSpec(np.dtype(np.uint8), 3),
        "odds_of_code": TensorSpec(np.dtype(np.float32), 1),
        "row_of_token": TensorSpec(np.dtype(np.int32), 1),
        "parent_codes": TensorSpec(np.dtype(np.uint8), 3),
        "odds_of_parent_code": TensorSpec(np.dtype(np.float32), 1),
        "parent_row_of_token": TensorSpec(np.dtype(np.int32), 1),
        "age_edges": TensorSpec(np.dtype(np.int64), 1),
        "temperatures": TensorSpec(np.dtype(np.float64), 1),
        "age_odds": TensorSpec(np.dtype(np.float32), 4),
    },
)


@dataclass(frozen=True, eq=False)
class ExpertTable(PredictorNumbers):
    """Expert odds of each token, and what its parent's token and an expert's age do to them.

    The odds of expert e in layer l for a node of token t at depth d, whose parent's token is u, are
    ``odds_of_code[codes[row_of_token[t], l, e]]
    * odds_of_parent_code[parent_codes[parent_row_of_token[u], l, e]]
    * age_odds[m, d, l, bucket of e's age]``, at the target's temperature m.
    One factor a node and layer then makes the probabilities sum to K.

    Parameters
    ----------
    geometry : ModelGeometry
        Shape of the target it was fitted on.
    fitted_on : str
        Fingerprint of that target.
    codes : uint8[R, L, E]
        Quantised odds; row 0 is the back-off of tokens without a row of their own.
    odds_of_code : float32[256]
        Odds of each code, positive.
    row_of_token : int32[V]
        Row of each token.
    parent_codes, odds_of_parent_code, parent_row_of_token
        The same for the odds multipliers of the parent's token; row 0, all ones, is for tokens
        without a row and for a root, whose parent is not in the tree.
    age_edges : int64[B - 1]
        Largest age of each bucket but the last, ascending; ages as `RoutingHistory.ages`.
    temperatures : float64[M]
        Temperatures of the target that were fitted, ascending; 0 is greedy. Text that is drawn
        wanders more among the experts than text that is not.
    age_odds : float32[M, S, L, B]
        Odds multiplier of each bucket; row s is for nodes at depth s, the last for all deeper ones.
    novelty : float
        See `CoveragePredictor.novelty`.
    """

    codes: NDArray[np.uint8]
    odds_of_code: NDArray[np.float32]
    row_of_token: NDArray[np.int32]
    parent_codes: NDArray[np.uint8]
    odds_of_parent_code: NDArray[np.float32]
    parent_row_of_token: NDArray[np.int32]
    age_edges: NDArray[np.int64]
    temperatures: NDArray[np.float64]
    age_odds: NDArray[np.float32]
    novelty: float

    def __post_init__(self) -> None:
        _check_table(self)
        super().__post_init__()

    def at(self, temperature: float) -> ExpertTable:
        """Return the table of one temperature (M = 1).

        Between fitted temperatures log odds are interpolated linearly; beyond the last one they are
        the last one's.
        """
        places = np.arange(len(self.temperatures))
        place = float(np.interp(temperature, self.temperatures, places))
        low, high = self.age_odds[int(place)], self.age_odds[math.ceil(place)]
        odds = low * (high / low) ** np.float32(place - int(place))
        return replace(self, temperatures=np.array([temperature]), age_odds=odds[None])

    def probs(
        self,
        tokens: NDArray[np.int64],
        parent_tokens: NDArray[np.int64],
        depths: NDArray[np.int32],
        ages: NDArray[np.int64],
        layers: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float32]:
        """Return the probability of each expert for each node, float32[n, l, E]; M must be 1.

        Parameters
        ----------
        tokens : int64[n]
            Target vocabulary ids.
        parent_tokens : int64[n]
            Those of the nodes' parents; `NO_PARENT` where it is not known.
        depths : int32[n]
            Depth of each node below the root; the root has 0.
        ages : int64[L, E]
            Tokens since each expert was last needed, as `RoutingHistory.ages`.
        layers : bool[L], optional
            The l layers to look at; by default all L.
        """
        places = np.arange(len(ages)) if layers is None else np.flatnonzero(layers)
        probs = np.empty((len(tokens), len(places), ages.shape[1]), np.float32)
        table_probs(
            self.codes,
            self.odds_of_code,
            self.row_of_token,
            self.parent_codes,
            self.odds_of_parent_code,
            self.parent_row_of_token,
            self.age_edges,
            self.age_odds[0],
            tokens,
            parent_tokens,
            depths,
            ages,
            float(self.geometry.experts_per_token),
            places,
            probs,
        )
        return probs


def _check_table(table: ExpertTable) -> None:
    shape = table.geometry
    experts = (shape.num_layers, shape.num_experts)
    num_buckets = len(table.age_edges) + 1
    rules = {
        "codes": table.codes.shape[1:] == experts,
        "odds_of_code": _are_odds(table.odds_of_code, (256,)),
        "row_of_token": _are_rows(table.row_of_token, shape.vocab_size, len(table.codes)),
        "parent_codes": table.parent_codes.shape[1:] == experts,
        "odds_of_parent_code": _are_odds(table.odds_of_parent_code, (256,)),
        "parent_row_of_token": _are_rows(
            table.parent_row_of_token, shape.vocab_size, len(table.parent_codes)
        ),
        "age_edges": bool((np.diff(table.age_edges) > 0).all()),
        "temperatures": are_temperatures(table.temperatures),
        "age_odds": table.age_odds.size > 0
        and _are_odds(
            table.age_odds,
            (len(table.temperatures), table.age_odds.shape[1], shape.num_layers, num_buckets),
        ),
    }
    if not (isinstance(table.novelty, int | float) and 0.0 <= table.novelty <= 1.0):
        raise InvalidInputError(
            f"novelty must be from 0 to 1; got {table.novelty!r}. Fit it again."
        )
    wrong = [name for name, holds in rules.items() if not holds]
    if wrong:
        raise InvalidInputError(
            f"an expert table's {', '.join(wrong)} must have the shape and range that its "
            f"docstring gives for {shape}; got {[getattr(table, name).shape for name in wrong]}. "
            f"Fit it again."
        )


def _are_odds(array: NDArray[np.float32], shape: tuple[int, ...]) -> bool:
    return array.shape == shape and bool((np.isfinite(array) & (array > 0)).all())


def _are_rows(array: NDArray[np.int32], vocab_size: int, num_rows: int) -> bool:
    return array.shape == (vocab_size,) and bool(((array >= 0) & (array < num_rows)).all())
