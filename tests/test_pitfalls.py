"""Faults that other systems had, and the tests that would notice them here.

Each line names a fault, and the tests that feed the input which would cause it. A test that is
renamed or removed must be replaced in the table.
"""

from __future__ import annotations

import ast

import pytest

from tests.sources import ROOT

BACKENDS, CORE = "unit/backends", "unit/core"
PITFALLS: dict[int, tuple[str, list[str]]] = {
    1: ("d2t stored as ids, not offsets", [f"{BACKENDS}/test_eagle3_checkpoint.py::wrong_d2t"]),
    2: ("a missing d2t", [f"{BACKENDS}/test_eagle3_checkpoint.py::missing_d2t_is_identity"]),
    3: (
        "auxiliary layers assumed",
        [
            f"{BACKENDS}/test_eagle3_checkpoint.py::wrong_auxiliary_layers",
            f"{BACKENDS}/test_eagle3_checkpoint.py::small_targets_need_explicit_layers",
        ],
    ),
    4: (
        "flags of a head ignored",
        [
            f"{BACKENDS}/test_head_formats.py::flags_do_what_they_say",
            f"{BACKENDS}/test_eagle3.py::flags_of_newer_heads",
            "integration/test_check_head.py::a_wrong_wiring_is_put_right",
        ],
    ),
    5: ("tokenizers that differ", [f"{BACKENDS}/test_drafters.py::permuted_token_ids"]),
    6: (
        "a stop token in the draft",
        [
            "integration/test_lossless.py::stop_tokens_end_the_text_wherever",
            f"{CORE}/test_decode.py::a_rejected_stop_token_in_the_draft",
        ],
    ),
    7: ("the cap hides a stop", [f"{CORE}/test_decode.py::the_cap_cuts_before_a_stop_token"]),
    8: ("more tokens than asked for", ["integration/test_lossless.py::exactly_max_new_tokens"]),
    9: ("tokens counted wrongly", [f"{CORE}/test_decode.py::committed_is_accepted_and_one_more"]),
    10: ("always greedy", ["property/test_core_decode.py::two_noise_keys_give_two_texts"]),
    11: (
        "one random number used twice",
        ["property/test_core_decode.py::sampled_decoding_with_drafts_has_the_targets_law"],
    ),
    12: (
        "rounding of another width",
        ["integration/test_replay_cli.py::near_ties_are_counted_and_shown"],
    ),
    13: (
        "the reference model patched",
        [f"{BACKENDS}/test_torch_backend.py::the_reference_model_of_the_same_process"],
    ),
    14: (
        "rows not compacted",
        [f"{BACKENDS}/test_torch_backend.py::scattered_accepted_nodes_leave_a_plain_runs_keys"],
    ),
    15: (
        "state of a cancelled request",
        [f"{BACKENDS}/test_torch_backend.py::after_an_abandoned_request"],
    ),
    16: ("tree sizes", [f"{BACKENDS}/test_torch_backend.py::a_trees_logits_are_those_of"]),
    17: ("masks of another kind", [f"{BACKENDS}/test_kv.py::masks_of_both_attentions"]),
    18: (
        "a router without numbers",
        [f"{BACKENDS}/test_torch_backend.py::a_router_that_gives_no_numbers"],
    ),
    19: ("ties in the router", [f"{BACKENDS}/test_torch_backend.py::tied_router_scores"]),
    20: ("norm_topk_prob", [f"{BACKENDS}/test_torch_backend.py::router_weights_are_normed"]),
    21: (
        "an expert listed twice",
        [f"{CORE}/search/test_search_families.py::an_expert_listed_twice_counts_once"],
    ),
    22: ("stale slots", [f"{BACKENDS}/test_store.py::slots_hold_the_hosts_bytes"]),
    23: ("a union beyond the slots", [f"{BACKENDS}/test_store.py::a_union_beyond_the_slots"]),
    24: (
        "a failing copy swallowed",
        [
            f"{BACKENDS}/test_torch_backend.py::a_failing_copy_is_an_error",
            f"{BACKENDS}/test_cpu.py::a_failing_copy_reaches_the_waiter",
        ],
    ),
    25: ("a cache size without effect", [f"{CORE}/cache/test_base.py::two_budgets_give_two"]),
    26: (
        "prefetching not charged",
        [
            "unit/sim/test_prefetch.py::the_oracle_fetches_every_miss",
            "unit/sim/test_prefetch.py::what_is_always_wrong_is_slower",
            f"{BACKENDS}/test_ahead_protocol.py::right_in_every_order",
        ],
    ),
    27: ("pinning fails", [f"{BACKENDS}/test_cuda.py::memory_that_cannot_be_pinned"]),
    28: (
        "counts inherited by the next request",
        [f"{BACKENDS}/test_torch_backend.py::after_an_abandoned_request"],
    ),
    29: (
        "experts of another node",
        [f"{CORE}/search/test_search_families.py::swapping_the_experts_of_two_siblings"],
    ),
}


def names_in(path: str) -> list[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text("utf-8"))
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("number", PITFALLS)
def test_every_fault_has_its_test(number: int) -> None:
    what, named = PITFALLS[number]
    for place in named:
        path, _, words = place.partition("::")
        assert any(words in name for name in names_in(path)), f"{what}: {place} is gone"


def test_no_fault_is_left_out() -> None:
    assert list(PITFALLS) == list(range(1, 30))
