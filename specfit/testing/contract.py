"""How a contract works: a class of rules, each a method that raises `ContractError` with its id.

The same class serves pytest, one test a rule, and `check`, which runs every rule outside pytest.
A rule's method is named ``test_<id>_<what it says>``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from specfit.core.errors import ContractError


class Contract:
    """The rules that a kind of plug-in keeps. Subclasses hold one method a rule.

    A test class sets ``make = staticmethod(lambda: Plugin(...))``.
    """

    @staticmethod
    def make() -> Any:
        """Return a fresh plug-in."""
        raise NotImplementedError("a contract needs make = staticmethod(lambda: Plugin(...))")

    @classmethod
    def rules(cls) -> dict[str, str]:
        """Return the method of each rule by its id, in the order of the ids."""
        methods = [name for name, _ in inspect.getmembers(cls) if name.startswith("test_")]
        by_id = {name.split("_")[1].upper(): name for name in methods}
        return dict(sorted(by_id.items(), key=lambda item: int(item[0][1:])))


def check(contract: type[Contract], make: Callable[[], Any]) -> list[str]:
    """Run every rule of a contract against what `make` returns; return the ids that hold.

    Raises
    ------
    ContractError
        The first rule that does not hold, an unforeseen exception included.
    """
    bound = type(contract.__name__, (contract,), {"make": staticmethod(make)})
    for rule, method in contract.rules().items():
        try:
            getattr(bound(), method)()
        except ContractError:
            raise
        except Exception as error:
            raise ContractError(rule, f"raised {type(error).__name__}: {error}") from error
    return list(contract.rules())


def require(holds: object, rule: str, message: str) -> None:
    """Raise `ContractError` for `rule` unless it holds."""
    if not holds:
        raise ContractError(rule, message)
