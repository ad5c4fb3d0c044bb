"""The tree trace of S2-MoE: a JSON list of steps, each with the nodes that were verified.

A node has ``id``, ``parent``, ``depth``, ``token``, ``conf``, ``accepted`` and ``target_experts``
(``[{"l": layer, "ids": [...]}]``). Ids are those of llama.cpp sequences: a node's parent is the
node one level up with the id ``parent``. The root of a step and the token after the accepted path
are not in the file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Request
from specfit.core.decode import Timings
from specfit.core.errors import InvalidInputError
from specfit.core.tree import DraftPlan, DraftTree
from specfit.sim.importers.imported import ImportOptions, geometry_of, stack_layers
from specfit.sim.trace import Answers, CycleRow, PromptRow, TraceMetadata, TraceWriter

UNKNOWN = (
    "the experts of a step's root: those of the node accepted last stand for them",
    "the token after the accepted path, and the prompt: one token that is not in the text stands "
    "for them",
    "the target's tokens after rejected nodes",
    "the drafter's probabilities: its confidence stands for them",
    "which candidates were drafted but not verified",
    "the temperature, and the times of the parts of a cycle but the verification",
)
_KEYS = {"id": int, "parent": int, "depth": int, "token": int, "accepted": bool}


@dataclass(frozen=True, eq=False)
class _Step:
    """The drafted nodes of a step by level, without the root."""

    parents: NDArray[np.int32]
    tokens: NDArray[np.int64]
    confidences: NDArray[np.float64]
    accepted: tuple[int, ...]
    routing: NDArray[np.int16]
    verify_s: float


def write_trace(path: Path, folder: Path, options: ImportOptions) -> tuple[str, ...]:
    """Write a run trace of the steps in a file; return what the file does not say."""
    steps = [_step(path, number, step) for number, step in enumerate(_load(path))]
    steps = [step for step in steps if len(step.tokens)]
    if not steps:
        raise InvalidInputError(f"{path} holds no step with nodes.")
    no_token = 1 + max(int(step.tokens.max()) for step in steps)
    geometry = geometry_of([step.routing for step in steps], None, options, no_token)
    metadata = TraceMetadata(
        kind="run",
        origin="recorded",
        geometry=geometry,
        backend={"backend": "imported", "source": "S2-MoE tree trace", "unknown": list(UNKNOWN)},
    )
    text = [no_token]
    root = steps[0].routing[:1]
    with TraceWriter.create(folder, metadata) as writer:
        for cycle, step in enumerate(steps):
            writer.add(_row(step, cycle, len(text), root, no_token))
            text += [*step.tokens[np.array(step.accepted, np.intp)].tolist(), no_token]
            root = step.routing[list(step.accepted[-1:] or (0,))]
        request = Request((no_token,), len(text))
        first = steps[0].routing[:1]
        writer.end_prompt(PromptRow(0, request, tuple(text), "length", first, (1,), 0.0))
    return UNKNOWN


def _load(path: Path) -> list[Any]:
    try:
        steps = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} is not JSON: {error}.") from error
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise InvalidInputError(f"{path} must hold a list of steps.")
    return steps


def _step(path: Path, number: int, step: dict[str, Any]) -> _Step:
    nodes = step.get("nodes")
    if not isinstance(nodes, list):
        raise InvalidInputError(f"{path}, step {number} must have a list of nodes.")
    for place, node in enumerate(nodes):
        _check_node(f"{path}, step {number}, node {place}", node)
    nodes = sorted(nodes, key=lambda node: node["depth"])
    place_of = {(node["depth"], node["id"]): place for place, node in enumerate(nodes)}
    top = nodes[0]["depth"] if nodes else 0
    parents = []
    for node in nodes:
        parent = place_of.get((node["depth"] - 1, node["parent"]))
        if parent is None and node["depth"] > top:
            raise InvalidInputError(
                f"{path}, step {number}: node {node['id']} at depth {node['depth']} has no parent "
                f"{node['parent']} one level up."
            )
        parents.append(-1 if parent is None else parent)
    rows = [{e["l"]: tuple(e["ids"]) for e in node["target_experts"]} for node in nodes]
    routing, _ = stack_layers(rows, f"{path}, step {number}, node")
    return _Step(
        parents=np.array(parents, np.int32),
        tokens=np.array([node["token"] for node in nodes], np.int64),
        confidences=np.array([node.get("conf", 1.0) for node in nodes], np.float64),
        accepted=_accepted(path, number, nodes, parents),
        routing=routing,
        verify_s=float(step.get("t_verify_us", 0.0)) * 1e-6,
    )


def _check_node(where: str, node: Any) -> None:
    if not isinstance(node, dict):
        raise InvalidInputError(f"{where} must be an object.")
    for key, kind in _KEYS.items():
        if type(node.get(key)) is not kind:
            raise InvalidInputError(f"{where}: {key} must be {kind.__name__}; got {node.get(key)}.")
    experts = node.get("target_experts")
    if not isinstance(experts, list) or not experts:
        raise InvalidInputError(f"{where} has no target_experts. Record with tracing on.")
    for layer in experts:
        ids = layer.get("ids") if isinstance(layer, dict) else None
        if not isinstance(ids, list) or type(layer.get("l")) is not int:
            raise InvalidInputError(f"{where}: target_experts must be a list of l and ids.")


def _accepted(
    path: Path, number: int, nodes: list[dict[str, Any]], parents: list[int]
) -> tuple[int, ...]:
    """Return the accepted nodes, which must be one path from the top."""
    accepted = tuple(place for place, node in enumerate(nodes) if node["accepted"])
    expected = (-1, *accepted[:-1])
    if tuple(parents[place] for place in accepted) != expected[: len(accepted)]:
        raise InvalidInputError(
            f"{path}, step {number}: the accepted nodes must be a path from the root."
        )
    return accepted


def _row(
    step: _Step, cycle: int, position: int, root: NDArray[np.int16], no_token: int
) -> CycleRow:
    parents = np.concatenate([[-1], step.parents + 1]).astype(np.int32)
    tree = DraftTree.from_arrays(
        parents,
        np.concatenate([[1.0], np.clip(step.confidences, 1e-6, 1.0)]),
        np.concatenate([[no_token], step.tokens]),
    )
    targets = np.full(len(tree), no_token, np.int64)
    path = (0, *(node + 1 for node in step.accepted))
    for node, child in pairwise(path):
        targets[node] = tree.tokens[child]
    width = int(np.bincount(parents[1:]).max())
    return CycleRow(
        prompt=0,
        cycle=cycle,
        position=position,
        plan=DraftPlan(tree.num_levels, width, len(tree)),
        tree=tree,
        is_exhausted=True,
        answered=np.arange(len(tree), dtype=np.int32),
        answers=Answers(
            targets,
            np.ones(len(tree), np.float32),
            np.ones(len(tree), np.float32),
            np.concatenate([root, step.routing]),
        ),
        decisions=None,
        timings=Timings(0.0, 0.0, 0.0, step.verify_s, 0.0),
    )
