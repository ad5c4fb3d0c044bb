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
from specfit.core.units import BYTES, bytes_of, bytes_per_s_of
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
Ssd = Annotated[
    str | None,
    typer.Option(
        "--ssd",
        help="Experts that host memory does not hold are on a disk read at this speed, like "
        "3.5GB/s; profile: at that of the hardware profile.",
    ),
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
    host_per_layer : int
        Experts of a layer that host memory holds: all, or where a disk holds the rest, what fits.
    cpu_slots_per_layer : int
        Slots that host memory has room for where the CPU computes (``--device ssd``).
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
    host_per_layer: int
    cpu_slots_per_layer: int

    @property
    def disk_bytes(self) -> int:
        """Bytes of the experts that only the disk holds."""
        return self.experts_bytes * (self.num_experts - self.host_per_layer) // self.num_experts


def memory(
    model: ModelName = "qwen3-30b-a3b",
    gpu: Gpu = "24GiB",
    host: Host = "64GiB",
    dtype: options.Dtype = "bfloat16",
    experts: options.Experts = None,
    context: Context = 8192,
    head_size: HeadBytes = "0.6GiB",
    ssd: Ssd = None,
    profile: Profile = "pcie4-x16",
    as_json: options.Json = False,
) -> None:
    """Say what of a model fits, how many experts get a slot, and how fast plain decoding should be.

    Example: specfit memory --gpu 24GiB --host 32GiB --ssd 3.5GB/s
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
        has_disk=ssd is not None,
    )
    machine = with_disk(profile_from(profile), ssd)
    hit_rate = expected_hit_rate(plan.slots_per_layer / plan.num_experts)
    read_rate = expected_read_rate(plan) if ssd else 0.0
    speed = expected_tokens_per_s(machine, shape, plan, hit_rate, read_rate)
    if as_json:
        found = {
            "predicted_hit_rate": hit_rate,
            "predicted_read_rate": read_rate,
            "predicted_tokens_per_s": speed,
            "provenance": machine.provenance,
        }
        print_json(
            [{"model": model, "profile": profile, "experts": experts, **asdict(plan), **found}]
        )
        return
    rows = _rows(plan, hit_rate, speed, profile, has_disk=ssd is not None)
    if ssd:
        token_bytes = shape.experts_of_token * read_rate * plan.expert_bytes
        rows[-1:-1] = _disk_rows(plan, read_rate, token_bytes, machine.ssd_bandwidth_bytes_per_s)
    print_table(["", model], rows, is_numeric=False)
    print_note(
        "Predicted, not measured: hit rates as published for Qwen3-30B-A3B, seconds from the "
        "profile, plain decoding. Drafting changes it; measure with specfit calibrate and decode."
    )
    if ssd:
        print_note(
            "A GPU before host memory before a disk: decode --device cuda --packed FOLDER with "
            f"--cache lru:{plan.slots_per_layer} --host lru:{plan.host_per_layer}. Without a GPU, "
            "--device ssd: the CPU computes on slots in host memory that are filled from disk. "
            "specfit calibrate, with the same options, measures how fast. "
            f"{profile}: {machine.provenance}"
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
    has_disk: bool = False,
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
    has_disk : bool
        Whether a disk holds the experts, so that host memory need not hold all.
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

    def per_layer(num_bytes: int) -> int:
        return max(0, min(num_experts, num_bytes // (layers * expert)))

    slots = per_layer(left)
    beside = others + LOADING_BYTES
    held = per_layer(host_bytes - beside) if has_disk else num_experts
    needed = layers * held * expert + beside
    at_least = per_token if has_disk else num_experts
    cpu_slots = per_layer(host_bytes - others - rows - head_bytes - WORKSPACE_BYTES)
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
        fits_host=needed <= host_bytes and held >= at_least,
        host_per_layer=held,
        cpu_slots_per_layer=cpu_slots,
    )


def expected_hit_rate(share: float) -> float:
    """Return the hit rate of plain decoding with this share of the experts resident."""
    for (low, low_rate), (high, high_rate) in itertools.pairwise(PUBLISHED_HIT_RATES):
        if share <= high:
            return low_rate + (high_rate - low_rate) * (share - low) / (high - low)
    return 1.0


def expected_read_rate(plan: MemoryPlan) -> float:
    """Return the share of a token's experts that are read from disk.

    Host memory holds what was used last, those on the device too, so that it misses less.
    """
    return 1.0 - expected_hit_rate(
        max(plan.host_per_layer, plan.slots_per_layer) / plan.num_experts
    )


def with_disk(profile: HardwareProfile, ssd: str | None) -> HardwareProfile:
    """Return the profile with a disk of this speed, ``3.5GB/s``; ``profile`` keeps its own.

    Raises
    ------
    InvalidInputError
        It is no speed, or the profile has no disk to keep.
    """
    if ssd is None:
        return profile
    if ssd != "profile":
        speed = bytes_per_s_of(ssd)
        if not speed > 0:
            raise InvalidInputError(f"--ssd must be above 0 B/s; got '{ssd}'.")
        said = f"{profile.provenance} Disk: read at {ssd}, as given."
        return replace(profile, ssd_bandwidth_bytes_per_s=speed, provenance=said)
    if not profile.ssd_bandwidth_bytes_per_s:
        raise InvalidInputError(
            f"the profile '{profile.name}' has no disk. Give --ssd a speed like 3.5GB/s, or "
            f"--profile pcie4-x16-ssd."
        )
    return profile


def expected_tokens_per_s(
    profile: HardwareProfile,
    shape: ModelShape,
    plan: MemoryPlan,
    hit_rate: float,
    read_rate: float = 0.0,
) -> float:
    """Return the tokens a second of plain decoding that the profile predicts; 0 if it cannot.

    Parameters
    ----------
    hit_rate, read_rate : float
        Share of a token's experts that are on the device, and that are read from disk.
    """
    if not plan.fits_device or not plan.fits_host:
        return 0.0
    experts = shape.experts_of_token
    sized = replace(profile, expert_bytes=plan.expert_bytes)
    compute_s = profile.tau_s(1) + experts * profile.resident_expert_s
    return 1 / (compute_s + experts * ((1 - hit_rate) * sized.copy_s + read_rate * sized.ssd_s))


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / GIB:.2f} GiB"


def _disk_rows(
    plan: MemoryPlan, read_rate: float, token_bytes: float, bytes_per_s: float
) -> list[tuple[str, str]]:
    """Return what the table says of the disk."""
    cpu = plan.cpu_slots_per_layer
    verdict = f"{cpu} a layer: --cache lru:{cpu}" if cpu >= plan.least_slots else "TOO FEW"
    return [
        ("experts that only the disk holds", _gib(plan.disk_bytes)),
        ("predicted share read from disk", f"{read_rate:.2f}"),
        ("predicted bytes read a token", f"{token_bytes / 2**20:.0f} MiB"),
        ("read speed", f"{bytes_per_s / 1e9:g} GB/s"),
        ("slots with --device ssd, on the CPU", verdict),
    ]


def _rows(
    plan: MemoryPlan, hit_rate: float, speed: float, profile: str, *, has_disk: bool
) -> list[tuple[str, str]]:
    verdict = (
        f"{plan.slots_per_layer} of {plan.num_experts} a layer: --cache lru:{plan.slots_per_layer}"
        if plan.fits_device
        else f"TOO FEW: a token needs {plan.least_slots} a layer, and {plan.slots_per_layer} fit"
    )
    host = "fits" if plan.fits_host else "DOES NOT FIT"
    held = f"{plan.host_per_layer} of {plan.num_experts} a layer: --host lru:{plan.host_per_layer}"
    everything = ("all experts, in host memory", _gib(plan.experts_bytes))
    return [
        ("one expert, as it is copied", f"{plan.expert_bytes / 2**20:.2f} MiB"),
        ("experts in host memory", held) if has_disk else everything,
        ("host memory while loading, at most", f"{_gib(plan.host_bytes)}: {host}"),
        ("other weights, on the device", _gib(plan.others_bytes)),
        ("keys and values", _gib(plan.context_bytes)),
        ("draft head", _gib(plan.head_bytes)),
        ("workspace", _gib(WORKSPACE_BYTES)),
        ("slots", verdict),
        ("predicted hit rate, plain decoding", f"{hit_rate:.2f}"),
        (f"predicted tokens/s, plain decoding, {profile}", f"{speed:.1f}"),
    ]
