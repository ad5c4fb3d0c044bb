"""Parameters that no cycle could be decided with are refused when the policy is made."""

from __future__ import annotations

import pytest

import specfit.policies  # noqa: F401 - registers them
from specfit.core.errors import InvalidInputError
from specfit.core.policy import policies

REFUSED = {
    "chain:depth=-1": "Chain.depth must be 0 or more; got -1.",
    "draftexpert:depth=-1": "DraftExpert.depth must be 0 or more; got -1.",
    "adaedl:depth=-1": "AdaEDL.depth must be 0 or more; got -1.",
    "adaedl:gamma=-0.1": "AdaEDL.gamma must be 0 or more; got -0.1.",
    "adaedl:rate_memory=1.5": "AdaEDL.rate_memory must be from 0 to 1; got 1.5.",
    "svip:factor=-1": "Svip.factor must be 0 or more; got -1.0.",
    "moe-speq:depth=-1": "MoESpeQ.depth must be 0 or more; got -1.",
    "moe-speq:min_depth=0": "MoESpeQ.min_depth must be 1 or more; got 0.",
    "moe-speq:first_prob=nan": "MoESpeQ.first_prob must be from 0 to 1; got nan.",
    "cascade:depth=0": "Cascade.depth must be 1 or more; got 0.",
    "cascade:depth=2": "Cascade.first_depth must be from 1 to 2; got 3.",
    "cascade:trial_cycles=0": "Cascade.trial_cycles must be 1 or more; got 0.",
    "ddd:check_every=0": "Ddd.check_every must be 1 or more; got 0.",
    "sequoia:top_k=0": "Sequoia.top_k must be 1 or more; got 0.",
    "sequoia:depth=-1": "Sequoia.depth must be 0 or more; got -1.",
    "yggdrasil:paid=-1": "Yggdrasil.paid must be 0 or more; got -1.0.",
    "s2-moe-static:expert_scale=-1": "S2MoEStatic.expert_scale must be 0 or more; got -1.0.",
    "specfit:top_k=0": "SpecFit.top_k must be 1 or more; got 0.",
    "specfit:decision_s=-1": "SpecFit.decision_s must be 0 or more; got -1.0.",
    "specfit:miss_memory=2": "SpecFit.miss_memory must be from 0 to 1; got 2.0.",
}


@pytest.mark.parametrize("spec", REFUSED)
def test_a_parameter_out_of_range_is_named_with_its_range(spec: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        policies.make(spec)
    assert str(caught.value) == REFUSED[spec]


@pytest.mark.parametrize("spec", ["chain:depth=0", "cascade:depth=1,first_depth=1", "sequoia"])
def test_the_ends_of_the_ranges_are_allowed(spec: str) -> None:
    policies.make(spec)
