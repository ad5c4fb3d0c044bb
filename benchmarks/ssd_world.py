"""What the disk benchmark decodes: random weights of a geometry in a file, and synthetic traces.

Where there are fewer layers than Qwen3-30B-A3B has, they are taken evenly from its 48, so that the
synthetic routing of early, middle and late layers is in the same proportion.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.policy_worlds import HALVES, MOST_NODES
from specfit.backends.direct_file import aligned_bytes
from specfit.backends.file_bank import FileBank
from specfit.backends.ssd import SsdDevice
from specfit.cli.inputs import Inputs
from specfit.core.backend import Prefill, Request, Verification
from specfit.core.experts import ModelGeometry
from specfit.core.predictor import predictors
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree
from specfit.policies.acceptance.adaptive import Adaptive
from specfit.policies.fitting.calibration import AcceptanceFit
from specfit.policies.fitting.predictors import PredictorFit
from specfit.policies.fitting.samples import acceptance_sample
from specfit.sim.observe import observed_texts
from specfit.sim.record_positions import record_positions
from specfit.sim.synth.backend import SynthBackend, requests_of
from specfit.sim.synth.drafts import SynthDrafter
from specfit.sim.synth.parameters import QWEN3_30B_A3B, task_named
from specfit.sim.synth.world import RoutingWorld
from specfit.sim.trace import TraceReader, TraceWriter, metadata_of
from specfit.sim.trace.metadata import TraceMetadata

PLANS = (DraftPlan(8, 2, 64), DraftPlan(6, 4, 64), DraftPlan(4, 8, 64), DraftPlan(8, 1, 16))
"""Plans whose pools hold every tree that EAGLE-3 is tuned over, and those of `specfit`."""

PREDICTOR = "token-table"
READ_BYTES = 2**24


@dataclass(frozen=True)
class Slice:
    """Some layers of Qwen3-30B-A3B's geometry, or the same with smaller experts.

    Parameters
    ----------
    num_layers : int
        Layers, 1 to 48.
    hidden_size, width : int
        Hidden size and width of an expert.
    dtype : torch.dtype
        Of the weights.
    """

    num_layers: int
    hidden_size: int = 2048
    width: int = 768
    dtype: torch.dtype = torch.bfloat16

    @property
    def layers(self) -> NDArray[np.intp]:
        """Which of the 48 layers there are, ascending."""
        middle = (np.arange(self.num_layers) + 0.5) * QWEN3_30B_A3B.num_layers / self.num_layers
        return middle.astype(np.intp)

    @property
    def block(self) -> int:
        """Numbers of an expert."""
        return 3 * self.hidden_size * self.width

    @property
    def geometry(self) -> ModelGeometry:
        """Shape constants."""
        size = self.block * self.dtype.itemsize
        return replace(QWEN3_30B_A3B, num_layers=self.num_layers, expert_bytes=size)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the bank."""
        return self.num_layers, self.geometry.num_experts, self.block

    @property
    def num_bytes(self) -> int:
        """Of all experts."""
        return self.num_layers * self.geometry.num_experts * self.geometry.expert_bytes


def sequential_bytes_per_s(bank: FileBank, num_threads: int, layers: range) -> dict[str, float]:
    """Return how fast a part of the file is read from end to end: by one thread, and by the pool.

    By one thread in large direct reads; by the pool a layer at a time, which is as sequential.
    """
    one, pool = Timer(), Timer()
    _, num_experts, block = bank.shape
    layer_bytes = num_experts * block * bank.dtype.itemsize
    buffer = aligned_bytes(min(READ_BYTES, layer_bytes))
    with one:
        for first in range(layers.start * layer_bytes, layers.stop * layer_bytes, len(buffer)):
            part = buffer[: min(len(buffer), layers.stop * layer_bytes - first)]
            bank.file.read(first, part)
            one.num_bytes += len(part)
    device = SsdDevice(num_threads=num_threads)
    slots = device.allocate((num_experts, block), bank.dtype)
    slots.zero_()
    with pool:
        for layer in layers:
            pairs = [(bank[layer][i], slots[i]) for i in range(num_experts)]
            device.wait(device.copy(pairs, None))
            pool.num_bytes += slots.nbytes
    device.close()
    return {"one thread": one.bytes_per_s, "pool": pool.bytes_per_s}


class Timer:
    """Bytes that were read while it ran."""

    num_bytes = 0

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._seconds = time.perf_counter() - self._started

    @property
    def bytes_per_s(self) -> float:
        """Bytes a second."""
        return self.num_bytes / self._seconds


class SlicedSynth(SynthBackend):
    """The synthetic model of which only some layers are there; its text is the same."""

    def __init__(self, part: Slice, drafter: SynthDrafter) -> None:
        super().__init__(RoutingWorld(), drafter)
        self.geometry = part.geometry
        self._layers = part.layers

    def start(self, request: Request) -> Prefill:
        """See `Backend.start`."""
        prefill = super().start(request)
        return replace(prefill, routing=np.ascontiguousarray(prefill.routing[:, self._layers]))

    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        """See `Backend.verify`."""
        answer = super().verify(tree, selection)
        nothing = np.zeros(len(self._layers), np.int64)
        return replace(
            answer,
            routing=np.ascontiguousarray(answer.routing[:, self._layers]),
            num_hits=nothing,
            num_misses=nothing,
            num_evictions=nothing,
        )


def write_trace(
    folder: Path, part: Slice, task_name: str, half: str, num_prompts: int, num_tokens: int
) -> TraceReader:
    """Write synthetic texts of a task if they are not there; the half decides the prompts."""
    if (folder / "metadata.json").is_file():
        return TraceReader(folder)
    task = task_named(task_name)
    backend = SlicedSynth(part, SynthDrafter(task.first_acceptance))
    specs = {"synthetic": {"task": task_name, "seed": HALVES.index(half)}}
    known: TraceMetadata = metadata_of(backend, "positions", PLANS, specs=specs)
    requests = requests_of(task, HALVES.index(half), num_prompts, num_tokens)
    with TraceWriter.create(folder, replace(known, origin="synthetic")) as writer:
        record_positions(backend, requests, PLANS, writer)
    return TraceReader(folder)


def fitted_inputs(traces: Sequence[TraceReader], folder: Path) -> Callable[[], Inputs]:
    """Fit one predictor and one acceptance model on all texts; return what makes a fresh pair."""
    if not (folder / "acceptance").is_dir():  # the last that is written
        texts = tuple(text for trace in traces for text in observed_texts(trace))
        shape, print_of = traces[0].metadata.geometry, traces[0].fingerprint
        about = {"traces": [trace.fingerprint for trace in traces]}
        PredictorFit(texts, shape, print_of, about, MOST_NODES).write(
            PREDICTOR, folder / "predictor"
        )
        AcceptanceFit(acceptance_sample(texts), 0.0, print_of, about).write(
            "depth-rank", folder / "acceptance"
        )

    def make() -> Inputs:
        predictor = predictors.build(PREDICTOR, {"folder": str(folder / "predictor")})
        return Inputs(predictor, Adaptive(str(folder / "acceptance"), 0.0))

    return make
