"""SIEVE on flat arrays.

Convention of `_kernels`, and besides: ``queue`` is int64[n], the residents of a layer, oldest
first; ``marks`` bool[E]; a hand is the place in the queue to look at next, 0 to start anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specfit.core._jit import kernel
from specfit.core.cache._kernels import fill_slots, free, look_up, mark_wave


@kernel
def choose(queue: Any, marks: Any, hand: int, wanted_by: Any, request: int, victims: Any) -> int:
    """Fill in the victims in the order in which the hand meets them; return its new place.

    Experts that `request` wants are passed over, ``wanted_by`` is int64[E]; the victims are entered
    there. The new place is that among the survivors.
    """
    count = 0
    while count < victims.size:
        expert = queue[hand]
        if wanted_by[expert] != request:
            if marks[expert]:
                marks[expert] = False
            else:
                victims[count] = expert
                wanted_by[expert] = request
                count += 1
        hand += 1
        if hand == queue.size:
            hand = 0
    survivors_before = hand
    for place in range(hand):
        for victim in victims:
            survivors_before -= queue[place] == victim
    if survivors_before == queue.size - victims.size:
        return 0
    return int(survivors_before)


@kernel
def requeue(slots: Any, queue: Any, length: int, loads: Any) -> int:
    """Drop from the queue who is no longer resident, append the loads; return its new length.

    ``queue`` is int64[E] of which `length` are in use.
    """
    kept = 0
    for place in range(length):
        if slots[queue[place]] >= 0:
            queue[kept] = queue[place]
            kept += 1
    for expert in loads:
        queue[kept] = expert
        kept += 1
    return kept


@kernel
def serve_pass(
    slots: Any,
    queues: Any,
    lengths: Any,
    hands: Any,
    marks: Any,
    last_used: Any,
    loaded: Any,
    needed: Any,
    capacity: int,
    num_requests: int,
    counts: Any,
) -> int:
    """Take a pass through the cache; return the requests so far.

    ``slots``, ``queues``, ``last_used`` and ``loaded`` are int64[L, E], ``lengths`` and ``hands``
    int64[L], ``marks`` and ``needed`` bool[L, E]; ``counts`` is int64[3, L] of hits, misses and
    evictions.
    """
    experts = np.empty(needed.shape[1], np.int64)
    missing = np.empty(needed.shape[1], np.int64)
    loads = np.empty(capacity, np.int64)
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
                queue = queues[layer, : lengths[layer]]
                hands[layer] = choose(
                    queue, marks[layer], hands[layer], wanted_by, num_requests, victims[:excess]
                )
                free(slots[layer], owners, victims[:excess])
                counts[2, layer] += excess
            num_loads = 0
            for expert in wave:
                marks[layer, expert] = slots[layer, expert] >= 0
                if slots[layer, expert] < 0:
                    loads[num_loads] = expert
                    num_loads += 1
            if num_loads:
                lengths[layer] = requeue(
                    slots[layer], queues[layer], lengths[layer], loads[:num_loads]
                )
            fill_slots(slots[layer], owners, last_used[layer], loaded[layer], wave, num_requests)
            start, stop = stop, min(num_experts, stop + capacity)
        counts[0, layer] += num_hits
        counts[1, layer] += num_experts - num_hits
    return num_requests
