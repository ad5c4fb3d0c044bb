"""Every number of the synthetic model: measured of the real one, or fitted to what was.

The fitted ones were chosen by `benchmarks/sim/fit_synth.py`, on the targets alone and before any
policy ran on a trace of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError, did_you_mean
from specfit.core.shapes import QWEN3_30B_A3B as QWEN3_SHAPE

VOCAB_SIZE = 1024
"""Synthetic tokens: fewer than the model's, so that a few texts teach a token table."""

QWEN3_30B_A3B = replace(QWEN3_SHAPE.geometry("bfloat16"), vocab_size=VOCAB_SIZE)
"""Qwen3-30B-A3B with bfloat16 experts, but for the vocabulary."""

MEASURED_OVERLAP = {
    0: 0.079,
    6: 0.562,
    7: 0.597,
    18: 0.556,
    19: 0.540,
    30: 0.540,
    31: 0.577,
    47: 0.206,
}
"""Share of a token's experts that the one before needed too, by layer (gajsanders/moe-trace)."""

MEAN_OVERLAP = 0.427
"""The same, over all layers and the 3,225 generated tokens."""

BEST_SLOTS = (
    *(49, 36, 38, 36, 35, 34, 27, 25, 29, 29, 32, 34, 31, 40, 31, 28),
    *(34, 36, 26, 27, 30, 31, 32, 37, 30, 40, 35, 30, 32, 37, 26, 26),
    *(31, 30, 32, 33, 34, 41, 35, 32, 33, 38, 37, 29, 31, 31, 35, 39),
)
"""Slots that misses are fewest with at 33 a layer on average (the same source, finding 016).

They order the layers whose overlap was not published: more slots, less overlap.
"""

OVERLAP_PER_SLOT = -0.024
"""Slope of the published overlaps over the slots of their layers."""


@dataclass(frozen=True)
class RoutingParameters:
    """How an expert's score is made up, by shares of its variance.

    The correlation of a score with that of the previous token follows from the layer's measured
    overlap. The first four shares are parts of that correlation and sum to 1.

    Parameters
    ----------
    global_share : float
        What is the same in all texts.
    prompt_share : float
        What is the same in a whole text, each expert on its own.
    drift_share : float
        What drifts slowly through a text, along directions that all layers share.
    topic_share : float
        What a token has in common with the few around it, along other such directions.
    drift_carry : float
        Correlation of what drifts with that of the previous token.
    topic_tokens : int
        Each token brings a topic that stays for so many tokens, its own included: what two tokens
        have in common of it falls in a straight line to nothing at this distance.
    num_drifts, num_topics : int
        Directions of each.
    token_share, first_token_share : float
        Variance that the token itself decides: in deep layers, and in layer 0. Never more than
        what the correlation leaves.
    token_depth : float
        Layers over which the one goes over into the other.
    prompt_turnover : float
        Part of what is the same in a whole text that, in a prompt, changes as topics do.
    measured_scale, other_scale : float
        Factors on the overlap that a layer is aimed at: on the published one where there is one,
        and on the estimate elsewhere. Another source has 0.47 on average.
    """

    global_share: float
    prompt_share: float
    drift_share: float
    topic_share: float
    drift_carry: float
    topic_tokens: int
    num_drifts: int
    num_topics: int
    token_share: float
    first_token_share: float
    token_depth: float
    prompt_turnover: float
    measured_scale: float
    other_scale: float


@dataclass(frozen=True)
class Task:
    """What the texts of a task look like to a drafter.

    Parameters
    ----------
    name : str
        Id of the task.
    prompt_tokens, text_tokens : int
        Length of a prompt, and tokens to generate: about as many as a text has of the 25, with
        3,225 tokens together, that the hit curve was measured on.
    first_acceptance : float
        Mean probability that the drafter's best token, one level down, is the target's; fitted to
        `committed`.
    committed : float
        Tokens a cycle that EAGLE-3 commits with 32 nodes, depth 4, top-k 8 (arXiv 2605.00342).
    """

    name: str
    prompt_tokens: int
    text_tokens: int
    first_acceptance: float
    committed: float


ROUTING = RoutingParameters(
    global_share=0.489,
    prompt_share=0.061,
    drift_share=0.158,
    topic_share=0.292,
    drift_carry=0.9979,
    topic_tokens=5,
    num_drifts=8,
    num_topics=3,
    token_share=0.0704,
    first_token_share=0.655,
    token_depth=1.5,
    prompt_turnover=0.68,
    measured_scale=1.0,
    other_scale=1.0435,
)

ACCEPTANCE_BY_LEVEL = 0.954
"""Each level's best token is this much less likely to be right than the level's before.

With 0.746 at the first level it gives the 2.64, 3.01 and 3.15 tokens a cycle that chains of 3, 5
and 7 commit on GSM8K (SpecForge, Qwen3-30B-A3B-Instruct-2507) within 0.2 %.
"""

RANK_SHARES = (
    *(0.2951, 0.1557, 0.0615, 0.0533, 0.0410, 0.0328, 0.0205, 0.0164),
    *(0.0123, 0.0123, 0.0123, 0.0082, 0.0082, 0.0082, 0.0041),
)
"""Where the target's token is when it is not the drafter's best: rank 1, 2, ...

A published acceptance vector of one pair of models (Infini-AI-Lab/Sequoia), over what its first
entry leaves, in falling order.
"""

CONFIDENCE_SHAPE = 0.5
"""The confidence of the drafter's best token is ``(1 - (1 - u)**(1 / shape))**(1 / a)``, u uniform.

Below 1 it piles up near 1, as confidences do.
"""

TASKS = (
    Task("gsm8k", prompt_tokens=96, text_tokens=128, first_acceptance=0.938, committed=4.64),
    Task("cnn-dm", prompt_tokens=768, text_tokens=128, first_acceptance=0.48, committed=2.95),
)


def task_named(name: str) -> Task:
    """Return a task.

    Raises
    ------
    InvalidInputError
        There is none of this name; the message lists them.
    """
    for task in TASKS:
        if task.name == name:
            return task
    names = [task.name for task in TASKS]
    raise InvalidInputError(
        f"no task '{name}'; there are {', '.join(names)}.{did_you_mean(name, names)}"
    )


def layer_overlaps(measured_scale: float, other_scale: float) -> NDArray[np.float64]:
    """Return the overlap aimed at in each layer, float64[L]: measured, or from `BEST_SLOTS`.

    See `RoutingParameters` for the scales.
    """
    slots = np.array(BEST_SLOTS, np.float64)
    measured = np.array(list(MEASURED_OVERLAP))
    others = np.setdiff1d(np.arange(len(slots)), measured)
    overlaps: NDArray[np.float64] = OVERLAP_PER_SLOT * (slots - slots[others].mean())
    missing = MEAN_OVERLAP * len(slots) - sum(MEASURED_OVERLAP.values())
    overlaps[others] = other_scale * (overlaps[others] + missing / len(others))
    overlaps[measured] = measured_scale * np.array(list(MEASURED_OVERLAP.values()))
    return overlaps
