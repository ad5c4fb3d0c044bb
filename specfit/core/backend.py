"""The backend interface: whatever drafts, verifies and keeps the experts, live or from a trace."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import BackendError, InvalidInputError
from specfit.core.experts import ModelGeometry, Residency
from specfit.core.noise import Sampling
from specfit.core.selection import Selection
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree


@dataclass(frozen=True)
class Request:
    """One text to continue.

    Parameters
    ----------
    prompt : tuple of int
        Token ids, at least one.
    max_new_tokens : int
        Exactly so many tokens are committed unless a stop token comes first; at least 1.
    stop_ids : frozenset of int
        Tokens that end the text; the stop token itself is committed.
    sampling : Sampling
        How the target's tokens are drawn.
    keeps_prefix : bool
        Whether a live backend may go on from what it holds of the text before, where that begins
        like this prompt. The text is the same; the prefill is shorter, and the expert cache starts
        as it was left.
    """

    prompt: tuple[int, ...]
    max_new_tokens: int
    stop_ids: frozenset[int] = frozenset()
    sampling: Sampling = field(default_factory=Sampling)
    keeps_prefix: bool = False

    def __post_init__(self) -> None:
        if not self.prompt:
            raise InvalidInputError("a prompt must have at least one token; got none.")
        if self.max_new_tokens < 1:
            raise InvalidInputError(
                f"max_new_tokens must be at least 1; got {self.max_new_tokens}."
            )


@dataclass(frozen=True, eq=False)
class Prefill:
    """What running the prompt gave.

    Parameters
    ----------
    first_token : int
        The target's first token: the root of the first cycle.
    routing : int16[T, L, K]
        Experts of each prompt token.
    chunks : tuple of int
        Tokens of each pass in which the prompt was run; with `num_kept` they sum to T.
    seconds : float
        Time of the prefill; never part of decode time.
    num_kept : int
        First tokens of the prompt that were not run, since their state was there.
    """

    first_token: int
    routing: NDArray[np.int16]
    chunks: tuple[int, ...]
    seconds: float
    num_kept: int = 0


@dataclass(frozen=True, eq=False)
class Verification:
    """What one target pass over a selection gave.

    Parameters
    ----------
    nodes : intp[n]
        The selected nodes, ascending.
    target_tokens : int64[n]
        The target's own token after each of them.
    target_probs : float32[n]
        Probability of that token under the target's processed distribution (unprocessed if greedy).
    margins : float32[n]
        Lead of that token over the runner-up in logits, noise included: 0 is a tie.
    routing : int16[n, L, K]
        Experts of each of them.
    num_hits, num_misses, num_evictions : int64[L]
        Activated experts that were resident when their layer began, that were not, and experts that
        left.
    stall_s : float
        Seconds that the pass waited for copies.
    compute_s : float
        The other seconds of the pass.
    num_prefetched, num_wasted : int
        Experts that were copied ahead of the pass, and those of them that it did not need.
    num_reads : int
        Experts that were first read from disk into host memory, for the pass or ahead of it.
    """

    nodes: NDArray[np.intp]
    target_tokens: NDArray[np.int64]
    target_probs: NDArray[np.float32]
    margins: NDArray[np.float32]
    routing: NDArray[np.int16]
    num_hits: NDArray[np.int64]
    num_misses: NDArray[np.int64]
    num_evictions: NDArray[np.int64]
    stall_s: float
    compute_s: float
    num_prefetched: int = 0
    num_wasted: int = 0
    num_reads: int = 0

    @property
    def num_copied(self) -> int:
        """Experts copied for the pass, missed ones and those copied ahead."""
        return int(self.num_misses.sum()) + self.num_prefetched


@dataclass(frozen=True, eq=False)
class Foresight:
    """What a cycle would bring, told before it has run; only a simulator knows.

    Parameters
    ----------
    tree : DraftTree
        The whole tree that a plan draws, N nodes ordered by depth.
    target_tokens : int64[N]
        The target's own token after each of them.
    routing : int16[N, L, K]
        Experts of each of them.
    """

    tree: DraftTree
    target_tokens: NDArray[np.int64]
    routing: NDArray[np.int16]


class Backend(ABC):
    """Drafts, verifies and keeps the experts for one request at a time; a context manager.

    The decode loop calls ``start``, then for each cycle ``draft_level`` as often as the policy
    wants (or ``draft`` once, where the policy looks at no level), ``verify`` once and ``commit``
    once. After an error or a cancelled cycle, ``start`` begins anew.
    """

    geometry: ModelGeometry
    can_foresee: ClassVar[bool] = False
    """Whether `foresee` answers: true of simulators alone."""

    @abstractmethod
    def start(self, request: Request) -> Prefill:
        """Run the prompt and return the target's first token."""

    @abstractmethod
    def residency(self) -> Residency:
        """Return the experts that are on the device now."""

    @abstractmethod
    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        """Return one more level of the tree; an empty one when the drafter has nothing to add."""

    def draft(self, plan: DraftPlan, tree: DraftTree) -> tuple[DraftTree, bool]:
        """Return the tree with all levels of a plan, and whether the drafter ran out before that.

        The same as `draft_level` asked again and again, which it is by default.
        """
        for _ in range(plan.depth):
            level = self.draft_level(plan, tree)
            if len(level) == 0:
                return tree, True
            tree = tree.grow(level)
        return tree, False

    @abstractmethod
    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        """Run the target over the selection."""

    @abstractmethod
    def commit(
        self, tree: DraftTree, accepted: tuple[int, ...], committed: tuple[int, ...]
    ) -> None:
        """Keep the accepted nodes' state, drop the rest, and take the last token as the next root.

        Parameters
        ----------
        accepted : tuple of int
            Accepted nodes below the root, in order.
        committed : tuple of int
            Their tokens and the next root: ``len(accepted) + 1`` tokens. Where the text was cut at
            a stop token or at the token limit, the last committed token counts as the next root.
        """

    @abstractmethod
    def clock(self) -> float:
        """Return the seconds that have passed in this backend's world."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what a result must say of this backend: model, device, cache, link, precision."""

    def foresee(self, plan: DraftPlan, tree: DraftTree) -> Foresight:
        """Return what a plan would draw under the root `tree`, and the target's answers to it.

        Takes no simulated time and changes nothing.
        """
        raise BackendError(
            f"{type(self).__name__} knows nothing of passes that have not run. Replay a trace."
        )

    def prefetch(self, wanted: NDArray[np.float32]) -> None:
        """Copy experts ahead of the next pass: how much each is wanted, float32[L, E]; 0 not."""
        raise BackendError(f"{type(self).__name__} does not prefetch. Leave the prefetcher out.")

    def keep_states(self) -> int:
        """Draft trees with the drafter's hidden states from now on; return their width D.

        A state is what the drafter's vocabulary projection is applied to. Without this, or where a
        drafter has none, `DraftTree.states` is None.
        """
        raise BackendError(
            f"{type(self).__name__} has no hidden states of a drafter. Choose a predictor that "
            f"does without."
        )

    def close(self) -> None:  # noqa: B027 - optional hook
        """Free what the backend holds; harmless when called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
