"""`specfit new`: the file of a policy to start from, and its test."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from typing import Annotated

import typer

from specfit.cli.console import print_note
from specfit.core.errors import InvalidInputError

POLICY = '''"""The policy {name}."""

from dataclasses import dataclass

from specfit.core.policy import Cycle, Policy
from specfit.core.selection import Selection


@dataclass
class {cls}(Policy):
    """Verify each node whose path is likely enough to be accepted."""

    min_path_prob: float = 0.1

    def select(self, cycle: Cycle) -> Selection:
        return Selection(cycle.tree, cycle.path_probs >= self.min_path_prob)
'''
TEST = '''"""The policy {name} keeps every rule of a policy, the lossless text among them."""

from pathlib import Path

from specfit.core.policy import policies
from specfit.testing import PolicyContract

FILE = Path(__file__).with_name("{module}.py")


class Test{cls}(PolicyContract):
    make = staticmethod(lambda: policies.make(f"{{FILE}}:{cls}"))
'''

app = typer.Typer(no_args_is_help=True, help="Write the file of a new policy, and its test.")


@app.callback()
def new() -> None:
    """Write the file of a new policy, and its test."""


@app.command("policy")
def new_policy(
    name: Annotated[str, typer.Argument(help="Lower case with hyphens: my-policy.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder to write to; it may exist.")
    ] = Path(),
) -> None:
    """Write a policy of fifteen lines to start from, and the test that holds it to the rules.

    Example: specfit new policy my-policy
    """
    cls, module = class_name(name), name.replace("-", "_")
    files = {
        out / f"{module}.py": POLICY.format(name=name, cls=cls),
        out / f"test_{module}.py": TEST.format(name=name, cls=cls, module=module),
    }
    taken = [path for path in files if path.exists()]
    if taken:
        raise InvalidInputError(
            f"{taken[0]} exists, and is not overwritten. Choose another name or another folder."
        )
    out.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    policy, test = files
    print_note(
        f"written: {policy} and {test}. Next:\n"
        f"  specfit check policy {policy}:{cls}\n"
        f"  specfit replay TRACE --policy autoregressive --policy {policy}:{cls}"
    )


def class_name(name: str) -> str:
    """Return the class name of a policy: ``my-policy`` gives ``MyPolicy``."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(name):
        raise InvalidInputError(
            f"a policy's name must be lower case with hyphens, like my-policy; got '{name}'."
        )
    return "".join(part.capitalize() for part in name.split("-"))
