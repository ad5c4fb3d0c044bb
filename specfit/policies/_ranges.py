"""The ranges of a policy's parameters: what is refused when the policy is made."""

from __future__ import annotations

import math

from specfit.core.errors import InvalidInputError
from specfit.core.policy import Policy


def check_range(policy: Policy, names: str, least: float, most: float = math.inf) -> None:
    """Raise `InvalidInputError` unless each of the named parameters is from `least` to `most`.

    Parameters
    ----------
    names : str
        Names of fields, separated by spaces.
    """
    for name in names.split():
        value = getattr(policy, name)
        if not least <= value <= most:
            rule = f"{least} or more" if most == math.inf else f"from {least} to {most}"
            raise InvalidInputError(f"{type(policy).__name__}.{name} must be {rule}; got {value}.")
