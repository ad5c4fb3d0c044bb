import pytest

from specfit.cli.specs import (
    LinkSpec,
    cost_from,
    link_from,
    plan_from,
    policy_from,
    profile_from,
)
from specfit.core.cost import ProfileCost
from specfit.core.errors import InvalidInputError, UnknownPluginError
from specfit.core.tree import DraftPlan
from specfit.policies import Eagle3, SpecFit
from specfit.testing.examples import example_profile

MINE = """
from dataclasses import dataclass
from specfit.core.cost import CostModel, ProfileCost
from specfit.core.policy import Policy
from specfit.core.selection import Selection

@dataclass
class Mine(Policy):
    least: float = 0.5
    def select(self, cycle):
        return Selection(cycle.tree, cycle.tree.path_probs >= self.least)

@dataclass(frozen=True)
class Dear(ProfileCost):
    pass

@dataclass
class Free(CostModel):
    factor: float = 1.0
    def terms(self, residency, context_len):
        raise NotImplementedError

class NoPolicy:
    pass
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_settings_win_over_the_spec():
    assert policy_from("eagle3:depth=5,top_k=4", ["depth=3"]) == Eagle3(3, 4, 60)


def test_a_policy_comes_from_a_file(mine):
    assert policy_from(f"{mine}:Mine", ["least=0.25"]).least == 0.25


@pytest.mark.parametrize(
    ("spec", "settings", "error", "message"),
    [
        ("egle3", [], UnknownPluginError, "no policy 'egle3'. Did you mean 'eagle3'"),
        ("eagle3:dept=3", [], InvalidInputError, "Did you mean 'depth'"),
        ("eagle3", ["dept=3"], InvalidInputError, "Did you mean 'depth'"),
        ("eagle3", ["depth"], InvalidInputError, "--set must read name=value; got 'depth'"),
        ("eagle3:depth=x", [], InvalidInputError, "depth must be int; got 'x'"),
        ("none.py:Mine", [], UnknownPluginError, "no file none.py"),
    ],
)
def test_a_wrong_policy_is_one_clear_error(spec, settings, error, message):
    with pytest.raises(error, match=message):
        policy_from(spec, settings)


def test_a_class_that_is_no_policy_is_refused(mine):
    with pytest.raises(InvalidInputError, match="must be a dataclass that derives from Policy"):
        policy_from(f"{mine}:NoPolicy")


def test_a_cost_model_gets_the_profile_if_it_wants_one(mine):
    profile = example_profile()
    assert cost_from("profile", profile) == ProfileCost(profile)
    assert cost_from(f"{mine}:Dear", profile).profile is profile
    assert cost_from(f"{mine}:Free:factor=2", profile).factor == 2.0


def test_a_profile_is_read_back_from_its_file(tmp_path):
    example_profile().write(tmp_path / "machine.toml")
    assert profile_from(str(tmp_path / "machine.toml")) == example_profile()


def test_an_unknown_profile_names_the_nearest_file(tmp_path):
    example_profile().write(tmp_path / "machine.toml")
    with pytest.raises(UnknownPluginError, match=r"Did you mean '.*machine\.toml'"):
        profile_from(str(tmp_path / "machin.toml"))


def test_plans():
    assert plan_from("eagle3:depth=5,top_k=4,max_nodes=30") == DraftPlan(5, 4, 30)
    assert plan_from("chain:depth=8,max_nodes=9") == DraftPlan(8, 1, 9)
    ours = SpecFit()
    assert plan_from("specfit") == DraftPlan(ours.depth, ours.top_k, ours.max_nodes)
    with pytest.raises(InvalidInputError, match="autoregressive has no such parameters"):
        plan_from("autoregressive")
    with pytest.raises(UnknownPluginError, match="Did you mean 'eagle3'"):
        plan_from("eagle:depth=3")


def test_links():
    assert link_from("none") == LinkSpec("none")
    assert link_from("pcie4") == LinkSpec("pcie4")
    assert link_from("20us+25GB/s") == LinkSpec("given", pytest.approx(2e-5), 25e9)
    with pytest.raises(InvalidInputError, match="Did you mean 'pcie4'"):
        link_from("pcie")
    with pytest.raises(InvalidInputError, match="a time must read"):
        link_from("20+25GB/s")
