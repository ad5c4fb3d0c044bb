"""From the text of an option to the object it describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import specfit.policies  # noqa: F401 - registers the shipped policies
from specfit.core.cost import CostModel, costs
from specfit.core.errors import InvalidInputError, UnknownPluginError, did_you_mean
from specfit.core.policy import Policy, policies
from specfit.core.profile import HardwareProfile
from specfit.core.registry import Registry
from specfit.core.tree import DraftPlan
from specfit.core.units import bytes_per_s_of, seconds_of
from specfit.data import profile_files

if TYPE_CHECKING:
    from specfit.core.prefetch import Prefetcher
    from specfit.sim.trace import TraceMetadata

T = TypeVar("T")


def policy_from(spec: str, settings: Sequence[str] = ()) -> Policy:
    """Return the policy of a spec and of ``--set name=value`` settings, which win.

    Raises
    ------
    UnknownPluginError, InvalidInputError
        No such policy, no such parameter, or a value of the wrong kind.
    """
    name, params = policies.parse(spec)
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise InvalidInputError(f"--set must read name=value; got '{setting}'.")
        params[key.strip()] = value.strip()
    return build(policies, name, params, Policy)  # type: ignore[type-abstract]


def spec_with(spec: str, settings: Sequence[str]) -> str:
    """Return one spec that says what a policy's spec and its settings say together."""
    if not settings:
        return spec
    joint = "," if policies.parse(spec)[1] else ":"
    return f"{spec}{joint}{','.join(settings)}"


def cost_from(spec: str, profile: HardwareProfile) -> CostModel:
    """Return the cost model of a spec: ``profile`` or ``my.py:MyCost[:name=value,...]``.

    A class with a field `profile` is given the hardware profile.
    """
    name, params = costs.parse(spec)
    return build(costs, name, params, CostModel, profile=profile)  # type: ignore[type-abstract]


def host_from(option: str, metadata: TraceMetadata) -> str | None:
    """Return the spec of a replay's host tier: the one given, ``trace`` that of the recording.

    None where host memory holds every expert, ``none``.
    """
    spec = metadata.specs.get("host") if option == "trace" else option
    return None if spec is None or spec == "none" else str(spec)


def prefetcher_from(spec: str, *, live: bool = False) -> Prefetcher | None:
    """Return the prefetcher of a spec, or None for ``none``, which wants nothing.

    Parameters
    ----------
    live : bool
        Whether there is no trace that it could look at.

    Raises
    ------
    UnknownPluginError, InvalidInputError
        No such prefetcher, no such parameter, a value of the wrong kind, or one for replays alone.
    """
    import specfit.sim.prefetch_oracle  # noqa: F401 - registers it
    from specfit.core.prefetch import prefetchers
    from specfit.sim.replay import TracePrefetcher

    prefetcher = None if spec == "none" else prefetchers.make(spec)
    if live and isinstance(prefetcher, TracePrefetcher):
        raise InvalidInputError(
            f"the prefetcher '{spec}' must be replayed: it looks at a trace. Give previous or "
            f"predicted to decode."
        )
    return prefetcher


def profile_from(name: str) -> HardwareProfile:
    """Return the profile in a TOML file, or the shipped one of this name."""
    if name.endswith(".toml") and Path(name).is_file():
        return HardwareProfile.read(Path(name))
    shipped = profile_files()
    if name in shipped:
        return HardwareProfile.read(shipped[name])
    near = [str(p) for p in Path(name).parent.glob("*.toml")] + list(shipped)
    raise UnknownPluginError(
        f"no profile '{name}'.{did_you_mean(name, near)} Give a file that `specfit calibrate -o "
        f"profile.toml` wrote, or one of: {', '.join(shipped) or 'none shipped'}."
    )


def shipped_profiles() -> list[HardwareProfile]:
    """Return the shipped profiles, by name."""
    return [HardwareProfile.read(path) for path in profile_files().values()]


def plan_from(spec: str) -> DraftPlan:
    """Return the draft plan of ``chain:depth=5``, or of a policy: ``eagle3:depth=5,top_k=4``.

    Raises
    ------
    UnknownPluginError, InvalidInputError
        There is no such policy, or it has no depth, top_k and max_nodes.
    """
    name, params = policies.parse(spec)
    if name == "chain":
        policy: Policy = policies.build("eagle3", {"top_k": "1", **params})
    else:
        policy = policy_from(spec)
    parts = [getattr(policy, part, None) for part in ("depth", "top_k", "max_nodes")]
    sizes = [part for part in parts if isinstance(part, int)]
    if len(sizes) < len(parts):
        raise InvalidInputError(
            f"a plan must be a chain or a policy with depth, top_k and max_nodes; {name} has "
            f"no such parameters. Write eagle3:depth=6,top_k=4 or chain:depth=8."
        )
    return DraftPlan(*sizes)


@dataclass(frozen=True)
class LinkSpec:
    """What ``--link`` asks for.

    Parameters
    ----------
    kind : str
        ``"none"``: copies take as long as they take; ``"pcie4"``: as long, relative to compute, as
        on PCIe 4; ``"given"``: as the numbers say. All but the first are emulated.
    latency_s, bandwidth_bytes_per_s : float
        The numbers of a given link.
    """

    kind: str
    latency_s: float = 0.0
    bandwidth_bytes_per_s: float = 0.0


def link_from(text: str) -> LinkSpec:
    """Return the link of ``none``, ``pcie4`` or ``latency+bandwidth`` like ``20us+25GB/s``."""
    if text in ("none", "pcie4"):
        return LinkSpec(text)
    latency, plus, bandwidth = text.partition("+")
    if not plus:
        raise InvalidInputError(
            f"a link must be none, pcie4 or latency+bandwidth like 20us+25GB/s; got '{text}'."
            f"{did_you_mean(text, ['none', 'pcie4'])}"
        )
    return LinkSpec("given", seconds_of(latency), bytes_per_s_of(bandwidth))


def build(
    registry: Registry[T], name: str, params: Mapping[str, object], base: type[T], **given: object
) -> T:
    """Return an object of a registered class; `given` fills the fields that it has and lacks.

    Parameters
    ----------
    name, params
        Of the spec, as `Registry.parse` gives them.
    base : type
        What the class must derive from.
    given
        Values by field name; a field that `params` names keeps its value.

    Raises
    ------
    UnknownPluginError, InvalidInputError
        No such class, it is no dataclass of this kind, or a parameter is wrong.
    """
    cls = registry.get(name)
    if not (issubclass(cls, base) and is_dataclass(cls)):
        raise InvalidInputError(
            f"{name} must be a dataclass that derives from {base.__name__}; "
            f"{cls.__name__} is not. Write @dataclass class {cls.__name__}({base.__name__})."
        )
    wanted = {f.name for f in fields(cls)}
    return registry.build(name, {**{k: v for k, v in given.items() if k in wanted}, **params})
