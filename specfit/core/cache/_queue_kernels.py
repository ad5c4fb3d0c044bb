"""Many passes at once through a cache that is a queue: who leaves first is a linked list.

Convention of `_kernels`. ``after`` and ``before`` are int64[E + 1]: each resident's neighbours in
the queue of a layer; entry E is the ring's seam, after which the first to leave stands.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specfit.core._jit import kernel


@kernel
def serve_passes(
    slots: Any,
    last_used: Any,
    loaded: Any,
    routing: Any,
    sizes: Any,
    capacity: int,
    num_requests: int,
    uses_requeue: bool,
    counts: Any,
) -> int:
    """Take passes of ``sizes``, int64[P], tokens through the cache; return the requests so far.

    ``slots``, ``last_used`` and ``loaded`` are int64[L, E], ``routing`` is int16[T, L, K],
    ``counts`` int64[3, L] of hits, misses and evictions. `uses_requeue`: a use puts an expert to
    the end of the queue (least recently used), and not its loading alone (first in, first out).
    Equal to `ExpertCache.run_pass` pass by pass, but for the numbers of requests, which count those
    of the layer that has most.
    """
    num_experts = slots.shape[1]
    after = np.empty(num_experts + 1, np.int64)
    before = np.empty(num_experts + 1, np.int64)
    owners = np.empty(capacity, np.int64)
    freed = np.empty(capacity, np.int64)
    seen_in = np.empty(num_experts, np.int64)
    wanted_by = np.empty(num_experts, np.int64)
    experts = np.empty(num_experts, np.int64)
    missing = np.empty(num_experts, np.int64)
    most = num_requests
    for layer in range(slots.shape[0]):
        keys = last_used[layer] if uses_requeue else loaded[layer]
        _queue_up(slots[layer], keys, owners, after, before)
        seen_in[:] = -1
        wanted_by[:] = -1
        request = num_requests
        num_free = int(np.sum(owners < 0))
        num_hits, num_misses, num_evictions = 0, 0, 0
        first = 0
        for number in range(sizes.size):
            tokens = routing[first : first + sizes[number], layer]
            first += sizes[number]
            count = _distinct(tokens, number, seen_in, experts)
            start, stop = 0, min(count, capacity)
            if count > capacity:
                num_first = _hits_first(slots[layer], experts, count, missing)
                if 0 < num_first < stop:
                    _merge(experts[:stop], num_first, missing)
            while start < count:
                request += 1
                wave = experts[start:stop]
                num_loads = 0
                for expert in wave:
                    if slots[layer, expert] < 0:
                        num_loads += 1
                    elif uses_requeue:
                        _unlink(after, before, expert)
                    else:
                        wanted_by[expert] = request
                num_hits += wave.size - num_loads
                num_misses += num_loads
                excess = num_loads - num_free
                if excess > 0:
                    _evict(slots[layer], owners, after, before, wanted_by, request, freed[:excess])
                    num_evictions += excess
                if num_free > 0:
                    _lowest_free(owners, freed[:num_loads])
                num_free = max(0, -excess)
                num_placed = 0
                for expert in wave:
                    is_missing = slots[layer, expert] < 0
                    if is_missing:
                        slot = freed[num_placed]
                        num_placed += 1
                        owners[slot] = expert
                        slots[layer, expert] = slot
                        loaded[layer, expert] = request
                    if is_missing or uses_requeue:
                        _append(after, before, expert)
                    last_used[layer, expert] = request
                start, stop = stop, min(count, stop + capacity)
        counts[0, layer] += num_hits
        counts[1, layer] += num_misses
        counts[2, layer] += num_evictions
        most = max(most, request)
    return most


@kernel
def _queue_up(slots: Any, keys: Any, owners: Any, after: Any, before: Any) -> None:
    """Line up the residents by key, of equal ones the lower id first; fill in the slots' owners."""
    seam = slots.size
    after[seam] = before[seam] = seam
    owners[:] = -1
    for expert in range(slots.size):
        if slots[expert] >= 0:
            owners[slots[expert]] = expert
            place = before[seam]
            while place != seam and keys[place] > keys[expert]:
                place = before[place]
            behind = after[place]
            after[place] = before[behind] = expert
            after[expert], before[expert] = behind, place


@kernel
def _unlink(after: Any, before: Any, expert: int) -> None:
    after[before[expert]] = after[expert]
    before[after[expert]] = before[expert]


@kernel
def _append(after: Any, before: Any, expert: int) -> None:
    seam = after.size - 1
    last = before[seam]
    after[last] = before[seam] = expert
    after[expert], before[expert] = seam, last


@kernel
def _evict(
    slots: Any, owners: Any, after: Any, before: Any, wanted_by: Any, request: int, freed: Any
) -> None:
    """Take as many as `freed` holds, that `request` does not want, out of the queue, first first.

    Their slots come to `freed`, ascending.
    """
    expert = after[after.size - 1]
    count = 0
    while count < freed.size:
        behind = after[expert]
        if wanted_by[expert] != request:
            _unlink(after, before, expert)
            slot = slots[expert]
            owners[slot] = -1
            slots[expert] = -1
            at = count
            while at > 0 and freed[at - 1] > slot:
                freed[at] = freed[at - 1]
                at -= 1
            freed[at] = slot
            count += 1
        expert = behind


@kernel
def _lowest_free(owners: Any, lowest: Any) -> None:
    """Fill in the lowest free slots, ascending."""
    slot = 0
    for i in range(lowest.size):
        while owners[slot] >= 0:
            slot += 1
        lowest[i] = slot
        slot += 1


@kernel
def _distinct(tokens: Any, number: int, seen_in: Any, experts: Any) -> int:
    """Fill in the distinct experts of int16[n, K], ascending; return how many there are."""
    count = 0
    if tokens.shape[0] == 1:  # few: sorted as they come
        for k in range(tokens.shape[1]):
            expert = int(tokens[0, k])
            at = count
            while at > 0 and experts[at - 1] > expert:
                at -= 1
            if at > 0 and experts[at - 1] == expert:
                continue
            for place in range(count, at, -1):
                experts[place] = experts[place - 1]
            experts[at] = expert
            count += 1
        return count
    for token in range(tokens.shape[0]):
        for k in range(tokens.shape[1]):
            seen_in[tokens[token, k]] = number
    for expert in range(seen_in.size):
        if seen_in[expert] == number:
            experts[count] = expert
            count += 1
    return count


@kernel
def _hits_first(slots: Any, experts: Any, count: int, missing: Any) -> int:
    """Part the ascending experts into residents, which come first, and others; return the hits."""
    num_hits = 0
    num_missing = 0
    for i in range(count):
        expert = experts[i]
        if slots[expert] >= 0:
            experts[num_hits] = expert
            num_hits += 1
        else:
            missing[num_missing] = expert
            num_missing += 1
    for i in range(num_missing):
        experts[num_hits + i] = missing[i]
    return num_hits


@kernel
def _merge(wave: Any, num_hits: int, scratch: Any) -> None:
    """Sort a wave whose first `num_hits` and whose others ascend."""
    num_others = wave.size - num_hits
    for i in range(num_others):
        scratch[i] = wave[num_hits + i]
    at_hit, at_other = num_hits - 1, num_others - 1
    at = wave.size - 1
    while at_other >= 0:
        if at_hit >= 0 and wave[at_hit] > scratch[at_other]:
            wave[at] = wave[at_hit]
            at_hit -= 1
        else:
            wave[at] = scratch[at_other]
            at_other -= 1
        at -= 1
