"""Drafting with a smaller model of its own, which shares the target's tokenizer."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from specfit.backends.drafter import Drafter, expanded_nodes, level_of
from specfit.backends.kv import KvCache
from specfit.core.errors import BackendError, CheckpointError
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree


class ModelDrafter(Drafter):
    """Drafts with any causal model of transformers, over its own key-value rows.

    Parameters
    ----------
    model : torch.nn.Module
        The draft model, with full attention in every layer.
    """

    name: ClassVar[str] = "model"

    def __init__(self, model: nn.Module) -> None:
        self._model = model.eval().requires_grad_(False)
        self._kv = KvCache(model.config.num_hidden_layers)
        accepted = inspect.signature(model.forward).parameters
        self._cache_argument = "cache" if "cache" in accepted else "past_key_values"
        self.reset()

    def reset(self) -> None:
        """See `Drafter.reset`."""
        self._text: list[int] = []
        self._num_known = 0  # tokens of the text whose rows are there
        self._expanded: list[int] = []  # nodes whose rows follow them
        self._num_drawn = 0
        self._kv.truncate(0)

    def start(self, token: int) -> None:
        """See `Drafter.start`."""
        self._text = [token]

    def rewind(self, num_pairs: int) -> bool:
        """See `Drafter.rewind`."""
        if num_pairs >= len(self._text):
            return False
        self._text = self._text[: num_pairs + 1]
        self._num_known = min(self._num_known, num_pairs)
        return True

    def extend(self, features: Tensor, next_tokens: list[int]) -> None:
        """See `Drafter.extend`."""
        self._text += next_tokens

    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        """See `Drafter.draft_level`."""
        nodes = expanded_nodes(plan, tree)
        log_probs = self._read_text() if len(tree) == 1 else self._expand(tree, nodes)
        best = log_probs.topk(min(plan.top_k, log_probs.shape[1]), dim=-1)
        entropies = -(log_probs.exp() * log_probs.clamp_min(-100)).sum(dim=-1)
        probs = best.values.exp().tolist()
        level = level_of(
            nodes, list(zip(best.indices.tolist(), probs, entropies.tolist(), strict=True))
        )
        self._num_drawn = len(tree) + len(level)
        return level

    def _read_text(self) -> Tensor:
        """Run the text that is new, and return the root's log probabilities [1, V]."""
        known = min(self._num_known, len(self._text) - 1)
        self._kv.truncate(known)
        self._expanded = []
        new = self._text[known:]
        positions = torch.arange(known, len(self._text))
        log_probs = self._run(torch.tensor(new), positions, None)[-1:]
        self._num_known = len(self._text)
        return log_probs

    def _expand(self, tree: DraftTree, nodes: NDArray[np.intp]) -> Tensor:
        if self._num_drawn != len(tree):
            raise BackendError(
                "a level must continue the tree drafted last. Start again from its root."
            )
        self._expanded += nodes.tolist()
        mask = np.ones((len(nodes), self._num_known + len(self._expanded)), bool)
        mask[:, self._num_known :] = tree.ancestor_mask[np.ix_(nodes, self._expanded)]
        positions = torch.from_numpy(self._num_known - 1 + tree.depths[nodes].astype(np.int64))
        visible = torch.from_numpy(mask)[None, None]
        return self._run(torch.from_numpy(tree.tokens[nodes]), positions, visible)

    def _run(self, tokens: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        where = self._model.device
        output = self._model(
            input_ids=tokens[None].to(where),
            position_ids=positions[None].to(where),
            attention_mask=None if mask is None else mask.to(where),
            use_cache=True,
            **{self._cache_argument: self._kv},
        )
        return output.logits[0].float().log_softmax(dim=-1)


def load_draft_model(folder: Path, target: Path, device: torch.device) -> ModelDrafter:
    """Return the drafter of a model folder, once its tokenizer is known to be the target's.

    Raises
    ------
    CheckpointError
        There is no model, its tokens have other ids than the target's, or a layer of it does not
        see the whole text.
    """
    try:
        ours = AutoTokenizer.from_pretrained(target).get_vocab()
        theirs = AutoTokenizer.from_pretrained(folder).get_vocab()
    except Exception as error:  # a damaged file raises what the library met first
        raise CheckpointError(f"{folder} cannot draft: no tokenizer to compare: {error}") from error
    wrong = [token for token, number in theirs.items() if ours.get(token) != number]
    if wrong:
        raise CheckpointError(
            f"{folder} cannot draft for {target}: {len(wrong)} of its {len(theirs)} tokens have "
            f"other ids, {wrong[0]!r} among them. A draft model must share the target's tokenizer."
        )
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa"
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder} cannot be loaded as a draft model: {error}") from error
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise CheckpointError(
            f"{folder} has layers of {sorted(kinds)}; trees are drafted with full attention only."
        )
    return ModelDrafter(model.to(device))
