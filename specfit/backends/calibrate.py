"""Calibration: what drafting, verifying and copying cost on this machine, measured on real text.

Everything is measured through the same calls that decoding makes. The fit is checked on passes that
it has not seen; the error is part of the profile's provenance.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from specfit.backends.device import EmulatedLink
from specfit.backends.packed import available_bytes
from specfit.backends.tiers import HostBank
from specfit.backends.torch_backend import TorchBackend
from specfit.core.backend import Request
from specfit.core.decode import walk
from specfit.core.errors import CheckpointError
from specfit.core.experts import ModelGeometry
from specfit.core.profile import HardwareProfile
from specfit.core.selection import Selection
from specfit.core.shapes import QWEN3_30B_A3B
from specfit.core.tree import DraftPlan, DraftTree, most_probable
from specfit.data import PROMPTS

NUM_PROMPTS = 3
NUM_ROUNDS = 5  # of all sizes, a prompt
SIZES = (1, 32, 4, 16, 1, 2, 64, 8)
DRAFT = DraftPlan(depth=4, top_k=8, max_nodes=64)
NUM_WARM_CYCLES = 2
NUM_COPY_PASSES = 12
NUM_READS = 32
MEMORY_SHARE = 0.8
"""Of the memory that is free, how much slots may take while calibrating."""

QWEN3_COPY_S = 0.377e-3
QWEN3_COMPUTE_S = 13.5e-3
LATENCY_SHARE = 0.01 / 0.377


@dataclass
class _Samples:
    """What was timed: a row a verified pass without misses, and seconds a drafted level."""

    passes: list[tuple[float, float, float]] = field(default_factory=list)  # nodes, experts, s
    first_level_s: list[float] = field(default_factory=list)
    level_s: list[float] = field(default_factory=list)
    cpu_share: float = 0.0  # of the time, how much the thread ran: below 1 on a busy machine


def calibrate(
    backend: TorchBackend,
    *,
    prompts: Sequence[Sequence[int]] | None = None,
    name: str = "this-machine",
    on_step: Callable[[int, int], None] | None = None,
) -> HardwareProfile:
    """Return the measured profile of this machine with this model; takes a few seconds.

    Compute is measured with every expert resident (where experts stay on disk: as many as memory
    holds, and the wait for the others left out), as ``fixed + node * nodes + expert * experts``
    where experts are the distinct activated ones; it holds all that a cycle does beside drafting,
    selecting and waiting. Copies are those of the backend's link: an emulated one is taken at its
    word, otherwise they are measured. Where host memory lies before a disk, reads into it are
    measured too. The backend keeps its cache and link; its request is lost.

    Parameters
    ----------
    backend : TorchBackend
        With its model loaded.
    prompts : sequence of token ids, optional
        Texts to measure on. Default: bundled training questions.
    name : str
        Id of the profile.
    on_step : callable, optional
        Called with the steps done and the steps in all.
    """
    texts = list(prompts) if prompts is not None else _bundled_prompts(backend)
    spec, link = backend.cache_spec, backend.device.link
    try:
        samples = _time_passes(backend, texts, on_step)
        copy_latency_s, bandwidth = _copy_cost(backend, texts[0], link)
        read_bandwidth = 0.0 if backend.host is None else read_bytes_per_s(backend.host)
    finally:
        backend.set_link(link)
        backend.set_cache(spec)
    (fixed_s, node_s, expert_s), error = _fit_passes(np.array(samples.passes))
    return HardwareProfile(
        name=name,
        provenance=(
            f"specfit calibrate on {backend.checkpoint.folder.name}: {len(samples.passes)} passes "
            f"of 1 to 64 nodes; error of the compute fit on held-out passes: median "
            f"{100 * error[0]:.1f} %, p95 {100 * error[1]:.1f} %; the machine gave "
            f"{100 * samples.cpu_share:.0f} % of a core"
        ),
        kind="measured" if link is None else "emulated",
        first_level_s=_median(samples.first_level_s),
        level_s=_median(samples.level_s),
        verify_fixed_s=fixed_s,
        verify_node_s=node_s,
        resident_expert_s=expert_s,
        copy_latency_s=copy_latency_s,
        h2d_bandwidth_bytes_per_s=bandwidth,
        expert_bytes=backend.geometry.expert_bytes,
        ssd_bandwidth_bytes_per_s=read_bandwidth,
    )


def ar_token_s(profile: HardwareProfile, geometry: ModelGeometry) -> float:
    """Return the seconds of a plain decoding step with every expert resident."""
    experts = geometry.num_layers * geometry.experts_per_token
    return profile.verify_fixed_s + profile.verify_node_s + experts * profile.resident_expert_s


def pcie4_link(profile: HardwareProfile, geometry: ModelGeometry) -> EmulatedLink:
    """Return the emulated link over which copies cost, next to compute, what they do on PCIe 4.

    For Qwen3-30B-A3B on a GPU behind PCIe 4 x16: a token needs 48 layers x 8 experts = 384 experts
    of 9 MiB; a copy takes 0.377 ms (published: 0.37 to 0.38), so a token that misses all of them
    copies for 145 ms; with everything resident it computes for 13.5 ms (published: 12 to 15). So

        copies of an all-miss token : compute of an all-resident token = 145 : 13.5 = 10.7.

    Here the compute is that of the profile and the copies are ``L K``; a copy takes
    ``10.7 * ar_token_s / (L K)``. 10 us of the 377 are latency, and here the same share is.
    """
    ratio = QWEN3_30B_A3B.experts_of_token * QWEN3_COPY_S / QWEN3_COMPUTE_S
    copies = geometry.num_layers * geometry.experts_per_token
    copy_s = ratio * ar_token_s(profile, geometry) / copies
    transfer_s = (1 - LATENCY_SHARE) * copy_s
    return EmulatedLink(LATENCY_SHARE * copy_s, geometry.expert_bytes / transfer_s)


def _time_passes(
    backend: TorchBackend, texts: list[Sequence[int]], on_step: Callable[[int, int], None] | None
) -> _Samples:
    """Decode the texts with every expert resident, a cycle of each size at a time."""
    samples = _Samples()
    backend.set_cache(_largest_cache(backend))
    backend.set_link(None)
    started, worked = time.perf_counter(), time.thread_time()
    for i, text in enumerate(texts):
        root = _warm(backend, _start(backend, text))
        for number in range(NUM_ROUNDS):
            for size in SIZES:
                root = _cycle(backend, root, size, samples)
            if on_step is not None:
                on_step(i * NUM_ROUNDS + number + 1, len(texts) * NUM_ROUNDS)
    samples.cpu_share = (time.thread_time() - worked) / (time.perf_counter() - started)
    return samples


def _largest_cache(backend: TorchBackend) -> str:
    """Return a cache of all experts, or of what memory holds where they stay on disk."""
    room = available_bytes()
    on_disk = backend.device.reads_files or backend.host is not None
    if room is None or not on_disk or backend.device.torch_device.type != "cpu":
        return "lru:100%"
    shape = backend.geometry
    slots = int(MEMORY_SHARE * room) // (shape.num_layers * shape.expert_bytes)
    return f"lru:{max(shape.experts_per_token, min(slots, shape.num_experts))}"


def _start(backend: TorchBackend, text: Sequence[int]) -> int:
    """Begin a text and return the root's token."""
    num_cycles = NUM_WARM_CYCLES + NUM_ROUNDS * len(SIZES)
    most = 1 + num_cycles * (DRAFT.depth + 1)
    prompt = tuple(text[: max(1, backend.max_context - most)])
    return backend.start(Request(prompt, min(most, backend.max_context - 1))).first_token


def _warm(backend: TorchBackend, root: int) -> int:
    """Verify wide trees until most experts are resident; return the next root's token."""
    for _ in range(NUM_WARM_CYCLES):
        root = _cycle(backend, root, max(SIZES), _Samples())
    return root


def _cycle(backend: TorchBackend, root: int, size: int, samples: _Samples) -> int:
    """Decode a cycle that verifies `size` nodes; return the next root's token."""
    tree = _draft(backend, root, size, samples)
    order = most_probable(tree, tree.path_probs)
    selection = Selection.from_nodes(tree, order[:size])
    started = backend.clock()
    verification = backend.verify(tree, selection)
    accepted, emitted = walk(tree, verification)
    backend.commit(tree, accepted, emitted)
    seconds = backend.clock() - started - verification.stall_s
    experts = float(verification.num_hits.sum() + verification.num_misses.sum())
    holds_all = backend.cache.capacity == backend.geometry.num_experts
    if not (holds_all and verification.num_misses.any()):
        samples.passes.append((float(len(selection)), experts, seconds))
    return emitted[-1]


def _draft(backend: TorchBackend, root: int, size: int, samples: _Samples) -> DraftTree:
    tree = DraftTree.root(root)
    for number in range(0 if size == 1 else DRAFT.depth):
        started = backend.clock()
        level = backend.draft_level(DRAFT, tree)
        seconds = backend.clock() - started
        if len(level) == 0:
            break
        (samples.level_s if number else samples.first_level_s).append(seconds)
        tree = tree.grow(level)
    return tree


def _copy_cost(
    backend: TorchBackend, text: Sequence[int], link: EmulatedLink | None
) -> tuple[float, float]:
    """Return latency in seconds and bytes a second of a copy."""
    if link is not None:
        return link.latency_s, link.bandwidth_bytes_per_s
    backend.set_cache("none")
    root = _start(backend, text)
    before, after = replace(backend.device.counters), backend.device.counters
    for _ in range(NUM_COPY_PASSES):
        root = _cycle(backend, root, 1, _Samples())
    num_copies, busy_s = after.num_copies - before.num_copies, after.busy_s - before.busy_s
    bandwidth = (after.num_bytes - before.num_bytes) / busy_s
    if backend.host is not None:  # stalls hold the reads: what the link was occupied is left
        return 0.0, bandwidth
    copy_s = (after.stall_s - before.stall_s) / num_copies
    return max(0.0, copy_s - backend.geometry.expert_bytes / bandwidth), bandwidth


def read_bytes_per_s(host: HostBank) -> float:
    """Return the median speed of reading one token's experts of a layer into host memory.

    What is in host memory is lost.
    """
    per_token, speeds = host.cache.geometry.experts_per_token, []
    host.reset()
    for number in range(NUM_READS):
        layer = number % len(host.bank)
        experts = np.random.default_rng(number).permutation(host.bank.shape[1])[:per_token]
        started = time.perf_counter()
        for read in [r for block, e in enumerate(experts) for r in host.read(layer, int(e), block)]:
            read.result()
        speeds.append(per_token * host.block_bytes / (time.perf_counter() - started))
    return _median(speeds)


def _fit_passes(
    passes: NDArray[np.float64],
) -> tuple[tuple[float, float, float], tuple[float, float]]:
    """Fit the seconds of passes; return the three constants, and the held-out relative errors.

    Parameters
    ----------
    passes : float64[m, 3]
        Nodes, distinct activated experts and seconds of each pass.
    """
    design = np.column_stack([np.ones(len(passes)), passes[:, :2]])
    seconds = passes[:, 2]
    fixed_s, node_s, expert_s = fit_nonnegative(design, seconds)
    half = fit_nonnegative(design[::2], seconds[::2])
    errors = np.abs(design[1::2] @ half / seconds[1::2] - 1)
    return (
        (float(fixed_s), float(node_s), float(expert_s)),
        (float(np.median(errors)), float(np.quantile(errors, 0.95))),
    )


def fit_nonnegative(
    design: NDArray[np.float64], seconds: NDArray[np.float64], num_steps: int = 40
) -> NDArray[np.float64]:
    """Return non-negative coefficients that minimise the sum of absolute relative errors.

    By reweighted least squares on each subset of the columns, so outliers count little.

    Parameters
    ----------
    design : float64[m, k]
        One row a measurement.
    seconds : float64[m]
        Positive.
    num_steps : int
        Reweightings.
    """
    relative = design / seconds[:, None]
    num_columns = design.shape[1]
    best, best_loss = np.zeros(num_columns), float(len(seconds))
    for size in range(1, num_columns + 1):
        for columns in itertools.combinations(range(num_columns), size):
            coefficients = np.zeros(num_columns)
            coefficients[list(columns)] = _least_absolute(relative[:, columns], num_steps)
            loss = float(np.abs(relative @ coefficients - 1).sum())
            if (coefficients >= 0).all() and loss < best_loss:
                best, best_loss = coefficients, loss
    return best


def _least_absolute(relative: NDArray[np.float64], num_steps: int) -> NDArray[np.float64]:
    weights = np.ones(len(relative))
    for _ in range(num_steps):
        root = np.sqrt(weights)
        found = np.linalg.lstsq(relative * root[:, None], root, rcond=None)[0]
        weights = 1 / np.maximum(np.abs(relative @ found - 1), 1e-4)
    return found


def _median(values: list[float]) -> float:
    return float(np.median(values)) if values else 0.0


def _bundled_prompts(backend: TorchBackend) -> list[list[int]]:
    try:
        lines = (PROMPTS / "tune.jsonl").read_text(encoding="utf-8").splitlines()[:NUM_PROMPTS]
    except OSError as error:
        raise CheckpointError(f"the bundled texts are missing: {error}. Install again.") from error
    return [backend.tokenizer(json.loads(line)["text"])["input_ids"] for line in lines]
