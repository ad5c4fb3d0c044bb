"""What others may build on: what is listed stays; every public name is typed and described.

The list is `tests/public_api.txt`. After a deliberate change say so in CHANGELOG.md and rewrite it:
``python -m tests.test_public_api > tests/public_api.txt``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.sources import modules

LISTED = ("specfit.core", "specfit.policies", "specfit.sim", "specfit.testing")
"""Layers whose names are a promise; of the others the command line is."""
LIST = Path(__file__).with_name("public_api.txt")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_public(name: str) -> bool:
    return not any(part.startswith("_") for part in name.split("."))


def definitions(body: list[ast.stmt]) -> Iterator[Function | ast.ClassDef]:
    """Yield the public functions and classes of a module or class body."""
    for node in body:
        if isinstance(node, Function | ast.ClassDef) and is_public(node.name):
            yield node


def constants(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the public values that a module defines."""
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        yield from (t.id for t in targets if isinstance(t, ast.Name) and is_public(t.id))


def everything_public() -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Yield each public function, class and method with its dotted name."""
    for module, tree in modules().items():
        if not is_public(module):
            continue
        for node in definitions(tree.body):
            yield f"{module}.{node.name}", node
            if isinstance(node, ast.ClassDef):
                for member in definitions(node.body):
                    yield f"{module}.{node.name}.{member.name}", member


def listed_names() -> list[str]:
    names = [name for name, _ in everything_public()]
    for module, tree in modules().items():
        if is_public(module):
            names += [f"{module}.{value}" for value in constants(tree.body)]
    return sorted(name for name in names if name.startswith(LISTED))


def is_typed(function: Function) -> bool:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    named += [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    typed = [a for a in named if a.annotation is not None or a.arg in ("self", "cls")]
    return len(typed) == len(named) and function.returns is not None


def test_no_listed_name_is_gone() -> None:
    gone = sorted(set(LIST.read_text("utf-8").splitlines()) - set(listed_names()))
    assert gone == [], "if this is meant: python -m tests.test_public_api > tests/public_api.txt"


def test_most_names_are_listed() -> None:
    """New names join the list with a release; until then they may come and go."""
    listed = set(LIST.read_text("utf-8").splitlines())
    assert len(listed & set(listed_names())) > 0.8 * len(listed_names())


def test_every_public_name_is_typed() -> None:
    functions = [(n, node) for n, node in everything_public() if isinstance(node, Function)]
    assert [name for name, node in functions if not is_typed(node)] == []


def test_every_public_name_has_a_docstring() -> None:
    undocumented = [name for name, node in everything_public() if not ast.get_docstring(node)]
    assert undocumented == []


def test_every_module_says_what_it_knows() -> None:
    silent = [name for name, tree in modules().items() if not ast.get_docstring(tree)]
    assert silent == []


if __name__ == "__main__":
    print("\n".join(listed_names()))
