"""Fits acceptance curves: a logistic curve a depth and sibling rank, shrunk towards pooled ones.

What a text repeats then gets a line each that moves their log odds.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.policies.acceptance._kernels import NUM_FEATURES, NUM_LINES, line_of, write_features
from specfit.policies.acceptance._repeats import LONGEST_RUN
from specfit.policies.acceptance.acceptance_curves import AcceptanceCurves

NUM_DEPTHS = 8
NUM_RANKS = 10
CELL_PENALTY = 40.0
"""Pull of a cell's coefficients to the pooled ones, in units of a node of unit curvature."""

_RIDGE = 1e-2
_NEWTON_STEPS = 25


class LevelLineWarning(UserWarning):
    """For some of what a text can say, likelier nodes were accepted no more often than others."""


@dataclass(frozen=True, eq=False)
class AcceptanceSample:
    """Drafted nodes whose parents lie on the true path, and whether the target took them.

    Parameters
    ----------
    depths, ranks : int32[n]
        Depth (from 1) and sibling rank (from 0).
    log_probs, entropies : float32[n]
        The drafter's, as in `DraftTree`.
    accepted : bool[n]
        Whether the node's token is the target's.
    repeats : int8[n]
        What the text before the root says of the node, as `find_repeats` writes it.
    runs : int8[n]
        Length of the longest run that ends at the root, as `longest_run` returns it.
    looping : bool[n]
        Whether the text repeats itself all along. Curves are not fitted on such nodes, which would
        promise too much elsewhere; only what repetition says is.
    """

    depths: NDArray[np.int32]
    ranks: NDArray[np.int32]
    log_probs: NDArray[np.float32]
    entropies: NDArray[np.float32]
    accepted: NDArray[np.bool_]
    repeats: NDArray[np.int8]
    runs: NDArray[np.int8]
    looping: NDArray[np.bool_]

    def __post_init__(self) -> None:
        sizes = {len(column) for column in self._columns()}
        if len(sizes) != 1:
            raise InvalidInputError(
                f"an acceptance sample needs one value a node in every array; got {sizes}."
            )
        if len(self.depths) and self.depths.min() < 1:
            raise InvalidInputError("a drafted node's depth is 1 or more; the root is not drafted.")

    def where(self, kept: NDArray[np.bool_]) -> AcceptanceSample:
        """Return the nodes of a mask, bool[n]."""
        return AcceptanceSample(*(column[kept] for column in self._columns()))

    def _columns(self) -> tuple[NDArray[Any], ...]:
        return tuple(getattr(self, f.name) for f in fields(self))


def fit_acceptance_curves(
    samples: Mapping[float, AcceptanceSample], fitted_on: str
) -> AcceptanceCurves:
    """Return the curves fitted on one sample a temperature of the target.

    Parameters
    ----------
    samples : mapping of float to AcceptanceSample
        By temperature; 0 is greedy.
    fitted_on : str
        Fingerprint of the target and the head.
    """
    temperatures = sorted(samples)
    fits = [_fit(samples[t]) for t in temperatures]
    weights, continuations, lines, repeated = (np.stack(parts) for parts in zip(*fits, strict=True))
    return AcceptanceCurves(
        fitted_on=fitted_on,
        temperatures=np.array(temperatures, np.float64),
        weights=weights,
        continuations=continuations,
        lines=lines,
        repeated_continuations=repeated,
    )


def _fit(sample: AcceptanceSample) -> tuple[NDArray[np.float64], ...]:
    """Return the numbers of one temperature, in the order of the fields of `AcceptanceCurves`."""
    usual = sample.where(~sample.looping)
    weights, continuations = _fit_weights(usual), continuation_shares(usual)
    repeated = [
        _shares(sample.where(sample.runs == run), continuations) for run in range(LONGEST_RUN + 1)
    ]
    return weights, continuations, _fit_lines(sample, weights), np.stack(repeated)


def _fit_weights(sample: AcceptanceSample) -> NDArray[np.float64]:
    """Return the coefficients of each depth and rank, float64[D, R, 4].

    All nodes give the common curve; each rank's is pulled to it, each cell's to its rank's.
    """
    x = np.empty((len(sample.depths), NUM_FEATURES))
    write_features(sample.log_probs, sample.entropies, x)
    y = sample.accepted.astype(np.float64)
    depths = np.minimum(sample.depths, NUM_DEPTHS) - 1
    ranks = np.minimum(sample.ranks, NUM_RANKS - 1)
    common = logistic(x, y, np.zeros(NUM_FEATURES), _RIDGE)
    weights = np.empty((NUM_DEPTHS, NUM_RANKS, NUM_FEATURES))
    for rank in range(NUM_RANKS):
        of_rank = ranks == rank
        pooled = logistic(x[of_rank], y[of_rank], common, CELL_PENALTY)
        for depth in range(NUM_DEPTHS):
            cell = of_rank & (depths == depth)
            weights[depth, rank] = logistic(x[cell], y[cell], pooled, CELL_PENALTY)
    return weights


def _fit_lines(sample: AcceptanceSample, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return constant and slope of the log odds for all that a text can say, [NUM_LINES, 2].

    A line that would fall is level, the best of those that do not, and `LevelLineWarning` says so.
    """
    x = np.empty((len(sample.depths), NUM_FEATURES))
    write_features(sample.log_probs, sample.entropies, x)
    depths, ranks = (
        np.minimum(sample.depths, NUM_DEPTHS) - 1,
        np.minimum(sample.ranks, NUM_RANKS - 1),
    )
    scores = (x * weights[depths, ranks]).sum(axis=1)
    y = sample.accepted.astype(np.float64)
    line_of_repeat = {line_of(r): r for r in range(-LONGEST_RUN, LONGEST_RUN + 1)}
    lines = np.empty((NUM_LINES, 2))
    for line, repeat in line_of_repeat.items():
        said = sample.repeats == repeat
        design = np.stack([np.ones(said.sum()), scores[said]], axis=1)
        found = logistic(design, y[said], np.array([0.0, 1.0]), CELL_PENALTY)
        if found[1] < 0.0:
            _warn_of_level_line(repeat, len(design), float(found[1]))
            found = np.append(logistic(design[:, :1], y[said], np.zeros(1), CELL_PENALTY), 0.0)
        lines[line] = found
    return lines


def _warn_of_level_line(repeat: int, num_nodes: int, slope: float) -> None:
    kind = "for" if repeat > 0 else "against"
    where = f"a run of {abs(repeat)} {kind} them" if repeat else "no run for or against them"
    warnings.warn(
        f"of {num_nodes} nodes with {where}, those that the drafter holds likelier were accepted "
        f"no more often (slope {slope:.2f}), so all are fitted as equally likely. More texts may "
        f"tell them apart.",
        LevelLineWarning,
        stacklevel=2,
    )


def logistic(
    x: NDArray[np.float64], y: NDArray[np.float64], prior: NDArray[np.float64], penalty: float
) -> NDArray[np.float64]:
    """Return logistic coefficients that are pulled to `prior`; Newton's method with halving."""
    weights, loss = prior.copy(), _logistic_loss(x, y, prior, prior, penalty)
    for _ in range(_NEWTON_STEPS):
        probs = 1.0 / (1.0 + np.exp(-(x @ weights)))
        gradient = x.T @ (probs - y) + penalty * (weights - prior)
        curvature = (x * (probs * (1.0 - probs))[:, None]).T @ x + penalty * np.eye(len(prior))
        step = np.linalg.solve(curvature, gradient)
        size = 1.0
        while (found := _logistic_loss(x, y, weights - size * step, prior, penalty)) > loss:
            size /= 2
            if size < 1e-6:
                return weights
        weights = weights - size * step
        if loss - found < 1e-9 * (1.0 + loss):
            return weights
        loss = found
    return weights


def _logistic_loss(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    weights: NDArray[np.float64],
    prior: NDArray[np.float64],
    penalty: float,
) -> float:
    scores = x @ weights
    misfit = np.logaddexp(0.0, scores).sum() - y @ scores
    return float(misfit + 0.5 * penalty * ((weights - prior) ** 2).sum())


def continuation_shares(sample: AcceptanceSample) -> NDArray[np.float64]:
    """Return the share of parents, a depth, with the target's token among the best 1 .. C children.

    Every parent counts once: by its child of rank 0. A depth is pulled to all depths' share.
    """
    parents, hits = _parents_and_hits(sample)
    pooled = hits.sum(axis=0) / max(parents.sum(), 1.0)
    return _cumulated(hits, parents, np.tile(pooled, (NUM_DEPTHS, 1)))


def _shares(sample: AcceptanceSample, prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the same pulled to other shares, float64[D, C]."""
    parents, hits = _parents_and_hits(sample)
    return _cumulated(hits, parents, np.diff(prior, axis=1, prepend=0.0))


def _parents_and_hits(
    sample: AcceptanceSample,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the parents of each depth [D], and how many had the target's token at each rank."""
    depths = np.minimum(sample.depths, NUM_DEPTHS) - 1
    first = sample.ranks == 0
    parents = np.bincount(depths[first], minlength=NUM_DEPTHS).astype(np.float64)
    hits = np.zeros((NUM_DEPTHS, NUM_RANKS))
    ranked = sample.accepted & (sample.ranks < NUM_RANKS)
    np.add.at(hits, (depths[ranked], sample.ranks[ranked]), 1.0)
    return parents, hits


def _cumulated(
    hits: NDArray[np.float64], parents: NDArray[np.float64], prior: NDArray[np.float64]
) -> NDArray[np.float64]:
    shares = (hits + CELL_PENALTY * prior) / (parents + CELL_PENALTY)[:, None]
    cumulated: NDArray[np.float64] = np.cumsum(shares, axis=1)
    return np.minimum(cumulated, 1.0)
