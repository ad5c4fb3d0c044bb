"""For each rule of the trace contract a store that breaks only that rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from specfit.core.decode import DecodeResult
from specfit.core.errors import ContractError, TraceCoverageError, TraceFormatError
from specfit.core.policy import Policy
from specfit.sim.trace.metadata import TraceMetadata
from specfit.testing.trace_contract import (
    RecordedCycle,
    TraceContract,
    TraceStore,
    check_trace_store,
)
from tests.contract.trace_stores import ParquetStore


class OtherRouting(ParquetStore):
    """Gives the experts of a token in another order of tokens."""

    def stream(self, folder: Path) -> Iterator[RecordedCycle]:
        for cycle in super().stream(folder):
            yield replace(cycle, routing=cycle.routing[::-1])

    def load(self, folder: Path) -> list[RecordedCycle]:
        return list(self.stream(folder))


class ReadsWhatItCan(ParquetStore):
    """Gives the cycles before the damage and says nothing of it."""

    def load(self, folder: Path) -> list[RecordedCycle]:
        cycles: list[RecordedCycle] = []
        try:
            cycles.extend(self.stream(folder))
        except TraceFormatError:
            pass
        return cycles


class AnyVersion(ParquetStore):
    """Reads a trace of a newer version as if it were its own."""

    def load(self, folder: Path) -> list[RecordedCycle]:
        path = folder / "metadata.json"
        text = path.read_text("utf-8", "replace")
        path.write_text(text.replace("1000000", "1"), "utf-8")
        TraceMetadata.read(folder)
        return super().load(folder)


class StreamsBackwards(ParquetStore):
    def stream(self, folder: Path) -> Iterator[RecordedCycle]:
        yield from reversed(list(super().stream(folder)))


class OtherCache(ParquetStore):
    """Replays with a cache of its own choice."""

    def replay(self, folder: Path, policy: Policy, cache: str) -> list[DecodeResult]:
        return super().replay(folder, policy, "fifo:4")


class Guesses(ParquetStore):
    """Says that nothing happened where nothing was recorded."""

    def replay(self, folder: Path, policy: Policy, cache: str) -> list[DecodeResult]:
        try:
            return super().replay(folder, policy, cache)
        except TraceCoverageError:
            return []


MUTANTS: list[tuple[str, Callable[[], TraceStore]]] = [
    ("T1", OtherRouting),
    ("T2", ReadsWhatItCan),
    ("T2", AnyVersion),
    ("T3", StreamsBackwards),
    ("T4", OtherCache),
    ("T5", Guesses),
]


def test_a_sound_store_passes() -> None:
    assert check_trace_store(ParquetStore) == [f"T{i}" for i in range(1, 6)]


@pytest.mark.parametrize(("rule", "make"), MUTANTS)
def test_the_broken_rule_is_named(rule: str, make: Callable[[], TraceStore]) -> None:
    with pytest.raises(ContractError) as error:
        check_trace_store(make)
    assert error.value.rule == rule, str(error.value)


def test_every_rule_has_a_mutant() -> None:
    assert {rule for rule, _ in MUTANTS} == set(TraceContract.rules())
