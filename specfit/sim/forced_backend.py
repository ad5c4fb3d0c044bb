"""Forced decoding: a trace decides routing, drafts and acceptance, a machine moves and computes.

Every expert that a pass needs is copied and computed in real seconds, so bytes, hits and stalls are
those of a model that would decode this text. No text comes of it: the weights need not be the
model's. Only the experts run: attention and the other weights do not, and looking up a draft in the
trace takes no time of this backend's clock.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Verification
from specfit.core.errors import InvalidInputError
from specfit.core.passes import PassRunner, RanPass
from specfit.core.profile import HardwareProfile
from specfit.core.selection import Selection
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree
from specfit.sim.replay_backend import ReplayBackend
from specfit.sim.trace.reader import TraceReader
from specfit.sim.trace.rows import PromptRow


class ForcedBackend(ReplayBackend):
    """Answers from a trace, and runs every pass for real.

    Parameters
    ----------
    trace : TraceReader
        Of either kind.
    passes : PassRunner
        With a cache allocated for the trace's geometry.
    profile : HardwareProfile
        What is believed of the machine; no second of this backend comes from it.

    Raises
    ------
    InvalidInputError
        The machine's experts are of another shape than the trace's.
    """

    def __init__(self, trace: TraceReader, passes: PassRunner, profile: HardwareProfile) -> None:
        ours, theirs = trace.metadata.geometry, passes.cache.geometry
        if (ours.num_layers, ours.num_experts) != (theirs.num_layers, theirs.num_experts):
            raise InvalidInputError(
                f"the trace has {ours.num_layers} layers of {ours.num_experts} experts, the "
                f"weights have {theirs.num_layers} of {theirs.num_experts}. Give weights of the "
                f"trace's shape."
            )
        super().__init__(trace, passes.cache, profile)
        self.host = passes.host
        self._passes = passes
        self._looked_up_s = 0.0

    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        """See `Backend.draft_level`; takes no time."""
        started = self.clock()
        level = super().draft_level(plan, tree)
        self._looked_up_s += self.clock() - started
        return level

    def draft(self, plan: DraftPlan, tree: DraftTree) -> tuple[DraftTree, bool]:
        """See `Backend.draft`; takes no time."""
        started = self.clock()
        drafted = super().draft(plan, tree)
        self._looked_up_s += self.clock() - started
        return drafted

    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        """See `Backend.verify`; takes the time of the pass."""
        started = self.clock()
        verification = super().verify(tree, selection)
        ran_s = verification.stall_s + verification.compute_s
        self._looked_up_s += self.clock() - started - ran_s
        return verification

    def prefetch(self, wanted: NDArray[np.float32]) -> None:
        """See `Backend.prefetch`; copied for real."""
        self._passes.prefetch(wanted)

    def clock(self) -> float:
        """Return the machine's seconds without those of looking things up in the trace."""
        return self._passes.clock() - self._looked_up_s

    def describe(self) -> dict[str, Any]:
        """See `Backend.describe`."""
        return {
            **super().describe(),
            "backend": "forced",
            "seconds": "measured; of experts and selection only: no attention, drafts looked up",
            "text": "none: routing, drafts and acceptance are the trace's",
            **self._passes.describe(),
        }

    def _run_prompt(self, prompt: PromptRow) -> float:
        started, first = self.clock(), 0
        self._passes.reset()
        for size in prompt.chunks:
            self._passes.run(prompt.routing[first : first + size])
            first += size
        return self.clock() - started

    def _run_pass(self, routing: NDArray[np.int16]) -> RanPass:
        return self._passes.run(routing)
