"""Cache rules with dicts and lists: obvious and slow. One layer each, one request a pass."""

from __future__ import annotations

import numpy as np


class Reference:
    """Evicts what `rank` puts first, of equal ones the lowest id."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.time = 0
        self.resident: list[int] = []  # oldest first
        self.uses: dict[int, list[int]] = {}  # times of every use

    def request(self, experts: list[int]) -> tuple[list[int], list[int]]:
        """Return loads and evictions of a pass."""
        loads = [e for e in experts if e not in self.resident]
        excess = max(0, len(self.resident) + len(loads) - self.capacity)
        victims = self.victims([e for e in self.resident if e not in experts], excess)
        self.resident = [e for e in self.resident if e not in victims] + loads
        for expert in experts:
            self.uses.setdefault(expert, []).append(self.time)
        self.time += 1
        return loads, sorted(victims)

    def victims(self, idle: list[int], excess: int) -> list[int]:
        return sorted(idle, key=lambda e: (self.rank(e), e))[:excess]

    def rank(self, expert: int) -> float:
        raise NotImplementedError


class Fifo(Reference):
    def victims(self, idle: list[int], excess: int) -> list[int]:
        return idle[:excess]


class Lru(Reference):
    def rank(self, expert: int) -> float:
        return self.uses[expert][-1]


class Lfu(Reference):
    def rank(self, expert: int) -> float:
        # in logs, and summed in the same order, so that ties are ties
        log_uses = -np.inf
        for time in self.uses[expert]:
            log_uses = np.logaddexp(log_uses, -time * np.log(0.95))
        return float(log_uses)


class Lfru(Reference):
    def rank(self, expert: int) -> float:
        return len(self.uses[expert]) / (self.time - self.uses[expert][-1] + 1)


class Random(Reference):
    def victims(self, idle: list[int], excess: int) -> list[int]:
        if excess == 0:
            return []
        generator = np.random.default_rng([0, self.time + 1])
        return [int(e) for e in generator.choice(sorted(idle), excess, replace=False)]


class Sieve(Reference):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.marked: set[int] = set()
        self.hand: int | None = None

    def request(self, experts: list[int]) -> tuple[list[int], list[int]]:
        hits = [e for e in experts if e in self.resident]
        loads, victims = super().request(experts)
        self.marked = (self.marked | set(hits)) - set(loads)
        return loads, victims

    def victims(self, idle: list[int], excess: int) -> list[int]:
        victims: list[int] = []
        while len(victims) < excess:
            expert = self.resident[0] if self.hand is None else self.hand
            later = self.resident[self.resident.index(expert) + 1 :]
            self.hand = later[0] if later else None
            if expert in idle and expert not in victims:
                if expert in self.marked:
                    self.marked.remove(expert)
                else:
                    victims.append(expert)
        while self.hand in victims:
            later = self.resident[self.resident.index(self.hand) + 1 :]
            self.hand = later[0] if later else None
        return victims


class TokenReference(Reference):
    """A rule that hears the tokens of each expert before a pass."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.tokens: dict[int, int] = {}

    def note(self, tokens: dict[int, int]) -> None:
        self.tokens = tokens


class Spac(TokenReference):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.states: dict[int, int] = {}

    def victims(self, idle: list[int], excess: int) -> list[int]:
        order = sorted(idle, key=lambda e: (self.states.get(e, 0), self.uses[e][-1], e))
        return order[:excess]

    def request(self, experts: list[int]) -> tuple[list[int], list[int]]:
        answer = super().request(experts)
        for expert in {*self.states, *self.tokens}:
            state, count = self.states.get(expert, 0), self.tokens.get(expert, 0)
            if count - state >= 5:
                self.states[expert] = min(5, state + 1)
            elif state - count >= 1:
                self.states[expert] = state - 1
        return answer


class Static(TokenReference):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.heat: dict[int, int] | None = None

    def victims(self, idle: list[int], excess: int) -> list[int]:
        heat = self.heat or {}
        order = sorted(idle, key=lambda e: (heat.get(e, 0), self.uses[e][-1], e))
        return order[:excess]

    def request(self, experts: list[int]) -> tuple[list[int], list[int]]:
        answer = super().request(experts)
        if self.heat is None:
            self.heat = self.tokens
        return answer
