"""Expert cache bookkeeping: which experts are resident, in which slot, and who leaves.

No tensor and no clock in here. What is resident depends on the sequence of requests only, so the
simulator and the live backends, which drive the same object, agree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from specfit.core._kernels import mark_needed
from specfit.core.cache._kernels import count_tokens, find_candidates, place, split
from specfit.core.errors import CapacityError, ContractError, InvalidInputError
from specfit.core.experts import ModelGeometry, Residency
from specfit.core.registry import Registry
from specfit.core.units import BYTES, bytes_of, quantity

IdArray = NDArray[np.int64]


@dataclass(frozen=True)
class LoadPlan:
    """What one wave of a layer needs: what is there, what to copy where, who left.

    Parameters
    ----------
    layer : int
        The MoE layer.
    hits : int64[h]
        Needed experts that are resident, ascending.
    hit_slots : int64[h]
        Their slots.
    loads : int64[m]
        Needed experts to copy, ascending.
    load_slots : int64[m]
        The slots to copy them into.
    evictions : int64[k]
        Experts that left to make room, k <= m.
    """

    layer: int
    hits: IdArray
    hit_slots: IdArray
    loads: IdArray
    load_slots: IdArray
    evictions: IdArray


class ExpertCache(ABC):
    """Decides which experts stay in device memory; the same capacity in every layer.

    Lifecycle: `allocate` once for a model, then `note_tokens` and `waves` for each layer of each
    pass, `end_pass` after it, `reset` between requests that must not see each other; `prefetch`
    between passes. One method to write: `choose_victims`.
    """

    is_stack_algorithm: ClassVar[bool] = False
    """Whether more capacity never means more misses."""

    keeps_experts: ClassVar[bool] = True
    """Whether experts stay resident from one pass to the next."""

    counts_tokens: ClassVar[bool] = False
    """Whether the rule looks at what `note_tokens` says."""

    simulator_only: ClassVar[bool] = False
    """Whether only a replay can use it: its slots are not those of one layer."""

    geometry: ModelGeometry
    num_layers: int
    num_experts: int
    capacity: int

    def allocate(self, geometry: ModelGeometry, capacity: int) -> None:
        """Set up empty slots: `capacity` experts in each layer, or all of them if it is more.

        Raises
        ------
        CapacityError
            The slots of a layer cannot hold one token's experts.
        """
        if capacity < geometry.experts_per_token:
            raise CapacityError(
                f"a cache must hold one token's experts, {geometry.experts_per_token} a layer; "
                f"got {capacity} slots a layer. The smallest legal size is "
                f"{geometry.experts_per_token} of {geometry.num_experts} experts.",
                needed=geometry.experts_per_token,
                capacity=capacity,
            )
        self.geometry = geometry
        self.num_layers = geometry.num_layers
        self.num_experts = geometry.num_experts
        self.capacity = min(capacity, geometry.num_experts)
        self.reset()

    def reset(self) -> None:
        """Forget everything: no expert is resident, every slot is free."""
        shape = (self.num_layers, self.num_experts)
        self._slots = np.full(shape, -1, np.int64)  # slot of each expert, -1: not resident
        self._last_used = np.zeros(shape, np.int64)  # number of the last request that needed it
        self._loaded = np.zeros(shape, np.int64)  # number of the request that loaded it
        self._num_requests = 0

    @abstractmethod
    def choose_victims(self, layer: int, candidates: IdArray, count: int) -> IdArray:
        """Return the `count` experts of `candidates` (resident, not needed now) that leave."""

    def residency(self) -> Residency:
        """Return the experts that are resident now."""
        return Residency(self._slots >= 0)

    def slot_of(self, layer: int) -> IdArray:
        """Return the slot of each expert of `layer`, int64[E]; -1 where it is not resident."""
        slots: IdArray = self._slots[layer]
        return slots

    def waves(self, layer: int, experts: IdArray) -> Iterator[LoadPlan]:
        """Yield the load plans that bring every needed expert of a layer in, in order.

        The first wave holds all that are resident. An expert needed in this pass is evicted only
        after its wave has been consumed, so the caller must finish with a wave before it asks for
        the next.

        Parameters
        ----------
        layer : int
            The MoE layer.
        experts : int64[u]
            Distinct experts that the pass needs there, ascending.
        """
        if len(experts) <= self.capacity:
            if len(experts):
                yield self.request(layer, experts)
            return
        resident = self._slots[layer, experts] >= 0
        hits, missing = experts[resident], experts[~resident]
        first = self.capacity - len(hits)
        yield self.request(layer, np.sort(np.concatenate([hits, missing[:first]])))
        for start in range(first, len(missing), self.capacity):
            yield self.request(layer, missing[start : start + self.capacity])

    def request(self, layer: int, experts: IdArray) -> LoadPlan:
        """Make the given distinct experts resident together and return what that takes.

        Raises
        ------
        CapacityError
            There are more of them than slots; use `waves`.
        """
        if len(experts) > self.capacity:
            raise CapacityError(
                f"cannot hold {len(experts)} experts of layer {layer} in {self.capacity} slots. "
                f"Run the layer in waves.",
                needed=len(experts),
                capacity=self.capacity,
            )
        self._num_requests += 1
        plan = self._bring_in(layer, experts)
        self._last_used[layer, experts] = self._num_requests
        return plan

    def prefetch(self, layer: int, experts: IdArray) -> LoadPlan:
        """Make experts resident that a coming pass may need; it counts as no use of them.

        Parameters
        ----------
        experts : int64[u]
            Distinct experts, the most wanted first; those beyond the slots are left out. Residents
            among them stay, others leave for them as the rule has it.

        Returns
        -------
        LoadPlan
            Its hits are the ones that were there already.
        """
        self._num_requests += 1
        return self._bring_in(layer, np.sort(experts[: self.capacity]))

    def note_tokens(self, layer: int, tokens: IdArray) -> None:  # noqa: B027 - optional hook
        """Hear how many tokens of the coming pass go to each expert of a layer, int64[E]."""

    def run_pass(self, routing: NDArray[np.int16]) -> IdArray:
        """Take a whole pass through the cache, layer by layer, and end it, where nothing is copied.

        Parameters
        ----------
        routing : int16[n, L, K]
            Experts of each token of the pass.

        Returns
        -------
        int64[3, L]
            Hits, misses and evictions of each layer.
        """
        counts = np.zeros((3, self.num_layers), np.int64)
        for wave in self.pass_waves(routing):
            counts[:, wave.layer] += len(wave.hits), len(wave.loads), len(wave.evictions)
        return counts

    def pass_waves(self, routing: NDArray[np.int16]) -> Iterator[LoadPlan]:
        """Yield the load plans of a whole pass, layer by layer, and end it.

        Parameters
        ----------
        routing : int16[n, L, K]
            Experts of each token of the pass.
        """
        self._note_pass(routing)
        needed = needed_by(routing, self.geometry)
        for layer in range(self.num_layers):
            yield from self.waves(layer, np.flatnonzero(needed[layer]))
        self.end_pass()

    def run_passes(self, routing: NDArray[np.int16], sizes: IdArray) -> IdArray:
        """Take passes through the cache one after the other, each as `run_pass` does.

        Parameters
        ----------
        routing : int16[T, L, K]
            Experts of each token of all passes.
        sizes : int64[P]
            Tokens of each pass, 1 or more; they sum to T.

        Returns
        -------
        int64[3, L]
            Hits, misses and evictions of each layer in all passes together.
        """
        counts = np.zeros((3, self.num_layers), np.int64)
        first = 0
        for size in sizes.tolist():
            counts += self.run_pass(routing[first : first + size])
            first += size
        return counts

    def end_pass(self) -> None:  # noqa: B027 - optional hook
        """Tell the cache that a pass is over; nothing to do for most rules."""

    def _bring_in(self, layer: int, experts: IdArray) -> LoadPlan:
        """Make distinct experts, ascending and no more than the slots, resident together."""
        slots = self._slots[layer]
        hits, hit_slots, loads = np.empty((3, len(experts)), np.int64)
        num_hits = split(slots, experts, hits, hit_slots, loads)
        hits, hit_slots = hits[:num_hits], hit_slots[:num_hits]
        loads = loads[: len(experts) - num_hits]
        load_slots = victims = loads[:0]
        if len(loads):
            victims = self._victims(layer, experts, len(loads))
            load_slots = self._place(slots, hits, loads, victims)
            self._loaded[layer, loads] = self._num_requests
        return LoadPlan(layer, hits, hit_slots, loads, load_slots, victims)

    def _note_pass(self, routing: NDArray[np.int16]) -> None:
        """Call `note_tokens` for every layer of a pass."""
        if self.counts_tokens:
            tokens = np.zeros((self.num_layers, self.num_experts), np.int64)
            count_tokens(routing, tokens)
            for layer in range(self.num_layers):
                self.note_tokens(layer, tokens[layer])

    def _victims(self, layer: int, experts: IdArray, num_loads: int) -> IdArray:
        """Return the experts that leave so that `num_loads` find room beside those needed."""
        candidates = np.empty(self.num_experts, np.int64)
        count, num_resident = find_candidates(self._slots[layer], experts, candidates)
        excess = num_resident + num_loads - self.capacity
        if excess <= 0:
            return candidates[:0]
        return self.choose_victims(layer, candidates[:count], excess)

    def _place(self, slots: IdArray, hits: IdArray, loads: IdArray, victims: IdArray) -> IdArray:
        load_slots = np.empty(len(loads), np.int64)
        if not place(slots, hits, loads, victims, np.zeros(self.capacity, bool), load_slots):
            raise ContractError(
                "E3",
                f"choose_victims of {type(self).__name__} must return as many distinct candidates "
                f"as it was asked for; got {np.asarray(victims).tolist()}.",
            )
        return load_slots


caches: Registry[ExpertCache] = Registry("cache", "specfit.caches")


def needed_by(routing: NDArray[np.int16], geometry: ModelGeometry) -> NDArray[np.bool_]:
    """Return the experts that a pass needs, bool[L, E]; routing is int16[n, L, K]."""
    needed = np.zeros((geometry.num_layers, geometry.num_experts), bool)
    mark_needed(needed, routing)
    return needed


def make_cache(spec: str, geometry: ModelGeometry, *, live: bool = False) -> ExpertCache:
    """Return an allocated cache from text: ``lru:25%``, ``lru:16``, ``lru:8GiB`` or ``none``.

    Parameters of the rule follow the size: ``lfu:25%,decay=0.9``.

    Parameters
    ----------
    live : bool
        Whether real slots are to follow it.

    Raises
    ------
    UnknownPluginError, InvalidInputError, CapacityError
        The rule is unknown or cannot be used live, the size is no size, or it cannot hold one
        token's experts.
    """
    name, _, rest = spec.partition(":")
    size, _, params = rest.partition(",")
    cache = caches.make(f"{name}:{params}")
    if live and cache.simulator_only:
        raise InvalidInputError(
            f"the cache '{name}' must be replayed: it exists in the simulator only. "
            f"Give lru:{size or '25%'} to decode."
        )
    default = str(geometry.experts_per_token) if name == "none" else ""
    cache.allocate(geometry, cache_capacity(size or default, geometry))
    return cache


def cache_capacity(size: str, geometry: ModelGeometry) -> int:
    """Return the experts a layer that a size means: ``16`` experts, ``25%`` of all, or ``8GiB``.

    Raises
    ------
    InvalidInputError
        The text is no size.
    """
    number, unit = quantity(size) or (0.0, "no unit")
    if unit == "%":
        if not 0 < number <= 100:
            raise InvalidInputError(f"a share is above 0% and at most 100%; got '{size}'.")
        return round(number / 100 * geometry.num_experts)
    if unit in BYTES:
        return bytes_of(size) // (geometry.expert_bytes * geometry.num_layers)
    if unit or not number.is_integer():
        raise InvalidInputError(
            f"a cache size is a number of experts a layer (16), a share of all (25%) or bytes "
            f"(8GiB); got '{size}'."
        )
    return int(number)
