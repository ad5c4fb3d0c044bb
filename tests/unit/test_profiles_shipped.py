"""The shipped hardware profiles: cited, named as their files, ordered by their links."""

import pytest

from specfit.cli.specs import profile_from, shipped_profiles
from specfit.core.cost import ProfileCost
from specfit.core.experts import Residency
from specfit.data import profile_files
from specfit.sim.synth.parameters import QWEN3_30B_A3B


def test_each_profile_has_a_citation_and_its_file_s_name():
    profiles = shipped_profiles()
    assert {p.name for p in profiles} == set(profile_files())
    for profile in profiles:
        assert profile.kind == "cited"
        assert "arXiv" in profile.provenance
        assert profile.expert_bytes == QWEN3_30B_A3B.expert_bytes


def test_copies_get_faster_from_disk_to_nvlink():
    names = ("pcie4-x16-ssd", "pcie3-x16", "pcie4-x16", "pcie5-x16", "nvlink-c2c")
    profiles = [profile_from(name) for name in names]
    seconds = [profile.ssd_s + profile.copy_s for profile in profiles]
    assert seconds == sorted(seconds, reverse=True)


def test_a_plain_step_with_everything_resident_takes_what_was_published():
    cost = ProfileCost(profile_from("pcie4-x16"))
    terms = cost.terms(Residency.everything(QWEN3_30B_A3B), 100)
    activated = 48 * 8
    assert float(terms.tau_s[1] + activated * terms.weight_s[0, 0]) == pytest.approx(
        1 / 144, rel=1e-3
    )
