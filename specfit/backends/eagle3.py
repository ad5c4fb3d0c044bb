"""The EAGLE-3 drafter: one decoder layer that reads the target's features and drafts by levels.

Pair i is the feature of token i with the embedding of token i + 1. The head keeps one row of keys
and values for each pair of the committed text, always from the target's own features, and temporary
rows for the nodes that it expanded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from specfit.backends.drafter import Drafter
from specfit.backends.eagle3_checkpoint import HeadCheckpoint
from specfit.core.errors import BackendError
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree, frontier

CATCH_UP_PAIRS = 512
INITIAL_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Best:
    """Next tokens int64[P, k] by target id, their log probabilities, and entropies float32[P]."""

    tokens: NDArray[np.int64]
    log_probs: NDArray[np.float32]
    entropies: NDArray[np.float32]


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
        tensors = {k: v.to(embedding.device) for k, v in checkpoint.tensors.items()}
        attention, mlp = "layer.self_attn.", "layer.mlp."
        self.checkpoint = checkpoint
        self.target_ids = checkpoint.target_ids.to(embedding.device)
        self.embedding = tensors.get("embed_tokens.weight", embedding)
        self._norms = {name: weight for name, weight in tensors.items() if "norm" in name}
        self._fc = _columns(tensors["fc.weight"])
        self._qkv = _columns(*(tensors[f"{attention}{x}_proj.weight"] for x in "qkv"))
        self._out = _columns(tensors[f"{attention}o_proj.weight"])
        self._gate_up = _columns(*(tensors[f"{mlp}{x}_proj.weight"] for x in ("gate", "up")))
        self._down = _columns(tensors[f"{mlp}down_proj.weight"])
        self._lm_head = _columns(tensors["lm_head.weight"])
        self._biases = {
            "qkv": _bias(tensors, *(f"{attention}{x}_proj" for x in "qkv")),
            "out": _bias(tensors, f"{attention}o_proj"),
            "gate_up": _bias(tensors, f"{mlp}gate_proj", f"{mlp}up_proj"),
            "down": _bias(tensors, f"{mlp}down_proj"),
        }
        self._num_kv_heads = len(tensors[f"{attention}k_proj.weight"]) // checkpoint.head_dim
        self.num_rows = 0
        self._allocate(INITIAL_ROWS)

    def project(self, features: Tensor) -> Tensor:
        """Return hidden states [P, D] for target features [P, F]."""
        features = features.float()
        if "fc_norm.0.weight" in self._norms:
            parts = features.chunk(len(self.checkpoint.aux_layer_ids), dim=-1)
            features = torch.cat(
                [self._norm(part, f"fc_norm.{i}.weight") for i, part in enumerate(parts)], dim=-1
            )
        if "input_norm.weight" in self._norms:
            features = self._norm(features, "input_norm.weight")
        return features @ self._fc

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
        embedded = F.embedding(tokens, self.embedding).float()
        embedded = self._norm(embedded, "layer.input_layernorm.weight")
        normed = self._norm(hidden, "layer.hidden_norm.weight")
        residual = normed if self.checkpoint.norm_before_residual else hidden
        inputs = torch.cat([embedded, normed], dim=-1)
        hidden = residual + self._attend(inputs, first, mask)
        inner = self._norm(hidden, "layer.post_attention_layernorm.weight")
        gate, up = (inner @ self._gate_up + self._biases["gate_up"]).chunk(2, dim=-1)
        return hidden + (F.silu(gate) * up) @ self._down + self._biases["down"]

    def feedback(self, hidden: Tensor) -> Tensor:
        """Return what the head is fed with after it gave these hidden states [P, D]."""
        return self._norm(hidden, "norm.weight") if self.checkpoint.feeds_normed else hidden

    def output(self, hidden: Tensor) -> Tensor:
        """Return what the vocabulary projection is given after these hidden states [P, D]."""
        return self._norm(hidden, "norm.weight") if self.checkpoint.norms_output else hidden

    def best(self, hidden: Tensor, top_k: int) -> Best:
        """Return the `top_k` most probable next tokens after each hidden state [P, D]."""
        logits = self.output(hidden) @ self._lm_head * self.checkpoint.logit_scale
        log_probs = F.log_softmax(logits, dim=-1)  # [P, Vd]
        best = log_probs.topk(min(top_k, log_probs.shape[-1]), dim=-1)
        return Best(
            self.target_ids[best.indices].cpu().numpy(),
            best.values.cpu().numpy(),
            -(log_probs.exp() * log_probs).sum(dim=-1).cpu().numpy(),
        )

    def warm_up(self) -> None:
        """Compile what would be compiled on first use; nothing here."""

    def truncate(self, num_rows: int) -> None:
        """Keep the first `num_rows` rows."""
        self.num_rows = min(self.num_rows, num_rows)

    def _attend(self, inputs: Tensor, first: int, mask: Tensor | None) -> Tensor:
        count, num_heads = len(inputs), self.checkpoint.num_heads
        split = num_heads + self._num_kv_heads
        heads = (
            (inputs @ self._qkv + self._biases["qkv"])
            .view(count, -1, self.checkpoint.head_dim)
            .transpose(0, 1)
        )
        rotated = self._norm_heads(heads[:split])  # queries, then keys
        before, last = self.num_rows, self.num_rows + count
        self._reserve(last)
        places = slice(first, first + count) if mask is None else slice(first, first + 1)
        rotated = _rotate(rotated, self._cos[places], self._sin[places])
        self._keys[:, before:last] = rotated[num_heads:]
        self._values[:, before:last] = heads[split:]
        self.num_rows = last
        if mask is None and count > 1:
            mask = torch.ones(count, last, dtype=torch.bool, device=inputs.device).tril_(before)
        attended = F.scaled_dot_product_attention(
            rotated[None, :num_heads],
            self._keys[None, :, :last],
            self._values[None, :, :last],
            attn_mask=mask,
            enable_gqa=True,
        )
        return attended[0].transpose(0, 1).reshape(count, -1) @ self._out + self._biases["out"]

    def _norm_heads(self, heads: Tensor) -> Tensor:
        """Norm the heads [H, P, d] of queries and keys, where the head says so."""
        if "layer.self_attn.q_norm.weight" not in self._norms:
            return heads
        query, key = heads.split([self.checkpoint.num_heads, self._num_kv_heads])
        return torch.cat(
            [
                self._norm(query, "layer.self_attn.q_norm.weight"),
                self._norm(key, "layer.self_attn.k_norm.weight"),
            ]
        )

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight = self._norms[name]
        return F.rms_norm(x, weight.shape, weight, self.checkpoint.rms_norm_eps)

    def _reserve(self, num_rows: int) -> None:
        if num_rows > self._keys.shape[1]:
            self._allocate(max(num_rows, 2 * self._keys.shape[1]))

    def _allocate(self, size: int) -> None:
        """Make room for `size` rows, keeping those that there are."""
        where, width = self._fc.device, self.checkpoint.head_dim
        rows = torch.empty(2, self._num_kv_heads, size, width, device=where)
        if self.num_rows:
            rows[0, :, : self.num_rows] = self._keys[:, : self.num_rows]
            rows[1, :, : self.num_rows] = self._values[:, : self.num_rows]
        self._keys, self._values = rows
        exponents = -torch.arange(width // 2, device=where).float() / (width // 2)
        angles = torch.arange(size, device=where)[:, None] * self.checkpoint.rope_theta**exponents
        angles = torch.cat([angles, angles], dim=-1)
        self._cos, self._sin = angles.cos(), angles.sin()  # [rows, d]


def _columns(*weights: Tensor) -> Tensor:
    """Return projections, one below the other, with inputs as rows: faster for few rows."""
    return torch.cat(weights).t().contiguous()


def _bias(tensors: dict[str, Tensor], *names: str) -> Tensor:
    """Return the biases of projections, one behind the other; zeros where there are none."""
    parts = [
        tensors.get(f"{name}.bias", torch.zeros_like(tensors[f"{name}.weight"][:, 0]))
        for name in names
    ]
    return torch.cat(parts)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


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


class Eagle3Drafter(Drafter):
    """Drafts trees for one text at a time.

    Parameters
    ----------
    head : Eagle3Head
        The head.
    """

    name: ClassVar[str] = "eagle3"

    def __init__(self, head: Eagle3Head) -> None:
        self.head = head
        self._keeps_states = False
        self.reset()

    @property
    def aux_layer_ids(self) -> tuple[int, ...]:
        """Target layers whose outputs the head reads."""
        return self.head.checkpoint.aux_layer_ids

    def keep_states(self) -> int:
        """See `Drafter.keep_states`."""
        self._keeps_states = True
        return len(self.head.checkpoint.tensors["norm.weight"])

    def reset(self) -> None:
        """Forget the text."""
        self.head.truncate(0)
        self._num_pairs = 0
        self._pending: list[tuple[Tensor, list[int]]] = []
        self._last_hidden: Tensor | None = None
        self._drawn: _Drawn | None = None

    def rewind(self, num_pairs: int) -> bool:
        """See `Drafter.rewind`."""
        self.catch_up()
        if num_pairs > self._num_pairs:
            return False
        self._num_pairs = num_pairs
        self._drawn = self._last_hidden = None
        return True

    def warm_up(self) -> None:
        """See `Drafter.warm_up`."""
        self.head.warm_up()

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
            projected = self.head.project(some)
            hidden = self.head.forward(their.to(projected.device), projected, self._num_pairs, None)
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
            self._drawn = drawn = _Drawn.root(self.head.feedback(hidden))
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
        where = drawn.hidden.device
        hidden = self.head.forward(
            torch.from_numpy(tree.tokens[nodes]).to(where),
            drawn.hidden.index_select(0, torch.tensor(parents, device=where)),
            self._num_pairs - 1 + int(tree.depths[nodes[0]]),
            torch.from_numpy(mask).to(where),
        )
        drawn.hidden = torch.cat([drawn.hidden, self.head.feedback(hidden)])
        return hidden

    def _children(self, nodes: NDArray[np.intp], hidden: Tensor, top_k: int) -> DraftLevel:
        best = self.head.best(hidden, top_k)
        count = best.tokens.shape[1]
        states = self.head.output(hidden).cpu().numpy() if self._keeps_states else None
        return DraftLevel(
            parents=np.repeat(nodes.astype(np.int32), count),
            tokens=best.tokens.reshape(-1),
            log_probs=np.minimum(best.log_probs.reshape(-1), 0.0),
            ranks=np.arange(len(nodes) * count, dtype=np.int32) % count,
            entropies=np.repeat(best.entropies, count),
            states=None if states is None else np.repeat(states, count, axis=0),
        )
