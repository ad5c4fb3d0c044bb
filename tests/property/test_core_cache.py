"""LRU as a state machine against a dict."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from specfit.core.cache import make_cache
from specfit.testing.examples import example_geometry
from tests.reference.lru import ReferenceLru

NUM_LAYERS, NUM_EXPERTS = 2, 9
GEOMETRY = example_geometry(num_layers=NUM_LAYERS, num_experts=NUM_EXPERTS)
needs = st.sets(st.integers(0, NUM_EXPERTS - 1)).map(sorted)
layers = st.integers(0, NUM_LAYERS - 1)


class LruMachine(RuleBasedStateMachine):
    @initialize(capacity=st.integers(2, NUM_EXPERTS))
    def allocate(self, capacity: int) -> None:
        self.cache = make_cache(f"lru:{capacity}", GEOMETRY)
        self.references = [ReferenceLru(capacity) for _ in range(NUM_LAYERS)]

    @rule(layer=layers, experts=needs)
    def serve(self, layer: int, experts: list[int]) -> None:
        """First the residents with what fits beside them, then one slotful after another."""
        reference = self.references[layer]
        hits = [e for e in experts if e in reference.slots]
        missing = [e for e in experts if e not in reference.slots]
        first = reference.capacity - len(hits)
        chunks = [sorted(hits + missing[:first])] if experts else []
        for start in range(first, len(missing), reference.capacity):
            chunks.append(missing[start : start + reference.capacity])
        plans = self.cache.waves(layer, np.array(experts, np.int64))
        for plan, chunk in zip(plans, chunks, strict=True):
            got = (plan.hits.tolist(), plan.loads.tolist(), plan.evictions.tolist())
            assert got == reference.request(chunk)

    @rule()
    def end_pass(self) -> None:
        self.cache.end_pass()

    @rule()
    def reset(self) -> None:
        self.cache.reset()
        self.references = [ReferenceLru(self.cache.capacity) for _ in range(NUM_LAYERS)]

    @invariant()
    def slots_agree(self) -> None:
        for layer, reference in enumerate(getattr(self, "references", [])):
            slots = self.cache.slot_of(layer)
            assert {e: int(slots[e]) for e in np.flatnonzero(slots >= 0)} == reference.slots


TestLruMachine = LruMachine.TestCase
TestLruMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
