"""The texts of a trace as another program reads them."""

from __future__ import annotations

from pathlib import Path

from specfit.core.errors import InvalidInputError, did_you_mean
from specfit.sim.importers import policylang
from specfit.sim.importers.imported import ImportedText
from specfit.sim.observe import observed_texts
from specfit.sim.trace import TraceReader

EXPORTS = {"policylang": policylang.write}


def export_trace(name: str, reader: TraceReader, path: Path) -> int:
    """Write the texts of a trace in another program's format; return how many there are.

    Drafts are left out: no other program replays them.

    Raises
    ------
    InvalidInputError
        There is no such format to write.
    TraceCoverageError
        The routing of the text is not in the trace.
    """
    if name not in EXPORTS:
        raise InvalidInputError(
            f"no format '{name}' to write; there is {', '.join(EXPORTS)}."
            f"{did_you_mean(name, EXPORTS)}"
        )
    texts = texts_of(reader)
    EXPORTS[name](path, texts)
    return len(texts)


def texts_of(reader: TraceReader) -> list[ImportedText]:
    """Return each text of a trace with the experts of its tokens that the target has run."""
    texts = []
    for prompt, observed in zip(reader.prompts(), observed_texts(reader), strict=True):
        tokens = prompt.request.prompt
        routing = observed.routing
        generated = routing[len(tokens) :]
        texts.append(
            ImportedText(routing[: len(tokens)], generated, tokens, prompt.text[: len(generated)])
        )
    return texts
