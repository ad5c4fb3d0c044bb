"""For each rule of the prefetcher contract a prefetcher that breaks only that rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from specfit.core.errors import ContractError
from specfit.core.prefetch import Prefetcher, PrefetchView, PreviousToken
from specfit.sim.prefetch_oracle import OraclePrefetch
from specfit.testing.prefetch_contract import PrefetcherContract, check_prefetcher
from specfit.testing.toy import ToyBackend


@dataclass
class Sound(PreviousToken):
    """Wants the experts of the last two tokens; asked once the selection is known."""

    before_drafting: ClassVar[bool] = False
    num_tokens: int = 2


class Early(Sound):
    before_drafting: ClassVar[bool] = True


class Transposed(Sound):
    def wanted(self, view: PrefetchView) -> NDArray[np.float32]:
        return super().wanted(view).T


class Wide(Sound):
    def wanted(self, view: PrefetchView) -> NDArray[np.float32]:
        return super().wanted(view).astype(np.float64)  # type: ignore[return-value]


class Dislikes(Sound):
    def wanted(self, view: PrefetchView) -> NDArray[np.float32]:
        return super().wanted(view) - np.float32(0.5)


class DividesByNothing(Sound):
    def wanted(self, view: PrefetchView) -> NDArray[np.float32]:
        wanted = super().wanted(view)
        with np.errstate(invalid="ignore"):
            return wanted / wanted.max()


class Wanders(Sound):
    """Wants one more expert, another one at each question."""

    count = 0

    def wanted(self, view: PrefetchView) -> NDArray[np.float32]:
        Wanders.count += 1
        wanted = super().wanted(view)
        wanted[0, Wanders.count % wanted.shape[1]] = 2.0
        return wanted


class Remembers(Sound):
    """Wants what it wanted for earlier histories too."""

    def wanted(self, view: PrefetchView) -> NDArray[np.float32]:
        kept: NDArray[np.float32] = getattr(self, "kept", view.nothing())
        self.kept = np.maximum(kept, super().wanted(view))
        return self.kept


class Peeks(Sound):
    """Asks the backend for the routing before the target has run."""

    def connect(self, backend: ToyBackend) -> None:
        self.backend = backend

    def wanted(self, view: PrefetchView) -> NDArray[np.float32]:
        assert view.cycle is not None
        wanted = view.nothing()
        routing = self.backend.node_routing(view.cycle.tree)
        wanted[np.arange(len(wanted))[:, None], routing[0]] = 1.0
        return wanted


class ForgetsTheNewest(Sound):
    """Drops a token of the history it was shown; wants nothing."""

    def wanted(self, view: PrefetchView) -> NDArray[np.float32]:
        view.history._length = max(0, view.history._length - 1)
        return view.nothing()


class LengthensTheHistory(Sound):
    """Adds a token that nobody saw; wants nothing."""

    def wanted(self, view: PrefetchView) -> NDArray[np.float32]:
        view.history._length += 1
        return view.nothing()


MUTANTS: list[tuple[str, Callable[[], Prefetcher]]] = [
    ("F1", Transposed),
    ("F1", Wide),
    ("F2", Dislikes),
    ("F2", DividesByNothing),
    ("F3", Wanders),
    ("F3", Remembers),
    ("F4", Peeks),
    ("F4", OraclePrefetch),
    ("F5", ForgetsTheNewest),
    ("F5", LengthensTheHistory),
]


@pytest.mark.parametrize("make", [Sound, Early])
def test_a_sound_prefetcher_passes(make: Callable[[], Prefetcher]) -> None:
    assert check_prefetcher(make) == [f"F{i}" for i in range(1, 6)]


@pytest.mark.parametrize(("rule", "make"), MUTANTS)
def test_the_broken_rule_is_named(rule: str, make: Callable[[], Prefetcher]) -> None:
    with pytest.raises(ContractError) as error:
        check_prefetcher(make)
    assert error.value.rule == rule, str(error.value)


def test_every_rule_has_a_mutant() -> None:
    assert {rule for rule, _ in MUTANTS} == set(PrefetcherContract.rules())
