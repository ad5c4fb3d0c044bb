"""The EAGLE-3 drafter: one decoder layer that reads the target's features and drafts by levels.

Pair i is the feature of token i with the embedding of token i + 1. The head keeps one row of keys
and values for each pair of the committed text, always from the target's own features, and temporary
rows for the nodes that it expanded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from specfit.backends.eagle3_checkpoint import HeadCheckpoint
from specfit.core.errors import BackendError
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree, frontier

CATCH_UP_PAIRS = 512
INITIAL_ROWS = 1024


class Eagle3Head:
    """The head's arithmetic, over its own key-value rows.

    Parameters
    ----------
    checkpoint : HeadCheckpoint
        Weights and constants.
    embedding : Tensor [V, D]
        The target's embedding; used when the head brings none.
    """

    def __init__(self, checkpoint: HeadCheckpoint, embedding: Tensor) -> None:
        tensors = checkpoint.tensors
        self.checkpoint = checkpoint
        self.embedding = tensors.get("embed_tokens.weight", embedding)
        attention = "layer.self_attn."
        self._qkv = torch.cat([tensors[f"{attention}{x}_proj.weight"] for x in "qkv"])
        self._gate_up = torch.cat([tensors[f"layer.mlp.{x}_proj.weight"] for x in ("gate", "up")])
        kv_rows = tensors[f"{attention}k_proj.weight"].shape[0]
        self.num_kv_heads = kv_rows // checkpoint.head_dim
        self._widths = [checkpoint.num_heads * checkpoint.head_dim, kv_rows, kv_rows]
        shape = (1, self.num_kv_heads, INITIAL_ROWS, checkpoint.head_dim)
        self._keys, self._values = torch.empty(shape), torch.empty(shape)
        self._cos, self._sin = self._rotary_table(INITIAL_ROWS)
        self.num_rows = 0

    def project(self, features: Tensor) -> Tensor:
        """Return hidden states [P, D] for target features [P, F]."""
        if "input_norm.weight" in self.checkpoint.tensors:
            features = self._norm(features, "input_norm.weight")
        return F.linear(features.float(), self.checkpoint.tensors["fc.weight"])

    def forward(self, tokens: Tensor, hidden: Tensor, first: int, mask: Tensor | None) -> Tensor:
        """Append one row for each pair and return the new hidden states [P, D].

        Parameters
        ----------
        tokens : int64 Tensor [P]
            The later token of each pair.
        hidden : Tensor [P, D]
            Projected features, or the hidden states of the parents.
        first : int
            Position of the pairs if they stand side by side (a drafted level), or of the first one
            if they follow one another (`mask` is None).
        mask : bool Tensor [P, rows + P], optional
            Rows that each pair sees; None where it sees all before it and itself.
        """
        tensors = self.checkpoint.tensors
        normed = self._norm(hidden, "layer.hidden_norm.weight")
        embedded = F.embedding(tokens, self.embedding).float()
        embedded = self._norm(embedded, "layer.input_layernorm.weight")
        inputs = torch.cat([embedded, normed], dim=-1)
        residual = normed if self.checkpoint.norm_before_residual else hidden
        hidden = residual + self._attend(inputs, first, mask)
        inner = self._norm(hidden, "layer.post_attention_layernorm.weight")
        gate, up = F.linear(inner, self._gate_up).chunk(2, dim=-1)
        return hidden + F.linear(F.silu(gate) * up, tensors["layer.mlp.down_proj.weight"])

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [P, Vd] over the draft vocabulary."""
        return F.linear(
            self._norm(hidden, "norm.weight"), self.checkpoint.tensors["lm_head.weight"]
        )

    def truncate(self, num_rows: int) -> None:
        """Keep the first `num_rows` rows."""
        self.num_rows = min(self.num_rows, num_rows)

    def _attend(self, inputs: Tensor, first: int, mask: Tensor | None) -> Tensor:
        count, width = len(inputs), self.checkpoint.head_dim
        query, key, value = (
            part.view(1, count, -1, width).transpose(1, 2)
            for part in F.linear(inputs, self._qkv).split(self._widths, dim=-1)
        )
        if "layer.self_attn.q_norm.weight" in self.checkpoint.tensors:
            query = self._norm(query, "layer.self_attn.q_norm.weight")
            key = self._norm(key, "layer.self_attn.k_norm.weight")
        last = self.num_rows + count
        self._reserve(last)
        places = slice(first, first + count) if mask is None else slice(first, first + 1)
        cos, sin = self._cos[places], self._sin[places]
        self._keys[:, :, self.num_rows : last] = _rotate(key, cos, sin)
        self._values[:, :, self.num_rows : last] = value
        if mask is None and count > 1:
            mask = torch.ones(count, last, dtype=torch.bool).tril_(self.num_rows)
        self.num_rows = last
        attended = F.scaled_dot_product_attention(
            _rotate(query, cos, sin),
            self._keys[:, :, :last],
            self._values[:, :, :last],
            attn_mask=mask,
            enable_gqa=True,
        )
        flat = attended.transpose(1, 2).reshape(count, -1)
        return F.linear(flat, self.checkpoint.tensors["layer.self_attn.o_proj.weight"])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight = self.checkpoint.tensors[name]
        return F.rms_norm(x, weight.shape, weight, self.checkpoint.rms_norm_eps)

    def _reserve(self, rows: int) -> None:
        size = self._keys.shape[2]
        if rows <= size:
            return
        size = max(rows, 2 * size)
        old_keys, old_values = self._keys, self._values
        shape = (1, self.num_kv_heads, size, self.checkpoint.head_dim)
        self._keys, self._values = torch.empty(shape), torch.empty(shape)
        self._keys[:, :, : self.num_rows] = old_keys[:, :, : self.num_rows]
        self._values[:, :, : self.num_rows] = old_values[:, :, : self.num_rows]
        self._cos, self._sin = self._rotary_table(size)

    def _rotary_table(self, size: int) -> tuple[Tensor, Tensor]:
        half = self.checkpoint.head_dim // 2
        exponents = -torch.arange(half, dtype=torch.float32) / half
        angles = torch.arange(size)[:, None].float() * self.checkpoint.rope_theta**exponents
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos(), angles.sin()


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sin


@dataclass
class _Drawn:
    """The tree being drafted, by its X expanded nodes, the root first."""

    num_nodes: int
    places: dict[int, int]  # expanded node -> place among the expanded
    lineage: NDArray[np.bool_]  # [X, X], whether place j is on the path to place i, itself included
    hidden: Tensor  # [X, D]

    @classmethod
    def root(cls, hidden: Tensor) -> _Drawn:
        """Return the tree whose root was expanded, with its hidden state [1, D]."""
        return cls(1, {0: 0}, np.ones((1, 1), bool), hidden)

    def add(self, nodes: NDArray[np.intp], parents: list[int]) -> NDArray[np.bool_]:
        """Expand nodes whose parents are at these places; return their rows of the lineage."""
        known, count = len(self.lineage), len(nodes)
        lineage = np.zeros((known + count, known + count), bool)
        lineage[:known, :known] = self.lineage
        lineage[known:, :known] = self.lineage[parents]
        lineage[known:, known:] = np.eye(count, dtype=bool)
        self.lineage = lineage
        self.places.update((node, known + i) for i, node in enumerate(nodes.tolist()))
        return lineage[known:]


class Eagle3Drafter:
    """Drafts trees for one text at a time.

    Parameters
    ----------
    head : Eagle3Head
        The head.
    """

    def __init__(self, head: Eagle3Head) -> None:
        self.head = head
        self.reset()

    @property
    def aux_layer_ids(self) -> tuple[int, ...]:
        """Target layers whose outputs the head reads."""
        return self.head.checkpoint.aux_layer_ids

    def reset(self) -> None:
        """Forget the text."""
        self.head.truncate(0)
        self._num_pairs = 0
        self._pending: list[tuple[Tensor, list[int]]] = []
        self._last_hidden: Tensor | None = None
        self._drawn: _Drawn | None = None

    def extend(self, features: Tensor, next_tokens: list[int]) -> None:
        """Take note of committed pairs: features [P, F] and the token after each of them."""
        self._pending.append((features, next_tokens))

    def catch_up(self) -> None:
        """Run the head over all pairs that it has not seen yet."""
        self.head.truncate(self._num_pairs)
        self._drawn = None
        if not self._pending:
            return
        features = torch.cat([rows for rows, _ in self._pending])
        tokens = torch.tensor([token for _, part in self._pending for token in part])
        for some, their in zip(
            features.split(CATCH_UP_PAIRS), tokens.split(CATCH_UP_PAIRS), strict=True
        ):
            hidden = self.head.forward(their, self.head.project(some), self._num_pairs, None)
            self._num_pairs += len(their)
        self._last_hidden = hidden[-1:]
        self._pending = []

    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        """Return the next level: the root's children, or those of the best newest nodes."""
        if len(tree) == 1:
            self.catch_up()
            nodes = np.zeros(1, np.intp)
            hidden = self._last_hidden
            assert hidden is not None, "a text has at least one pair"
            self._drawn = drawn = _Drawn.root(hidden)
        else:
            drawn = self._drawn_tree(tree)
            nodes = frontier(tree, plan.top_k)
            hidden = self._expand(tree, drawn, nodes)
        level = self._children(nodes, hidden, plan.top_k)
        drawn.num_nodes = len(tree) + len(level)
        return level

    def _drawn_tree(self, tree: DraftTree) -> _Drawn:
        if self._drawn is None or self._drawn.num_nodes != len(tree):
            raise BackendError(
                "a level must continue the tree drafted last. Start again from its root."
            )
        return self._drawn

    def _expand(self, tree: DraftTree, drawn: _Drawn, nodes: NDArray[np.intp]) -> Tensor:
        """Run the head on tree nodes of one depth and return their hidden states."""
        parents = [drawn.places[parent] for parent in tree.parents[nodes].tolist()]
        lineage = drawn.add(nodes, parents)
        mask = np.ones((len(nodes), self._num_pairs + lineage.shape[1] - 1), bool)
        mask[:, self._num_pairs :] = lineage[:, 1:]  # the root's row is a committed pair's
        hidden = self.head.forward(
            torch.from_numpy(tree.tokens[nodes]),
            drawn.hidden.index_select(0, torch.tensor(parents)),
            self._num_pairs - 1 + int(tree.depths[nodes[0]]),
            torch.from_numpy(mask),
        )
        drawn.hidden = torch.cat([drawn.hidden, hidden])
        return hidden

    def _children(self, nodes: NDArray[np.intp], hidden: Tensor, top_k: int) -> DraftLevel:
        log_probs = F.log_softmax(self.head.logits(hidden), dim=-1)  # [n, Vd]
        entropies = -(log_probs.exp() * log_probs).sum(dim=-1)
        count = min(top_k, log_probs.shape[-1])
        best = log_probs.topk(count, dim=-1)
        tokens = self.head.checkpoint.target_ids[best.indices]
        return DraftLevel(
            parents=np.repeat(nodes.astype(np.int32), count),
            tokens=tokens.reshape(-1).numpy(),
            log_probs=np.minimum(best.values.reshape(-1).numpy(), 0.0),
            ranks=np.arange(len(nodes) * count, dtype=np.int32) % count,
            entropies=np.repeat(entropies.numpy(), count),
        )
