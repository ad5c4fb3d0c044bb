"""Short names, colours and marks for what a sweep compares; the same in every picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from specfit.report import style

COLORS = ("#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a4fbf", "#8c564b", "#000000")
"""Told apart by readers who see no red or no green (after Okabe and Ito)."""
MARKS = ("s", "^", "D", "v", "P", "X", "<", ">")
PLAIN, OURS = "autoregressive", "specfit"
PLAIN_COLOR = style.DIM


@dataclass(frozen=True)
class Look:
    """How a policy is drawn."""

    label: str
    color: str
    mark: str
    width: float = 1.4
    dashes: str = "-"


def short_names(specs: Sequence[str]) -> dict[str, str]:
    """Return for each spec its name, with only the parameters that tell it from its namesakes."""
    named: dict[str, list[str]] = {}
    for spec in specs:
        named.setdefault(_name(spec), []).append(spec)
    names = {}
    for name, same in named.items():
        common = set.intersection(*(set(_params(spec)) for spec in same))
        for spec in same:
            own = [param for param in _params(spec) if param not in common]
            names[spec] = " ".join([name, ",".join(own)]).strip()
    return names


def looks_of(policies: Sequence[str]) -> dict[str, Look]:
    """Return how each policy is drawn: plain decoding in grey, ours in blue, others in turn."""
    names = short_names(policies)
    looks: dict[str, Look] = {}
    others = 0
    for policy in policies:
        if _name(policy) == PLAIN:
            looks[policy] = Look(names[policy], PLAIN_COLOR, ".", dashes="--")
        elif _name(policy) == OURS and OURS not in map(_name, looks):
            looks[policy] = Look(names[policy], style.ACCENT, "o", width=2.2)
        else:
            turn, place = divmod(others, len(COLORS))
            mark = MARKS[(place + turn) % len(MARKS)]
            looks[policy] = Look(names[policy], COLORS[place], mark, dashes="-:"[turn % 2])
            others += 1
    return looks


def trace_names(traces: Sequence[str]) -> dict[str, str]:
    """Return the folder's name of each trace; its whole path where two have one name."""
    names = [PurePath(trace).name for trace in traces]
    return {t: n if names.count(n) == 1 else t for t, n in zip(traces, names, strict=True)}


def link_name(bytes_per_s: float) -> str:
    """Return ``25 GB/s``."""
    return f"{bytes_per_s / 1e9:.3g} GB/s"


def rule_of(cache: str) -> str:
    """Return the rule of a cache with its parameters, without the size: ``lfu, decay=0.9``."""
    name, _, rest = cache.partition(":")
    return ", ".join([name, *rest.split(",")[1:]])


def _name(spec: str) -> str:
    """Return a policy's name: of one in a file, the class."""
    _, found, rest = spec.partition(".py:")
    return (rest if found else spec).partition(":")[0]


def _params(spec: str) -> list[str]:
    _, found, rest = spec.partition(".py:")
    return [param for param in (rest if found else spec).partition(":")[2].split(",") if param]
