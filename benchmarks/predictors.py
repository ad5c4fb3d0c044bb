"""How good selection's predictions are on held-out prompts, and what each is worth.

``python -m benchmarks.predictors`` records two sets of prompts position by position, fits every
predictor of experts and every acceptance model on the first, and asks of the second:

- which needed experts are among the K likeliest (recall and precision at K are one number), by
  layer and draft depth, and how calibrated the probabilities are;
- how well the predicted *marginal union* of a node, the experts that its ancestors do not need,
  ranks and sizes the true one;
- how many experts siblings, parent and child, and unrelated nodes of a tree share;
- what is left of the error of acceptance, by depth and method;
- what each is worth in *simulated* tokens a second, under the `specfit` policy.

Routing and acceptance are recorded; seconds are simulated from the profile that is printed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.predictor_rows import CACHES, ablation, acceptance_rows, expert_rows, overlap_rows
from specfit.cli.input_specs import routers_of, weights_of
from specfit.cli.manifest import manifest
from specfit.core.profile import HardwareProfile
from specfit.core.tree import DraftPlan
from specfit.policies.fitting.calibration import METHODS, AcceptanceFit
from specfit.policies.fitting.predictors import KINDS, PredictorFit
from specfit.policies.fitting.samples import acceptance_sample
from specfit.sim.observe import observed_texts, without_looping
from specfit.sim.trace import TraceReader

DATA = Path(__file__).parents[1] / "specfit" / "data"
RESULTS = Path(__file__).parent / "results"
PLANS = (DraftPlan(8, 2, 64), DraftPlan(6, 4, 64))


def profile() -> HardwareProfile:
    """Return the profile that the decoding benchmark measured, with its emulated link."""
    measured = json.loads((RESULTS / "decode.json").read_text("utf-8"))["profile"]
    return HardwareProfile(**measured)


def main(arguments: Sequence[str] | None = None) -> None:
    """Record, fit, judge, print, and write the same numbers as JSON, table by table."""
    options = _options(arguments)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="specfit-predictors-") as folder:
        report: dict[str, Any] = {}
        for name, rows in _tables(options, Path(folder)):
            report[name] = rows
            options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _tables(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield each table's name and rows as soon as they are known."""
    fit_on, judge_on = _traces(options, folder)
    geometry, metadata = judge_on.metadata.geometry, judge_on.metadata
    train = without_looping(list(observed_texts(fit_on)))
    judge = without_looping(list(islice(observed_texts(judge_on), options.judged)))
    yield "what", "predictions of experts and of acceptance; recorded, seconds simulated"
    yield "command", "python -m benchmarks.predictors"
    settings = {k: v for k, v in vars(options).items() if isinstance(v, int)}
    yield (
        "manifest",
        manifest(
            fit_on=fit_on.fingerprint,
            judged_on=judge_on.fingerprint,
            num_fit_prompts=len(train),
            num_judged_prompts=len(judge),
            model=metadata.model,
            drafter=metadata.drafter,
            settings=settings,
            profile=asdict(profile()),
        ),
    )
    yield "overlap", overlap_rows(judge, geometry, options.drafts_apart)
    sample = acceptance_sample(train)
    curves = AcceptanceFit(sample, 0.0, weights_of(metadata, None, with_head=True), {})
    calibrated = {method: curves.write(method, folder / f"a-{method}") for method in METHODS}
    yield "acceptance", acceptance_rows(calibrated, judge)
    weights, routers = weights_of(metadata, None, with_head=True), routers_of(metadata, None)
    fit = PredictorFit(train, geometry, weights, {}, options.max_nodes, routers=routers)
    fitted = {kind: fit.write(kind, folder / kind) for kind in KINDS}
    yield "experts", expert_rows(fitted, judge, geometry, options.drafts_apart)
    for cache in CACHES:
        rows = ablation(judge_on, cache, fitted, calibrated, profile(), options.replayed)
        yield f"simulated, {cache}", rows


def _traces(options: argparse.Namespace, folder: Path) -> tuple[TraceReader, TraceReader]:
    if options.fit_trace is not None and options.trace is not None:
        return TraceReader(options.fit_trace), TraceReader(options.trace)
    from benchmarks.record_prompts import record_prompts

    sets = ("tune", "heldout")
    paths = [DATA / "prompts" / f"{name}.jsonl" for name in sets]
    made = [record_prompts(path, folder / path.stem, PLANS, options.tokens) for path in paths]
    return made[0], made[1]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fit-trace", type=Path, help="recorded before, with states: to fit on")
    parser.add_argument("--trace", type=Path, help="recorded before, with states: to judge on")
    parser.add_argument("--tokens", type=int, default=48, help="new tokens a prompt")
    parser.add_argument("--judged", type=int, default=24, help="prompts to judge on, at most")
    parser.add_argument("--drafts-apart", type=int, default=3, help="judge every so many drafts")
    parser.add_argument("--max-nodes", type=int, default=40_000, help="nodes to fit on, at most")
    parser.add_argument("--replayed", type=int, default=12, help="prompts of each replay")
    parser.add_argument("--out", type=Path, default=RESULTS / "predictors.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
