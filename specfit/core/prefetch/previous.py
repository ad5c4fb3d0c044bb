"""The previous token's experts again: what the newest tokens whose routing is known needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.prefetch.base import Prefetcher, PrefetchView, prefetchers


@prefetchers.register("previous")
@dataclass
class PreviousToken(Prefetcher):
    """Want the experts of the last committed tokens; those of newer ones more.

    Under a cache of recent experts most of them are resident already; it is the baseline that any
    prediction has to beat.

    Parameters
    ----------
    num_tokens : int
        Tokens to look back at.
    """

    before_drafting: ClassVar[bool] = True

    num_tokens: int = 1

    def __post_init__(self) -> None:
        if self.num_tokens < 1:
            raise InvalidInputError(f"num_tokens must be 1 or more; got {self.num_tokens}.")

    def wanted(self, view: PrefetchView) -> NDArray[np.float32]:
        """See `Prefetcher.wanted`."""
        wanted = view.nothing()
        layers = np.arange(view.geometry.num_layers)[:, None]
        for age, routing in enumerate(view.history.recent(self.num_tokens)[::-1]):
            known = wanted[layers, routing]
            wanted[layers, routing] = np.maximum(known, np.float32(1 / (1 + age)))
        return wanted
