"""Every error is a SpecfitError, says whose fault it is, and is described in the reference."""

from __future__ import annotations

import ast
import inspect

import pytest

from specfit.core import errors
from specfit.core.errors import CapacityError, ContractError, SpecfitError, did_you_mean
from tests.sources import ROOT, modules

CLASSES = [
    c for _, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == errors.__name__
]
REFERENCE = ROOT / "docs" / "reference" / "errors.md"


@pytest.mark.parametrize("error", CLASSES)
def test_every_class_derives_from_the_base_class(error: type) -> None:
    assert issubclass(error, SpecfitError)


@pytest.mark.parametrize("error", [c for c in CLASSES if c is not SpecfitError])
def test_every_class_is_also_a_builtin_kind_of_error(error: type) -> None:
    builtin = (ValueError, LookupError, RuntimeError, OSError, AssertionError)
    assert issubclass(error, builtin)


@pytest.mark.parametrize("error", CLASSES)
def test_every_class_has_its_line_in_the_reference(error: type) -> None:
    assert f"| `{error.__name__}` |" in REFERENCE.read_text("utf-8")


def test_no_error_class_lives_elsewhere() -> None:
    for name, tree in modules().items():
        if name == errors.__name__:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base) for base in node.bases}
                assert not any(b.endswith(("Error", "Exception")) for b in bases), (
                    f"{name}.{node.name} belongs into specfit.core.errors"
                )


def test_nothing_catches_everything_silently() -> None:
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None, f"{name}:{node.lineno} is a bare except"
                silent = all(isinstance(statement, ast.Pass) for statement in node.body)
                broad = ast.unparse(node.type) in ("Exception", "BaseException")
                assert not (silent and broad), f"{name}:{node.lineno} swallows every error"


def test_capacity_error_carries_its_numbers() -> None:
    error = CapacityError("too many", needed=9, capacity=8)
    assert (error.needed, error.capacity, str(error)) == (9, 8, "too many")


def test_contract_error_starts_with_the_rule() -> None:
    error = ContractError("P4", "changed its input")
    assert (error.rule, str(error)) == ("P4", "P4: changed its input")


def test_did_you_mean_names_the_nearest_and_stays_silent_when_none_is_near() -> None:
    assert did_you_mean("treshold", ["eagle3", "threshold"]) == " Did you mean 'threshold'?"
    assert did_you_mean("zzz", ["eagle3", "threshold"]) == ""
