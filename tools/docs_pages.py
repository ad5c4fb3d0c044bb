"""Pages of the site that are generated from the code: the API by layer, the policies, the commands.

A hook of mkdocs. The pages exist in the site only, so they cannot fall behind the code.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("core", "policies", "sim", "report", "backends", "testing")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {f"reference/api/{layer}.md": api_page(layer) for layer in LAYERS}
    pages["reference/policies.md"] = plugin_page()
    pages["reference/cli.md"] = command_page()
    pages["reference/benchmarks.md"] = benchmarks_page()
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def api_page(layer: str) -> str:
    """Return the page with every public module of a layer."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((ROOT / "specfit" / layer).rglob("*.py"))
    ]
    public = [m for m in modules if not any(part.startswith("_") for part in m.split("."))]
    blocks = [f"## {module}\n\n::: {module}\n" for module in public]
    return f"# specfit.{layer}\n\n" + "\n".join(blocks)


def plugin_page() -> str:
    """Return the page with every shipped plug-in and its parameters."""
    import specfit.policies
    import specfit.policies.acceptance
    import specfit.policies.predictors
    import specfit.sim.oracle
    import specfit.sim.prefetch_oracle  # noqa: F401 - importing registers them
    from specfit.core.cache import caches
    from specfit.core.cost import costs
    from specfit.core.policy import policies
    from specfit.core.predictor import acceptance_models, predictors
    from specfit.core.prefetch import prefetchers

    parts = ["# Policies and other plug-ins", "", "Generated from the code.", ""]
    for registry in (policies, caches, costs, prefetchers, predictors, acceptance_models):
        parts += [f"## {registry.kind.capitalize()}", ""]
        for name in registry.names():
            parts += plugin_section(name, registry.get(name))
    return "\n".join(parts)


def plugin_section(name: str, cls: type) -> list[str]:
    """Return the lines about one plug-in: its name, what it does, its parameters."""
    from specfit.cli.show import source_of

    listed = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    shown = [f for f in listed if f.init]
    lines = [f"### `{name}`", "", inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0], ""]
    source = source_of(cls)
    lines += [f"Source: {source}. Departures: [papers](../papers.md).", ""] if source else []
    if shown:
        lines += ["| parameter | type | default |", "|---|---|---|"]
        lines += [f"| `{f.name}` | `{f.type}` | {default_of(f)} |" for f in shown]
    return [*lines, ""]


def default_of(field: dataclasses.Field[object]) -> str:
    """Return the default of a parameter as text."""
    if field.default is dataclasses.MISSING:
        return "given by the program"
    return f"`{field.default!r}`"


def command_page() -> str:
    """Return the page with the help of every command."""
    from specfit.cli.main import app

    lines = ["# Command line", "", "Generated from the code."]
    for path, command in commands(typer.main.get_command(app), "specfit"):
        lines += ["", f"## `{path}`", "", inspect.cleandoc(command.help or ""), ""]
        lines += option_table(command)
    return "\n".join(lines)


def benchmarks_page() -> str:
    """Return `benchmarks/README.md`; what it links to outside the site is named only."""
    text = (ROOT / "benchmarks" / "README.md").read_text("utf-8").replace("](../docs/", "](../")
    return re.sub(r"\[([^\]]+)\]\((?:[\w/]+\.py|\.\./README\.md[^)]*)\)", r"\1", text)


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield a command and all below it, with what one types."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{path} {name}")


def option_table(command: Any) -> list[str]:
    """Return the lines of a command's table of arguments and options."""
    context = command.make_context(command.name, [], resilient_parsing=True)
    rows = []
    for parameter in command.get_params(context):
        is_option = parameter.param_type_name == "option"
        name = ", ".join(parameter.opts) if is_option else parameter.name
        help_text = re.sub(r"\[/?bold\]", "", getattr(parameter, "help", None) or "")
        rows.append(f"| `{name}` | {' '.join(help_text.replace('|', '/').split())} |")
    return ["| argument | meaning |", "|---|---|", *rows] if rows else []
