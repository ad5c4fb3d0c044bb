"""A made-up cycle under `specfit`, so that what a cycle runs is compiled before any clock runs.

The first call of a kernel compiles it, or reads from disk what was compiled before; no measured
cycle should pay for either.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from specfit.core.backend import Verification
from specfit.core.cost import CostTerms
from specfit.core.experts import ModelGeometry, Residency
from specfit.core.growing import GrowingPrediction
from specfit.core.history import RoutingHistory
from specfit.core.policy import Cycle, Outcome
from specfit.core.predictor import AcceptanceModel, CoveragePredictor
from specfit.core.selection import Selection
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree
from specfit.policies.specfit import SpecFit


def warm_up(
    predictor: CoveragePredictor,
    acceptance: AcceptanceModel,
    geometry: ModelGeometry,
    state_width: int = 0,
) -> None:
    """Run a cycle of one drafted level with both inputs; the acceptance model is reset after it.

    Parameters
    ----------
    predictor, acceptance : CoveragePredictor, AcceptanceModel
        As the requests will use them.
    geometry : ModelGeometry
        Of the target.
    state_width : int
        Width D of the drafter's states, for a predictor that looks at them; else 0.
    """
    policy, root = SpecFit(depth=2, top_k=1), _first_cycle(predictor, acceptance, geometry)
    policy.plan(root)
    plan = DraftPlan(policy.depth, policy.top_k, policy.max_nodes)
    cycle = replace(root, plan=plan, tree=root.tree.grow(_level(state_width)), levels=1)
    policy.after_level(cycle)
    selection = policy.select(cycle)
    outcome = Outcome(cycle, selection, _answer(selection, geometry), (), (0,))
    policy.observe(outcome)
    acceptance.observe(outcome)
    policy.plan(root)  # with misses corrected
    acceptance.reset()


def _first_cycle(
    predictor: CoveragePredictor, acceptance: AcceptanceModel, geometry: ModelGeometry
) -> Cycle:
    """Return a cycle whose text is one token, with a draft that pays; nothing is resident."""
    history, shape = RoutingHistory(geometry), (geometry.num_layers, geometry.num_experts)
    token = np.zeros((1, geometry.num_layers, geometry.experts_per_token), np.int16)
    history.append(token, rejected=token)
    draft_s = 1e-6 * np.arange(4, dtype=np.float64)
    terms = CostTerms(draft_s, np.append(0.0, np.ones(64)), np.full(shape, 1e-6))
    return Cycle(
        tree=DraftTree.root(0),
        levels=0,
        plan=DraftPlan.plain(),
        max_depth=3,
        geometry=geometry,
        residency=Residency.nothing(geometry),
        context_len=2,
        cycle_index=0,
        acceptance=acceptance,
        rng=np.random.default_rng(0),
        _terms=lambda: terms,
        _predict=GrowingPrediction(predictor, history),
    )


def _level(state_width: int) -> DraftLevel:
    """Return one likely child of the root, with a state if states have a width."""
    return DraftLevel(
        parents=np.zeros(1, np.int32),
        tokens=np.zeros(1, np.int64),
        log_probs=np.full(1, -0.1, np.float32),
        ranks=np.zeros(1, np.int32),
        entropies=np.full(1, 0.1, np.float32),
        states=np.ones((1, state_width), np.float32) if state_width else None,
    )


def _answer(selection: Selection, geometry: ModelGeometry) -> Verification:
    """Return a target's answer that rejects whatever is drafted."""
    count, by_layer = len(selection), np.zeros(geometry.num_layers, np.int64)
    return Verification(
        nodes=selection.nodes,
        target_tokens=np.ones(count, np.int64),
        target_probs=np.ones(count, np.float32),
        margins=np.ones(count, np.float32),
        routing=np.zeros((count, geometry.num_layers, geometry.experts_per_token), np.int16),
        num_hits=by_layer,
        num_misses=by_layer,
        num_evictions=by_layer,
        stall_s=0.0,
        compute_s=0.0,
    )
