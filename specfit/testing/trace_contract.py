"""What every store of traces keeps: what was recorded comes back, damage is refused, it replays."""

from __future__ import annotations

import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specfit.core.backend import Backend, Request
from specfit.core.decode import DecodeResult
from specfit.core.errors import TraceCoverageError, TraceFormatError
from specfit.core.policy import Policy
from specfit.core.tree import DraftPlan, DraftTree
from specfit.testing._fixed_policies import FirstNodes
from specfit.testing.contract import Contract, check, require
from specfit.testing.random_policy import RandomPolicy
from specfit.testing.toy import toy_backend

REQUESTS = tuple(Request(tuple(range(1, 8 + i)), 16) for i in range(2))
CACHE = "lru:50%"


@dataclass(frozen=True, eq=False)
class RecordedCycle:
    """One cycle as a store gives it back.

    Parameters
    ----------
    prompt : int
        Index of its prompt.
    tree : DraftTree
        Everything that was drafted.
    nodes : int64[n]
        Verified nodes, ascending.
    target_tokens : int64[n]
        The target's own token after each of them.
    routing : int16[n, L, K]
        Experts of each of them.
    committed : tuple of int
        Committed tokens.
    """

    prompt: int
    tree: DraftTree
    nodes: np.ndarray[Any, np.dtype[np.int64]]
    target_tokens: np.ndarray[Any, np.dtype[np.int64]]
    routing: np.ndarray[Any, np.dtype[np.int16]]
    committed: tuple[int, ...]


class TraceStore(ABC):
    """A way to keep runs in a folder of files, and to replay them."""

    @abstractmethod
    def record(
        self, folder: Path, backend: Backend, policy: Policy, requests: Sequence[Request]
    ) -> list[DecodeResult]:
        """Decode the requests, write what happened to a folder, and return it."""

    @abstractmethod
    def stream(self, folder: Path) -> Iterator[RecordedCycle]:
        """Yield the recorded cycles in order, reading as it goes."""

    @abstractmethod
    def load(self, folder: Path) -> list[RecordedCycle]:
        """Return all recorded cycles at once."""

    @abstractmethod
    def replay(self, folder: Path, policy: Policy, cache: str) -> list[DecodeResult]:
        """Decide the recorded run again, without looking at what was decided."""


class TraceContract(Contract):
    """T1 to T5. ``make`` returns the `TraceStore`."""

    def test_t1_what_is_written_is_read(self) -> None:
        """Trees, verified nodes, the target's answers, routing and committed tokens come back."""
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "run"
            results = self._record(folder)
            cycles = self._store().load(folder)
        live = [(i, c.outcome) for i, r in enumerate(results) for c in r.cycles]
        require(len(cycles) == len(live), "T1", f"{len(cycles)} cycles, not {len(live)}")
        for number, (cycle, (prompt, outcome)) in enumerate(zip(cycles, live, strict=True)):
            answer = outcome.verification
            parts: dict[str, tuple[Any, Any]] = {
                "prompt": (cycle.prompt, prompt),
                "tokens": (cycle.tree.tokens, outcome.cycle.tree.tokens),
                "parents": (cycle.tree.parents, outcome.cycle.tree.parents),
                "log_probs": (cycle.tree.log_probs, outcome.cycle.tree.log_probs),
                "nodes": (cycle.nodes, answer.nodes),
                "target_tokens": (cycle.target_tokens, answer.target_tokens),
                "routing": (cycle.routing, answer.routing),
                "committed": (cycle.committed, outcome.committed),
            }
            for name, (read, written) in parts.items():
                require(np.array_equal(read, written), "T1", f"cycle {number}: other {name}")

    def test_t2_damage_is_refused(self) -> None:
        """Truncated or flipped files and a newer version raise; nothing is read wrong."""
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "run"
            self._record(folder)
            whole = self._store().load(folder)
            for path in sorted(folder.iterdir()):
                content = path.read_bytes()
                for name, damaged in _damage(content):
                    path.write_bytes(damaged)
                    self._require_refused(folder, f"{path.name}, {name}", whole)
                path.write_bytes(content)
            self._newer_version(folder)

    def test_t3_streaming_equals_loading(self) -> None:
        """The cycles that are read one by one are those that are read at once."""
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "run"
            self._record(folder)
            streamed, loaded = list(self._store().stream(folder)), self._store().load(folder)
        require(_same(streamed, loaded), "T3", "streaming gives other cycles than loading")

    def test_t4_a_run_replays(self) -> None:
        """The same policy selects, accepts, hits, misses and evicts the same, cycle by cycle."""
        policy = RandomPolicy(max_top_k=1)
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "run"
            live = self._record(folder, policy)
            again = self._store().replay(folder, policy, CACHE)
        require(len(again) == len(live), "T4", f"{len(again)} texts, not {len(live)}")
        for ours, theirs in zip(again, live, strict=True):
            require(ours.tokens == theirs.tokens, "T4", "another text")
            for number, (a, b) in enumerate(zip(ours.cycles, theirs.cycles, strict=True)):
                same = np.array_equal(a.outcome.selection.mask, b.outcome.selection.mask)
                require(same, "T4", f"cycle {number}: another selection")
                require(a.outcome.accepted == b.outcome.accepted, "T4", f"cycle {number}: accepted")
                for name in ("num_hits", "num_misses", "num_evictions"):
                    x, y = (getattr(c.outcome.verification, name) for c in (a, b))
                    require(np.array_equal(x, y), "T4", f"cycle {number}: other {name}")

    def test_t5_what_was_not_recorded_is_refused(self) -> None:
        """A policy that asks for another plan gets `TraceCoverageError`, never a guess."""
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "run"
            self._record(folder, FirstNodes(DraftPlan(2, 1, 3)))
            try:
                self._store().replay(folder, FirstNodes(DraftPlan(3, 3, 9)), CACHE)
            except TraceCoverageError:
                return
        require(False, "T5", "a plan that was not recorded must raise TraceCoverageError")

    def _store(self) -> TraceStore:
        store: TraceStore = self.make()
        return store

    def _record(self, folder: Path, policy: Policy | None = None) -> list[DecodeResult]:
        policy = policy or FirstNodes(DraftPlan(3, 2, 7))
        return self._store().record(folder, toy_backend(CACHE), policy, REQUESTS)

    def _require_refused(self, folder: Path, what: str, whole: list[RecordedCycle]) -> None:
        try:
            read = self._store().load(folder)
        except TraceFormatError:
            return
        require(_same(read, whole), "T2", f"{what}: read as if nothing were wrong")

    def _newer_version(self, folder: Path) -> None:
        for path in folder.glob("*.json"):
            table = json.loads(path.read_text("utf-8"))
            for key in [key for key in table if "version" in key]:
                path.write_text(json.dumps({**table, key: 10**6}), "utf-8")
                try:
                    self._store().load(folder)
                except TraceFormatError:
                    continue
                require(False, "T2", f"{path.name}: version 1000000 is read")


def check_trace_store(make: Callable[[], TraceStore]) -> list[str]:
    """Check a store of traces against its contract; see `TraceContract`."""
    return check(TraceContract, make)


def _damage(content: bytes) -> Iterator[tuple[str, bytes]]:
    yield "empty", b""
    yield "cut in half", content[: len(content) // 2]
    yield "cut by a byte", content[:-1]
    for at in (len(content) // 3, len(content) // 2, max(0, len(content) - 40)):
        flipped = bytearray(content)
        flipped[at] ^= 16
        yield f"byte {at} flipped", bytes(flipped)


def _same(ours: Sequence[RecordedCycle], theirs: Sequence[RecordedCycle]) -> bool:
    def key(cycle: RecordedCycle) -> tuple[Any, ...]:
        tree = cycle.tree
        arrays = (tree.tokens, tree.parents, tree.log_probs, tree.ranks, tree.entropies)
        answers = (cycle.nodes, cycle.target_tokens, cycle.routing)
        return cycle.prompt, cycle.committed, *(a.tobytes() for a in (*arrays, *answers))

    return [key(cycle) for cycle in ours] == [key(cycle) for cycle in theirs]
