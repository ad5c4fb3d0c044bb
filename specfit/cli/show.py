"""`specfit show`: what there is to choose from, and what a trace holds."""

from __future__ import annotations

import re
import sys
from dataclasses import MISSING, asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import typer

from specfit.cli import options
from specfit.cli.console import print_json, print_note, print_table

if TYPE_CHECKING:
    from specfit.core.registry import Registry
    from specfit.sim.trace import TraceReader

app = typer.Typer(no_args_is_help=True, help="List policies and caches, or describe a trace.")


@app.command("policies")
def show_policies(as_json: options.Json = False) -> None:
    """List the policies: what each verifies, its parameters, its paper, and whether it is lossless.

    All are: a policy chooses what the unmodified target verifies. Methods that change the target's
    routing are no policies here. References look ahead of the target: for replays alone.

    Example: specfit show policies
    """
    import specfit.policies  # noqa: F401 - registers the shipped ones
    from specfit.core.policy import policies

    _print_registry(policies, as_json)


@app.command("caches")
def show_caches(as_json: options.Json = False) -> None:
    """List the expert cache rules.

    Example: specfit show caches
    """
    from specfit.core.cache import caches

    _print_registry(caches, as_json)


@app.command("profiles")
def show_profiles(as_json: options.Json = False) -> None:
    """List the shipped hardware profiles: name them with --profile.

    Example: specfit show profiles
    """
    from specfit.cli.specs import shipped_profiles

    profiles = shipped_profiles()
    if as_json:
        print_json([asdict(profile) for profile in profiles])
        return
    rows = [
        (
            profile.name,
            profile.kind,
            f"{profile.h2d_bandwidth_bytes_per_s / 1e9:g} GB/s",
            f"{(profile.ssd_s + profile.copy_s) * 1e6:,.0f} us",
            profile.provenance,
        )
        for profile in profiles
    ]
    print_table(["name", "kind", "link", "one expert", "where from"], rows, is_numeric=False)


@app.command("predictors")
def show_predictors(as_json: options.Json = False) -> None:
    """List the predictors of experts.

    Example: specfit show predictors
    """
    import specfit.policies.predictors
    import specfit.sim.oracle  # noqa: F401 - registers the references
    from specfit.core.predictor import predictors

    _print_registry(predictors, as_json)


@app.command("acceptance")
def show_acceptance(as_json: options.Json = False) -> None:
    """List the acceptance models.

    Example: specfit show acceptance
    """
    import specfit.policies.acceptance  # noqa: F401 - registers the shipped ones
    from specfit.core.predictor import acceptance_models

    _print_registry(acceptance_models, as_json)


@app.command("prefetchers")
def show_prefetchers(as_json: options.Json = False) -> None:
    """List what can be copied ahead, live or in a replay: name one with --prefetch.

    Example: specfit show prefetchers
    """
    import specfit.sim.prefetch_oracle  # noqa: F401 - registers the reference
    from specfit.core.prefetch import prefetchers

    _print_registry(prefetchers, as_json)


@app.command("trace")
def show_trace(
    trace: options.TraceFolder,
    as_json: options.Json = False,
) -> None:
    """Say what a trace holds and how it was made.

    Example: specfit show trace trace/
    """
    from specfit.sim.trace import TraceReader

    reader = TraceReader(trace)
    if as_json:
        print_json([{**asdict(reader.metadata), "missing": list(reader.missing)}])
    else:
        print_table(["", str(trace)], list(_facts(reader).items()), is_numeric=False)
    for gap in reader.missing:
        print_note(f"warning: {gap}")


def _facts(reader: TraceReader) -> dict[str, str]:
    said, shape = reader.metadata, reader.metadata.geometry
    plans = [
        f"depth {p.depth}, top-k {p.top_k}, at most {p.max_nodes} verified" for p in said.plans
    ]
    sampling = "greedy" if said.sampling.is_greedy else f"temperature {said.sampling.temperature}"
    hardware = f"{said.hardware.name} ({said.hardware.kind})" if said.hardware else "not recorded"
    return {
        "kind": f"{said.kind}, {said.origin}",
        "prompts": str(reader.num_prompts),
        "model": said.model or "not recorded",
        "drafter": said.drafter or "not recorded",
        "experts": f"{shape.num_layers} layers of {shape.num_experts}, "
        f"{shape.experts_per_token} a token, {shape.expert_bytes:,} bytes each",
        "decoding": f"{sampling}, {said.precision or 'precision not recorded'}",
        "plans": "; ".join(plans) or "those of the recorded policy",
        "hardware profile": hardware,
    }


def _print_registry(registry: Registry[Any], as_json: bool) -> None:
    rows = [_describe(name, registry.get(name)) for name in registry.names()]
    if as_json:
        print_json(rows)
        return
    cells = [
        (
            row["name"],
            row["what"],
            ", ".join(f"{k}={v}" for k, v in row["parameters"].items()),
            *([row["kind"]] if "kind" in row else []),
            row["source"],
        )
        for row in rows
    ]
    kind = ["kind"] if "kind" in rows[0] else []
    columns = ["name", "what it does", "parameters", *kind, "source"]
    print_table(columns, cells, is_numeric=False)


def _describe(name: str, cls: type[Any]) -> dict[str, Any]:
    listed = [f for f in fields(cls) if f.init] if is_dataclass(cls) else []
    defaults = {f.name: None if f.default is MISSING else f.default for f in listed}
    reference = getattr(cls, "is_reference", None)  # of policies alone
    summary = (cls.__doc__ or "").strip().split("\n")[0]
    kind = {} if reference is None else {"kind": "reference" if reference else "lossless"}
    return {"name": name, "what": summary, "parameters": defaults, **kind, "source": source_of(cls)}


def source_of(cls: type[Any]) -> str:
    """Return the papers that the module of a class names after "Source:"."""
    text = " ".join((sys.modules[cls.__module__].__doc__ or "").split())
    found = re.search(r"Source: (.*?\d)\.(?: |$)", text)
    return found[1] if found else ""
