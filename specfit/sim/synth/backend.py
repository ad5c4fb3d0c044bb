"""The synthetic model as something to record: it answers like a backend, but keeps no experts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Backend, Prefill, Request, Verification
from specfit.core.errors import BackendError, InvalidInputError, InvalidPlanError
from specfit.core.experts import Residency
from specfit.core.selection import Selection
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree, frontier
from specfit.sim.synth.drafts import NUM_RANKS, SynthDrafter
from specfit.sim.synth.parameters import Task
from specfit.sim.synth.texts import draw_prompt
from specfit.sim.synth.world import Contexts, RoutingWorld, Topic

PREFILL_CHUNK = 512
"""Tokens of a prefill pass."""


class SynthBackend(Backend):
    """Drafts and answers as a function of the tokens alone, greedily, in no time.

    It exists to be recorded: hits, misses and seconds are 0, since a replay counts its own.

    Parameters
    ----------
    world : RoutingWorld
        Which experts a context needs.
    drafter : SynthDrafter
        What is drafted, and what the target says to it.
    """

    def __init__(self, world: RoutingWorld, drafter: SynthDrafter) -> None:
        self.world = world
        self.drafter = drafter
        self.geometry = world.geometry
        self._topic: Topic | None = None
        self._before: Contexts | None = None  # the context without the root
        self._root = -1

    def start(self, request: Request) -> Prefill:
        """See `Backend.start`."""
        if not request.sampling.is_greedy:
            raise InvalidInputError(
                f"the synthetic model decodes greedily: temperature must be 0; "
                f"got {request.sampling.temperature}."
            )
        tokens = np.array(request.prompt, np.int64)
        if not (0 <= tokens.min() and tokens.max() < self.geometry.vocab_size):
            raise InvalidInputError(
                f"synthetic tokens are 0 to {self.geometry.vocab_size - 1}; "
                f"got {tokens.min()} to {tokens.max()}."
            )
        self._topic = self.world.topic(request.prompt)
        parents = np.arange(len(tokens), dtype=np.int32)
        contexts = self.world.grow(self.world.start(self._topic), parents, tokens)[1:]
        routing = self.world.route(self._topic, contexts, tokens, in_prompt=True)
        self._before = contexts[-1:]
        self._root = int(self.drafter.own_tokens(self._before.keys)[0])
        return Prefill(self._root, routing, _chunks(len(tokens)), 0.0)

    def residency(self) -> Residency:
        """See `Backend.residency`. No expert is kept."""
        return Residency.nothing(self.geometry)

    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        """See `Backend.draft_level`. Draws the pool of `DraftPlan`."""
        if plan.top_k > NUM_RANKS:
            raise InvalidPlanError(
                f"the synthetic drafter names {NUM_RANKS} tokens at most; got top_k={plan.top_k}."
            )
        parents = frontier(tree, plan.top_k)
        guesses = self.drafter.guess(self._contexts(tree).keys[parents], tree.depths[parents])
        width = plan.top_k
        return DraftLevel(
            parents=np.repeat(parents, width).astype(np.int32),
            tokens=guesses.tokens[:, :width].ravel(),
            log_probs=guesses.log_probs[:, :width].ravel(),
            ranks=np.tile(np.arange(width, dtype=np.int32), len(parents)),
            entropies=np.repeat(guesses.entropies, width),
        )

    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        """See `Backend.verify`."""
        nodes = selection.nodes
        contexts = self._contexts(tree)[nodes]
        routing = self._route(tree, nodes, contexts)
        probs = self.drafter.target_probs(contexts.keys)
        nothing = np.zeros(self.geometry.num_layers, np.int64)
        return Verification(
            nodes=nodes,
            target_tokens=self.drafter.own_tokens(contexts.keys),
            target_probs=probs.astype(np.float32),
            margins=_margins(probs),
            routing=routing,
            num_hits=nothing,
            num_misses=nothing,
            num_evictions=nothing,
            stall_s=0.0,
            compute_s=0.0,
        )

    def commit(
        self, tree: DraftTree, accepted: tuple[int, ...], committed: tuple[int, ...]
    ) -> None:
        """See `Backend.commit`."""
        last = accepted[-1] if accepted else 0
        self._before = self._contexts(tree)[np.array([last], np.intp)]
        self._root = committed[-1]

    def clock(self) -> float:
        """Return 0: no time goes by."""
        return 0.0

    def describe(self) -> dict[str, Any]:
        """See `Backend.describe`."""
        return {
            "backend": "synthetic",
            "model": "synthetic Qwen3-30B-A3B",
            "drafter": "synthetic EAGLE-3 head",
            "precision": "none: scores are drawn",
            "routing": asdict(self.world.parameters),
            "drafts": asdict(self.drafter),
        }

    def _route(
        self, tree: DraftTree, nodes: NDArray[np.intp], contexts: Contexts
    ) -> NDArray[np.int16]:
        """Return the experts of some nodes, whose contexts are given, int16[n, L, K]."""
        assert self._topic is not None, "a request is running"
        return self.world.route(self._topic, contexts, tree.tokens[nodes], in_prompt=False)

    def _contexts(self, tree: DraftTree) -> Contexts:
        """Return the context of each node, its own token included."""
        if self._before is None:
            raise BackendError("the backend has no request. Call start first.")
        if tree.tokens[0] != self._root:
            raise BackendError(
                f"the root must be the last committed token, {self._root}; got {tree.tokens[0]}."
            )
        parents = (tree.parents + 1).astype(np.int32)
        return self.world.grow(self._before, parents, tree.tokens)[1:]


def requests_of(task: Task, seed: int, num_prompts: int, max_new_tokens: int) -> list[Request]:
    """Return the requests of a task: prompts of drawn tokens, the same ones for the same seed."""
    rng = np.random.default_rng([seed, *task.name.encode()])
    return [
        Request(draw_prompt(rng, task.prompt_tokens), max_new_tokens) for _ in range(num_prompts)
    ]


def _margins(probs: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the lead in logits of a token of this probability over all others together, if any."""
    lead = np.log(probs) - np.log1p(-np.minimum(probs, 1.0 - 1e-9))
    margins: NDArray[np.float32] = np.maximum(lead, 0.01).astype(np.float32)
    return margins


def _chunks(num_tokens: int) -> tuple[int, ...]:
    whole, rest = divmod(num_tokens, PREFILL_CHUNK)
    return (PREFILL_CHUNK,) * whole + ((rest,) if rest else ())
