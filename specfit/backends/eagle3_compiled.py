"""The EAGLE-3 head on a CPU: few rows go through compiled kernels, many through torch.

A drafted level has a handful of rows; there torch spends its time on calls, not on arithmetic.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from specfit.backends._head_kernels import run_children, run_layer
from specfit.backends.eagle3 import Best, Eagle3Head
from specfit.backends.eagle3_checkpoint import HeadCheckpoint

MOST_PAIRS = 16
MOST_WEIGHTS = 2**20
"""Of one projection: larger ones are faster in torch, whatever the number of rows."""


def make_head(checkpoint: HeadCheckpoint, embedding: Tensor) -> Eagle3Head:
    """Return the head in the form that suits the device and its size."""
    tensors = checkpoint.tensors
    is_small = all(x.numel() <= MOST_WEIGHTS for n, x in tensors.items() if "embed" not in n)
    special = [name for name in tensors if name.endswith("bias") or "q_norm" in name]
    is_plain = not special and checkpoint.norms_output and checkpoint.logit_scale == 1
    widths = {x.shape[1] for n, x in tensors.items() if x.ndim == 2 and "embed" not in n}
    is_even = all(width % 4 == 0 for width in widths)
    if embedding.device.type == "cpu" and is_small and is_plain and is_even:
        return CompiledHead(checkpoint, embedding)
    return Eagle3Head(checkpoint, embedding)


class CompiledHead(Eagle3Head):
    """The same arithmetic as `Eagle3Head`, up to rounding, with a call for each layer and level."""

    def __init__(self, checkpoint: HeadCheckpoint, embedding: Tensor) -> None:
        super().__init__(checkpoint, embedding)
        names = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        norms = [self._norms[f"layer.{name}.weight"] for name in names]
        self._layer_norms = torch.stack(norms).numpy()
        self._projections = tuple(
            x.numpy() for x in (self._qkv, self._out, self._gate_up, self._down)
        )
        self._eps = np.float32(checkpoint.rms_norm_eps)

    def forward(self, tokens: Tensor, hidden: Tensor, first: int, mask: Tensor | None) -> Tensor:
        """See `Eagle3Head.forward`."""
        count, before = len(tokens), self.num_rows
        if count > MOST_PAIRS:
            return super().forward(tokens, hidden, first, mask)
        self._reserve(before + count)
        places = slice(first, first + (count if mask is None else 1))
        visible = np.tri(count, before + count, before, bool) if mask is None else mask.numpy()
        new = torch.empty_like(hidden, memory_format=torch.contiguous_format)
        run_layer(
            self.embedding[tokens].float().numpy(),
            hidden.contiguous().numpy(),
            self._layer_norms,
            self._projections,
            self.checkpoint.num_heads,
            (self._cos[places].numpy(), self._sin[places].numpy()),
            self._keys.numpy(),
            self._values.numpy(),
            before,
            visible,
            (self._eps, self.checkpoint.norm_before_residual),
            new.numpy(),
        )
        self.num_rows = before + count
        return new

    def best(self, hidden: Tensor, top_k: int) -> Best:
        """See `Eagle3Head.best`; of equally probable tokens the lower id comes first."""
        count = min(top_k, self._lm_head.shape[1])
        ids = np.empty((len(hidden), count), np.int64)
        log_probs = np.empty((len(hidden), count), np.float32)
        entropies = np.empty(len(hidden), np.float32)
        run_children(
            hidden.contiguous().numpy(),
            self._norms["norm.weight"].numpy(),
            self._eps,
            self._lm_head.numpy(),
            ids,
            log_probs,
            entropies,
        )
        return Best(self.target_ids.numpy()[ids], log_probs, entropies)

    def warm_up(self) -> None:
        """Compile the kernels; the head must not hold a text."""
        hidden = torch.zeros(1, len(self._out[0]))
        self.best(self.forward(torch.zeros(1, dtype=torch.int64), hidden, 0, None), 1)
        self.truncate(0)
