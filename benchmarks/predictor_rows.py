"""The tables of the predictor benchmark: each prints its rows and returns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.experts import ExpertCoverage, ExpertProbs, ModelGeometry
from specfit.core.history import RoutingHistory
from specfit.core.observed import ObservedDraft, ObservedText
from specfit.core.policy import Policy
from specfit.core.predictor import AcceptanceModel, CoveragePredictor
from specfit.core.profile import HardwareProfile
from specfit.core.tree import DraftTree
from specfit.policies import Autoregressive, SpecFit
from specfit.policies.acceptance import Adaptive, Identity, Online
from specfit.policies.fitting.scores import (
    JudgedExperts,
    judge_acceptance,
    judge_draft,
    likeliest_experts,
    pooled,
)
from specfit.policies.predictors import TokenTable, Uniform
from specfit.sim.metrics import measure
from specfit.sim.oracle import NoisyOracle, Oracle
from specfit.sim.replay import TraceReference, replay
from specfit.sim.trace import TraceReader

TINY = Path(__file__).parents[1] / "specfit" / "data" / "tiny"
CACHES = ("lru:50%", "lru:75%", "lru:25%")
Row = dict[str, Any]


def expert_rows(
    fitted: Mapping[str, CoveragePredictor],
    texts: Sequence[ObservedText],
    geometry: ModelGeometry,
    drafts_apart: int,
) -> list[Row]:
    """One row a predictor: recall at K by layer and depth, calibration, and its marginal unions."""
    shipped = {"token-table, shipped": TokenTable(str(TINY / "predictor"))}
    drafts = _drafts(texts, geometry, drafts_apart)
    rows = []
    for name, predictor in {"uniform": Uniform(geometry), **fitted, **shipped}.items():
        row = {"predictor": name, **_judge_experts(predictor, drafts, geometry)}
        rows.append(row)
        by_depth = "  ".join(f"{v:.3f}" for v in row["recall_by_depth"].values())
        print(
            f"{name:22s} recall at K {row['recall_at_k']:.3f}  by depth {by_depth}  "
            f"ECE {row['ece']:.4f}  marginal union: rank {row['union_rank_correlation']:.3f}  "
            f"error {row['union_mean_error']:+.2f}, "
            f"absolute {row['union_mean_absolute_error']:.2f}",
            flush=True,
        )
    return rows


def _judge_experts(
    predictor: CoveragePredictor,
    drafts: Sequence[tuple[ObservedDraft, RoutingHistory]],
    geometry: ModelGeometry,
) -> Row:
    hits: dict[tuple[int, int], list[float]] = {}
    parts: list[JudgedExperts] = []
    ranks, errors, sizes = [], [], []
    for draft, history in drafts:
        judged = judge_draft(predictor, draft, history, geometry)
        share = judged.recall()  # [N, L]
        for depth in np.unique(judged.depths).tolist():
            for layer, value in enumerate(share[judged.depths == depth].mean(axis=0)):
                hits.setdefault((layer, depth), []).append(float(value))
        parts.append(judged)
        believed = ExpertProbs(judged.probs, "", predictor.novelty).given_path(draft.tree.depths)
        predicted, true = (marginal_unions(draft.tree, p) for p in (believed, judged.needed))
        errors.append(predicted[1:] - true[1:])
        sizes.append(true[1:])
        if np.ptp(predicted[1:]) > 1e-6 and np.ptp(true[1:]) > 0:
            ranks.append(float(spearmanr(predicted[1:], true[1:]).statistic))
    judged = pooled(parts)
    whole = judged.whole()
    error = np.concatenate(errors)
    means = {cell: float(np.mean(values)) for cell, values in hits.items()}
    depths = sorted({depth for _, depth in means})
    layers = range(geometry.num_layers)
    return {
        "recall_at_k": float(np.mean(list(means.values()))),
        "recall_by_depth": {d: float(np.mean([means[n, d] for n in layers])) for d in depths},
        "recall_by_layer": [float(np.mean([means[n, d] for d in depths])) for n in layers],
        "recall_by_layer_and_depth": [[means[n, d] for d in depths] for n in layers],
        "ece": whole.ece,
        "ece_by_layer": [layer.ece for layer in judged.by_layer()],
        "brier": whole.brier,
        "union_rank_correlation": float(np.mean(ranks)) if ranks else 0.0,
        "union_mean_error": float(error.mean()),
        "union_mean_absolute_error": float(np.abs(error).mean()),
        "union_mean": float(np.concatenate(sizes).mean()),
    }


def marginal_unions(tree: DraftTree, probs: NDArray[Any]) -> NDArray[np.float64]:
    """Return the experts of each node that its ancestors do not need, all layers, float64[N].

    Of the probabilities, given that no ancestor needs the expert, [N, L, E] the expected number; of
    a mask the number itself.
    """
    missed = 1.0 - probs.astype(np.float64)
    unions = np.empty(len(tree))
    for node, parent in enumerate(tree.parents.tolist()):
        above = missed[parent] if parent >= 0 else 1.0
        unions[node] = float((above * (1 - missed[node])).sum())
        missed[node] *= above
    return unions


def overlap_rows(
    texts: Sequence[ObservedText], geometry: ModelGeometry, drafts_apart: int
) -> list[Row]:
    """One row a depth and kind of pair: the share of one node's experts that the other needs."""
    shares: dict[tuple[str, int], list[NDArray[np.float64]]] = {}
    generator = np.random.default_rng(0)
    for draft, _ in _drafts(texts, geometry, drafts_apart):
        tree = draft.tree
        needed = ExpertCoverage(draft.routing, geometry.num_experts).mask
        for node in range(1, len(tree)):
            depth, parent = int(tree.depths[node]), int(tree.parents[node])
            siblings = [n for n in tree.children(parent).tolist() if n != node]
            level = [n for n in np.flatnonzero(tree.depths == depth).tolist() if n != node]
            cousins = [n for n in level if tree.parents[n] != parent]
            pairs = {"parent and child": parent}
            for kind, others in (("siblings", siblings), ("cousins", cousins)):
                if others:
                    pairs[kind] = int(generator.choice(others))
            for kind, other in pairs.items():
                both = (needed[node] & needed[other]).sum(axis=1) / geometry.experts_per_token
                shares.setdefault((kind, depth), []).append(both)
    rows = []
    for (kind, depth), values in sorted(shares.items()):
        by_layer = np.mean(values, axis=0)
        row = {"pair": kind, "depth": depth, "num_pairs": len(values)}
        rows.append({**row, "overlap": float(by_layer.mean()), "by_layer": by_layer.tolist()})
        print(f"overlap of {kind:17s} depth {depth}: {by_layer.mean():.3f}  (n {len(values)})")
    return rows


def acceptance_rows(
    calibrated: Mapping[str, AcceptanceModel], texts: Sequence[ObservedText]
) -> list[Row]:
    """One row a method and depth: predicted, realised, ECE and Brier score of judged nodes."""
    shipped = {"adaptive, shipped, at rest": Adaptive(str(TINY / "acceptance"))}
    rows = []
    for name, model in {"identity": Identity(), **calibrated, **shipped}.items():
        judged = judge_acceptance(model, texts)
        whole = judged.whole()
        for depth, found in {"all": whole, **judged.by_depth()}.items():
            rows.append({"method": name, "depth": depth, **vars(found)})
        print(f"acceptance, {name:20s} ECE {whole.ece:.4f}  Brier {whole.brier:.4f}")
    return rows


@dataclass(frozen=True)
class Hard(CoveragePredictor):
    """The K likeliest experts of another predictor, as if it were certain of them."""

    inner: CoveragePredictor
    experts_per_token: int

    @property
    def needs_states(self) -> bool:
        return self.inner.needs_states

    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        probs = self.inner.predict(tree, history, first)
        best = likeliest_experts(probs, self.experts_per_token)
        hard = np.zeros_like(probs)
        np.put_along_axis(hard, best, 1.0, axis=2)
        return hard


def ablation(
    trace: TraceReader,
    cache: str,
    fitted: Mapping[str, CoveragePredictor],
    calibrated: Mapping[str, AcceptanceModel],
    profile: HardwareProfile,
    num_prompts: int,
) -> list[Row]:
    """One row a predictor, coverage and acceptance model: simulated tokens a second."""
    geometry = trace.metadata.geometry
    table, ranked = fitted["token-table"], calibrated["depth-rank"]
    coverage: dict[str, CoveragePredictor] = {
        "uniform": Uniform(geometry),
        **fitted,
        "noisy oracle, recall 0.8": NoisyOracle(0.8),
        "noisy oracle, recall 0.9": NoisyOracle(0.9),
        "oracle": Oracle(),
    }
    acceptance = {"identity": Identity(), "online": Online(), **calibrated}
    settings = [(name, "expected", p, "depth-rank", ranked) for name, p in coverage.items()]
    settings += [
        (name, "hard", Hard(p, geometry.experts_per_token), "depth-rank", ranked)
        for name, p in coverage.items()
        if name != "uniform" and not isinstance(p, TraceReference)
    ]
    settings += [
        ("token-table", "expected", table, name, model)
        for name, model in acceptance.items()
        if name != "depth-rank"
    ]
    plain = _tokens_per_s(trace, Autoregressive(), cache, profile, table, ranked, num_prompts)
    followed, shipped = "adaptive, shipped", Adaptive(str(TINY / "acceptance"))
    own = TokenTable(str(TINY / "predictor"))
    settings += [
        ("token-table, shipped", "expected", own, "depth-rank", ranked),
        ("token-table, shipped", "expected", own, followed, shipped),
        ("token-table, shipped", "hard", Hard(own, geometry.experts_per_token), followed, shipped),
        ("oracle", "expected", Oracle(), followed, shipped),
    ]
    rows = []
    for predictor, kind, p, method, model in settings:
        found = _tokens_per_s(trace, SpecFit(), cache, profile, p, model, num_prompts)
        row = {"predictor": predictor, "coverage": kind, "acceptance": method}
        rows.append({**row, "simulated_tokens_per_s": found, "simulated_speedup": found / plain})
        print(f"{cache} {predictor:26s} {kind:9s} {method:12s} {found / plain:.3f}", flush=True)
    return rows


def _tokens_per_s(
    trace: TraceReader,
    policy: Policy,
    cache: str,
    profile: HardwareProfile,
    predictor: CoveragePredictor,
    acceptance: AcceptanceModel,
    num_prompts: int,
) -> float:
    geometry = trace.metadata.geometry
    results = replay(
        trace,
        policy,
        make_cache(cache, geometry),
        profile,
        cost=ProfileCost(profile),
        predictor=predictor,
        acceptance=acceptance,
        max_prompts=num_prompts,
    )
    return measure(list(results), geometry.expert_bytes).tokens_per_s


def _drafts(
    texts: Sequence[ObservedText], geometry: ModelGeometry, drafts_apart: int
) -> list[tuple[ObservedDraft, RoutingHistory]]:
    """Return some drafts of each text, each with a history that is its own.

    Neighbouring ones share most of their nodes, so leaving some out loses little.
    """
    return [
        (draft, history.snapshot())
        for text in texts
        for i, (draft, history) in enumerate(text.histories(geometry))
        if i % drafts_apart == 0
    ]
