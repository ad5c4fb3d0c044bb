"""Fits the token table: shrunk token counts, then the parent token's effect, then calibration.

The counts and the parent's effect come from one sample, what calibrates them (slopes, age and depth
corrections) from others, of other texts, so that what was learnt by heart is not trusted. They come
one a temperature of the target: a text that is drawn wanders more among the experts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from specfit.core.experts import ExpertCoverage, ModelGeometry
from specfit.core.history import NEVER
from specfit.policies.fitting._kernels import (
    Model,
    Nodes,
    add_scores,
    age_buckets,
    novelty_slope,
)
from specfit.policies.fitting.routing_sample import RoutingSample
from specfit.policies.fitting.token_counts import TokenCounts
from specfit.policies.predictors.expert_table import NO_PARENT, ExpertTable

AGE_EDGES = (
    *(0, 1, 2, 3, 5, 8, 12, 20, 32, 64, 128, NEVER - 1),
    *(NEVER + length for length in (16, 32, 64, 128)),
)
"""Largest age of each bucket but the last: of experts needed before, then of those that never were.

Not to have been needed in a long history says more than in a short one.
"""

NUM_DEPTHS = 7
"""Depths with an age correction of their own; deeper nodes share the last one."""

PENALTIES = (0.5, 1.0, 2.0)
"""Penalties tried on the squared effects of parent tokens; the validation sample chooses."""

TEMPERATURE_PENALTY = 8.0
"""Penalty on the squared distance of a temperature's age effects from the mean of them all."""

NOVELTY_STEP = 1 / 128
"""How finely the novelty is found."""

_EFFECT_STEPS = 5
_CALIBRATION_STEPS = 12


def fit_expert_table(
    train: RoutingSample,
    validation: Mapping[float, RoutingSample],
    geometry: ModelGeometry,
    fitted_on: str,
) -> ExpertTable:
    """Return the table fitted on `train` and calibrated on `validation`.

    Parameters
    ----------
    train : RoutingSample
        What the counts and the parents' effects come from.
    validation : mapping of float to RoutingSample
        Samples of other texts, by the target's temperature; at least one.
    geometry : ModelGeometry
        Shape of the target.
    fitted_on : str
        Fingerprint of the target.
    """
    needed = ExpertCoverage(train.routing, geometry.num_experts).mask
    counts = TokenCounts.of(train.tokens, needed, geometry.vocab_size)
    data = _prepare(train, needed, counts.left_out_logits(train.tokens, needed))
    temperatures = sorted(validation)
    samples = [validation[temperature] for temperature in temperatures]
    held_out = []
    for sample in samples:
        seen = ExpertCoverage(sample.routing, geometry.num_experts).mask
        held_out.append(_prepare(sample, seen, counts.logits(sample.tokens)))
    total = geometry.experts_per_token
    fits = [_fit_effects(data, geometry, penalty) for penalty in PENALTIES]
    model = min(fits, key=lambda fit: sum(_scores(d, fit, total)[1] for d in held_out))
    models = _calibrate(held_out, model, total)
    novelty = _fit_novelty(samples, held_out, models, total)
    return _to_table(counts, temperatures, models, novelty, geometry, fitted_on)


def _prepare(sample: RoutingSample, needed: NDArray[np.bool_], base: NDArray[np.float32]) -> Nodes:
    buckets = np.empty((len(sample.stream), *needed.shape[1:]), np.uint8)
    age_buckets(sample.stream, sample.texts, np.array(AGE_EDGES), buckets)
    return Nodes(
        base=base,
        parent_rows=np.where(sample.parent_tokens == NO_PARENT, 0, sample.parent_tokens + 1),
        slots=np.minimum(sample.depths, NUM_DEPTHS - 1).astype(np.int32),
        buckets=buckets,
        roots=sample.roots,
        needed=needed,
    )


def _fit_effects(data: Nodes, geometry: ModelGeometry, penalty: float) -> Model:
    """Fit the parent tokens' effects, pulled to 0 by `penalty`, and the ages' along with them."""
    shape = (geometry.num_layers, geometry.num_experts)
    model = Model(
        effects=np.zeros((geometry.vocab_size + 1, *shape)),  # row 0: no parent, no effect
        ages=np.zeros((NUM_DEPTHS, geometry.num_layers, len(AGE_EDGES) + 1)),
        slopes=np.ones((2, geometry.num_layers)),
    )
    for _ in range(_EFFECT_STEPS):
        sums, _loss = _scores(data, model, geometry.experts_per_token)
        gradient = sums.effects[0] - penalty * model.effects
        model.effects[...] += _step(gradient, sums.effects[1] + penalty)
        model.effects[0] = 0.0
        model.ages[...] += _step(sums.ages[0], sums.ages[1] + 1.0)
    return model


def _calibrate(samples: Sequence[Nodes], model: Model, total: int) -> list[Model]:
    """Fit the slopes to all samples, the ages' effects to each; all else is held.

    Returns
    -------
    list of Model
        One a sample.
    """
    models = [model._replace(ages=model.ages.copy()) for _ in samples]
    for _ in range(_CALIBRATION_STEPS):
        scores = [_scores(data, m, total)[0] for data, m in zip(samples, models, strict=True)]
        mean = np.mean([m.ages for m in models], axis=0)
        for own, sums in zip(models, scores, strict=True):
            gradient = sums.ages[0] - TEMPERATURE_PENALTY * (own.ages - mean)
            own.ages[...] += _step(gradient, sums.ages[1] + TEMPERATURE_PENALTY + 1.0)
        slopes = np.sum([sums.slopes for sums in scores], axis=0)
        model.slopes[...] += 0.5 * _step(slopes[0], slopes[1] + 1.0)  # all models share them
    return models


def _fit_novelty(
    samples: Sequence[RoutingSample],
    prepared: Sequence[Nodes],
    models: Sequence[Model],
    total: int,
) -> float:
    """Return the likeliest novelty, rounded; 1 where no node follows the text below a root."""
    low, high = 0.0, 1.0
    while high - low > NOVELTY_STEP:
        middle = (low + high) / 2
        slopes = [
            _novelty_slope(sample, data, model, total, middle)
            for sample, data, model in zip(samples, prepared, models, strict=True)
        ]
        if sum(slopes) >= 0.0:
            low = middle
        else:
            high = middle
    return round(high, 2)


def _novelty_slope(
    sample: RoutingSample, data: Nodes, model: Model, total: int, novelty: float
) -> float:
    depths, follows, stream = sample.depths, sample.follows, sample.stream
    return float(novelty_slope(data, model, float(total), depths, follows, stream, novelty))


def _step(gradient: NDArray[np.float64], curvature: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a Newton step a coordinate, at most 1 long."""
    return np.clip(gradient / curvature, -1.0, 1.0)


def _scores(data: Nodes, model: Model, total: int) -> tuple[Model, float]:
    """Return gradient (index 0) and curvature (index 1) of each parameter, and the loss."""
    sums = Model(*(np.zeros((2, *a.shape)) for a in (model.effects, model.ages, model.slopes)))
    return sums, add_scores(data, model, float(total), sums)


def _to_table(
    counts: TokenCounts,
    temperatures: Sequence[float],
    models: Sequence[Model],
    novelty: float,
    geometry: ModelGeometry,
    fitted_on: str,
) -> ExpertTable:
    """Quantise; row 0 of both tables is the back-off, the others are those of the tokens seen."""
    model = models[0]
    seen = np.flatnonzero(counts.totals > 0)
    unigram = np.log(counts.unigram / (1 - counts.unigram))[None]
    logits = np.concatenate([unigram, counts.logits(seen)])
    effects = model.slopes[1][:, None] * model.effects
    parents = np.flatnonzero(np.abs(effects[1:]).max(axis=(1, 2)) > 0)
    codes, odds_of_code = _quantise(model.slopes[0][:, None] * logits)
    parent_codes, odds_of_parent_code = _quantise(effects[np.append(0, parents + 1)])
    return ExpertTable(
        geometry=geometry,
        fitted_on=fitted_on,
        codes=codes,
        odds_of_code=odds_of_code,
        row_of_token=_rows_of(seen, geometry.vocab_size),
        parent_codes=parent_codes,
        odds_of_parent_code=odds_of_parent_code,
        parent_row_of_token=_rows_of(parents, geometry.vocab_size),
        age_edges=np.array(AGE_EDGES, np.int64),
        temperatures=np.array(temperatures, np.float64),
        age_odds=np.exp([m.ages for m in models]).astype(np.float32),
        novelty=novelty,
    )


def _rows_of(tokens: NDArray[np.intp], vocab_size: int) -> NDArray[np.int32]:
    rows = np.zeros(vocab_size, np.int32)
    rows[tokens] = np.arange(1, len(tokens) + 1)
    return rows


def _quantise(logits: NDArray[np.float64]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return codes of 256 evenly spaced log odds, and the odds of each code."""
    low, high = float(logits.min()), float(logits.max())
    levels = np.linspace(low, max(high, low + 1e-3), 256)
    codes = np.rint((logits - low) / (levels[1] - levels[0])).astype(np.uint8)
    return codes, np.exp(levels).astype(np.float32)
