"""Texts of the synthetic model without drafts: tokens and the experts that each one needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from specfit.core.experts import ExpertCoverage
from specfit.sim.synth.parameters import VOCAB_SIZE
from specfit.sim.synth.world import TOPIC_TOKENS, RoutingWorld

ZIPF_SHIFT = 8.0
"""Token ``i`` is drawn with a probability in proportion to ``1 / (i + ZIPF_SHIFT)``."""


@dataclass(frozen=True, eq=False)
class Text:
    """A prompt and its text.

    Parameters
    ----------
    tokens : int64[T]
        Prompt and generated tokens.
    routing : int16[T, L, K]
        Experts of each.
    num_prompt : int
        Tokens of the prompt.
    num_experts : int
        Experts of a layer (E).
    """

    tokens: NDArray[np.int64]
    routing: NDArray[np.int16]
    num_prompt: int
    num_experts: int

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Whether each token needs each expert, bool[T, L, E]."""
        return ExpertCoverage(self.routing, self.num_experts).mask


@cache
def token_odds() -> NDArray[np.float64]:
    """Return the cumulated probability of each token, float64[V]."""
    weights = 1.0 / (np.arange(VOCAB_SIZE) + ZIPF_SHIFT)
    cumulated: NDArray[np.float64] = np.cumsum(weights / weights.sum())
    return cumulated


def draw_tokens(uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the token of each number in (0, 1)."""
    found = np.searchsorted(token_odds(), uniforms)
    return np.minimum(found, VOCAB_SIZE - 1).astype(np.int64)


def draw_prompt(rng: np.random.Generator, num_tokens: int) -> tuple[int, ...]:
    """Return a prompt of so many tokens; no token of its topic is likelier than another."""
    tokens = draw_tokens(rng.random(num_tokens))
    head = tokens[:TOPIC_TOKENS]
    head[:] = rng.integers(VOCAB_SIZE, size=len(head))
    return tuple(tokens.tolist())


def draw_text(
    world: RoutingWorld, rng: np.random.Generator, num_prompt: int, num_text: int
) -> Text:
    """Return a text of drawn tokens and its routing, as a recording of the model would have it."""
    prompt = draw_prompt(rng, num_prompt)
    return route_text(world, prompt, draw_tokens(rng.random(num_text)).tolist())


def route_text(world: RoutingWorld, prompt: tuple[int, ...], generated: Sequence[int]) -> Text:
    """Return a text of given tokens and its routing.

    Parameters
    ----------
    generated : sequence of int
        The tokens after the prompt that were run.
    """
    tokens = np.array([*prompt, *generated], np.int64)
    parents = np.arange(len(tokens), dtype=np.int32)
    topic = world.topic(prompt)
    contexts = world.grow(world.start(topic), parents, tokens)[1:]
    split = [(slice(0, len(prompt)), True), (slice(len(prompt), None), False)]
    routing = [world.route(topic, contexts[s], tokens[s], in_prompt=p) for s, p in split]
    return Text(tokens, np.concatenate(routing), len(prompt), world.geometry.num_experts)
