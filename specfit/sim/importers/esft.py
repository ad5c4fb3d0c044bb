"""Real routing of DeepSeek-V2-Lite with drawn trees, from the npz files of the ESFT data.

A file holds, for some task, ``<task>_ids`` uint8 [T, L, K] (the experts of each token of a text
that was read, most weight first) and ``<task>_lens`` int32 (how T splits into texts). Tokens were
not recorded and nothing was drafted. So the text's routing is real; its tokens, the drafts and the
target's answers are those of `SynthDrafter`, and a draft node beside the text takes the experts of
a token that stands near it in the text. The trace is labelled synthetic.

Source: deepseek-ai/ESFT (MIT), arXiv 2407.01906.
"""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Prefill, Request
from specfit.core.errors import InvalidInputError
from specfit.core.experts import ModelGeometry
from specfit.core.tree import DraftPlan, DraftTree
from specfit.sim.importers.imported import ImportOptions
from specfit.sim.record_positions import record_positions
from specfit.sim.synth.backend import SynthBackend
from specfit.sim.synth.drafts import SynthDrafter
from specfit.sim.synth.parameters import VOCAB_SIZE
from specfit.sim.synth.texts import draw_prompt
from specfit.sim.synth.world import Contexts, RoutingWorld
from specfit.sim.trace import TraceWriter, metadata_of

NUM_EXPERTS = 64
EXPERT_BYTES = 3 * 2048 * 1408 * 2
"""One routed expert of DeepSeek-V2-Lite in bfloat16: three matrices of 2048 by 1408."""

PROMPT_SHARE = 0.25
NEAR = 8
"""How far from its place in the text a node beside the text may take its experts."""

FIRST_ACCEPTANCE = 0.75
PLANS = (DraftPlan(4, 8, 32), DraftPlan(8, 2, 60), DraftPlan(8, 1, 60))

UNKNOWN = (
    "token ids: they are drawn",
    "drafts and the target's answers: they are drawn, as `specfit synth` draws them",
    "the experts of draft nodes beside the text: those of a token near by in the text stand for "
    "them",
    "which model it was: DeepSeek-V2-Lite, inferred from the shape",
)


class _RecordedText(SynthBackend):
    """The synthetic model with the routing of recorded texts, one after the other."""

    def __init__(self, texts: list[NDArray[np.int16]], geometry: ModelGeometry) -> None:
        super().__init__(RoutingWorld(), SynthDrafter(FIRST_ACCEPTANCE))
        self.geometry = geometry
        self._texts = iter(texts)
        self._text = texts[0]
        self._position = 0  # of the root in the text

    def start(self, request: Request) -> Prefill:
        prefill = super().start(request)
        self._text = next(self._texts)
        self._position = len(request.prompt)
        return replace(prefill, routing=self._text[: len(request.prompt)])

    def commit(
        self, tree: DraftTree, accepted: tuple[int, ...], committed: tuple[int, ...]
    ) -> None:
        super().commit(tree, accepted, committed)
        self._position += len(committed)

    def describe(self) -> dict[str, Any]:
        return {
            "backend": "imported",
            "model": "DeepSeek-V2-Lite, recorded routing with drawn trees",
            "drafter": "drawn",
            "precision": "not recorded",
            "unknown": list(UNKNOWN),
        }

    def _route(
        self, tree: DraftTree, nodes: NDArray[np.intp], contexts: Contexts
    ) -> NDArray[np.int16]:
        places = self._position + tree.depths
        keys = self._contexts(tree).keys
        is_text = tree.on_path(self.drafter.own_tokens(keys))
        # Beside the text: 1 to NEAR tokens before or after, by the context's hash.
        steps = (keys % np.uint64(2 * NEAR)).astype(np.int64) - NEAR
        steps[steps >= 0] += 1
        places = np.clip(np.where(is_text, places, places + steps), 0, len(self._text) - 1)
        return self._text[places[nodes]]


def write_trace(
    path: Path, folder: Path, options: ImportOptions, plans: tuple[DraftPlan, ...] = PLANS
) -> tuple[str, ...]:
    """Write a position-complete trace of every text in a file, with what the plans draw."""
    texts = _texts(path)
    geometry = ModelGeometry(
        num_layers=texts[0].shape[1],
        num_experts=options.num_experts or NUM_EXPERTS,
        experts_per_token=texts[0].shape[2],
        expert_bytes=options.expert_bytes or EXPERT_BYTES,
        vocab_size=VOCAB_SIZE,
    )
    rng = np.random.default_rng(0)
    requests = []
    for text in texts:
        num_prompt = max(1, round(PROMPT_SHARE * len(text)))
        requests.append(Request(draw_prompt(rng, num_prompt), len(text) - num_prompt + 1))
    backend = _RecordedText(texts, geometry)
    specs = {"model": "synth", "synthetic": {"source": path.name}}
    metadata = replace(metadata_of(backend, "positions", plans, specs=specs), origin="synthetic")
    with TraceWriter.create(folder, metadata) as writer:
        record_positions(backend, requests, plans, writer)
    return UNKNOWN


def _texts(path: Path) -> list[NDArray[np.int16]]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            tasks = sorted(name[:-4] for name in arrays.files if name.endswith("_ids"))
            parts = [_split(path, task, dict(arrays.items())) for task in tasks]
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise InvalidInputError(f"{path} is not an npz of routing: {error}.") from error
    texts = [text for part in parts for text in part if len(text) > 1]
    if not texts or len({text.shape[1:] for text in texts}) != 1:
        raise InvalidInputError(f"{path} must hold texts of one model; it has {len(texts)} texts.")
    return texts


def _split(path: Path, task: str, arrays: dict[str, NDArray[Any]]) -> list[NDArray[np.int16]]:
    ids, lengths = arrays[f"{task}_ids"], arrays[f"{task}_lens"]
    if ids.ndim != 3 or ids.dtype != np.uint8 or lengths.sum() != len(ids) or lengths.min() < 0:
        raise InvalidInputError(
            f"{path}: {task}_ids must be uint8 [T, L, K], and {task}_lens must sum to T; got "
            f"{ids.dtype} {list(ids.shape)} and {int(lengths.sum())}."
        )
    return np.split(ids.astype(np.int16), np.cumsum(lengths)[:-1])
