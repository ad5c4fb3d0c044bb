"""What ``specfit replay --backend`` runs its passes on: a device, and random experts for it."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from specfit.core.expert_format import ITEM_BYTES, ExpertFormat

if TYPE_CHECKING:
    from specfit.backends.random_bank import RandomMachine
    from specfit.sim.trace import TraceMetadata, TraceReader


def machine_of(
    backend: str | None,
    reader: TraceReader,
    folder: Path,
    experts: str | None = None,
    host: str | None = None,
) -> AbstractContextManager[RandomMachine | None]:
    """Return what runs a trace's passes, with random experts of its model's shape.

    Parameters
    ----------
    experts : str, optional
        How they are kept, ``int4``; by default as they were in the trace's run.
    host : str, optional
        Cache of experts in host memory before a file in the folder; by default memory holds all.
    """
    if backend is None:
        return nullcontext()
    from specfit.backends.random_bank import random_machine
    from specfit.core.search import warm_up

    warm_up()
    recorded = recorded_format(reader.metadata)
    kept = recorded if experts is None else ExpertFormat.parse(experts, "bfloat16")
    return random_machine(backend, reader.metadata.geometry, folder, recorded, kept, host)


def recorded_format(metadata: TraceMetadata) -> ExpertFormat:
    """Return how the experts of a trace's model were kept; where it does not say, in bfloat16."""
    codes = re.search(r"int4:(\d+)$", metadata.weight_format)
    dtype = metadata.precision if metadata.precision in ITEM_BYTES else "bfloat16"
    return ExpertFormat(dtype, int(codes[1]) if codes else None)
