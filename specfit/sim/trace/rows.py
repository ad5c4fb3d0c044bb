"""What a trace holds, row by row: prompts, cycles of a run, and positions of a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Request
from specfit.core.decode import Timings
from specfit.core.selection import Prediction
from specfit.core.tree import DraftPlan, DraftTree


@dataclass(frozen=True, eq=False)
class PromptRow:
    """A request, its prefill and its whole text.

    Parameters
    ----------
    index : int
        0 for the first prompt of the trace.
    request : Request
        What was asked for.
    text : tuple of int
        Committed tokens without the prompt; the first is the prefill's.
    stop_reason : str
        ``"stop"`` at a stop token, ``"length"`` at the token limit.
    routing : int16[T, L, K]
        Experts of each prompt token.
    chunks : tuple of int
        Tokens of each prefill pass; they sum to T.
    prefill_s : float
        Seconds of the prefill.
    """

    index: int
    request: Request
    text: tuple[int, ...]
    stop_reason: str
    routing: NDArray[np.int16]
    chunks: tuple[int, ...]
    prefill_s: float


@dataclass(frozen=True, eq=False)
class Answers:
    """The target's answers at some nodes of a tree.

    Parameters
    ----------
    target_tokens : int64[n]
        The target's own token after each node.
    target_probs : float32[n]
        Its probability.
    margins : float32[n]
        Its lead over the runner-up in logits.
    routing : int16[n, L, K]
        Experts of each node.
    """

    target_tokens: NDArray[np.int64]
    target_probs: NDArray[np.float32]
    margins: NDArray[np.float32]
    routing: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.target_tokens)

    def take(self, rows: NDArray[np.integer[Any]]) -> Answers:
        """Return the answers of these rows."""
        return Answers(
            self.target_tokens[rows],
            self.target_probs[rows],
            self.margins[rows],
            self.routing[rows],
        )


@dataclass(frozen=True, eq=False)
class Decisions:
    """What a recorded cycle decided and what came of it.

    Parameters
    ----------
    selected : int32[n]
        Verified nodes, ascending.
    accepted : int32[a]
        Accepted nodes below the root, in order.
    committed : int32[a + 1]
        Committed tokens.
    num_hits, num_misses, num_evictions : int64[L]
        Counts of the expert cache.
    prediction : Prediction, optional
        What the policy expected.
    """

    selected: NDArray[np.int32]
    accepted: NDArray[np.int32]
    committed: NDArray[np.int32]
    num_hits: NDArray[np.int64]
    num_misses: NDArray[np.int64]
    num_evictions: NDArray[np.int64]
    prediction: Prediction | None


@dataclass(frozen=True, eq=False)
class CycleRow:
    """One cycle of a recorded run.

    Parameters
    ----------
    prompt : int
        Index of the prompt.
    cycle : int
        0 for the first cycle of the prompt.
    position : int
        Index of the root in the whole text, prompt included.
    plan : DraftPlan
        The plan in force.
    tree : DraftTree
        Everything drafted, level by level: a node's level is its depth.
    is_exhausted : bool
        Whether the drafter had nothing to add after these levels.
    answered : int32[n]
        Nodes that the target answered for, ascending.
    answers : Answers
        Its answers, one for each of `answered`.
    decisions : Decisions, optional
        Absent where they have been stripped.
    timings : Timings
        Seconds by part, measured (or simulated, as `describe` of the backend says).
    """

    prompt: int
    cycle: int
    position: int
    plan: DraftPlan
    tree: DraftTree
    is_exhausted: bool
    answered: NDArray[np.int32]
    answers: Answers
    decisions: Decisions | None
    timings: Timings


@dataclass(frozen=True, eq=False)
class PositionRow:
    """The draft nodes at one position of a text: the union of what the recorded plans draw there.

    Parameters
    ----------
    prompt : int
        Index of the prompt.
    position : int
        Index of the root in the whole text, prompt included.
    trie : DraftTree
        The union, keyed by token path.
    answers : Answers
        The target's answer at each of the N nodes.
    plan_nodes : tuple of int32[n]
        For each recorded plan, the trie nodes of its tree in the order in which it draws them.
    plan_levels : tuple of int
        Levels that each plan drew.
    """

    prompt: int
    position: int
    trie: DraftTree
    answers: Answers
    plan_nodes: tuple[NDArray[np.int32], ...]
    plan_levels: tuple[int, ...]

    @property
    def expanded(self) -> NDArray[np.bool_]:
        """Whether some plan drew children of each node, bool[N]."""
        expanded = np.zeros(len(self.trie), bool)
        expanded[self.trie.parents[1:]] = True
        return expanded


Row = CycleRow | PositionRow
