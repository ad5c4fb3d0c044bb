"""The drafter interface: whatever proposes the tokens that the target verifies.

Its answer depends only on the committed tokens, the features that came with them, and the plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specfit.core.errors import BackendError
from specfit.core.registry import Registry
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree, frontier


class Drafter(ABC):
    """Drafts trees for one text at a time.

    The backend calls `start` with the first token of a text, then `extend` for every stretch of
    committed tokens, and `draft_level` as often as the policy wants. One method to write beside
    `draft_level`: `extend`.
    """

    name: ClassVar[str]
    """For results."""

    @property
    def aux_layer_ids(self) -> tuple[int, ...]:
        """Target layers whose outputs, side by side, are the features; none by default."""
        return ()

    @abstractmethod
    def reset(self) -> None:
        """Forget the text."""

    def start(self, token: int) -> None:  # noqa: B027 - optional hook
        """Begin a text with its first token."""

    def rewind(self, num_pairs: int) -> bool:
        """Forget all but the first `num_pairs` pairs of the text; return whether that was possible.

        A pair is a token with its feature and the token after it, as `extend` took them.
        """
        return False

    @abstractmethod
    def extend(self, features: Tensor, next_tokens: list[int]) -> None:
        """Take note of committed tokens.

        Parameters
        ----------
        features : Tensor [P, F]
            Of P tokens of the text, in order, none left out.
        next_tokens : list of int
            The token after each of them: the last one is the root.
        """

    def keep_states(self) -> int:
        """Draft with hidden states from now on, `DraftLevel.states`; return their width D."""
        raise BackendError(
            f"the drafter '{self.name}' has no hidden states. Draft with an EAGLE-3 head, or "
            f"choose a predictor that does without."
        )

    def catch_up(self) -> None:  # noqa: B027 - optional hook
        """Do now what the next level would have to do first."""

    @abstractmethod
    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        """Return the children of the plan's frontier: of the root, or of the best newest nodes."""

    def warm_up(self) -> None:  # noqa: B027 - optional hook
        """Compile what would be compiled on first use; no text is held."""


drafters: Registry[Drafter] = Registry("drafter", "specfit.drafters")


def expanded_nodes(plan: DraftPlan, tree: DraftTree) -> NDArray[np.intp]:
    """Return the nodes whose children come next, ascending."""
    return np.zeros(1, np.intp) if len(tree) == 1 else frontier(tree, plan.top_k)


def level_of(
    nodes: NDArray[np.intp], children: Sequence[tuple[Sequence[int], Sequence[float], float]]
) -> DraftLevel:
    """Return a level from the children of each node.

    Parameters
    ----------
    nodes : intp[n]
        Expanded nodes, ascending.
    children : sequence of (tokens, probabilities, entropy)
        For each node its children, most probable first, and the entropy in nats of the drafter's
        distribution there.
    """
    counts = [len(tokens) for tokens, _, _ in children]
    probs = _joined([probs for _, probs, _ in children], np.float64)
    return DraftLevel(
        parents=np.repeat(nodes, counts).astype(np.int32),
        tokens=_joined([tokens for tokens, _, _ in children], np.int64),
        log_probs=np.log(np.clip(probs, 1e-30, 1.0)).astype(np.float32),
        ranks=_joined([range(count) for count in counts], np.int32),
        entropies=np.repeat([entropy for _, _, entropy in children], counts).astype(np.float32),
    )


def _joined(parts: Sequence[Sequence[Any]], kind: Any) -> NDArray[Any]:
    return np.array([value for part in parts for value in part], kind)
