"""The routing of the synthetic model: the experts of a context as a function of its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.experts import ModelGeometry
from specfit.sim.synth._kernels import fill_normals, follow, route
from specfit.sim.synth.parameters import (
    QWEN3_30B_A3B,
    ROUTING,
    RoutingParameters,
    layer_overlaps,
)

TOPIC_TOKENS = 4
"""Tokens at the start of a prompt that decide what the whole text is about."""

_ROWS = 256
"""Contexts that are routed together."""

_WEIGHTS_SEED = 20_250_429
"""The synthetic model is one model: its weights are the same for every trace."""


@dataclass(frozen=True, eq=False)
class Contexts:
    """Contexts of one text: a hash of each, and the numbers that it carries along.

    Parameters
    ----------
    keys : uint64[n]
        Hash of the tokens.
    latents : float32[n, D]
        What a context carries along.
    """

    keys: NDArray[np.uint64]
    latents: NDArray[np.float32]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Contexts:
        return Contexts(self.keys[rows], self.latents[rows])


@dataclass(frozen=True, eq=False)
class Topic:
    """What is the same in a whole text.

    Parameters
    ----------
    base : float32[L, E]
        Part of each expert's score.
    latents : float32[D]
        What the empty context carries along.
    """

    base: NDArray[np.float32]
    latents: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class RoutingWorld:
    """Routes contexts.

    Parameters
    ----------
    parameters : RoutingParameters
        How scores are made up.
    geometry : ModelGeometry
        Shape of the model.
    """

    parameters: RoutingParameters = ROUTING
    geometry: ModelGeometry = QWEN3_30B_A3B

    @cached_property
    def shares(self) -> dict[str, NDArray[np.float64]]:
        """Variance of each part of a score, float64[L]; they sum to 1.

        Raises
        ------
        InvalidInputError
            The parameters ask for more than that.
        """
        p = self.parameters
        kept = correlation_of_overlap(layer_overlaps(p.measured_scale, p.other_scale))
        layers = np.arange(self.geometry.num_layers)
        shares = {
            "global": p.global_share * kept,
            "prompt": p.prompt_share * kept,
            "drift": p.drift_share * kept / p.drift_carry,
            "topic": p.topic_share * kept / (1.0 - 1.0 / p.topic_tokens),
        }
        left: NDArray[np.float64] = 1.0 - np.sum(list(shares.values()), axis=0)
        if left.min() < 0:
            raise InvalidInputError(
                f"the parts of a score must sum to at most 1; those of layer {left.argmin()} leave "
                f"{left.min():.3f}. Lower topic_share, or raise topic_tokens or drift_carry."
            )
        fading = np.exp(-layers / p.token_depth)
        token = p.token_share + (p.first_token_share - p.token_share) * fading
        shares["token"] = np.clip(token, 0.0, left)
        shares["noise"] = left - shares["token"]
        return shares

    @property
    def num_latents(self) -> int:
        """Numbers that a context carries along (D): drifts, and the topics of the last tokens."""
        p = self.parameters
        return p.num_drifts + p.num_topics * p.topic_tokens

    def topic(self, prompt: tuple[int, ...]) -> Topic:
        """Return what the text of a prompt is about: its first tokens decide."""
        own = np.empty(self.num_latents + self._global_scores.size, np.float32)
        fill_normals(np.array(prompt[:TOPIC_TOKENS], np.int64), own)
        scores = own[self.num_latents :].reshape(self._shape)
        base = self._weight("global") * self._global_scores + self._weight("prompt") * scores
        return Topic(base, own[: self.num_latents])

    def start(self, topic: Topic) -> Contexts:
        """Return the empty context of a text."""
        return Contexts(np.zeros(1, np.uint64), topic.latents[None].copy())

    def grow(
        self, contexts: Contexts, parents: NDArray[np.int32], tokens: NDArray[np.int64]
    ) -> Contexts:
        """Return `contexts` and, after them, each row's parent gone on with the row's token.

        Parameters
        ----------
        parents : int32[n]
            Rows of the contexts returned; a parent comes before its child.
        """
        known, size = len(contexts.keys), len(contexts.keys) + len(tokens)
        keys = np.zeros(size, np.uint64)
        latents = np.zeros((size, self.num_latents), np.float32)
        keys[:known], latents[:known] = contexts.keys, contexts.latents
        rows = np.zeros(size, np.int32)
        rows[known:] = parents
        padded = np.zeros(size, np.int64)
        padded[known:] = tokens
        p = self.parameters
        follow(keys, latents, rows, padded, p.drift_carry, p.num_drifts, p.num_topics, known)
        return Contexts(keys, latents)

    def route(
        self, topic: Topic, contexts: Contexts, tokens: NDArray[np.int64], *, in_prompt: bool
    ) -> NDArray[np.int16]:
        """Return the experts of the last token of each context, int16[n, L, K]."""
        g = self.geometry
        base, loadings = topic.base, self._loadings
        if in_prompt:
            base, loadings = (
                np.float32(np.sqrt(1.0 - self.parameters.prompt_turnover)) * base,
                self._prompt_loadings,
            )
        routing = np.empty((len(tokens), g.num_layers, g.experts_per_token), np.int16)
        for first in range(0, len(tokens), _ROWS):
            rows = slice(first, first + _ROWS)
            scores = contexts.latents[rows] @ loadings.reshape(-1, loadings.shape[2]).T
            route(
                contexts.keys[rows],
                np.ascontiguousarray(tokens[rows]),
                scores.reshape(-1, *self._shape) + base,
                self._token_scores,
                np.sqrt(self.shares["token"]).astype(np.float32),
                np.sqrt(self.shares["noise"]).astype(np.float32),
                routing[rows],
            )
        return routing

    @property
    def _shape(self) -> tuple[int, int]:
        return self.geometry.num_layers, self.geometry.num_experts

    def _weight(self, part: str) -> NDArray[np.float32]:
        return np.sqrt(self.shares[part]).astype(np.float32)[:, None]

    @cached_property
    def _global_scores(self) -> NDArray[np.float32]:
        return self._weights(0).standard_normal(self._shape, np.float32)

    @cached_property
    def _token_scores(self) -> NDArray[np.float32]:
        shape = (self.geometry.vocab_size, *self._shape)
        return self._weights(1).standard_normal(shape, np.float32)

    @cached_property
    def _loadings(self) -> NDArray[np.float32]:
        """How each latent moves each expert's score, float32[L, E, D]."""
        return self._scaled(self.shares["drift"], self.shares["topic"])

    @cached_property
    def _prompt_loadings(self) -> NDArray[np.float32]:
        """The same in a prompt: a part of what lasts changes as topics do."""
        turnover = self.parameters.prompt_turnover
        shares = self.shares
        moved = turnover * (shares["global"] + shares["prompt"] + shares["drift"])
        return self._scaled((1.0 - turnover) * shares["drift"], shares["topic"] + moved)

    def _scaled(
        self, drift: NDArray[np.float64], topic: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        p = self.parameters
        directions = self._weights(2).standard_normal(
            (*self._shape, p.num_drifts + p.num_topics), np.float32
        )
        drifts = _scale(drift, p.num_drifts) * directions[:, :, : p.num_drifts]
        topics = _scale(topic, p.num_topics * p.topic_tokens) * directions[:, :, p.num_drifts :]
        return np.concatenate([drifts, np.tile(topics, p.topic_tokens)], axis=2)

    def _weights(self, table: int) -> np.random.Generator:
        return np.random.default_rng([_WEIGHTS_SEED, table])


def _scale(variance: NDArray[np.float64], count: int) -> NDArray[np.float32]:
    """Return the weight, float32[L, 1, 1], with which so many numbers have a variance together."""
    return np.sqrt(variance / count).astype(np.float32)[:, None, None]


def correlation_of_overlap(overlaps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the correlation of two rows of 128 normal scores whose 8 highest overlap so much."""
    return np.interp(overlaps, _OVERLAPS, _CORRELATIONS)


_CORRELATIONS = np.linspace(0.0, 0.95, 20)
_OVERLAPS = np.array(
    (
        *(0.0625, 0.0753, 0.0894, 0.1047, 0.1210, 0.1407, 0.1608, 0.1829, 0.2066, 0.2341),
        *(0.2616, 0.2926, 0.3271, 0.3646, 0.4064, 0.4525, 0.5054, 0.5670, 0.6402, 0.7389),
    )
)
"""Overlap at each of `_CORRELATIONS`, from 80,000 simulated pairs of rows."""
