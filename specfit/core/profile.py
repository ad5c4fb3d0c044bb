"""A hardware profile: the measured or cited constants of one machine, as a TOML file."""

from __future__ import annotations

import json
import tomllib
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.copies import Overlap, check_overlap
from specfit.core.errors import InvalidInputError, did_you_mean


@dataclass(frozen=True)
class HardwareProfile:
    """Constants from which the seconds of a cycle are predicted.

    Parameters
    ----------
    name : str
        Id of the profile, printed in every result.
    provenance : str
        How the numbers came about: the command that measured them, or a citation.
    kind : str
        ``"measured"``, ``"emulated"`` (a measured machine whose link is emulated) or ``"cited"``.
    first_level_s, level_s : float
        Seconds of the first drafted level (with the head catching up on committed tokens) and of
        each further one.
    verify_fixed_s, verify_node_s : float
        Seconds of a pass with every expert resident: ``verify_fixed_s + verify_node_s * nodes``.
    resident_expert_s : float
        Seconds that one more activated expert adds to the pass once it is on the device.
    copy_latency_s : float
        Seconds that each copy takes whatever its size.
    h2d_bandwidth_bytes_per_s : float
        Bytes a second from host to device.
    expert_bytes : int
        Size of one expert.
    verify_table_s : tuple of float
        Seconds of a pass over 1, 2, .. nodes with every expert resident, non-decreasing; beyond
        its end the last step goes on. Empty: `verify_fixed_s` and `verify_node_s` say it.
    overlap : {"none", "layer", "resident", "pass"}
        What compute hides of the copies; see `specfit.core.copies.pass_seconds`.
    ssd_latency_s, ssd_bandwidth_bytes_per_s : float
        Of reading an expert from disk into host memory, before it is copied; 0 bytes a second: all
        experts are in host memory.
    """

    name: str
    provenance: str
    kind: str
    first_level_s: float
    level_s: float
    verify_fixed_s: float
    verify_node_s: float
    resident_expert_s: float
    copy_latency_s: float
    h2d_bandwidth_bytes_per_s: float
    expert_bytes: int
    verify_table_s: tuple[float, ...] = ()
    overlap: Overlap = "none"
    ssd_latency_s: float = 0.0
    ssd_bandwidth_bytes_per_s: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ("measured", "emulated", "cited"):
            raise InvalidInputError(f"kind must be measured, emulated or cited; got '{self.kind}'.")
        if isinstance(self.verify_table_s, list):  # as TOML and JSON have it
            object.__setattr__(self, "verify_table_s", tuple(self.verify_table_s))
        for field in fields(self):
            _check_value(field.name, getattr(self, field.name), str(field.type))
        check_overlap(self.overlap)
        if list(self.verify_table_s) != sorted(self.verify_table_s):
            raise InvalidInputError(
                f"verify_table_s must not decrease: more nodes take no less; "
                f"got {list(self.verify_table_s)}."
            )
        if not self.h2d_bandwidth_bytes_per_s >= 1e6:
            raise InvalidInputError(
                f"h2d_bandwidth_bytes_per_s = {self.h2d_bandwidth_bytes_per_s:g}, which is "
                f"{self.h2d_bandwidth_bytes_per_s:g} B/s. Bandwidths are in bytes a second; "
                f"did you mean {self.h2d_bandwidth_bytes_per_s:g}e9?"
            )

    @property
    def copy_s(self) -> float:
        """Seconds that one expert occupies the link."""
        return self.copy_latency_s + self.expert_bytes / self.h2d_bandwidth_bytes_per_s

    @property
    def ssd_s(self) -> float:
        """Seconds that reading one expert from disk takes; 0 where there is no such tier."""
        if not self.ssd_bandwidth_bytes_per_s:
            return 0.0
        return self.ssd_latency_s + self.expert_bytes / self.ssd_bandwidth_bytes_per_s

    def tau_s(self, num_nodes: int) -> float:
        """Return the seconds of a pass over `num_nodes` nodes without its experts."""
        table = self.verify_table_s
        if not table:
            return self.verify_fixed_s + self.verify_node_s * num_nodes
        if num_nodes <= len(table):
            return table[num_nodes - 1]
        step_s = table[-1] - table[-2] if len(table) > 1 else 0.0
        return table[-1] + step_s * (num_nodes - len(table))

    def tau_table_s(self, max_nodes: int) -> NDArray[np.float64]:
        """Return `tau_s` of 1 to `max_nodes` nodes, float64[max_nodes + 1]; 0 at 0 nodes."""
        if self.verify_table_s:
            return np.array([0.0, *(self.tau_s(n) for n in range(1, max_nodes + 1))])
        tau_s = self.verify_fixed_s + np.arange(max_nodes + 1.0) * self.verify_node_s
        tau_s[0] = 0.0
        return tau_s

    def write(self, path: Path) -> None:
        """Write the profile as TOML."""
        lines = [f"{key} = {_toml(value)}" for key, value in asdict(self).items()]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> HardwareProfile:
        """Read a profile; an unknown or missing key is an error that names it."""
        try:
            table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidInputError(f"cannot read the hardware profile {path}: {error}.") from error
        known = [f.name for f in fields(cls)]
        for key in table:
            if key not in known:
                raise InvalidInputError(f"{path}: unknown key {key}.{did_you_mean(key, known)}")
        missing = [f.name for f in fields(cls) if f.name not in table and f.default is MISSING]
        if missing:
            raise InvalidInputError(
                f"{path}: missing {', '.join(missing)}. Run `specfit calibrate`."
            )
        return cls(**table)


def _check_value(name: str, value: object, kind: str) -> None:
    if kind.startswith("tuple"):
        if not isinstance(value, tuple):
            raise InvalidInputError(f"{name} must be a list of seconds; got {value!r}.")
        for number, item in enumerate(value):
            _check_value(f"{name}[{number}]", item, "float")
        return
    if kind in ("str", "Overlap"):
        if not isinstance(value, str):
            raise InvalidInputError(f"{name} must be text; got {value!r}.")
        return
    numbers = (int,) if kind == "int" else (int, float)
    if not isinstance(value, numbers) or isinstance(value, bool):
        raise InvalidInputError(f"{name} must be {kind}; got {value!r}.")
    if not 0 <= value < float("inf"):
        raise InvalidInputError(f"{name} must be 0 or more and finite; got {value}.")


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(repr, value))}]"
    if not isinstance(value, str):
        return repr(value)
    # A JSON string is a TOML string, but for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
