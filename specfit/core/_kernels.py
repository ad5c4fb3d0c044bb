"""Passes over a draft tree from the root down, over routing, and over tables of seconds.

Convention. ``parents`` is int32[N] with every parent before its child; the caller allocates the
output and sets its row 0. No kernel validates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specfit.core._jit import kernel


@kernel
def first_fault(parents: Any, log_probs: Any, first: int) -> int:
    """Return the first node from `first` on that cannot be, or -1.

    Its parent does not come before it, or its log probability is NaN or above 0; at the root not 0.
    """
    if first == 0 and (parents[0] != -1 or log_probs[0] != 0):
        return 0
    for node in range(max(1, first), parents.size):
        if not (0 <= parents[node] < node and log_probs[node] <= 0):
            return node
    return -1


@kernel
def fill_depths(parents: Any, depths: Any) -> None:
    """Set ``depths[v]`` for every node below the root."""
    for node in range(1, parents.size):
        depths[node] = depths[parents[node]] + 1


@kernel
def fill_products(parents: Any, cond_probs: Any, products: Any) -> None:
    """Set ``products[v]``, the product of `cond_probs` from the root down to ``v``."""
    for node in range(1, parents.size):
        products[node] = products[parents[node]] * cond_probs[node]


@kernel
def fill_ancestors(parents: Any, mask: Any) -> None:
    """Set ``mask[v]``: the parent's row and ``v`` itself."""
    for node in range(1, parents.size):
        for ancestor in range(node):
            mask[node, ancestor] = mask[parents[node], ancestor]
        mask[node, node] = True


@kernel
def fill_frontier(depths: Any, path_probs: Any, best: Any) -> int:
    """Fill `best`, intp[k], with the likeliest of the deepest nodes and return how many there are.

    In descending order of path probability; of equally probable nodes the lower index comes first.
    """
    deepest = depths.max()
    count = 0
    for node in range(depths.size):
        if depths[node] != deepest:
            continue
        place = count
        while place > 0 and path_probs[node] > path_probs[best[place - 1]]:
            place -= 1
        if place == best.size:
            continue
        count = min(count + 1, best.size)
        for i in range(count - 1, place, -1):
            best[i] = best[i - 1]
        best[place] = node
    return count


@kernel
def fill_accepted(parents: Any, tokens: Any, nodes: Any, answers: Any, rows: Any) -> int:
    """Fill `rows`, intp[n], with the rows of `nodes` on the accepted path; return how many.

    From the root, row 0, to the child that carries ``answers[row]``, and so on. `nodes`, intp[n],
    ascend, so a child comes after its parent and the path is met in order.
    """
    rows[0] = 0
    count = 1
    for row in range(1, nodes.size):
        node, last = nodes[row], rows[count - 1]
        if parents[node] == nodes[last] and tokens[node] == answers[last]:
            rows[count] = row
            count += 1
    return count


@kernel
def fill_text_path(parents: Any, tokens: Any, nodes: Any, text: Any, rows: Any) -> int:
    """Fill `rows` with the rows of `nodes` on the path of a text; return how many.

    The root comes first, then the child that carries ``text[0]``, and so on, at most `rows.size` of
    them, which is no more than the tokens of the text.
    """
    if rows.size == 0:
        return 0
    rows[0] = 0
    count = 1
    for row in range(1, nodes.size):
        if count == rows.size:
            break
        node = nodes[row]
        if parents[node] == nodes[rows[count - 1]] and tokens[node] == text[count - 1]:
            rows[count] = row
            count += 1
    return count


@kernel
def counts_up(nodes: Any) -> bool:
    """Return whether the values are 0, 1, 2 and so on."""
    for place in range(nodes.size):
        if nodes[place] != place:
            return False
    return True


@kernel
def first_table_fault(table: Any) -> int:
    """Return the first index whose seconds are not finite or fall, or -1; float64[M], M >= 1."""
    for i in range(len(table)):
        if not np.isfinite(table[i]) or (i > 0 and table[i] < table[i - 1]):
            return i
    return -1


@kernel
def first_weight_fault(weights: Any) -> int:
    """Return the first flat index that is negative or not finite, or -1; float64[C]."""
    for i in range(len(weights)):
        if not (weights[i] >= 0.0 and np.isfinite(weights[i])):
            return i
    return -1


@kernel
def fill_last(last: Any, routing: Any, place: int) -> None:
    """Set ``last[l, e]`` to the place of the last token that needs the expert.

    ``routing`` is int16[T, L, K], whose first token is at `place`; ``last`` is int64[L, E].
    """
    for token in range(routing.shape[0]):
        for layer in range(routing.shape[1]):
            for k in range(routing.shape[2]):
                last[layer, routing[token, layer, k]] = place + token


@kernel
def fill_ages(last: Any, newest: int, is_tried: Any, tried: int, untried: int, ages: Any) -> None:
    """Set ``ages[l, e]``, int64[L, E]: how long before `newest` the place ``last[l, e]`` is.

    Where that is negative, the age is `tried` or `untried`, as ``is_tried[l, e]`` says.
    """
    for layer in range(last.shape[0]):
        for expert in range(last.shape[1]):
            if last[layer, expert] >= 0:
                ages[layer, expert] = newest - last[layer, expert]
            else:
                ages[layer, expert] = tried if is_tried[layer, expert] else untried


@kernel
def mark_needed(is_needed: Any, routing: Any) -> None:
    """Set ``is_needed[l, e]``, bool[L, E], where a token of `routing`, int16[T, L, K], needs it."""
    for token in range(routing.shape[0]):
        for layer in range(routing.shape[1]):
            for k in range(routing.shape[2]):
                is_needed[layer, routing[token, layer, k]] = True


@kernel
def fill_given_path(probs: Any, depths: Any, novelty: float, found: Any) -> None:
    """Fill `found`, float32[n, C], with ``p (p + novelty**depth (1 - p))`` for p in `probs`."""
    one = np.float32(1.0)
    for node in range(probs.shape[0]):
        left = np.float32(novelty ** depths[node])
        for c in range(probs.shape[1]):
            p = probs[node, c]
            found[node, c] = p * (p + left * (one - p))


@kernel
def fill_by_place(
    on_device: Any,
    in_host: Any,
    resident_s: float,
    copy_s: float,
    ssd_s: float,
    expert_s: Any,
) -> None:
    """Fill `expert_s`, float64[L, E], with the seconds of experts, by where they are.

    Those of a resident one, a copy more where it is not in `on_device`, and `ssd_s` more where it
    is in neither mask, bool[L, E].
    """
    for layer in range(expert_s.shape[0]):
        for expert in range(expert_s.shape[1]):
            seconds = 0.0
            if not on_device[layer, expert]:
                seconds = copy_s if in_host[layer, expert] else copy_s + ssd_s
            expert_s[layer, expert] = seconds + resident_s


@kernel
def are_terms(draft_s: Any, tau_s: Any, weight_s: Any) -> bool:
    """Return whether these can be a cycle's terms: float64[D+1], float64[M+1], float64[C]."""
    if draft_s.size == 0 or tau_s.size == 0 or draft_s[0] != 0.0 or tau_s[0] != 0.0:
        return False
    if first_table_fault(draft_s) >= 0 or first_table_fault(tau_s) >= 0:
        return False
    return bool(first_weight_fault(weight_s) < 0)


@kernel
def first_orphan(parents: Any, mask: Any) -> int:
    """Return the first node of `mask`, bool[N], whose parent is not in it, or -1."""
    for node in range(1, parents.size):
        if mask[node] and not mask[parents[node]]:
            return node
    return -1
