"""Prompts from the command line or from a file: ``.txt`` with one a line, or ``.jsonl``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from specfit.core.errors import InvalidInputError


@dataclass(frozen=True)
class Prompt:
    """One text to continue.

    Parameters
    ----------
    id : str
        Name in results; the line number where the file gives none.
    text : str
        The text, not empty.
    """

    id: str
    text: str


def prompts_from(text: str | None, path: Path | None) -> list[Prompt]:
    """Return the prompts of ``--prompt`` or of ``--prompts``; exactly one of them must be given.

    Raises
    ------
    InvalidInputError
        Neither or both are given, or the file cannot be used; the message names file and line.
    """
    if (text is None) == (path is None):
        raise InvalidInputError(
            "give the text to continue either as --prompt TEXT or as --prompts FILE, and not both."
        )
    if path is not None:
        return read_prompts(path)
    if not text:
        raise InvalidInputError("--prompt is empty; a prompt must have at least one character.")
    return [Prompt("prompt", text)]


def read_prompts(path: Path) -> list[Prompt]:
    """Read a prompt file.

    Raises
    ------
    InvalidInputError
        The file is missing, empty, not UTF-8, of another kind, or a line has no prompt.
    """
    if path.suffix not in (".txt", ".jsonl"):
        raise InvalidInputError(
            f"a prompt file must be .txt (one prompt a line) or .jsonl; got {path}."
        )
    try:
        content = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InvalidInputError(f"there is no prompt file {path}. Check the path.") from None
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{path} must be UTF-8; byte {error.start} is not. Save it as UTF-8."
        ) from None
    parse = _from_json if path.suffix == ".jsonl" else _from_text
    lines = [(i, line) for i, line in enumerate(content.split("\n"), 1) if line.strip()]
    prompts = [parse(path, number, line) for number, line in lines]
    if not prompts:
        raise InvalidInputError(f"{path} holds no prompt. Write at least one line.")
    return prompts


def _from_text(path: Path, number: int, line: str) -> Prompt:
    return Prompt(str(number), line.rstrip("\r"))


def _from_json(path: Path, number: int, line: str) -> Prompt:
    example = '{"id": "a", "prompt": "Once upon a time"}'
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidInputError(
            f"{path} line {number} is not JSON ({error.msg} at column {error.colno}). "
            f"Write one object a line: {example}."
        ) from None
    text = row.get("prompt", row.get("text")) if isinstance(row, dict) else None
    if not isinstance(text, str) or not text:
        keys = ", ".join(row) if isinstance(row, dict) else type(row).__name__
        found = keys if text is None else repr(text)
        raise InvalidInputError(
            f"{path} line {number} must have a text under 'prompt' or 'text'; got {found}. "
            f"Write one object a line: {example}."
        )
    return Prompt(str(row.get("id", number)), text)
