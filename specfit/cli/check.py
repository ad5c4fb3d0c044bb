"""`specfit check`: whether a trace is whole, or a plug-in keeps the rules of its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from specfit.cli import options
from specfit.cli.check_head import check_head
from specfit.cli.console import print_json, print_text
from specfit.core.errors import ContractError

if TYPE_CHECKING:
    from specfit.core.experts import ModelGeometry

T = TypeVar("T")

HELP = "Check that a trace is whole or a plug-in keeps its rules; status 1 if not."

app = typer.Typer(no_args_is_help=True, help=HELP)
Spec = Annotated[str, typer.Argument(help="Name or FILE.py:Class, with :name=value,... after it.")]


@app.callback()
def check() -> None:
    """Check that a trace is whole or a plug-in keeps its rules; status 1 if not."""


@app.command("policy")
def check_policy(spec: Spec, as_json: options.Json = False) -> None:
    """Hold a policy against every rule of its kind, the lossless text among them.

    Example: specfit check policy my.py:Mine
    """
    from specfit.cli.specs import policy_from
    from specfit.testing.policy_contract import check_policy as rules_of

    _report(spec, rules_of, lambda: policy_from(spec), as_json=as_json)


@app.command("cost")
def check_cost(spec: Spec, as_json: options.Json = False) -> None:
    """Hold a cost model against every rule of its kind.

    Example: specfit check cost my.py:MyCost
    """
    from specfit.cli.specs import cost_from
    from specfit.testing.cost_contract import check_cost_model
    from specfit.testing.examples import example_profile

    _report(spec, check_cost_model, lambda: cost_from(spec, example_profile()), as_json=as_json)


@app.command("cache")
def check_cache(spec: Spec, as_json: options.Json = False) -> None:
    """Hold an expert cache rule against every rule of its kind.

    Example: specfit check cache my.py:MyRule
    """
    from specfit.core.cache import caches
    from specfit.testing.cache_contract import check_cache as rules_of

    _report(spec, rules_of, lambda: caches.make(spec), as_json=as_json)


@app.command("predictor")
def check_predictor(spec: Spec, as_json: options.Json = False) -> None:
    """Hold a predictor of experts against every rule of its kind; one that peeks is caught.

    Example: specfit check predictor my.py:MyPredictor
    """
    from specfit.cli.input_specs import predictor_from
    from specfit.core.predictor import CoveragePredictor
    from specfit.testing.predictor_contract import CoveragePredictorContract
    from specfit.testing.predictor_contract import check_predictor as rules_of

    geometry = _geometry_of(spec) or CoveragePredictorContract.geometry

    def make() -> CoveragePredictor:
        return predictor_from(spec, geometry)

    _report(spec, lambda m: rules_of(m, geometry), make, as_json=as_json)


@app.command("prefetcher")
def check_prefetcher(spec: Spec, as_json: options.Json = False) -> None:
    """Hold a prefetcher against every rule of its kind; one that peeks is caught.

    Example: specfit check prefetcher my.py:MyPrefetcher
    """
    import specfit.sim.prefetch_oracle  # noqa: F401 - registers it
    from specfit.core.prefetch import prefetchers
    from specfit.testing.prefetch_contract import check_prefetcher as rules_of

    _report(spec, rules_of, lambda: prefetchers.make(spec), as_json=as_json)


@app.command("acceptance")
def check_acceptance(spec: Spec, as_json: options.Json = False) -> None:
    """Hold an acceptance model against every rule of its kind.

    Example: specfit check acceptance my.py:MyModel
    """
    from specfit.cli.input_specs import acceptance_from
    from specfit.testing.acceptance_contract import check_acceptance as rules_of

    _report(spec, rules_of, lambda: acceptance_from(spec, 0.0), as_json=as_json)


@app.command("trace")
def check_trace(
    trace: options.TraceFolder,
    as_json: options.Json = False,
) -> None:
    """Read all of a trace and say what is damaged or missing, and what can still be read.

    Example: specfit check trace trace/
    """
    from specfit.sim.trace import check_trace as check_folder

    report = check_folder(trace)
    good = report.num_good
    if as_json:
        print_json(
            [
                {
                    "trace": str(trace),
                    "is_good": report.is_good,
                    "num_good": good,
                    "num_expected": report.num_expected,
                    "problems": report.problems,
                }
            ]
        )
    else:
        verdict = "whole" if report.is_good else "not whole"
        print_text(f"{trace} is {verdict}: {good} prompts can be read.")
        for problem in report.problems:
            print_text(f"- {problem}")
    if not report.is_good:
        raise typer.Exit(options.CHECK_FAILED)


app.command("head")(check_head)


def _geometry_of(spec: str) -> ModelGeometry | None:
    """Return the shape that a predictor was fitted for, which it says as `geometry`."""
    import specfit.policies.predictors  # noqa: F401 - registers the shipped ones
    from specfit.core.predictor import predictors

    name, params = predictors.parse(spec)
    if "folder" not in params:
        return None
    geometry: ModelGeometry | None = getattr(predictors.build(name, params), "geometry", None)
    return geometry


def _report(
    spec: str,
    rules_of: Callable[[Callable[[], T]], list[str]],
    make: Callable[[], T],
    *,
    as_json: bool,
) -> None:
    """Say which rules hold, or the first that does not; a spec of nothing is misuse."""
    make()
    kept, broken = [], None
    try:
        kept = rules_of(make)
    except ContractError as error:
        broken = error
    if as_json:
        print_json([{"spec": spec, "keeps": kept, "breaks": broken and str(broken)}])
    else:
        print_text(
            f"{spec} keeps {', '.join(kept)}." if broken is None else f"{spec} breaks {broken}"
        )
    if broken is not None:
        raise typer.Exit(options.CHECK_FAILED)
