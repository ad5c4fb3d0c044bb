"""Records prompts position by position with the bundled model, for benchmarks that replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specfit.backends import load
from specfit.cli.prompts import read_prompts
from specfit.core.backend import Request
from specfit.core.tree import DraftPlan
from specfit.sim.record_positions import record_positions
from specfit.sim.trace import TraceReader, TraceWriter, metadata_of


def record_prompts(
    prompts: Path, folder: Path, plans: Sequence[DraftPlan], num_tokens: int
) -> TraceReader:
    """Record what the plans draw at every position of the greedy texts after these prompts.

    The head's hidden states are recorded too.
    """
    backend = load("tiny", cache="lru:100%")
    width = backend.keep_states()
    texts = [tuple(backend.tokenizer(p.text).input_ids) for p in read_prompts(prompts)]
    requests = [Request(tokens, num_tokens) for tokens in texts]
    metadata = metadata_of(backend, "positions", plans=plans, state_width=width)
    with TraceWriter.create(folder, metadata) as writer:
        record_positions(backend, requests, plans, writer)
    return TraceReader(folder)
