"""The texts and drafts of a trace, as what predictors and acceptance models are fitted on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import TraceCoverageError
from specfit.core.observed import ObservedDraft, ObservedText
from specfit.sim.metrics import distinct_4
from specfit.sim.trace import TraceReader
from specfit.sim.trace.reader import RecordedPrompt
from specfit.sim.trace.rows import CycleRow, Row

LOOPING = 0.5
"""Share of distinct runs of four tokens below which a text counts as repeating itself."""


def without_looping(
    texts: Sequence[ObservedText], least_distinct: float = LOOPING
) -> list[ObservedText]:
    """Return the texts that do not repeat themselves.

    Looping text is easy to draft and to route: what is fitted on it promises too much elsewhere.
    Texts too short to tell are kept.
    """
    return [text for text in texts if not distinct_4(text.tokens) < least_distinct]


def observed_texts(trace: TraceReader) -> Iterator[ObservedText]:
    """Yield each prompt's text with every draft of the trace, of either kind.

    Of a position-complete trace every node is known, of a run trace the verified ones.

    Raises
    ------
    TraceCoverageError
        The decisions of a run trace were stripped, so its text's routing is not known.
    """
    for prompt in trace.prompts():
        yield _observed(prompt)


def _observed(prompt: RecordedPrompt) -> ObservedText:
    routing: list[NDArray[np.int16]] = [prompt.row.routing]
    drafts = []
    for row in prompt.rows():
        draft = _draft(row)
        drafts.append(draft)
        routing.append(draft.routing[np.searchsorted(draft.nodes, _path(row))])
    return ObservedText(prompt.text, np.concatenate(routing), tuple(drafts))


def _draft(row: Row) -> ObservedDraft:
    if isinstance(row, CycleRow):
        tree, nodes = row.tree, row.answered.astype(np.intp)
    else:
        tree, nodes = row.trie, np.arange(len(row.trie))
    answers = row.answers
    return ObservedDraft(row.position, tree, nodes, answers.target_tokens, answers.routing)


def _path(row: Row) -> list[int]:
    """Return the nodes whose routing is the text's: the root, and what a run accepted."""
    if not isinstance(row, CycleRow):
        return [0]
    if row.decisions is None:
        raise TraceCoverageError(
            f"cycle {row.cycle} of prompt {row.prompt} holds no decisions, so the routing of its "
            f"text is not known. Fit on a trace whose decisions were kept."
        )
    return [0, *row.decisions.accepted.tolist()]
