"""Fits the predictors that score experts by the history: persistence, frequency, linear probe.

One example is a draft and a depth slot: the scores of that history, and how many of the slot's
nodes needed each expert. What scores become probabilities by is logistic, by slot and layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from specfit.core.experts import ExpertCoverage, ModelGeometry
from specfit.core.history import RoutingHistory
from specfit.core.observed import ObservedText
from specfit.policies.predictors.decayed_frequency import frequency_scores
from specfit.policies.predictors.previous_token import newest_scores
from specfit.policies.predictors.routing_probe import probe_scores
from specfit.policies.predictors.scored import ScoreFit

NUM_SLOTS = 7
"""Depths with numbers of their own; deeper nodes share the last ones."""

DECAYS = (0.8, 0.9, 0.95, 0.98, 0.995)
"""Rates of fading tried; the likeliest is taken."""

RANK = 24
"""Rank of the linear probe."""

PENALTIES = (30.0, 100.0, 300.0, 1000.0)
"""Ridge penalties tried; the held-out texts choose."""

_NEWTON_STEPS = 15
_PRIOR = 1.0

T = TypeVar("T")
Map: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""A low-rank map: down, up and offset."""

MAP = ("down", "up", "offset")
"""What its parts are called in a file."""

Scorer = Callable[[RoutingHistory], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Examples:
    """n examples: depth slots int64[n], nodes float64[n], how many need each expert [n, L, E]."""

    slots: NDArray[np.int64]
    num_nodes: NDArray[np.float64]
    needs: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _HistoryExamples(Examples):
    """Examples with their histories."""

    histories: list[RoutingHistory]

    @classmethod
    def of(cls, texts: Sequence[ObservedText], geometry: ModelGeometry) -> _HistoryExamples:
        slots, counts, needs, histories = [], [], [], []
        for text in texts:
            for draft, history in text.histories(geometry):
                if history.num_tokens == 0:
                    continue
                mask = ExpertCoverage(draft.routing, geometry.num_experts).mask
                slot_of = np.minimum(draft.tree.depths[draft.nodes], NUM_SLOTS - 1)
                kept = history.snapshot()
                for slot in np.unique(slot_of).tolist():
                    inside = slot_of == slot
                    slots.append(slot)
                    counts.append(float(inside.sum()))
                    needs.append(mask[inside].sum(axis=0, dtype=np.float64))
                    histories.append(kept)
        return cls(np.array(slots), np.array(counts), np.stack(needs), histories)

    def scores(self, scorer: Scorer) -> NDArray[np.float64]:
        """Return the scores of each example in its own slot, float64[n, L, E]."""
        found: dict[int, NDArray[np.float64]] = {}
        rows = []
        for slot, history in zip(self.slots.tolist(), self.histories, strict=True):
            if id(history) not in found:
                found[id(history)] = scorer(history)
            scores = found[id(history)]
            rows.append(scores[slot if len(scores) > 1 else 0])
        return np.stack(rows)


def fit_previous_token(
    train: Sequence[ObservedText],
    held_out: Sequence[ObservedText],
    geometry: ModelGeometry,
    fitted_on: str,
) -> ScoreFit:
    """Return how often the newest token's experts are needed again; fitted on all texts."""
    examples = _HistoryExamples.of([*train, *held_out], geometry)
    scores = examples.scores(lambda history: newest_scores(history, geometry.num_experts))
    slopes, intercepts, _ = logistic_by_slot(examples, scores)
    return ScoreFit(geometry, fitted_on, slopes, intercepts)


def fit_decayed_frequency(
    train: Sequence[ObservedText],
    held_out: Sequence[ObservedText],
    geometry: ModelGeometry,
    fitted_on: str,
) -> ScoreFit:
    """Return the rate of fading, and what faded uses say; fitted on all texts."""
    examples = _HistoryExamples.of([*train, *held_out], geometry)
    slopes, intercepts, decay = likeliest(
        DECAYS,
        examples,
        lambda tried: examples.scores(lambda history: frequency_scores(history, geometry, tried)),
    )
    return ScoreFit(geometry, fitted_on, slopes, intercepts, {"decay": np.array([decay])})


def fit_routing_probe(
    train: Sequence[ObservedText],
    held_out: Sequence[ObservedText],
    geometry: ModelGeometry,
    fitted_on: str,
) -> ScoreFit:
    """Return the low-rank map fitted on `train`, its penalty and calibration on `held_out`."""
    examples, judge = _HistoryExamples.of(train, geometry), _HistoryExamples.of(held_out, geometry)
    slopes, intercepts, best = likeliest(
        (_probe(examples, geometry, penalty) for penalty in PENALTIES),
        judge,
        lambda tried: judge.scores(lambda history: probe_scores(history, *tried)),
    )
    return ScoreFit(geometry, fitted_on, slopes, intercepts, dict(zip(MAP, best, strict=True)))


def likeliest(
    tried: Iterable[T], judge: Examples, scores: Callable[[T], NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64], T]:
    """Return slopes and intercepts [S, L], and which of those tried makes examples likeliest.

    Parameters
    ----------
    tried : iterable
        What scores may come from; of equally likely ones the first is taken.
    judge : Examples
        What each is calibrated and compared on.
    scores : callable
        Returns the scores that one of them gives these examples, float64[n, L, E].
    """
    fits = [(*logistic_by_slot(judge, scores(one)), one) for one in tried]
    slopes, intercepts, _, best = min(fits, key=lambda fit: fit[2])
    return slopes, intercepts, best


def _probe(examples: _HistoryExamples, geometry: ModelGeometry, penalty: float) -> Map:
    """Return down [F, r], up [S, r, F] and offset [S, F] of reduced-rank ridge regression."""
    newest = [newest_scores(h, geometry.num_experts)[0].ravel() for h in examples.histories]
    x = np.stack(newest)  # [n, F]
    shares = (examples.needs / examples.num_nodes[:, None, None]).reshape(len(x), -1)
    num_features = x.shape[1]
    weights = np.zeros((NUM_SLOTS, num_features, num_features))
    x_means, y_means = np.zeros((2, NUM_SLOTS, num_features))
    for slot in range(NUM_SLOTS):
        inside = examples.slots == slot
        if not inside.any():
            continue
        x_means[slot], y_means[slot] = x[inside].mean(axis=0), shares[inside].mean(axis=0)
        xc, yc = x[inside] - x_means[slot], shares[inside] - y_means[slot]
        gram = xc.T @ xc + penalty * np.eye(num_features)
        weights[slot] = np.linalg.solve(gram, xc.T @ yc)
    spread = np.cov(x, rowvar=False) + 1e-6 * np.eye(num_features)
    joint = np.concatenate(list(weights), axis=1)  # [F, S * F]
    basis = principal(joint, spread, RANK)
    down = joint @ basis  # [F, r]
    up = basis.T.reshape(basis.shape[1], NUM_SLOTS, num_features).transpose(1, 0, 2)
    offset = y_means - np.einsum("sf,fr,srg->sg", x_means, down, up)
    return down, np.ascontiguousarray(up), offset


def principal(
    joint: NDArray[np.float64], spread: NDArray[np.float64], rank: int
) -> NDArray[np.float64]:
    """Return the directions [S * F, r] in which predictions joint.T @ x vary most."""
    factor = np.linalg.cholesky(spread)
    _, _, directions = np.linalg.svd(factor.T @ joint, full_matrices=False)
    return np.ascontiguousarray(directions[:rank].T)


def logistic_by_slot(
    examples: Examples, scores: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return slopes and intercepts [S, L] of the log odds on the scores, and minus log likelihood.

    Newton's method on two numbers a slot and layer, pulled lightly to 0. A slot without examples
    takes over those of the slot before it.
    """
    num_layers = scores.shape[1]
    slopes, intercepts = np.zeros((2, NUM_SLOTS, num_layers))
    loss = 0.0
    for slot in range(NUM_SLOTS):
        inside = examples.slots == slot
        if not inside.any():
            slopes[slot], intercepts[slot] = slopes[max(slot - 1, 0)], intercepts[max(slot - 1, 0)]
            continue
        x, hits = scores[inside], examples.needs[inside]
        n = examples.num_nodes[inside][:, None, None]
        a, b = np.zeros((2, num_layers))
        for _ in range(_NEWTON_STEPS):
            p = 1.0 / (1.0 + np.exp(-(a[:, None] * x + b[:, None])))
            miss, curve = hits - n * p, n * p * (1 - p)
            g = np.stack([(miss * x).sum((0, 2)) - _PRIOR * a, miss.sum((0, 2)) - _PRIOR * b])
            haa = (curve * x * x).sum((0, 2)) + _PRIOR
            hab = (curve * x).sum((0, 2))
            hbb = curve.sum((0, 2)) + _PRIOR
            det = haa * hbb - hab**2
            a = a + np.clip((hbb * g[0] - hab * g[1]) / det, -2, 2)
            b = b + np.clip((haa * g[1] - hab * g[0]) / det, -2, 2)
        z = a[:, None] * x + b[:, None]
        loss += float((n * np.logaddexp(0, z) - hits * z).sum())
        slopes[slot], intercepts[slot] = a, b
    return slopes, intercepts, loss
