"""The glossary is the source of names: what it rules out occurs nowhere as a name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.sources import ROOT, modules

GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"


def forbidden_words() -> set[str]:
    """Words in backticks in the last column of the glossary's tables."""
    rows = [line for line in GLOSSARY.read_text("utf-8").splitlines() if line.startswith("|")]
    return {word for row in rows for word in re.findall(r"`(\w+)`", row.split("|")[-2])}


def names_in(tree: ast.Module) -> Iterator[str]:
    """Yield every name that a module gives to something: classes, functions, arguments, values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_the_glossary_rules_words_out() -> None:
    words = forbidden_words()
    assert {"accept_length", "total_token", "verifier"} <= words
    assert len(words) > 30


def test_no_ruled_out_word_is_a_name() -> None:
    words = forbidden_words()
    found = {f"{m}: {name}" for m, tree in modules().items() for name in names_in(tree)}
    assert sorted(f for f in found if f.split(": ")[1].strip("_").lower() in words) == []


def test_no_field_has_another_unit_than_seconds_and_bytes() -> None:
    other = re.compile(r"_(ms|millis|us|seconds|sec|secs|kb|mb|gb|kib|mib|gib)$")
    fields = [
        f"{module}.{node.name}.{field.target.id}"
        for module, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    ]
    assert [field for field in fields if other.search(field)] == []


def test_the_glossary_names_what_exists() -> None:
    """Every class that the glossary names is defined in the package."""
    defined = {
        node.name
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    named = set(re.findall(r"`([A-Z][a-z]+[A-Z]\w+)`", GLOSSARY.read_text("utf-8")))
    assert named - defined == set()
