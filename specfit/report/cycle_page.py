"""One cycle as a page: a tree to point at, sliders for the link and the cache, nothing to fetch.

The answers for every stop of the sliders are computed here, by the library; the page only shows
them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.experts import Residency
from specfit.report.explanation import facts_of
from specfit.report.what_if import BANDWIDTH_FACTORS, Answer, WhatIf

TEMPLATE = Path(__file__).with_name("cycle_page.html")
DATA_MARK = "/*DATA*/"


@dataclass(frozen=True)
class PageText:
    """What the page says in words.

    Parameters
    ----------
    title : str
        Trace, prompt, cycle, policy and cache.
    came : str
        What was expected and what came of it.
    seconds : str
        Where the seconds come from, and that they are simulated.
    price, proof : str
        What a second costs in tokens, and what proves the choice.
    looks : sequence of str
        What each level's stop decision saw.
    """

    title: str
    came: str
    seconds: str
    price: str
    proof: str
    looks: Sequence[str]


def cycle_page(
    what_if: WhatIf,
    caches: Sequence[str],
    recorded_cache: str,
    decode: Callable[[Sequence[int]], str],
    text: PageText,
) -> str:
    """Return the page as HTML, with everything it needs inside.

    Parameters
    ----------
    caches : sequence of str
        Specs at the stops of the cache slider; one is `recorded_cache`.
    decode : callable
        Returns the text of some tokens.
    """
    data = page_data(what_if, caches, recorded_cache, decode, text)
    # "</" would end the script that holds the data, whatever a token says.
    packed = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("</", "<\\/")
    return TEMPLATE.read_text("utf-8").replace(DATA_MARK, packed)


def page_data(
    what_if: WhatIf,
    caches: Sequence[str],
    recorded_cache: str,
    decode: Callable[[Sequence[int]], str],
    text: PageText,
) -> dict[str, Any]:
    """Return what the page shows, as plain values."""
    scene, geometry = what_if.scene, what_if.scene.cycle.geometry
    bandwidths = [what_if.profile.h2d_bandwidth_bytes_per_s * f for f in BANDWIDTH_FACTORS]
    residencies = [what_if.residency_in(cache) for cache in caches]
    return {
        "text": {
            "title": text.title,
            "came": text.came,
            "seconds": text.seconds,
            "price": text.price,
            "proof": text.proof,
            "looks": list(text.looks),
        },
        "nodes": _nodes(what_if, decode),
        "layers": geometry.num_layers,
        "experts": geometry.num_experts,
        "perToken": geometry.experts_per_token,
        "likely": _likely(scene.cycle.expert_probs.probs, geometry.experts_per_token),
        "observed": {
            "nodes": scene.record.outcome.verification.nodes.tolist(),
            "ids": _packed(scene.record.outcome.verification.routing, np.uint16),
        },
        "bandwidths": bandwidths,
        "caches": list(caches),
        "resident": [_bits(residency) for residency in residencies],
        "start": {
            "bandwidth": BANDWIDTH_FACTORS.index(1.0),
            "cache": list(caches).index(recorded_cache),
        },
        "stops": [
            [stop_of(what_if.at(bandwidth, residency)) for bandwidth in bandwidths]
            for residency in residencies
        ],
    }


def stop_of(answer: Answer) -> dict[str, Any]:
    """Return what the page shows at one stop of the sliders.

    Seconds of nodes are in whole microseconds, copies in hundredths, gains in ten-thousandths: that
    is as fine as they are shown.
    """
    decision = answer.decision
    copies, expert_s, gains = answer.node_costs()
    return {
        "chosen": np.flatnonzero(decision.mask).tolist(),
        "levels": decision.levels,
        "wantsMore": bool(decision.wants_more),
        "price": answer.best.price,
        "status": answer.best.status,
        "expected": _expectation(answer, decision.mask, decision.levels),
        "rules": {
            name: {
                "nodes": np.flatnonzero(mask).tolist(),
                "expected": _expectation(answer, mask, answer.cycle.levels),
            }
            for name, mask in answer.rules.items()
        },
        "copies": np.rint(copies * 1e2).astype(int).tolist(),
        "us": np.rint(expert_s * 1e6).astype(int).tolist(),
        "gains": np.rint(gains * 1e4).astype(int).tolist(),
    }


def _expectation(answer: Answer, mask: NDArray[np.bool_], levels: int) -> list[float]:
    expected = answer.expect(mask, levels)
    return [expected.committed, expected.copies, expected.cycle_s]


def _nodes(what_if: WhatIf, decode: Callable[[Sequence[int]], str]) -> list[dict[str, Any]]:
    """Return the facts of each node in the order of the tree."""
    facts = sorted(facts_of(what_if.scene.record), key=lambda fact: fact.node)
    return [
        {
            "text": decode([fact.token]),
            "token": fact.token,
            "parent": fact.parent,
            "depth": fact.depth,
            "draft": fact.draft_prob,
            "accept": fact.accept_prob,
            "path": fact.path_prob,
            "rank": fact.draft_rank,
            "accepted": fact.verdict in ("accepted", "root"),
        }
        for fact in facts
    ]


def _likely(probs: NDArray[np.float32], count: int) -> dict[str, str]:
    """Return the `count` likeliest experts of each node and layer, likeliest first."""
    ids = np.argsort(-probs, axis=2, kind="stable")[:, :, :count]  # [N, L, K]
    percent = np.rint(100 * np.take_along_axis(probs, ids, axis=2))
    return {"ids": _packed(ids, np.uint16), "percent": _packed(percent, np.uint8)}


def _packed(array: NDArray[Any], dtype: type[np.generic]) -> str:
    little = np.ascontiguousarray(array).astype(np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode("ascii")


def _bits(residency: Residency) -> str:
    return _packed(np.packbits(residency.mask.ravel(), bitorder="little"), np.uint8)
