"""What a trace says about itself: `metadata.json`, written at the start and at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from specfit.core.backend import Backend
from specfit.core.errors import SpecfitError, TraceFormatError, did_you_mean
from specfit.core.experts import ModelGeometry
from specfit.core.noise import Sampling
from specfit.core.profile import HardwareProfile
from specfit.core.tree import DraftPlan
from specfit.sim.trace.schema import FORMAT_VERSION, KINDS, ORIGINS, PLAIN_VERSION

METADATA_NAME = "metadata.json"
MAX_METADATA_BYTES = 4 * 2**20
MAX_STATE_WIDTH = 2**16

_TEXTS = ("model", "drafter", "tokenizer_hash", "weight_format", "precision")
_LIMITS = {
    "num_layers": 4096,
    "num_experts": 65535,
    "experts_per_token": 1024,
    "expert_bytes": 2**40,
    "vocab_size": 2**31 - 1,
}


@dataclass(frozen=True)
class TraceMetadata:
    """What a trace is a trace of.

    Parameters
    ----------
    kind : str
        ``"run"``: what one live run did; ``"positions"``: what named plans draw at each position.
    origin : str
        ``"recorded"`` from a backend or ``"synthetic"``.
    geometry : ModelGeometry
        Shape of the target.
    plans : tuple of DraftPlan
        The plans recorded at each position; empty for a run.
    model, drafter, tokenizer_hash, weight_format, precision : str
        What produced it, empty where it is not known.
    sampling : Sampling
        How the target's tokens were drawn.
    hardware : HardwareProfile, optional
        The machine.
    backend : mapping
        What `Backend.describe` said.
    specs : mapping
        Specs of the policy, cache, prefetcher, cost model and predictors of a run.
    num_prompts : int, optional
        Prompts in the finished trace; absent while it is being recorded.
    state_width : int
        Width D of the drafter's hidden states in the rows; 0 where they hold none.
    """

    kind: str
    origin: str
    geometry: ModelGeometry
    plans: tuple[DraftPlan, ...] = ()
    model: str = ""
    drafter: str = ""
    tokenizer_hash: str = ""
    weight_format: str = ""
    precision: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    hardware: HardwareProfile | None = None
    backend: Mapping[str, Any] = field(default_factory=dict)
    specs: Mapping[str, Any] = field(default_factory=dict)
    num_prompts: int | None = None
    state_width: int = field(default=0, repr=False)  # fingerprints without it stay as they were

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise TraceFormatError(f"kind must be one of {', '.join(KINDS)}; got '{self.kind}'.")
        if self.origin not in ORIGINS:
            raise TraceFormatError(
                f"origin must be one of {', '.join(ORIGINS)}; got '{self.origin}'."
            )
        if self.kind == "positions" and not self.plans:
            raise TraceFormatError(
                "a position-complete trace names the plans recorded; got none. Name one."
            )
        _check_geometry(self.geometry)
        if not 0 <= self.state_width <= MAX_STATE_WIDTH:
            raise TraceFormatError(
                f"state_width must be 0 to {MAX_STATE_WIDTH}; got {self.state_width}."
            )

    def finished(self, num_prompts: int | None) -> TraceMetadata:
        """Return the metadata of the trace with so many prompts; None says it is being written."""
        return replace(self, num_prompts=num_prompts)

    def write(self, folder: Path) -> None:
        """Write `metadata.json` in one step: a reader sees the old file or the new one."""
        version = FORMAT_VERSION if self.state_width else PLAIN_VERSION
        table = {"format_version": version, **asdict(self)}
        if not self.state_width:
            del table["state_width"]
        try:
            text = json.dumps(table, indent=2, default=str, allow_nan=False) + "\n"
        except ValueError as error:
            raise TraceFormatError(f"metadata must hold finite numbers: {error}.") from error
        temporary = folder / f".{METADATA_NAME}.open"
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / METADATA_NAME)

    @classmethod
    def read(cls, folder: Path) -> TraceMetadata:
        """Read `metadata.json`.

        Raises
        ------
        TraceFormatError
            It is missing, no JSON, of a newer version, or a key is unknown, missing or wrong.
        """
        path = folder / METADATA_NAME
        table = _load_json(path)
        version = _version(table.pop("format_version", None), path)
        known = [f.name for f in fields(cls)]
        if version <= PLAIN_VERSION:
            known.remove("state_width")
        _check_keys(table, known, path)
        try:
            return cls(
                **{
                    **{key: _text(table, key) for key in ("kind", "origin", *_TEXTS)},
                    "geometry": _build(ModelGeometry, table["geometry"]),
                    "plans": tuple(_build(DraftPlan, plan) for plan in _list(table["plans"])),
                    "sampling": _build(Sampling, table["sampling"]),
                    "hardware": _build(HardwareProfile, table["hardware"])
                    if table["hardware"] is not None
                    else None,
                    "backend": _mapping(table["backend"]),
                    "specs": _mapping(table["specs"]),
                    "num_prompts": _count(table["num_prompts"]),
                    "state_width": _width(table.get("state_width", 0)),
                }
            )
        except SpecfitError as error:
            raise TraceFormatError(f"{path}: {error}") from error


def metadata_of(
    backend: Backend,
    kind: str,
    plans: Iterable[DraftPlan] = (),
    *,
    hardware: HardwareProfile | None = None,
    specs: Mapping[str, Any] | None = None,
    sampling: Sampling | None = None,
    state_width: int = 0,
) -> TraceMetadata:
    """Return the metadata of a trace recorded from `backend`."""
    said = backend.describe()
    texts: dict[str, Any] = {key: str(said.get(key, "")) for key in _TEXTS}
    return TraceMetadata(
        **texts,
        kind=kind,
        origin="recorded",
        geometry=backend.geometry,
        plans=tuple(plans),
        sampling=sampling or Sampling(),
        hardware=hardware,
        backend=said,
        specs=specs or {},
        state_width=state_width,
    )


def _load_json(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file() and path.exists():
            raise TraceFormatError(f"{path} must be a regular file; it is none.")
        with path.open("rb") as file:
            content = file.read(MAX_METADATA_BYTES + 1)
        if len(content) > MAX_METADATA_BYTES:
            raise TraceFormatError(
                f"{path} must be at most {MAX_METADATA_BYTES} bytes; it has more."
            )
        table = json.loads(content.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise TraceFormatError(f"{path} cannot be read: {error}. Is this a trace?") from error
    except (ValueError, RecursionError) as error:
        raise TraceFormatError(f"{path} is no JSON: {error}.") from error
    return _mapping(table, f"{path} must hold one JSON object")


def _version(version: object, path: Path) -> int:
    if type(version) is not int or version < 1:
        raise TraceFormatError(f"{path}: format_version must be 1 or more; got {version!r}.")
    if version > FORMAT_VERSION:
        raise TraceFormatError(
            f"{path}: format version {version} is newer than {FORMAT_VERSION}, the newest that "
            f"this specfit reads. Update specfit."
        )
    return version


def _check_keys(table: Mapping[str, Any], known: list[str], path: Path) -> None:
    for key in table:
        if key not in known:
            raise TraceFormatError(f"{path}: unknown key {key[:80]!r}.{did_you_mean(key, known)}")
    missing = [key for key in known if key not in table]
    if missing:
        raise TraceFormatError(f"{path}: missing {', '.join(missing)}.")


def _build(cls: type[Any], value: object) -> Any:
    """Return the dataclass that a JSON object describes: numbers, texts, tuples of numbers."""
    table = _mapping(value, f"{cls.__name__} must be an object")
    kinds = {f.name: str(f.type) for f in fields(cls)}
    required = {f.name for f in fields(cls) if f.default is MISSING}
    if not required <= set(table) <= set(kinds):
        raise TraceFormatError(
            f"{cls.__name__} has the keys {', '.join(kinds)}; "
            f"got {', '.join(map(str, table))[:200]}."
        )
    values = {n: _converted(v, kinds[n], f"{cls.__name__}.{n}") for n, v in table.items()}
    return cls(**values)


def _converted(value: object, kind: str, where: str) -> object:
    """Return a JSON value as the kind that a field's annotation names; lists become tuples."""
    is_tuple = kind.startswith("tuple[")
    if is_tuple and isinstance(value, list):
        item = kind.removeprefix("tuple[").removesuffix(", ...]")
        return tuple(_converted(entry, item, where) for entry in value)
    numbers = {"int": (int,), "float": (int, float)}
    if is_tuple or type(value) not in numbers.get(kind, (str,)):
        raise TraceFormatError(f"{where} must be {kind}; got {str(value)[:80]!r}.")
    return value


def _check_geometry(geometry: ModelGeometry) -> None:
    for name, limit in _LIMITS.items():
        if not 1 <= getattr(geometry, name) <= limit:
            raise TraceFormatError(
                f"geometry.{name} must be 1 to {limit}; got {getattr(geometry, name)}."
            )
    if geometry.experts_per_token > geometry.num_experts:
        raise TraceFormatError(
            f"geometry.experts_per_token must be at most num_experts, {geometry.num_experts}; "
            f"got {geometry.experts_per_token}."
        )


def _mapping(value: object, rule: str = "backend and specs must be objects") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TraceFormatError(f"{rule}; got {str(value)[:80]!r}.")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TraceFormatError(f"plans must be a list; got {str(value)[:80]!r}.")
    return value


def _text(table: Mapping[str, Any], key: str) -> str:
    if not isinstance(table[key], str):
        raise TraceFormatError(f"{key} must be text; got {str(table[key])[:80]!r}.")
    return str(table[key])


def _count(value: object) -> int | None:
    if value is not None and (type(value) is not int or value < 0):
        raise TraceFormatError(f"num_prompts must be a count or null; got {str(value)[:80]!r}.")
    return value


def _width(value: object) -> int:
    if type(value) is not int:
        raise TraceFormatError(f"state_width must be a count; got {str(value)[:80]!r}.")
    return value
