"""A backend in numpy on a synthetic target: every rule of a real one holds, in microseconds.

The target's logits, the drafter's and the routing are fixed functions of the context, kept as a
hash. Time is simulated from a hardware profile. Nothing here says anything about a real model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Backend, Foresight, Prefill, Request, Verification
from specfit.core.cache.base import ExpertCache, make_cache
from specfit.core.errors import BackendError
from specfit.core.experts import ModelGeometry, Residency
from specfit.core.noise import Sampling, gumbel_noise, processed_logits
from specfit.core.pass_time import pass_time
from specfit.core.profile import HardwareProfile
from specfit.core.selection import Selection
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree, frontier
from specfit.testing.examples import example_geometry, example_profile

PREFILL_CHUNK = 16
"""Prompt tokens of one prefill pass."""

_WORD = 2**64 - 1


@dataclass(frozen=True)
class ToyModel:
    """A synthetic target and its drafter: tables indexed by a hash of the whole context.

    The target's logits are the drafter's plus standard Gumbel noise, so the drafter is calibrated
    under greedy decoding: the target's token after a context is a draw from the drafter's
    distribution there.

    Parameters
    ----------
    geometry : ModelGeometry
        Shape of the target.
    table_seed : int
        Fixes every table.
    sharpness : float
        Standard deviation of the drafter's logits; a sharper drafter is accepted more often.
    overconfidence : float
        Factor on the logits that the drafter reports; 1 is calibrated, more is overconfident.
    context_share : float
        Weight of the context in the routing, beside the token's own weight of 1.
    num_contexts : int
        Distinct rows of the tables.
    """

    geometry: ModelGeometry
    table_seed: int = 0
    sharpness: float = 3.0
    overconfidence: float = 1.0
    context_share: float = 0.5
    num_contexts: int = 1024

    @cached_property
    def draft_logits(self) -> NDArray[np.float64]:
        """The drafter's logits after each context, float64[num_contexts, V]."""
        shape = (self.num_contexts, self.geometry.vocab_size)
        return self.sharpness * self._generator(0).standard_normal(shape)

    @cached_property
    def target_logits(self) -> NDArray[np.float64]:
        """The target's logits after each context, float64[num_contexts, V]."""
        return self.draft_logits + self._generator(1).gumbel(size=self.draft_logits.shape)

    def routing(self, tokens: NDArray[np.int64], states: NDArray[np.uint64]) -> NDArray[np.int16]:
        """Return the experts of tokens in their contexts, int16[n, L, K]."""
        contexts = (states >> np.uint64(32)) % np.uint64(len(self._context_scores))
        scores = self._token_scores[tokens] + self._context_scores[contexts.astype(np.intp)]
        k = self.geometry.experts_per_token
        return np.argsort(-scores, axis=2, kind="stable")[:, :, :k].astype(np.int16)

    @cached_property
    def _token_scores(self) -> NDArray[np.float32]:
        g = self.geometry
        shape = (g.vocab_size, g.num_layers, g.num_experts)
        return self._generator(2).standard_normal(shape, np.float32)

    @cached_property
    def _context_scores(self) -> NDArray[np.float32]:
        g = self.geometry
        scores = self._generator(3).standard_normal((64, g.num_layers, g.num_experts), np.float32)
        return np.float32(self.context_share) * scores

    def _generator(self, table: int) -> np.random.Generator:
        return np.random.default_rng([self.table_seed, table])


class ToyBackend(Backend):
    """Drafts from and verifies with a `ToyModel`; its experts live in a real `ExpertCache`.

    Parameters
    ----------
    model : ToyModel
        The target and its drafter.
    cache : ExpertCache
        Allocated for the model's geometry.
    profile : HardwareProfile
        Where the simulated seconds come from.
    """

    can_foresee = True

    def __init__(self, model: ToyModel, cache: ExpertCache, profile: HardwareProfile) -> None:
        self.model = model
        self.cache = cache
        self.profile = profile
        self.geometry = model.geometry
        self._now_s = 0.0
        self._request: Request | None = None
        self._context: list[int] = []  # committed tokens, the next root included
        self._state = 0  # hash of the context without the next root
        self._state_width = 0

    def keep_states(self, width: int | None = None) -> int:
        """See `Backend.keep_states`: a state is the drafter's logits, repeated to `width`."""
        self._state_width = width or self.geometry.vocab_size
        return self._state_width

    def start(self, request: Request) -> Prefill:
        """See `Backend.start`. The cache starts empty and is filled by the prompt."""
        started = self._now_s
        self.cache.reset()
        self._request = request
        states = _chain_states(0, request.prompt)
        routing = self.model.routing(np.array(request.prompt, np.int64), states)
        chunks = _chunks(len(request.prompt))
        for first, size in zip(np.cumsum((0, *chunks)), chunks, strict=False):
            self._run_pass(routing[first : first + size])
        self._state = int(states[-1])
        first_token = int(self._emit(states[-1:], np.array([len(request.prompt)]))[0][0])
        self._context = [*request.prompt, first_token]
        return Prefill(first_token, routing, chunks, self._now_s - started)

    def residency(self) -> Residency:
        """See `Backend.residency`."""
        return self.cache.residency()

    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        """See `Backend.draft_level`. Draws the pool of `DraftPlan`."""
        parents = frontier(tree, plan.top_k)
        first = len(tree) == 1
        self._now_s += self.profile.first_level_s if first else self.profile.level_s
        rows = self._rows(self._node_states(tree)[parents])
        logits = self.model.draft_logits[rows]
        log_probs = _log_softmax(self.model.overconfidence * logits)
        width = min(plan.top_k, self.geometry.vocab_size)
        best = np.argsort(-log_probs, axis=1, kind="stable")[:, :width]  # [n, width]
        entropies = -(np.exp(log_probs) * log_probs).sum(axis=1)
        columns = np.arange(self._state_width) % self.geometry.vocab_size
        states = logits[:, columns].astype(np.float32) if self._state_width else None
        return DraftLevel(
            parents=np.repeat(parents, width).astype(np.int32),
            tokens=best.ravel().astype(np.int64),
            log_probs=np.take_along_axis(log_probs, best, 1).ravel().astype(np.float32),
            ranks=np.tile(np.arange(width, dtype=np.int32), len(parents)),
            entropies=np.repeat(entropies, width).astype(np.float32),
            states=None if states is None else np.repeat(states, width, axis=0),
        )

    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        """See `Backend.verify`. May be called again before `commit`; the experts move each time."""
        self._check_root(tree)
        nodes = selection.nodes
        states = self._node_states(tree)[nodes]
        routing = self.model.routing(tree.tokens[nodes], states)
        positions = len(self._context) + tree.depths[nodes]
        target_tokens, target_probs, margins = self._emit(states, positions)
        counts, stall_s, compute_s = self._run_pass(routing)
        return Verification(
            nodes=nodes,
            target_tokens=target_tokens,
            target_probs=target_probs,
            margins=margins,
            routing=routing,
            num_hits=counts[0],
            num_misses=counts[1],
            num_evictions=counts[2],
            stall_s=stall_s,
            compute_s=compute_s,
        )

    def commit(
        self, tree: DraftTree, accepted: tuple[int, ...], committed: tuple[int, ...]
    ) -> None:
        """See `Backend.commit`."""
        self._check_root(tree)
        self._state = int(self._node_states(tree)[accepted[-1] if accepted else 0])
        self._context.extend(committed)

    def foresee(self, plan: DraftPlan, tree: DraftTree) -> Foresight:
        """See `Backend.foresee`."""
        now_s = self._now_s
        while tree.num_levels < plan.depth:
            level = self.draft_level(plan, tree)
            if len(level) == 0:
                break
            tree = tree.grow(level)
        self._now_s = now_s
        return Foresight(tree, self.node_targets(tree), self.node_routing(tree))

    def clock(self) -> float:
        """Return the simulated seconds."""
        return self._now_s

    def describe(self) -> dict[str, Any]:
        """See `Backend.describe`."""
        return {
            "backend": "toy",
            "seconds": "simulated",
            "model": "synthetic",
            "cache": type(self.cache).__name__,
            "capacity": self.cache.capacity,
            "profile": self.profile.name,
        }

    def node_routing(self, tree: DraftTree) -> NDArray[np.int16]:
        """Return the experts that the target would use at every node, int16[N, L, K]: an oracle."""
        return self.model.routing(tree.tokens, self._node_states(tree))

    def routing_of(self, selection: Selection) -> NDArray[np.int16]:
        """Return the experts that the target would use at selected nodes: an oracle."""
        return self.node_routing(selection.tree)[selection.nodes]

    def node_targets(self, tree: DraftTree) -> NDArray[np.int64]:
        """Return the target's own token after every node, int64[N]: an oracle."""
        return self._emit(self._node_states(tree), len(self._context) + tree.depths)[0]

    def _check_root(self, tree: DraftTree) -> None:
        if self._request is None:
            raise BackendError("the backend has no request. Call start first.")
        if tree.tokens[0] != self._context[-1]:
            raise BackendError(
                f"the root must be the last committed token, {self._context[-1]}; "
                f"got {tree.tokens[0]}. Build the tree from DraftTree.root(last token)."
            )

    def _node_states(self, tree: DraftTree) -> NDArray[np.uint64]:
        states: list[int] = []
        for parent, token in zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True):
            states.append(_mix(states[parent] if parent >= 0 else self._state, token))
        return np.array(states, np.uint64)

    def _rows(self, states: NDArray[np.uint64]) -> NDArray[np.intp]:
        return (states % np.uint64(self.model.num_contexts)).astype(np.intp)

    def _emit(
        self, states: NDArray[np.uint64], positions: NDArray[np.integer[Any]]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
        """Return the target's token after each context, its probability and its lead."""
        assert self._request is not None, "a request is running"
        logits = self.model.target_logits[self._rows(states)]
        return target_draws(logits, positions, self._request.sampling)

    def _run_pass(self, routing: NDArray[np.int16]) -> tuple[NDArray[np.int64], float, float]:
        """Bring in the experts of a pass and let its time go by; return counts, stall, compute."""
        counts = self.cache.run_pass(routing)
        stall_s, compute_s = pass_time(self.profile, len(routing), counts[0], counts[1])
        self._now_s += stall_s + compute_s
        return counts, stall_s, compute_s


def target_draws(
    logits: NDArray[np.float64], positions: NDArray[np.integer[Any]], sampling: Sampling
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
    """Return the token drawn at each position, its probability, and its lead over the runner-up.

    Parameters
    ----------
    logits : float64[n, V]
        The target's logits.
    positions : intp[n]
        Index of the emitted token in the whole text, prompt included.
    """
    processed = processed_logits(logits, sampling)
    noisy = processed
    if not sampling.is_greedy:
        size = logits.shape[1]
        noise = [gumbel_noise(sampling.noise_key, int(p), size) for p in positions]
        noisy = processed + np.stack(noise)
    tokens = np.argmax(noisy, axis=1)
    rows = np.arange(len(tokens))
    best_two = np.partition(noisy, -2, axis=1)[:, -2:]
    return (
        tokens.astype(np.int64),
        np.exp(_log_softmax(processed)[rows, tokens]).astype(np.float32),
        (best_two[:, 1] - best_two[:, 0]).astype(np.float32),
    )


def toy_backend(cache: str = "lru:50%", **model: Any) -> ToyBackend:
    """Return a toy backend of the example geometry; keywords go to `ToyModel`."""
    geometry = model.pop("geometry", None) or example_geometry()
    return ToyBackend(ToyModel(geometry, **model), make_cache(cache, geometry), example_profile())


def _log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def _mix(state: int, token: int) -> int:
    """Return the hash of a context that goes on with `token` (the finaliser of splitmix64)."""
    z = (state + (token + 1) * 0x9E3779B97F4A7C15) & _WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)


def _chain_states(state: int, tokens: tuple[int, ...]) -> NDArray[np.uint64]:
    states = []
    for token in tokens:
        state = _mix(state, token)
        states.append(state)
    return np.array(states, np.uint64)


def _chunks(num_tokens: int) -> tuple[int, ...]:
    whole, rest = divmod(num_tokens, PREFILL_CHUNK)
    return (PREFILL_CHUNK,) * whole + ((rest,) if rest else ())
