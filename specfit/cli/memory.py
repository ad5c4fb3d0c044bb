"""`specfit memory`: what fits where, before anything is loaded."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specfit.cli import options
from specfit.cli.console import print_json, print_note, print_table
from specfit.core.errors import CheckpointError, InvalidInputError
from specfit.core.expert_format import ITEM_BYTES
from specfit.core.shapes import KNOWN_SHAPES, ModelShape
from specfit.core.units import BYTES, bytes_of
from specfit.data import model_folder

if TYPE_CHECKING:
    from specfit.core.profile import HardwareProfile

GIB = BYTES["GiB"]
WORKSPACE_BYTES = GIB
"""On the device, for activations, logits and what torch keeps aside."""
LOADING_BYTES = 2 * GIB
"""On the host, beside the weights, at most."""
PUBLISHED_HIT_RATES = (
    (0.0, 0.0),
    (8 / 128, 0.366),
    (24 / 128, 0.741),
    (49 / 128, 0.894),
    (81 / 128, 0.962),
    (1.0, 1.0),
)
"""Share of the experts with a slot, and the hit rate of plain decoding with least recently used,
as published for Qwen3-30B-A3B; in between it is interpolated."""

ModelName = Annotated[
    str,
    typer.Option(
        "--model", "-m", help=f"Checkpoint folder, tiny (bundled), {' or '.join(KNOWN_SHAPES)}."
    ),
]
Gpu = Annotated[str, typer.Option("--gpu", help="Device memory, like 24GiB.")]
Host = Annotated[str, typer.Option("--host", help="Host memory, like 64GiB.")]
Context = Annotated[int, typer.Option("--context", min=1, help="Most tokens of a text.")]
HeadBytes = Annotated[
    str, typer.Option("--head-size", help="Size of the draft head on the device.")
]
Profile = Annotated[
    str, typer.Option("--profile", help="Hardware profile that seconds are predicted from.")
]


@dataclass(frozen=True)
class MemoryPlan:
    """What a model takes on the device and on the host.

    Parameters
    ----------
    expert_bytes, experts_bytes, others_bytes : int
        One expert, all of them, and all other weights.
    context_bytes, head_bytes : int
        Keys and values of a full context, and the draft head.
    slots_per_layer, num_experts : int
        Experts of a layer that have room on the device, and how many there are.
    least_slots : int
        Slots that one token needs.
    host_bytes : int
        What loading takes on the host at most.
    fits_device, fits_host : bool
        Whether the memory that there is suffices.
    """

    expert_bytes: int
    experts_bytes: int
    others_bytes: int
    context_bytes: int
    head_bytes: int
    slots_per_layer: int
    num_experts: int
    least_slots: int
    host_bytes: int
    fits_device: bool
    fits_host: bool


def memory(
    model: ModelName = "qwen3-30b-a3b",
    gpu: Gpu = "24GiB",
    host: Host = "64GiB",
    dtype: options.Dtype = "bfloat16",
    experts: options.Experts = None,
    context: Context = 8192,
    head_size: HeadBytes = "0.6GiB",
    profile: Profile = "pcie4-x16",
    as_json: options.Json = False,
) -> None:
    """Say what of a model fits, how many experts get a slot, and how fast plain decoding should be.

    Example: specfit memory --gpu 24GiB --host 64GiB
    """
    from specfit.cli.specs import profile_from

    if dtype not in ITEM_BYTES:
        raise InvalidInputError(f"--dtype must be {' or '.join(ITEM_BYTES)}; got '{dtype}'.")
    shape = model_shape(model)
    plan = plan_memory(
        shape,
        device_bytes=bytes_of(gpu, "--gpu"),
        host_bytes=bytes_of(host, "--host"),
        dtype=dtype,
        experts=experts,
        context=context,
        head_bytes=bytes_of(head_size, "--head-size"),
    )
    hit_rate = expected_hit_rate(plan.slots_per_layer / plan.num_experts)
    speed = expected_tokens_per_s(profile_from(profile), shape, plan, hit_rate)
    if as_json:
        found = {"predicted_hit_rate": hit_rate, "predicted_tokens_per_s": speed}
        print_json(
            [{"model": model, "profile": profile, "experts": experts, **asdict(plan), **found}]
        )
        return
    print_table(["", model], _rows(plan, hit_rate, speed, profile), is_numeric=False)
    print_note(
        "Predicted, not measured: hit rates as published for Qwen3-30B-A3B, seconds from the "
        "profile, plain decoding. Drafting changes it; measure with specfit calibrate and decode."
    )


def model_shape(name: str) -> ModelShape:
    """Return the shape constants of a published model, a bundled one, or a checkpoint folder.

    Raises
    ------
    CheckpointError
        There is none, or its configuration cannot be used.
    """
    if name in KNOWN_SHAPES:
        return KNOWN_SHAPES[name]
    path = model_folder(name, KNOWN_SHAPES) / "config.json"
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is no JSON file: {error}. Fetch it again.") from error
    kind = raw.get("model_type") if isinstance(raw, dict) else None
    if kind != "qwen3_moe":
        raise CheckpointError(f"{name} is of model_type '{kind}'; only 'qwen3_moe' is offloaded.")
    raw.setdefault("num_experts", raw.get("num_local_experts"))
    keys = [field.name for field in fields(ModelShape)]
    wrong = [key for key in keys if not isinstance(raw.get(key), int)]
    if wrong:
        raise CheckpointError(
            f"{path} must have whole numbers for {', '.join(keys)}; it has none for "
            f"{', '.join(wrong)}. Fetch the checkpoint again."
        )
    return ModelShape(**{key: raw[key] for key in keys})


def plan_memory(
    shape: ModelShape,
    *,
    device_bytes: int,
    host_bytes: int,
    dtype: str,
    context: int,
    head_bytes: int,
    experts: str | None = None,
) -> MemoryPlan:
    """Return what fits.

    Parameters
    ----------
    shape : ModelShape
        As `model_shape` gives it.
    device_bytes, host_bytes : int
        The memory that there is.
    dtype : str
        Of the weights: a key of `ITEM_BYTES`.
    context : int
        Most tokens of a text.
    head_bytes : int
        Size of the draft head.
    experts : str, optional
        Their format, ``int4``; by default that of the other weights.
    """
    width, layers, dim = shape.hidden_size, shape.num_hidden_layers, shape.head_dim
    heads, kv_heads = shape.num_attention_heads, shape.num_key_value_heads
    num_experts, per_token = shape.num_experts, shape.num_experts_per_tok
    expert, item_bytes = shape.expert_bytes(dtype, experts), ITEM_BYTES[dtype]
    attention = (2 * heads + 2 * kv_heads) * dim * width
    layer = attention + num_experts * width + 2 * width + 2 * dim
    others = (layers * layer + 2 * shape.vocab_size * width + width) * item_bytes
    rows = 2 * layers * kv_heads * dim * item_bytes * context
    left = device_bytes - others - rows - head_bytes - WORKSPACE_BYTES
    slots = max(0, min(num_experts, left // (layers * expert)))
    needed = layers * num_experts * expert + others + LOADING_BYTES
    return MemoryPlan(
        expert_bytes=expert,
        experts_bytes=layers * num_experts * expert,
        others_bytes=others,
        context_bytes=rows,
        head_bytes=head_bytes,
        slots_per_layer=slots,
        num_experts=num_experts,
        least_slots=per_token,
        host_bytes=needed,
        fits_device=slots >= per_token,
        fits_host=needed <= host_bytes,
    )


def expected_hit_rate(share: float) -> float:
    """Return the hit rate of plain decoding with this share of the experts resident."""
    for (low, low_rate), (high, high_rate) in itertools.pairwise(PUBLISHED_HIT_RATES):
        if share <= high:
            return low_rate + (high_rate - low_rate) * (share - low) / (high - low)
    return 1.0


def expected_tokens_per_s(
    profile: HardwareProfile, shape: ModelShape, plan: MemoryPlan, hit_rate: float
) -> float:
    """Return the tokens a second of plain decoding that the profile predicts; 0 if it cannot."""
    if not plan.fits_device:
        return 0.0
    experts = shape.experts_of_token
    copy_s = replace(profile, expert_bytes=plan.expert_bytes).copy_s
    compute_s = profile.tau_s(1) + experts * profile.resident_expert_s
    return 1 / (compute_s + experts * (1 - hit_rate) * copy_s)


def _rows(plan: MemoryPlan, hit_rate: float, speed: float, profile: str) -> list[tuple[str, str]]:
    def gib(num_bytes: int) -> str:
        return f"{num_bytes / GIB:.2f} GiB"

    verdict = (
        f"{plan.slots_per_layer} of {plan.num_experts} a layer: --cache lru:{plan.slots_per_layer}"
        if plan.fits_device
        else f"TOO FEW: a token needs {plan.least_slots} a layer, and {plan.slots_per_layer} fit"
    )
    host = "fits" if plan.fits_host else "DOES NOT FIT"
    return [
        ("one expert, as it is copied", f"{plan.expert_bytes / 2**20:.2f} MiB"),
        ("all experts, in host memory", gib(plan.experts_bytes)),
        ("host memory while loading, at most", f"{gib(plan.host_bytes)}: {host}"),
        ("other weights, on the device", gib(plan.others_bytes)),
        ("keys and values", gib(plan.context_bytes)),
        ("draft head", gib(plan.head_bytes)),
        ("workspace", gib(WORKSPACE_BYTES)),
        ("slots", verdict),
        ("predicted hit rate, plain decoding", f"{hit_rate:.2f}"),
        (f"predicted tokens/s, plain decoding, {profile}", f"{speed:.1f}"),
    ]
