"""Every error that specfit raises on purpose, by whose fault it is.

A message says what must hold, what was given and what to do. All classes derive from
`SpecfitError`, so a program that embeds specfit can catch them in one place.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SpecfitError(Exception):
    """Base class of every error that specfit raises on purpose."""


class InvalidTreeError(SpecfitError, ValueError):
    """A draft tree whose arrays describe no tree, or whose probabilities are none."""


class InvalidSelectionError(SpecfitError, ValueError):
    """A selection without the root, not closed under parent, or of another tree."""


class InvalidPlanError(SpecfitError, ValueError):
    """A draft plan that no drafter could carry out."""


class InvalidInputError(SpecfitError, ValueError):
    """A value given by the caller (an option, an array, a file's content) breaks a stated rule."""


class CapacityError(SpecfitError, ValueError):
    """More experts are needed at once than the expert cache has slots.

    Attributes
    ----------
    needed, capacity : int
        Experts of one layer that must be in device memory together, and the slots there are.
    """

    def __init__(self, message: str, *, needed: int, capacity: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.capacity = capacity


class UnsupportedCostError(SpecfitError, ValueError):
    """The search that was asked for does not cover this kind of cost model."""


class CheckpointError(SpecfitError, ValueError):
    """A target or draft-head checkpoint that is missing, damaged, or does not fit."""


class BackendError(SpecfitError, RuntimeError):
    """The live backend failed while decoding: a copy, a layer, or the device."""


class TraceFormatError(SpecfitError, ValueError):
    """A trace that is damaged, incomplete, or of a version that this reader does not know."""


class TraceWriteError(SpecfitError, OSError):
    """A trace that cannot be written: the path is taken, or the disk is full or failing."""


class TraceCoverageError(SpecfitError, LookupError):
    """A policy asked for what the trace does not hold; the message names the plan to record."""


class UnknownPluginError(SpecfitError, LookupError):
    """No policy, cache, cost model, ... is registered under this name."""


class ContractError(SpecfitError, AssertionError):
    """A plug-in breaks a rule of its contract.

    Attributes
    ----------
    rule : str
        Id of the rule, for example ``"P4"``.
    """

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""
