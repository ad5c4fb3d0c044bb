"""What the target and its head do on given texts: what selection's inputs are fitted on.

A text is run once. The head is unrolled along it, as if a chain had been drafted from every
position; the target's own next token says whether a drafted one was right. Wrong candidates are run
by the target too, each on the text before it, so that rejected nodes' routing is known as well.
Shapes: T tokens, X wrong candidates, L MoE layers, K experts a token, Vd draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache, Qwen3MoeForCausalLM

from head import Lesson, unroll
from head_model import Eagle3Head
from specfit.policies.acceptance._repeats import longest_run
from specfit.policies.fitting.acceptance_curves import AcceptanceSample
from specfit.policies.fitting.routing_sample import RoutingSample
from specfit.policies.predictors.expert_table import NO_PARENT
from specfit.sim.metrics import distinct_4

MAX_DEPTH = 8
TOP_K = 10
WRONG_PER_TOKEN = 2
LOOPING = 0.5


@dataclass(frozen=True)
class Text:
    """Token ids [T]; the first ``num_prompt`` were given, the target wrote the rest."""

    tokens: Tensor
    num_prompt: int

    @property
    def loops(self) -> bool:
        """Whether what the target wrote repeats itself."""
        return distinct_4(self.tokens[self.num_prompt :].tolist()) < LOOPING


@dataclass(frozen=True)
class Drafts:
    """The head's children along a text: depth d (from 1) of the chain whose child is token t.

    log_probs and tokens [MAX_DEPTH, T, TOP_K], entropies [MAX_DEPTH, T]; what lies before a depth's
    first pair is NaN.
    """

    log_probs: NDArray[np.float32]
    tokens: NDArray[np.int64]
    entropies: NDArray[np.float32]


class Watcher:
    """Runs texts through the target and collects its routing and the head's drafts."""

    def __init__(self, target: Qwen3MoeForCausalLM, head: Eagle3Head, rng: np.random.Generator):
        self.target = target
        self.head = head
        self.rng = rng
        self._routed: list[Tensor] = []
        for layer in target.model.layers:
            layer.mlp.gate.register_forward_hook(
                lambda _m, _i, output: self._routed.append(output[2])
            )

    @torch.inference_mode()
    def drafts(self, text: Text) -> tuple[Drafts, NDArray[np.int16], DynamicCache]:
        """The head's children along a text, the text's routing [T, L, K] and its cache."""
        cache = DynamicCache(config=self.target.config)
        output, routing = self._run(
            text.tokens, past_key_values=cache, use_cache=True, output_hidden_states=True
        )
        states = [output.hidden_states[i + 1] for i in self.head.config.aux_layer_ids]
        embeddings = self.target.model.embed_tokens(text.tokens[None])
        features = torch.cat(states, dim=-1)
        lesson = Lesson(embeddings, features, output.logits, torch.ones(0))
        return self._children(lesson, len(text.tokens)), routing, cache

    @torch.inference_mode()
    def wrong_routing(self, cache: DynamicCache, places: Tensor, tokens: Tensor) -> NDArray:
        """Routing [X, L, K] of tokens [X] put at places [X] of the cached text, each alone."""
        num_text, num_wrong = cache.get_seq_length(), len(tokens)
        before = torch.arange(num_text)[None] < places[:, None]
        mask = torch.cat([before, torch.eye(num_wrong, dtype=torch.bool)], dim=1)
        _, routing = self._run(
            tokens,
            past_key_values=cache,
            position_ids=places[None],
            attention_mask=mask[None, None],
            use_cache=True,
        )
        return routing

    def _run(self, tokens: Tensor, **inputs):
        self._routed.clear()
        output = self.target(input_ids=tokens[None], **inputs)
        routing = torch.stack(self._routed, dim=1)
        return output, routing.to(torch.int16).numpy()

    def _children(self, lesson: Lesson, num_tokens: int) -> Drafts:
        shape = (MAX_DEPTH, num_tokens)
        log_probs = np.full((*shape, TOP_K), np.nan, np.float32)
        tokens = np.zeros((*shape, TOP_K), np.int64)
        entropies = np.zeros(shape, np.float32)
        for step, (logits, _) in enumerate(unroll(self.head, lesson, MAX_DEPTH)):
            logs = logits[0, :-1].log_softmax(dim=-1)  # the last pair predicts past the text
            best = logs.topk(TOP_K, dim=-1)
            children = slice(step + 2, step + 2 + len(logs))
            log_probs[step, children] = best.values.clamp(max=0.0).numpy()
            tokens[step, children] = self.head.draft_target_ids()[best.indices].numpy()
            entropies[step, children] = -(logs.exp() * logs).sum(dim=-1).numpy()
        return Drafts(log_probs, tokens, entropies)


def acceptance_sample(texts: Iterable[Text], drafts: Iterable[Drafts]) -> AcceptanceSample:
    """The children of nodes on the true path, rooted in what the target wrote itself.

    A parent counts if the chain to it was drafted: each of its tokens among the best ``TOP_K``.
    """
    columns: list[tuple[NDArray, ...]] = []
    for text, draft in zip(texts, drafts, strict=True):
        is_hit = draft.tokens == text.tokens.numpy()[None, :, None]
        is_hit &= ~np.isnan(draft.log_probs)
        drafted = is_hit.any(axis=2)  # [MAX_DEPTH, T]
        for depth in range(1, MAX_DEPTH + 1):
            children = np.arange(text.num_prompt + depth, len(text.tokens))
            for above in range(1, depth):
                children = children[drafted[above - 1, children - (depth - above)]]
            columns.append(
                _columns(draft, is_hit, depth, children)
                + _repetition(text, draft, depth, children)
                + (np.full(len(children) * TOP_K, text.loops),)
            )
    return AcceptanceSample(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def _repetition(
    text: Text, draft: Drafts, depth: int, children: NDArray
) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """What the written text says of each child, and the run at its root, as `AcceptanceSample`."""
    written = text.tokens.numpy()[text.num_prompt :]
    repeats = np.zeros((len(children), TOP_K), np.int8)
    runs = np.zeros(len(children), np.int8)
    for row, child in enumerate(children.tolist()):
        root = child - text.num_prompt - depth
        runs[row], _ = longest_run(written, root, root)
        length, follower = longest_run(written, root, root + depth - 1)
        agrees = draft.tokens[depth - 1, child] == follower
        repeats[row] = np.where(agrees, length, -length)
    return repeats.reshape(-1), np.repeat(runs, TOP_K)


def _columns(draft: Drafts, is_hit: NDArray, depth: int, children: NDArray) -> tuple[NDArray, ...]:
    num_nodes = len(children) * TOP_K
    return (
        np.full(num_nodes, depth, np.int32),
        np.tile(np.arange(TOP_K, dtype=np.int32), len(children)),
        draft.log_probs[depth - 1, children].reshape(-1),
        np.repeat(draft.entropies[depth - 1, children], TOP_K),
        is_hit[depth - 1, children].reshape(-1),
    )


@dataclass(frozen=True)
class TextNodes:
    """Nodes of one text: places of their roots in it, and as in ``RoutingSample``."""

    tokens: NDArray[np.int64]
    parent_tokens: NDArray[np.int64]
    depths: NDArray[np.int32]
    roots: NDArray[np.int64]
    routing: NDArray[np.int16]


def text_nodes(
    watcher: Watcher, text: Text, draft: Drafts, routing: NDArray, cache: DynamicCache
) -> TextNodes:
    """The text's own tokens and the head's best wrong ones, each at a depth drawn at random."""
    own = np.arange(max(text.num_prompt, 1), len(text.tokens))
    own_depths = np.minimum(watcher.rng.integers(0, MAX_DEPTH, len(own)), own)
    places = np.repeat(own[own >= 2], WRONG_PER_TOKEN)
    depths = watcher.rng.integers(1, np.minimum(MAX_DEPTH, places - 1) + 1)
    wrong = _best_wrong(draft, text.tokens.numpy(), places, depths)
    wrong_routing = watcher.wrong_routing(cache, torch.from_numpy(places), torch.from_numpy(wrong))
    tokens = text.tokens.numpy()
    all_places, all_depths = np.append(own, places), np.append(own_depths, depths)
    return TextNodes(
        tokens=np.append(tokens[own], wrong),
        parent_tokens=np.where(all_depths == 0, NO_PARENT, tokens[all_places - 1]),
        depths=all_depths.astype(np.int32),
        roots=all_places - all_depths,
        routing=np.concatenate([routing[own], wrong_routing]),
    )


def _best_wrong(draft: Drafts, tokens: NDArray, places: NDArray, depths: NDArray) -> NDArray:
    """The candidates of rank 0, 1, .. at each place that are not the text's token."""
    candidates = draft.tokens[depths - 1, places]  # [X, TOP_K]
    order = np.argsort(candidates == tokens[places, None], axis=1, kind="stable")
    turn = np.arange(len(places)) % WRONG_PER_TOKEN
    return candidates[np.arange(len(places)), order[np.arange(len(places)), turn]]


def routing_sample(streams: list[NDArray[np.int16]], nodes: list[TextNodes]) -> RoutingSample:
    """Join the nodes of texts, each with the routing of all its tokens [T, L, K]."""
    lengths = [len(stream) for stream in streams]
    starts = np.cumsum([0, *lengths[:-1]])
    return RoutingSample(
        stream=np.concatenate(streams),
        texts=np.repeat(np.arange(len(streams), dtype=np.int32), lengths),
        tokens=np.concatenate([n.tokens for n in nodes]),
        parent_tokens=np.concatenate([n.parent_tokens for n in nodes]),
        depths=np.concatenate([n.depths for n in nodes]),
        roots=np.concatenate([n.roots + s for n, s in zip(nodes, starts, strict=True)]),
        routing=np.concatenate([n.routing for n in nodes]),
        follows=np.ones(sum(len(n.tokens) for n in nodes), bool),
    )
