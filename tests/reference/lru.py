"""Least recently used with dicts: obvious and slow."""

from __future__ import annotations


class ReferenceLru:
    """One layer of slots; of equally old experts the lowest id leaves first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.last_used: dict[int, int] = {}  # of the resident experts
        self.slots: dict[int, int] = {}
        self.time = 0

    def request(self, experts: list[int]) -> tuple[list[int], list[int], list[int]]:
        """Return hits, loads and evictions."""
        self.time += 1
        hits = [e for e in experts if e in self.slots]
        loads = [e for e in experts if e not in self.slots]
        idle = sorted(set(self.slots) - set(experts), key=lambda e: (self.last_used[e], e))
        evictions = sorted(idle[: max(0, len(self.slots) + len(loads) - self.capacity)])
        for expert in evictions:
            del self.slots[expert], self.last_used[expert]
        free = sorted(set(range(self.capacity)) - set(self.slots.values()))
        self.slots.update(zip(loads, free, strict=False))
        self.last_used.update(dict.fromkeys(experts, self.time))
        return hits, loads, evictions
