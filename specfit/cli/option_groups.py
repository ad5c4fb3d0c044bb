"""Options that several verbs take together: a dataclass of them, spread into a verb's signature."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints


class OptionGroup:
    """A dataclass each of whose fields is an option of the command line."""


def with_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Return the verb with its parameter that is an `OptionGroup` spread into options.

    In the verb's signature an option for each field stands where that parameter stood; the verb
    gets the object that holds what was given.
    """
    own = inspect.signature(verb, eval_str=True).parameters
    group, kind = next((n, p.annotation) for n, p in own.items() if _is_group(p.annotation))
    spread: list[inspect.Parameter] = []
    for name, parameter in own.items():
        spread += (
            _parameters(kind)
            if name == group
            else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        )
    names = [f.name for f in fields(kind)]

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        gathered = kind(**{name: given.pop(name) for name in names if name in given})
        verb(**{group: gathered}, **given)

    run.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in spread}
    return run


def _is_group(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, OptionGroup)


def _parameters(kind: type[Any]) -> list[inspect.Parameter]:
    """Return a keyword-only parameter for each field of a group of options."""
    types = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            f.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=f.default,
            annotation=types[f.name],
        )
        for f in fields(kind)
    ]
