"""What prefetchers want, and what of it a cache is asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specfit.core.cache import make_cache
from specfit.core.cache.ahead import AheadOfPass
from specfit.core.cost import ProfileCost
from specfit.core.errors import InvalidInputError
from specfit.core.experts import ExpertProbs
from specfit.core.history import RoutingHistory
from specfit.core.prefetch import PredictedUnion, PrefetchView
from specfit.core.selection import Selection
from specfit.report.reenact import search_plainly
from specfit.testing.examples import example_geometry, example_profile, example_tree, make_cycle

GEOMETRY = example_geometry()


@pytest.mark.parametrize("novelty", [1.0, 0.6])
@pytest.mark.parametrize("shape", ["root", "chain", "two-branches", "ties"])
def test_the_predicted_union_is_the_one_that_the_search_prices(shape: str, novelty: float) -> None:
    """With nothing resident every expert costs time, so the search's demand has them all."""
    tree, g = example_tree(shape), GEOMETRY
    generator = np.random.default_rng(4)
    probs = generator.dirichlet(np.ones(g.num_experts) / 4, (len(tree), g.num_layers))
    cycle = replace(
        make_cycle(tree, geometry=g, cost=ProfileCost(example_profile())),
        _predict=lambda tree, layers: ExpertProbs(probs.astype(np.float32), "drawn", novelty),
    )
    mask = np.ones(len(tree), bool)
    mask[-1] = len(tree) == 1
    view = PrefetchView(g, RoutingHistory(g), cycle, Selection(tree, mask))
    wanted = PredictedUnion(1e-9).wanted(view)
    assert wanted == pytest.approx(search_plainly(cycle)[0].demand.activation(mask), abs=1e-6)
    likely = PredictedUnion(0.5).wanted(view)
    assert likely[wanted >= 0.5] == pytest.approx(wanted[wanted >= 0.5])
    assert not likely[wanted < 0.5].any()


def test_along_a_chain_of_independent_needs_it_is_their_union() -> None:
    tree, g = example_tree("chain"), GEOMETRY
    probs = np.full((len(tree), g.num_layers, g.num_experts), 0.125, np.float32)
    cycle = make_cycle(tree, geometry=g, expert_probs=probs)
    view = PrefetchView(g, RoutingHistory(g), cycle, Selection(tree, np.ones(len(tree), bool)))
    assert PredictedUnion(0.1).wanted(view) == pytest.approx(1 - 0.875 ** len(tree))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (np.zeros((16, 4)), r"each expert is wanted, \[4, 16\]; got \[16, 4\]"),
        (np.full((4, 16), -0.5), "from -0.5 to -0.5"),
        (np.full((4, 16), np.inf), "to inf"),
        (np.where(np.arange(16) == 3, np.nan, np.ones((4, 16))), "from nan to nan"),
    ],
)
def test_what_is_no_wish_is_refused_and_changes_nothing(wanted: np.ndarray, message: str) -> None:
    cache = make_cache("lru:50%", GEOMETRY)
    ahead = AheadOfPass(GEOMETRY)
    with pytest.raises(InvalidInputError, match=message):
        ahead.fetch(wanted.astype(np.float32), cache)
    assert ahead.is_empty
    assert not cache.residency().mask.any()
