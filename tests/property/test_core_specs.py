"""What is written as text is read back: profiles through TOML, plug-ins through their specs."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from specfit.core.cache import cache_capacity
from specfit.core.noise import Sampling, processed_logits
from specfit.core.policy import policies
from specfit.core.profile import HardwareProfile
from specfit.policies import Eagle3
from specfit.testing.examples import example_geometry
from specfit.testing.toy import ToyModel

seconds = st.floats(0, 1e6)
text = st.text(st.characters(exclude_categories=["Cs"]))
profiles = st.builds(
    HardwareProfile,
    name=text,
    provenance=text,
    kind=st.sampled_from(["measured", "emulated", "cited"]),
    first_level_s=seconds,
    level_s=seconds,
    verify_fixed_s=seconds,
    verify_node_s=seconds,
    resident_expert_s=seconds,
    copy_latency_s=seconds,
    h2d_bandwidth_bytes_per_s=st.floats(1e6, 1e15),
    expert_bytes=st.integers(0, 2**40),
)


@given(profiles)
def test_a_profile_survives_its_file(profile: HardwareProfile) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "profile.toml"
        profile.write(path)
        assert HardwareProfile.read(path) == profile


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 500))
def test_a_spec_makes_an_equal_policy(depth: int, top_k: int, max_nodes: int) -> None:
    made = policies.make(f"eagle3:depth={depth},top_k={top_k},max_nodes={max_nodes}")
    assert made == Eagle3(depth, top_k, max_nodes)
    spec: dict[str, Any] = json.loads(json.dumps(made.to_spec()))
    assert policies.build(spec["name"], spec["params"]) == made


@given(st.integers(1, 512), st.integers(1, 100))
def test_a_share_of_a_cache_is_never_more_than_all(num_experts: int, percent: int) -> None:
    geometry = example_geometry(num_experts=num_experts, experts_per_token=1)
    capacity = cache_capacity(f"{percent}%", geometry)
    assert abs(capacity - percent / 100 * num_experts) <= 0.5


samplings = st.builds(
    Sampling,
    temperature=st.floats(0.1, 5.0),
    top_k=st.integers(0, 40),
    top_p=st.floats(0.01, 1.0),
)


@given(samplings, st.integers(0, 1023))
def test_processing_keeps_the_most_probable_tokens_in_their_order(
    sampling: Sampling, row: int
) -> None:
    logits = MODEL.target_logits[row : row + 1]
    processed = processed_logits(logits, sampling)[0]
    kept = processed > float("-inf")
    assert kept[logits[0].argmax()]
    assert not sampling.top_k or kept.sum() <= sampling.top_k
    assert logits[0][kept].min() >= logits[0][~kept].max(initial=float("-inf"))
    assert (processed[kept] == (logits[0] / sampling.temperature)[kept]).all()


MODEL = ToyModel(example_geometry())
