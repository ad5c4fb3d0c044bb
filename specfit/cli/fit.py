"""`specfit fit`: predictors of experts and acceptance models, from a trace of the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specfit.cli import options
from specfit.cli.console import print_json, print_note, print_table, warnings_as_notes

if TYPE_CHECKING:
    from specfit.core.experts import ModelGeometry
    from specfit.core.observed import ObservedText
    from specfit.core.predictor import AcceptanceModel, CoveragePredictor
    from specfit.core.reliability import Reliability
    from specfit.sim.trace import TraceReader

app = typer.Typer(
    no_args_is_help=True, help="Fit a predictor of experts or an acceptance model on a trace."
)

Out = Annotated[Path, typer.Option("--out", "-o", help="New folder for the fitted numbers.")]
HeldOut = Annotated[
    float,
    typer.Option("--held-out", min=0.05, max=0.9, help="Share of the prompts to judge the fit on."),
]
LeastDistinct = Annotated[
    float,
    typer.Option(
        "--least-distinct",
        min=0.0,
        max=1.0,
        help="Texts with a smaller share of distinct runs of four tokens loop and are left out; "
        "[bold]depth-rank[/bold] still learns from them what a repetition is worth.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Model the trace is of; by default the one it names."),
]
Kind = Annotated[
    str,
    typer.Option(
        "--kind",
        help="token-table, previous-token, decayed-frequency, routing-probe, hidden-probe, "
        "target-routers or ensemble.",
    ),
]
Method = Annotated[
    str, typer.Option("--method", help="temperature, isotonic, logistic or depth-rank.")
]
MaxNodes = Annotated[
    int, typer.Option("--max-nodes", min=100, help="Nodes to look at, at most: memory grows.")
]

_LEFT_OUT = "nothing is fitted on them"
_ONLY_REPETITION = "only what a repetition is worth is fitted on them, and not the rest"


@app.command("predictor")
def fit_predictor(
    trace: options.TraceFolder,
    out: Out,
    kind: Kind = "token-table",
    held_out: HeldOut = 0.25,
    least_distinct: LeastDistinct = 0.5,
    model: Model = None,
    max_nodes: MaxNodes = 40_000,
    as_json: options.Json = False,
) -> None:
    """Fit a predictor of experts on some prompts of a trace and judge it on the others.

    Example: specfit fit predictor trace/ --kind ensemble --out fitted/
    """
    from specfit.cli.input_specs import routers_of, weights_of
    from specfit.cli.outputs import check_can_write, new_folder
    from specfit.policies.fitting.predictors import STATE_KINDS, PredictorFit
    from specfit.policies.predictors import Uniform

    check_can_write(out)
    reader, train, judge, looping = _texts(trace, held_out, least_distinct, _LEFT_OUT)
    geometry = reader.metadata.geometry
    if kind in STATE_KINDS:
        reader.require_states()
    weights = weights_of(reader.metadata, model, with_head=kind in STATE_KINDS)
    routers = routers_of(reader.metadata, model) if kind == "target-routers" else None
    about = _provenance(reader, train, looping)
    temperature = reader.metadata.sampling.temperature
    fit = PredictorFit(train, geometry, weights, about, max_nodes, temperature, routers)
    with new_folder(out, owned_file=f"{kind}.json") as folder:
        predictor = fit.write(kind, folder)
        rows = _expert_rows(predictor, Uniform(geometry), judge, geometry)
    _print(rows, f"{kind} on {len(judge)} held-out prompts", as_json)
    print_note(f"written to {out}. Next: specfit replay {trace} --predictor {kind}:folder={out}")


@app.command("acceptance")
def fit_acceptance(
    trace: options.TraceFolder,
    out: Out,
    method: Method = "isotonic",
    held_out: HeldOut = 0.25,
    least_distinct: LeastDistinct = 0.5,
    model: Model = None,
    as_json: options.Json = False,
) -> None:
    """Fit an acceptance model on some prompts, judge it on the others, and draw how reliable it is.

    Example: specfit fit acceptance trace/ --method isotonic --out fitted/
    """
    from specfit.cli.input_specs import weights_of
    from specfit.cli.outputs import check_can_write, new_folder
    from specfit.policies.fitting.acceptance_curves import LevelLineWarning
    from specfit.policies.fitting.calibration import AcceptanceFit
    from specfit.policies.fitting.samples import acceptance_sample

    check_can_write(out)
    use = _ONLY_REPETITION if method == "depth-rank" else _LEFT_OUT
    reader, train, judge, looping = _texts(trace, held_out, least_distinct, use)
    metadata = reader.metadata
    weights = weights_of(metadata, model, with_head=True)
    sample, temperature = acceptance_sample(train, looping), metadata.sampling.temperature
    fit = AcceptanceFit(sample, temperature, weights, _provenance(reader, train, looping))
    with new_folder(out, owned_file="reliability.png") as folder:
        with warnings_as_notes(LevelLineWarning):
            fitted = fit.write(method, folder)
        rows = _acceptance_rows(fitted, judge, folder / "reliability", method)
    _print(rows, f"{method} on {len(judge)} held-out prompts", as_json)
    print_note(
        f"written to {out}, with reliability.png. "
        f"Next: specfit replay {trace} --acceptance {method}:folder={out}"
    )


def _texts(
    trace: Path, held_out: float, least_distinct: float, use_of_looping: str
) -> tuple[TraceReader, list[ObservedText], list[ObservedText], list[ObservedText]]:
    """Return the trace and its texts: to fit on, held out, and those that loop."""
    from specfit.policies.fitting.samples import split_texts
    from specfit.sim.observe import observed_texts, without_looping
    from specfit.sim.trace import TraceReader

    reader = TraceReader(trace)
    for gap in reader.missing:
        print_note(f"warning: {gap}")
    every_text = list(observed_texts(reader))
    texts = without_looping(every_text, least_distinct)
    usual = {id(text) for text in texts}
    looping = [text for text in every_text if id(text) not in usual]
    if looping:
        print_note(
            f"{len(looping)} of {len(every_text)} texts, with {_num_drafted(looping):,} of "
            f"{_num_drafted(every_text):,} drafted nodes, repeat themselves: {use_of_looping}, "
            f"since it would promise too much elsewhere. See --least-distinct."
        )
    return reader, *split_texts(texts, max(1, round(held_out * len(texts)))), looping


def _num_drafted(texts: Sequence[ObservedText]) -> int:
    return sum(len(draft.tree) - 1 for text in texts for draft in text.drafts)


def _provenance(
    reader: TraceReader, train: Sequence[ObservedText], looping: Sequence[ObservedText]
) -> dict[str, Any]:
    from specfit.cli.manifest import manifest

    said = reader.metadata
    return manifest(
        program="specfit fit",
        trace=reader.fingerprint,
        origin=said.origin,
        model=said.model,
        drafter=said.drafter,
        temperature=said.sampling.temperature,
        num_texts=len(train),
        num_looping=len(looping),
    )


def _expert_rows(
    predictor: CoveragePredictor,
    before: CoveragePredictor,
    texts: Sequence[ObservedText],
    geometry: ModelGeometry,
) -> list[dict[str, Any]]:
    """Return one row a layer: recall at K, ECE and Brier score, of drafted nodes."""
    from specfit.policies.fitting.scores import judge_experts

    plain, fitted = (judge_experts(p, texts, geometry).drafted() for p in (before, predictor))
    layers = zip(plain.by_layer(), fitted.by_layer(), fitted.recall().mean(axis=0), strict=True)
    return [
        _row(f"layer {layer}", old, new, recall_at_k=float(recall))
        for layer, (old, new, recall) in enumerate(layers)
    ]


def _acceptance_rows(
    model: AcceptanceModel, texts: Sequence[ObservedText], stem: Path, method: str
) -> list[dict[str, Any]]:
    """Return one row a depth, and draw the reliability of best children and of the others."""
    from specfit.core.reliability import reliability_curve
    from specfit.policies.acceptance import Identity
    from specfit.policies.fitting.scores import judge_acceptance
    from specfit.report import style
    from specfit.report.reliability import draw_reliability

    drafted, fitted = (judge_acceptance(m, texts) for m in (Identity(), model))
    panels = []
    for name, inside in (
        ("best children", drafted.ranks == 0),
        ("other children", drafted.ranks > 0),
    ):
        if inside.any():
            sides = (("as drafted", drafted), (method, fitted))
            curves = [reliability_curve(n, s.probs[inside], s.accepted[inside]) for n, s in sides]
            panels.append((name, curves))
    style.save(draw_reliability(panels, title="Acceptance: realised by predicted"), stem)
    after = fitted.by_depth()
    return [_row(f"depth {d}", old, after[d]) for d, old in drafted.by_depth().items()]


def _row(group: str, old: Reliability, new: Reliability, **more: float) -> dict[str, Any]:
    return {
        "group": group,
        "num_predictions": new.count,
        "realised": new.realised,
        "predicted_before": old.predicted,
        "ece_before": old.ece,
        "brier_before": old.brier,
        "predicted": new.predicted,
        "ece": new.ece,
        "brier": new.brier,
        **more,
    }


def _print(rows: Sequence[dict[str, Any]], title: str, as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    header = [key.replace("_", " ") for key in rows[0]]
    cells = [
        [f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()]
        for row in rows
    ]
    print_table(["", *header[1:]], cells, title=title, note="Before: uniform, or as drafted.")
