"""Where routing and times are known, what a policy predicts is what happens."""

from __future__ import annotations

import numpy as np
import pytest

from specfit.core.backend import Request
from specfit.policies import SpecFit
from specfit.testing.examples import example_geometry
from specfit.testing.toy import toy_backend
from specfit.testing.worlds import run_toy

GEOMETRY = example_geometry(num_layers=6, num_experts=32, experts_per_token=4, vocab_size=64)


@pytest.mark.parametrize("cache", ["none", "lru:4", "lru:50%", "lru:100%"])
def test_predicted_misses_and_seconds_are_realised(cache: str) -> None:
    """The oracle knows the routing and the toy charges its profile: no difference but rounding.

    Committed tokens are a matter of chance: the target's token is a draw from the drafter's
    distribution. Fixed texts; the mean may be off by 4.5 standard errors (false alarm 7e-6).
    """
    surprises = []
    for first in range(3):
        backend = toy_backend(cache, geometry=GEOMETRY)
        policy = SpecFit(decision_s=0.0, longest_pause=0, max_layers=6)  # every cycle, all layers
        for record in run_toy(policy, backend, Request((first, 7, 5), 60)).cycles[:-8]:
            prediction = record.outcome.selection.prediction
            assert prediction is not None
            misses = int(record.outcome.verification.num_misses.sum())
            assert prediction.misses == pytest.approx(misses, abs=1e-6)
            assert prediction.cycle_s == pytest.approx(record.timings.cycle_s, rel=1e-6)
            surprises.append(record.num_committed - prediction.committed)
    standard_error = np.std(surprises) / np.sqrt(len(surprises))
    assert abs(np.mean(surprises)) <= 4.5 * standard_error
