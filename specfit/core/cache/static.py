"""Static hot list: the hottest experts of a fixed list stay, all others pass through.

Published systems pin a list of experts that was found by profiling and stream the rest through a
staging buffer. Here the experts that a pass needs beyond the list take the slots of the coldest
ones, and leave first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from specfit.core.cache.base import IdArray, caches
from specfit.core.cache.keyed import KeyedCache
from specfit.core.errors import InvalidInputError
from specfit.core.experts import ModelGeometry


@caches.register("static")
@dataclass(eq=False)
class Static(KeyedCache):
    """Evict the coldest experts by a fixed list; of equally cold ones the least recently used.

    Parameters
    ----------
    hot : str
        JSON file that holds, for each layer, a list of experts, hottest first; what it does not
        name is coldest. Without one, experts are as hot as the first pass of the request (the
        first chunk of its prompt) has tokens for them.
    """

    counts_tokens: ClassVar[bool] = True

    hot: str = ""

    def allocate(self, geometry: ModelGeometry, capacity: int) -> None:
        """See `ExpertCache.allocate`.

        Raises
        ------
        InvalidInputError
            The list cannot be read or names other experts than the model has.
        """
        self._listed = _read_heat(Path(self.hot), geometry) if self.hot else None
        super().allocate(geometry, capacity)

    def reset(self) -> None:
        """See `ExpertCache.reset`."""
        super().reset()
        self._is_learning = self._listed is None
        self._tokens = np.zeros((self.num_layers, self.num_experts), np.int64)
        self._heat = self._tokens if self._listed is None else self._listed

    @property
    def keys(self) -> IdArray:
        """Heat of each expert."""
        return self._heat

    @property
    def ties(self) -> IdArray:
        """Number of the last request that needed each expert."""
        return self._last_used

    def note_tokens(self, layer: int, tokens: IdArray) -> None:
        """See `ExpertCache.note_tokens`."""
        if self._is_learning:
            self._tokens[layer] += tokens

    def end_pass(self) -> None:
        """See `ExpertCache.end_pass`."""
        if self._is_learning:
            self._heat = self._tokens.copy()
            self._is_learning = False


def _read_heat(path: Path, geometry: ModelGeometry) -> IdArray:
    """Return the heat of each expert by a list, int64[L, E]; 0 where it is not named."""
    try:
        layers = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"cannot read the hot list {path}: {error}.") from error
    if not (isinstance(layers, list) and len(layers) == geometry.num_layers):
        raise InvalidInputError(
            f"{path} must hold a list of experts for each of the {geometry.num_layers} layers."
        )
    heat = np.zeros((geometry.num_layers, geometry.num_experts), np.int64)
    for layer, experts in enumerate(layers):
        if not _are_experts(experts, geometry.num_experts):
            raise InvalidInputError(
                f"{path}, layer {layer}: a hot list names different experts of 0 to "
                f"{geometry.num_experts - 1}, hottest first; got {str(experts)[:80]}."
            )
        heat[layer, experts] = np.arange(len(experts), 0, -1)
    return heat


def _are_experts(experts: object, num_experts: int) -> bool:
    if not isinstance(experts, list) or not all(type(expert) is int for expert in experts):
        return False
    return len(set(experts)) == len(experts) and all(0 <= e < num_experts for e in experts)
