"""The bookkeeping of one request to an expert cache, on flat arrays.

Convention. ``slots`` is int64[E], the slot of each expert of the layer or -1; ``experts`` is
int64[u], distinct and ascending. Outputs are allocated by the caller. No kernel validates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specfit.core._jit import kernel


@kernel
def split(slots: Any, experts: Any, hits: Any, hit_slots: Any, loads: Any) -> int:
    """Part `experts` into resident ones with their slots and missing ones; return the hits."""
    num_hits = 0
    num_loads = 0
    for expert in experts:
        if slots[expert] >= 0:
            hits[num_hits] = expert
            hit_slots[num_hits] = slots[expert]
            num_hits += 1
        else:
            loads[num_loads] = expert
            num_loads += 1
    return num_hits


@kernel
def find_candidates(slots: Any, experts: Any, candidates: Any) -> tuple[int, int]:
    """Fill in the residents that are not needed, ascending; return how many, and all residents."""
    num_candidates = 0
    num_resident = 0
    at = 0
    for expert in range(slots.size):
        while at < experts.size and experts[at] < expert:
            at += 1
        if slots[expert] >= 0:
            num_resident += 1
            if at == experts.size or experts[at] != expert:
                candidates[num_candidates] = expert
                num_candidates += 1
    return num_candidates, num_resident


@kernel
def place(slots: Any, hits: Any, loads: Any, victims: Any, taken: Any, load_slots: Any) -> bool:
    """Free the victims' slots and give the lowest free slots to `loads`, in order.

    Return False, with `slots` as far as it got, where a victim is not resident, or is a hit, or
    there are too few of them. ``taken`` is bool[capacity] of scratch, all False.
    """
    for victim in victims:
        if victim < 0 or victim >= slots.size or slots[victim] < 0:
            return False
        slots[victim] = -1
    for hit in hits:
        if slots[hit] < 0:
            return False
    for slot in slots:
        if slot >= 0:
            taken[slot] = True
    slot = 0
    for i in range(loads.size):
        while slot < taken.size and taken[slot]:
            slot += 1
        if slot == taken.size:
            return False
        slots[loads[i]] = slot
        load_slots[i] = slot
        slot += 1
    return True


@kernel
def take_smallest(keys: Any, candidates: Any, chosen: Any) -> None:
    """Fill `chosen` with the candidates of the smallest keys, ties to the lower id, ascending.

    ``keys`` is int64[E]; `candidates` is ascending and at least as long as `chosen`.
    """
    if chosen.size == candidates.size:
        chosen[:] = candidates
        return
    count = 0
    for candidate in candidates:
        if count == chosen.size and keys[candidate] >= keys[chosen[count - 1]]:
            continue
        at = count if count < chosen.size else count - 1
        while at > 0 and keys[candidate] < keys[chosen[at - 1]]:
            chosen[at] = chosen[at - 1]
            at -= 1
        chosen[at] = candidate
        count = min(count + 1, chosen.size)
    chosen.sort()


@kernel
def mark_needed(routing: Any, needed: Any) -> None:
    """Set ``needed[l, e]`` where a token of ``routing``, int16[n, L, K], goes to expert e."""
    for token in range(routing.shape[0]):
        for layer in range(routing.shape[1]):
            for k in range(routing.shape[2]):
                needed[layer, routing[token, layer, k]] = True


@kernel
def serve_pass(
    slots: Any,
    keys: Any,
    last_used: Any,
    loaded: Any,
    needed: Any,
    capacity: int,
    num_requests: int,
    counts: Any,
) -> int:
    """Take a pass through a cache whose smallest keys leave first; return the requests so far.

    ``slots``, ``keys``, ``last_used`` and ``loaded`` are int64[L, E], ``needed`` bool[L, E];
    ``counts`` is int64[3, L] of hits, misses and evictions. ``keys`` may be ``last_used`` or
    ``loaded`` itself. Equal to `ExpertCache.waves` layer by layer, but goes by the slots, which are
    fewer than the experts.
    """
    experts = np.empty(needed.shape[1], np.int64)
    owners = np.empty(capacity, np.int64)
    wanted_by = np.zeros(needed.shape[1], np.int64)
    victims = np.empty(capacity, np.int64)
    for layer in range(needed.shape[0]):
        num_hits, num_experts = _hits_first(slots[layer], needed[layer], experts)
        _fill_owners(slots[layer], owners)
        start, stop = 0, min(num_experts, capacity)
        experts[:stop].sort()
        while start < num_experts:
            num_requests += 1
            counts[2, layer] += _serve_wave(
                slots[layer],
                owners,
                keys[layer],
                last_used[layer],
                loaded[layer],
                experts[start:stop],
                num_requests,
                wanted_by,
                victims,
            )
            start, stop = stop, min(num_experts, stop + capacity)
        counts[0, layer] += num_hits
        counts[1, layer] += num_experts - num_hits
    return num_requests


@kernel
def _hits_first(slots: Any, needed: Any, experts: Any) -> tuple[int, int]:
    """Fill in the needed experts, residents first, each part ascending; return hits and all."""
    count = 0
    for expert in range(needed.size):
        if needed[expert] and slots[expert] >= 0:
            experts[count] = expert
            count += 1
    num_hits = count
    for expert in range(needed.size):
        if needed[expert] and slots[expert] < 0:
            experts[count] = expert
            count += 1
    return num_hits, count


@kernel
def _fill_owners(slots: Any, owners: Any) -> None:
    """Set ``owners[slot]`` to the expert in it, -1 where it is free."""
    owners[:] = -1
    for expert in range(slots.size):
        if slots[expert] >= 0:
            owners[slots[expert]] = expert


@kernel
def _serve_wave(
    slots: Any,
    owners: Any,
    keys: Any,
    last_used: Any,
    loaded: Any,
    experts: Any,
    request: int,
    wanted_by: Any,
    victims: Any,
) -> int:
    """Make the experts of one wave resident; return how many left.

    ``owners`` and ``victims`` are int64[capacity]; ``wanted_by`` is int64[E], the last request that
    wanted each expert.
    """
    num_loads = 0
    for expert in experts:
        wanted_by[expert] = request
        num_loads += slots[expert] < 0
    num_free = 0
    for owner in owners:
        num_free += owner < 0
    excess = max(0, num_loads - num_free)
    if excess:
        _choose_victims(owners, keys, wanted_by, request, victims[:excess])
        for victim in victims[:excess]:
            owners[slots[victim]] = -1
            slots[victim] = -1
    slot = 0
    for expert in experts:
        if slots[expert] < 0:
            while owners[slot] >= 0:
                slot += 1
            owners[slot] = expert
            slots[expert] = slot
            loaded[expert] = request
        last_used[expert] = request
    return excess


@kernel
def _choose_victims(owners: Any, keys: Any, wanted_by: Any, request: int, victims: Any) -> None:
    """Fill in the residents of the smallest keys that `request` does not want; lower ids first."""
    count = 0
    for owner in owners:
        if owner < 0 or wanted_by[owner] == request:
            continue
        at = count
        while at > 0 and (
            keys[owner] < keys[victims[at - 1]]
            or (keys[owner] == keys[victims[at - 1]] and owner < victims[at - 1])
        ):
            if at < victims.size:
                victims[at] = victims[at - 1]
            at -= 1
        if at < victims.size:
            victims[at] = owner
            count = min(count + 1, victims.size)
