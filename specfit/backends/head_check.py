"""How well a draft head fits its target, and whether another wiring of it would fit better.

Most wrong settings of a head are quiet: it drafts, and is accepted less. So the few alternatives
are tried on text that the target wrote itself, each by what it is for: tokens committed a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specfit.backends.eagle3 import Eagle3Drafter
from specfit.backends.eagle3_checkpoint import HeadCheckpoint
from specfit.backends.eagle3_compiled import make_head
from specfit.backends.target import Target
from specfit.core.errors import CheckpointError
from specfit.core.tree import DraftPlan, DraftTree

CHAIN = DraftPlan(depth=5, top_k=1, max_nodes=6)
THETAS = (10_000.0, 1_000_000.0)
CLEARLY = 1.02
"""How much better another wiring must be to be recommended."""
SUSPICIOUS = 0.3
"""Below this agreement at step 0 a head is wired wrongly, or belongs to another target."""


@dataclass(frozen=True)
class Fit:
    """How well a wiring drafts.

    Parameters
    ----------
    agreement : float
        Share of positions at which the head's first token is the target's, fed with the target's
        own features.
    tokens_per_pass : float
        Committed tokens a pass with chains of `CHAIN`, the target's own token included.
    """

    agreement: float
    tokens_per_pass: float


@dataclass(frozen=True, eq=False)
class Written:
    """A text that the target wrote, with what its layers gave on the way.

    Parameters
    ----------
    tokens : list of int
        Prompt and continuation.
    features : Tensor [T, L, D]
        What each layer gave at each position.
    num_prompt : int
        Tokens of the prompt.
    """

    tokens: list[int]
    features: Tensor
    num_prompt: int


@dataclass(frozen=True, eq=False)
class HeadReport:
    """What was tried.

    Parameters
    ----------
    as_read : Fit
        The wiring that the head's files say.
    rows : list of (dict, Fit)
        Every wiring that was tried: the settings that differ, and how it fits.
    best : dict
        The settings to override; empty where nothing is clearly better.
    """

    as_read: Fit
    rows: list[tuple[dict[str, Any], Fit]]
    best: dict[str, Any]


@torch.inference_mode()
def write_texts(target: Target, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[Written]:
    """Let the target continue prompts greedily, and keep what all of its layers gave."""
    layers = target.store.geometry.num_layers
    target.capture(range(layers))
    texts = []
    for prompt in prompts:
        target.kv.truncate(0)
        tokens, parts, new = list(prompt), [], list(prompt)
        for _ in range(num_tokens):
            result = target.run(new)
            parts.append(result.features.view(len(new), layers, -1).cpu())
            new = [int(target.logits(result.hidden[-1:]).argmax())]
            tokens += new
        texts.append(Written(tokens[:-1], torch.cat(parts), len(prompt)))
    return texts


@torch.inference_mode()
def fit_of(head: HeadCheckpoint, embedding: Tensor, texts: Sequence[Written]) -> Fit:
    """Return how well a wiring of a head drafts the texts."""
    drafter = Eagle3Drafter(make_head(head, embedding))
    right = asked = committed = passes = 0
    for text in texts:
        drafter.reset()
        features = text.features[:, list(head.aux_layer_ids)].flatten(1).to(embedding.device)
        tokens, known = text.tokens, 0
        place = text.num_prompt
        while place < len(tokens) - CHAIN.depth:
            drafter.extend(features[known:place], tokens[known + 1 : place + 1])
            known = place
            drafted = _chain(drafter, tokens[place])
            wanted = tokens[place + 1 : place + 1 + len(drafted)]
            matches = int((np.cumprod(np.equal(drafted, wanted))).sum())
            right, asked = right + (matches > 0), asked + 1
            committed, passes = committed + matches + 1, passes + 1
            place += matches + 1
    return Fit(right / max(asked, 1), committed / max(passes, 1))


def check_head(
    head: HeadCheckpoint,
    embedding: Tensor,
    texts: Sequence[Written],
    on_step: Callable[[dict[str, Any]], None] | None = None,
) -> HeadReport:
    """Try the alternatives of a head's wiring, one setting after another.

    Parameters
    ----------
    head : HeadCheckpoint
        As its files say.
    embedding : Tensor [V, D]
        The target's.
    texts : sequence of Written
        Text of the target's own.
    on_step : callable, optional
        Called before each wiring is tried, with its settings.

    Raises
    ------
    CheckpointError
        The texts are too short to draft in.
    """
    if all(len(t.tokens) - t.num_prompt <= CHAIN.depth for t in texts):
        raise CheckpointError(
            f"the target's texts must be longer than {CHAIN.depth} tokens to measure a head on."
        )
    num_layers = texts[0].features.shape[1]
    as_read = best_fit = fit_of(head, embedding, texts)
    rows: list[tuple[dict[str, Any], Fit]] = [({}, as_read)]
    best: dict[str, Any] = {}
    for alternatives in _alternatives(head, num_layers):
        won = best
        for change in alternatives:
            settings = {**best, **change}
            if on_step is not None:
                on_step(settings)
            fit = fit_of(replace(head, **settings), embedding, texts)
            rows.append((settings, fit))
            if fit.tokens_per_pass > CLEARLY * best_fit.tokens_per_pass:
                best_fit, won = fit, settings
        best = won
    return HeadReport(as_read, rows, best)


def _alternatives(head: HeadCheckpoint, num_layers: int) -> Iterator[list[dict[str, Any]]]:
    """Yield, setting by setting, what else it might be."""
    shifted = [tuple(i + step for i in head.aux_layer_ids) for step in (-1, 1)]
    inside = [ids for ids in shifted if min(ids) >= 0 and max(ids) < num_layers]
    yield [{"aux_layer_ids": ids} for ids in inside]
    yield [{"rope_theta": theta} for theta in THETAS if theta != head.rope_theta]
    yield [{"norm_before_residual": not head.norm_before_residual}]
    yield [{"feeds_normed": not head.feeds_normed}]


def _chain(drafter: Eagle3Drafter, root: int) -> list[int]:
    """Return the drafted chain below a token."""
    tree = DraftTree.root(root)
    for _ in range(CHAIN.depth):
        tree = tree.grow(drafter.draft_level(CHAIN, tree))
    tokens: list[int] = tree.tokens[1:].tolist()
    return tokens
