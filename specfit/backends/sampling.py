"""How the target's token is drawn at a node: greedy, or processed probabilities with keyed noise.

The processing is that of transformers' processors, row by row in float32. The noise
of a position does not depend on the tree, so the text does not either.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import MinPLogitsWarper, TypicalLogitsWarper

from specfit.core.errors import BackendError
from specfit.core.noise import Sampling, gumbel_noise


@dataclass(frozen=True, eq=False)
class Draw:
    """Tokens int64[n], their probabilities and their lead over the runner-up, float32[n]."""

    tokens: NDArray[np.int64]
    probs: NDArray[np.float32]
    margins: NDArray[np.float32]


@dataclass
class TargetSampler:
    """Draws the target's token for each row of logits of one request."""

    sampling: Sampling
    _noise: dict[int, Tensor] = field(default_factory=dict)

    def draw(self, logits: Tensor, positions: NDArray[np.int64]) -> Draw:
        """Return the target's token after each node.

        Parameters
        ----------
        logits : float32 Tensor [n, V]
            The target's logits, after the rules that look at the text.
        positions : int64[n]
            Index in the whole text, prompt included, of each token to be drawn.

        Raises
        ------
        BackendError
            The logits are not finite.
        """
        scores = logits if self.sampling.is_greedy else process(logits, self.sampling)
        log_total = scores.logsumexp(dim=-1)
        if not bool(torch.isfinite(log_total).all()):
            raise BackendError(
                "the target's logits are not finite. Check the checkpoint's weights."
            )
        noisy = (
            scores
            if self.sampling.is_greedy
            else scores.double() + self._noise_rows(positions, logits)
        )
        tokens = noisy.argmax(dim=-1, keepdim=True)  # the lowest id on ties
        best = noisy.gather(1, tokens)
        runner_up = noisy.scatter(1, tokens, -torch.inf).amax(dim=-1)
        probs = (scores.gather(1, tokens)[:, 0] - log_total).exp()
        return Draw(
            tokens[:, 0].cpu().numpy(),
            probs.cpu().numpy(),
            (best[:, 0] - runner_up).float().cpu().numpy(),
        )

    def _noise_rows(self, positions: NDArray[np.int64], logits: Tensor) -> Tensor:
        wanted = positions.tolist()
        for old in [p for p in self._noise if p < min(wanted)]:
            del self._noise[old]
        for position in wanted:
            if position not in self._noise:
                noise = gumbel_noise(self.sampling.noise_key, position, logits.shape[1])
                self._noise[position] = torch.from_numpy(noise).to(logits.device)
        return torch.stack([self._noise[position] for position in wanted])


def process(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return logits [n, V] as sampling takes them, after temperature, top-k, top-p, min-p, typical.

    ``-inf`` where a token is cut.
    """
    scores = logits / sampling.temperature
    if sampling.top_k:
        count = min(sampling.top_k, scores.shape[-1])
        scores = scores.masked_fill(scores < scores.topk(count).values[:, -1:], -torch.inf)
    if sampling.top_p < 1:
        ordered, indices = scores.sort(descending=False)
        cut = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - sampling.top_p
        cut[:, -1] = False
        scores = scores.masked_fill(cut.scatter(1, indices, cut), -torch.inf)
    if sampling.min_p > 0:
        scores = MinPLogitsWarper(sampling.min_p)(None, scores)
    if sampling.typical_p < 1:
        scores = TypicalLogitsWarper(sampling.typical_p)(None, scores)
    return scores
