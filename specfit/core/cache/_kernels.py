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
def take_smallest(keys: Any, ties: Any, candidates: Any, chosen: Any) -> None:
    """Fill `chosen` with the candidates of the smallest keys, ascending.

    ``keys`` and ``ties``, which decide between equal keys, are int64[E]; then the lower id goes.
    `candidates` is at least as long as `chosen`.
    """
    if chosen.size == candidates.size:
        chosen[:] = candidates
        return
    count = 0
    for candidate in candidates:
        at = count
        while at > 0 and _leaves_before(keys, ties, candidate, chosen[at - 1]):
            if at < chosen.size:
                chosen[at] = chosen[at - 1]
            at -= 1
        if at < chosen.size:
            chosen[at] = candidate
            count = min(count + 1, chosen.size)
    chosen.sort()


@kernel
def count_tokens(routing: Any, tokens: Any) -> None:
    """Count in ``tokens[l, e]`` the tokens of ``routing``, int16[n, L, K], that go to expert e."""
    for token in range(routing.shape[0]):
        for layer in range(routing.shape[1]):
            for k in range(routing.shape[2]):
                expert = routing[token, layer, k]
                is_repeated = False
                for before in range(k):
                    is_repeated |= routing[token, layer, before] == expert
                tokens[layer, expert] += not is_repeated


@kernel
def serve_pass(
    slots: Any,
    keys: Any,
    ties: Any,
    last_used: Any,
    loaded: Any,
    needed: Any,
    capacity: int,
    num_requests: int,
    counts: Any,
) -> int:
    """Take a pass through a cache whose smallest keys leave first; return the requests so far.

    ``slots``, ``keys``, ``ties``, ``last_used`` and ``loaded`` are int64[L, E], ``needed`` is
    bool[L, E]; ``counts`` is int64[3, L] of hits, misses and evictions. ``keys`` and ``ties`` may
    be ``last_used`` or ``loaded`` themselves. Equal to `ExpertCache.waves` layer by layer, but goes
    by the slots, which are fewer than the experts.
    """
    experts = np.empty(needed.shape[1], np.int64)
    missing = np.empty(needed.shape[1], np.int64)
    owners = np.empty(capacity, np.int64)
    wanted_by = np.zeros(needed.shape[1], np.int64)
    victims = np.empty(capacity, np.int64)
    for layer in range(needed.shape[0]):
        num_hits, num_experts = look_up(slots[layer], needed[layer], owners, experts, missing)
        start, stop = 0, min(num_experts, capacity)
        while start < num_experts:
            num_requests += 1
            wave = experts[start:stop]
            excess = mark_wave(slots[layer], owners, wave, num_requests, wanted_by)
            if excess:
                _choose_victims(
                    owners, keys[layer], ties[layer], wanted_by, num_requests, victims[:excess]
                )
                free(slots[layer], owners, victims[:excess])
                counts[2, layer] += excess
            fill_slots(slots[layer], owners, last_used[layer], loaded[layer], wave, num_requests)
            start, stop = stop, min(num_experts, stop + capacity)
        counts[0, layer] += num_hits
        counts[1, layer] += num_experts - num_hits
    return num_requests


@kernel
def look_up(slots: Any, needed: Any, owners: Any, experts: Any, missing: Any) -> tuple[int, int]:
    """Fill in the needed experts, residents first, each part ascending; return hits and all.

    Sets ``owners[slot]``, int64[capacity], to the expert in it, -1 where it is free. ``missing`` is
    int64[E] of scratch.
    """
    owners[:] = -1
    num_hits = 0
    num_missing = 0
    for expert in range(needed.size):
        slot = slots[expert]
        if slot >= 0:
            owners[slot] = expert
            if needed[expert]:
                experts[num_hits] = expert
                num_hits += 1
        elif needed[expert]:
            missing[num_missing] = expert
            num_missing += 1
    for i in range(num_missing):
        experts[num_hits + i] = missing[i]
    return num_hits, num_hits + num_missing


@kernel
def mark_wave(slots: Any, owners: Any, experts: Any, request: int, wanted_by: Any) -> int:
    """Note in ``wanted_by``, int64[E], who wants the experts; return how many must leave."""
    num_loads = 0
    for expert in experts:
        wanted_by[expert] = request
        num_loads += slots[expert] < 0
    num_free = 0
    for owner in owners:
        num_free += owner < 0
    return int(max(0, num_loads - num_free))


@kernel
def free(slots: Any, owners: Any, victims: Any) -> None:
    """Free the victims' slots."""
    for victim in victims:
        owners[slots[victim]] = -1
        slots[victim] = -1


@kernel
def fill_slots(
    slots: Any, owners: Any, last_used: Any, loaded: Any, experts: Any, request: int
) -> None:
    """Give the lowest free slots to the missing ones of `experts` and note their use."""
    slot = 0
    for expert in experts:
        if slots[expert] < 0:
            while owners[slot] >= 0:
                slot += 1
            owners[slot] = expert
            slots[expert] = slot
            loaded[expert] = request
        last_used[expert] = request


@kernel
def _choose_victims(
    owners: Any, keys: Any, ties: Any, wanted_by: Any, request: int, victims: Any
) -> None:
    """Fill in the residents of the smallest keys that `request` does not want; lower ids first.

    Where all of them leave, as between the waves of a wide pass, in no order.
    """
    count = 0
    for owner in owners:
        count += owner >= 0 and wanted_by[owner] != request
    leave_all = count == victims.size
    count = 0
    for owner in owners:
        if owner < 0 or wanted_by[owner] == request:
            continue
        if leave_all:
            victims[count] = owner
            count += 1
            continue
        at = count
        while at > 0 and _leaves_before(keys, ties, owner, victims[at - 1]):
            if at < victims.size:
                victims[at] = victims[at - 1]
            at -= 1
        if at < victims.size:
            victims[at] = owner
            count = min(count + 1, victims.size)


@kernel
def _leaves_before(keys: Any, ties: Any, a: int, b: int) -> bool:
    if keys[a] != keys[b]:
        return bool(keys[a] < keys[b])
    if ties[a] != ties[b]:
        return bool(ties[a] < ties[b])
    return a < b
