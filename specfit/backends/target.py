"""The target: the stock Qwen3-MoE model of transformers with its experts modules replaced.

Runs tokens over the key-value cache and hands out logits, features for the draft head and the
routing. Nothing is patched globally: another model of the same process stays as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import Qwen3MoeForCausalLM

from specfit.backends.checkpoint import Checkpoint
from specfit.backends.expert_layout import ExpertLayout
from specfit.backends.experts import OffloadedExperts
from specfit.backends.experts_compiled import make_experts
from specfit.backends.kv import KvCache, tree_mask
from specfit.backends.store import ExpertStore
from specfit.core.errors import CheckpointError

ATTENTION = "sdpa"


@dataclass(frozen=True, eq=False)
class TargetPass:
    """A pass: hidden [n, D] after the last norm, features [n, F], routing int16[n, L, K]."""

    hidden: Tensor
    features: Tensor
    routing: NDArray[np.int16]


class Target:
    """The target model over an expert store.

    Parameters
    ----------
    checkpoint : Checkpoint
        Where the model comes from.
    weights : dict of str to Tensor
        Every tensor but the experts'.
    store : ExpertStore
        Provides the experts.
    layout : ExpertLayout
        How they lie in their slots.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        weights: dict[str, Tensor],
        store: ExpertStore,
        layout: ExpertLayout,
    ) -> None:
        self.store = store
        self.model = _build(checkpoint, weights, store, layout).to(store.device.torch_device)
        self.kv = KvCache(store.geometry.num_layers)
        self._experts: list[OffloadedExperts] = [
            layer.mlp.experts for layer in self.model.model.layers
        ]
        self._features: list[Tensor] = []
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        accepted = inspect.signature(self.model.model.forward).parameters
        self._cache_argument = "cache" if "cache" in accepted else "past_key_values"

    def use_store(self, store: ExpertStore) -> None:
        """Take experts from this store from now on."""
        self.store = store
        for experts in self._experts:
            experts.use_store(store)

    def capture(self, layer_ids: Sequence[int]) -> None:
        """Make the outputs of these layers, in this order, the features of every pass."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = [
            self.model.model.layers[layer].register_forward_hook(self._keep_output)
            for layer in layer_ids
        ]

    def run(self, tokens: Sequence[int]) -> TargetPass:
        """Run tokens that follow one another, behind those in the cache."""
        first = self.kv.num_rows
        positions = torch.arange(first, first + len(tokens))
        return self._run(torch.tensor(tokens), positions, None)

    def run_tree(
        self, tokens: NDArray[np.int64], depths: NDArray[np.int32], ancestors: NDArray[np.bool_]
    ) -> TargetPass:
        """Run the nodes of a tree, root first, behind the tokens in the cache.

        Parameters
        ----------
        tokens : int64[n]
            Token ids.
        depths : int32[n]
            Depth below the root; the position is the cache's length plus it.
        ancestors : bool[n, n]
            Whether node j lies on the path to node i, itself included.
        """
        if len(tokens) == 1:
            return self.run(tokens.tolist())
        rows = self.kv.num_rows
        positions = torch.from_numpy(rows + depths.astype(np.int64))
        mask = tree_mask(ancestors, rows, ATTENTION)
        return self._run(torch.tensor(tokens), positions, mask)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return float32 logits [n, V] of final hidden states [n, D]."""
        return self.model.lm_head(hidden).float()

    def where_not_finite(self) -> str:
        """Say where the last pass first left the finite numbers, as its keys tell."""
        last = self.store.geometry.num_layers - 1
        bad = (i for i, layer in enumerate(self.kv.layers) if not layer.is_finite())
        first = next(bad, None)
        if first == 0:
            return "They leave the finite numbers in the embedding or in layer 0's attention."
        return f"They leave the finite numbers in layer {last if first is None else first - 1}."

    def _run(self, tokens: Tensor, positions: Tensor, mask: Tensor | None) -> TargetPass:
        self._features = []
        self.store.begin_pass()
        where = self.store.device.torch_device
        output = self.model.model(
            input_ids=tokens[None].to(where),
            position_ids=positions[None].to(where),
            attention_mask=None if mask is None else mask.to(where),
            use_cache=True,
            **{self._cache_argument: self.kv},
        )
        self.store.end_pass()
        routing = np.stack([experts.routing for experts in self._experts], axis=1)
        hidden = output.last_hidden_state[0]
        features = torch.cat(self._features, dim=-1)[0] if self._hooks else hidden[:, :0]
        return TargetPass(hidden, features, routing.astype(np.int16))

    def _keep_output(self, module: torch.nn.Module, inputs: object, output: Tensor) -> None:
        self._features.append(output)


def _build(
    checkpoint: Checkpoint, weights: dict[str, Tensor], store: ExpertStore, layout: ExpertLayout
) -> Qwen3MoeForCausalLM:
    config = checkpoint.config
    config._attn_implementation = ATTENTION
    with torch.device("meta"):
        model = Qwen3MoeForCausalLM(config)
    for index, layer in enumerate(model.model.layers):
        layer.mlp.experts = make_experts(index, store, layout, config, layer.mlp.experts.act_fn)
    if config.tie_word_embeddings:
        weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
    try:
        model.load_state_dict(weights, strict=True, assign=True)
    except RuntimeError as error:
        raise CheckpointError(
            f"{checkpoint.folder} does not fit its configuration: {error}"
        ) from None
    rotary = model.model.rotary_emb
    model.model.rotary_emb = type(rotary)(config)  # its buffers are not in the checkpoint
    return model.eval().requires_grad_(False)
