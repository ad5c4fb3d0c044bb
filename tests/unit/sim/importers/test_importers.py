"""Each importer on a file made by hand from its format's description, and on files that are not."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specfit.backends.tensor_file import load_plain
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.errors import InvalidInputError, TraceCoverageError
from specfit.policies.acceptance import Identity
from specfit.policies.autoregressive import Autoregressive
from specfit.policies.eagle3 import Eagle3
from specfit.policies.predictors import Uniform
from specfit.sim.importers import FORMATS, import_trace
from specfit.sim.importers.exported import export_trace
from specfit.sim.importers.imported import ImportedText, ImportOptions
from specfit.sim.importers.policylang import write as write_policylang
from specfit.sim.replay import replay
from specfit.sim.trace import TraceReader, check_trace
from specfit.testing.examples import example_profile

SIZE = ImportOptions(expert_bytes=1000, load_tensors=load_plain)

LLAMA = """\
-2,0,1,2
-1,0,3,0
-1,1,2,3
0,0,1,3
0,1,0,2
1,0,2,3
1,1,3,1
"""

LATTICE = """\
{"layer_idx": 3, "token_idx": 0, "selected_ids": [4, 1], "gate_weights": [0.7, 0.3]}
{"layer_idx": 4, "token_idx": 0, "selected_ids": [0, 2], "gate_weights": [0.7, 0.3]}
{"layer_idx": 3, "token_idx": 1, "selected_ids": [1, 2], "gate_weights": [0.6, 0.4]}
{"layer_idx": 4, "token_idx": 1, "selected_ids": [3, 2], "gate_weights": [0.6, 0.4]}
"""


def node(id_, parent, depth, token, accepted, ids):
    return {
        "id": id_,
        "parent": parent,
        "token": token,
        "str": "x",
        "depth": depth,
        "conf": 0.5,
        "cost": 1.0,
        "accepted": accepted,
        "target_experts": [{"l": 0, "ids": ids, "scores": [0.5, 0.5]}],
    }


def s2_steps():
    return [
        {
            "step": 0,
            "t_verify_us": 1500.0,
            "nodes": [
                node(0, 0, 0, 11, True, [0, 1]),
                node(1, 0, 0, 12, False, [2, 3]),
                node(0, 0, 1, 13, False, [1, 3]),
                node(2, 1, 1, 14, False, [4, 5]),
            ],
        },
        {"step": 1, "t_verify_us": 900.0, "nodes": [node(0, 0, 0, 15, False, [0, 5])]},
    ]


def run(trace, policy, cache="lru:50%"):
    reader = TraceReader(trace)
    geometry = reader.metadata.geometry
    profile = example_profile()
    return list(
        replay(
            reader,
            policy,
            make_cache(cache, geometry),
            profile,
            cost=ProfileCost(profile),
            predictor=Uniform(geometry),
            acceptance=Identity(),
        )
    )


def only_text(trace):
    reader = TraceReader(trace)
    assert check_trace(trace).is_good
    (prompt,) = reader.prompts()
    return reader.metadata, prompt, [row for group in prompt.cursor() for row in rows_of(group)]


def rows_of(group):
    return [group.at(p) for p in range(group.last_position + 1) if group.at(p) is not None]


def save(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_llama_csv_keeps_each_token_with_all_layers_and_says_what_it_left_out(tmp_path):
    path = save(tmp_path, "trace.csv", LLAMA)
    unknown = import_trace("llama-moe-trace", path, tmp_path / "t", SIZE)
    metadata, prompt, rows = only_text(tmp_path / "t")
    assert prompt.row.routing.tolist() == [[[3, 0], [2, 3]]]  # position -2 lacks layer 1
    assert [row.answers.routing[0].tolist() for row in rows] == [
        [[1, 3], [0, 2]],
        [[2, 3], [3, 1]],
    ]
    assert (metadata.geometry.num_layers, metadata.geometry.num_experts) == (2, 4)
    assert any("1 of 2 prompt tokens" in gap for gap in unknown)


def test_a_plain_decode_replays_and_a_draft_is_refused(tmp_path):
    import_trace("llama-moe-trace", save(tmp_path, "t.csv", LLAMA), tmp_path / "t", SIZE)
    (result,) = run(tmp_path / "t", Autoregressive(), "lru:2")
    hits = sum(int(c.outcome.verification.num_hits.sum()) for c in result.cycles)
    # After the prompt layer 0 holds 3, 0 and layer 1 holds 2, 3: token 0 hits 3 and 2; token 1
    # hits 3 in layer 0 and none in layer 1, which holds 0 and 2.
    assert (len(result.cycles), hits) == (2, 3)
    with pytest.raises(TraceCoverageError, match="Record with"):
        run(tmp_path / "t", Eagle3(depth=2, top_k=2, max_nodes=4))


def test_lattice_maps_its_layers_from_zero(tmp_path):
    path = save(tmp_path, "trace.jsonl", LATTICE)
    unknown = import_trace("lattice", path, tmp_path / "t", ImportOptions(8, 1000))
    metadata, prompt, rows = only_text(tmp_path / "t")
    assert prompt.row.routing.tolist() == [[[4, 1], [0, 2]]]
    assert rows[0].answers.routing.tolist() == [[[1, 2], [3, 2]]]
    assert metadata.geometry.num_experts == 8
    assert metadata.backend["unknown"] == list(unknown)


def policylang_table(**changes):
    columns = {
        "prompt_id": [0, 0, 0, 0, 1, 1],
        "token_idx": [0, 0, 1, 1, 0, 1],
        "layer_idx": [0, 1, 0, 1, 0, 0],
        "selected_experts": [[1, 2], [3, 4], [0, 5], [2, 1], [1, 0], [2, 3]],
        "token_id": [7, 7, 8, 8, 9, 10],
        "phase": ["prefill", "prefill", "decode", "decode", "prefill", "decode"],
    }
    columns.update(changes)
    return pa.table(columns)


def test_policylang_keeps_tokens_and_phases(tmp_path):
    table = policylang_table().slice(0, 4)
    pq.write_table(table, tmp_path / "t.parquet")
    import_trace("policylang", tmp_path / "t.parquet", tmp_path / "t", SIZE)
    _, prompt, rows = only_text(tmp_path / "t")
    assert prompt.request.prompt == (7,)
    assert prompt.text[0] == 8
    assert rows[0].answers.routing.tolist() == [[[0, 5], [2, 1]]]


def test_policylang_refuses_prompts_of_different_shapes(tmp_path):
    pq.write_table(policylang_table(), tmp_path / "t.parquet")
    with pytest.raises(InvalidInputError, match="same layers and experts"):
        import_trace("policylang", tmp_path / "t.parquet", tmp_path / "t", SIZE)


def test_what_is_exported_to_policylang_comes_back(tmp_path):
    text = ImportedText(
        np.array([[[1, 2]]], np.int16), np.array([[[3, 0]], [[1, 0]]], np.int16), (5,), (6, 7)
    )
    write_policylang(tmp_path / "out.parquet", [text])
    import_trace("policylang", tmp_path / "out.parquet", tmp_path / "t", SIZE)
    _, prompt, rows = only_text(tmp_path / "t")
    assert (prompt.request.prompt, prompt.text[:2]) == ((5,), (6, 7))
    assert [row.answers.routing[0].tolist() for row in rows] == [[[3, 0]], [[1, 0]]]


def test_a_trace_is_exported_with_what_the_target_has_run(tmp_path):
    import_trace("llama-moe-trace", save(tmp_path, "t.csv", LLAMA), tmp_path / "t", SIZE)
    assert export_trace("policylang", TraceReader(tmp_path / "t"), tmp_path / "out.parquet") == 1
    import_trace("policylang", tmp_path / "out.parquet", tmp_path / "back", SIZE)
    (_, prompt, rows), (_, again, rows_again) = (
        only_text(tmp_path / name) for name in ("t", "back")
    )
    assert again.row.routing.tolist() == prompt.row.routing.tolist()
    routing, routing_again = (
        [row.answers.routing[0].tolist() for row in of] for of in (rows, rows_again)
    )
    assert routing_again == routing
    with pytest.raises(InvalidInputError, match="Did you mean 'policylang'"):
        export_trace("policy-lang", TraceReader(tmp_path / "t"), tmp_path / "x")


def sglang_file(path, records=None):
    torch = pytest.importorskip("torch")

    def record(tokens, positions, ids, mode, lengths=None):
        layers = torch.tensor([[[-1, -1, -1]] * len(tokens), ids], dtype=torch.int32)
        return {
            "forward_pass_id": 1,
            "rank": 0,
            "gatherer_key": "primary",
            "input_ids": tokens,
            "positions": positions,
            "extend_seq_lens": lengths,
            "forward_mode": mode,
            "topk_ids_of_layer": layers,
            "misc_objects": [],
            "global_physical_count": torch.zeros(2, 4, dtype=torch.int32),
        }

    if records is None:
        records = [
            record([5, 6], [0, 1], [[0, 3, -1], [1, 2, -1]], 1, [2]),
            record([7], [2], [[3, 2, -1]], 2),
            record([8], [3], [[0, 1, -1]], 2),
        ]
    else:
        records = [record(*r) for r in records]
    to_model = torch.tensor([[0, 1, 2, 0], [0, 1, 2, 0]])
    torch.save({"records": records, "last_physical_to_logical_map": to_model}, path)
    return path


def test_sglang_maps_physical_experts_and_drops_dense_layers(tmp_path):
    path = sglang_file(tmp_path / "r.pt")
    import_trace("sglang", path, tmp_path / "t", SIZE)
    metadata, prompt, rows = only_text(tmp_path / "t")
    assert prompt.request.prompt == (5, 6)
    assert prompt.row.routing.tolist() == [[[0, 0]], [[1, 2]]]  # physical 3 is expert 0
    assert prompt.text[:2] == (7, 8)
    assert [row.answers.routing[0].tolist() for row in rows] == [[[0, 2]], [[0, 1]]]
    assert (metadata.geometry.num_layers, metadata.geometry.num_experts) == (1, 3)


def test_sglang_refuses_several_requests_and_code(tmp_path):
    two = [([5, 6], [0, 0], [[0, 3, -1], [1, 2, -1]], 1, [1, 1])]
    with pytest.raises(InvalidInputError, match="max-running-requests 1"):
        import_trace("sglang", sglang_file(tmp_path / "two.pt", two), tmp_path / "t", SIZE)
    torch = pytest.importorskip("torch")
    torch.save({"records": Path("x")}, tmp_path / "code.pt")
    with pytest.raises(InvalidInputError, match="code are refused"):
        import_trace("sglang", tmp_path / "code.pt", tmp_path / "t", SIZE)


def write_foreign_files(folder):
    """Write a file of each format, named as `docs/how-to/import-a-trace.md` names them."""
    save(folder, "moe-trace.csv", LLAMA)
    save(folder, "routing_trace.jsonl", LATTICE)
    save(folder, "trace_output.json", json.dumps(s2_steps()))
    pq.write_table(policylang_table().slice(0, 4), folder / "trace.parquet")
    sglang_file(folder / "expert_distribution_recorder_1.pt")


def test_s2_moe_steps_become_cycles_with_an_unknown_root(tmp_path):
    path = save(tmp_path, "trace.json", json.dumps(s2_steps()))
    unknown = import_trace("s2-moe", path, tmp_path / "t", SIZE)
    metadata, prompt, rows = only_text(tmp_path / "t")
    first, second = rows
    assert first.tree.parents.tolist() == [-1, 0, 0, 1, 2]
    assert first.tree.tokens.tolist() == [16, 11, 12, 13, 14]
    assert first.answers.target_tokens.tolist() == [11, 16, 16, 16, 16]
    assert first.answers.routing[1:, 0].tolist() == [[0, 1], [2, 3], [1, 3], [4, 5]]
    assert second.answers.routing[0].tolist() == [[0, 1]]  # of the node accepted last
    assert prompt.text == (16, 11, 16, 16)
    assert metadata.kind == "run" and any("root" in gap for gap in unknown)
    (result,) = run(tmp_path / "t", Eagle3(depth=2, top_k=2, max_nodes=5))
    assert [c.num_committed for c in result.cycles] == [2, 1]


def test_the_bundled_routing_replays_under_a_drafting_policy(tmp_path):
    from specfit.data import ESFT_ROUTING

    with np.load(ESFT_ROUTING) as arrays:
        first = arrays["intent_ids"][:64]
    np.savez(tmp_path / "small.npz", intent_ids=first, intent_lens=np.array([64], np.int32))
    import_trace("esft", tmp_path / "small.npz", tmp_path / "t")
    metadata, prompt, rows = only_text(tmp_path / "t")
    assert metadata.origin == "synthetic"
    assert (prompt.row.routing == first[:16]).all()
    assert all((row.answers.routing[0] == first[16 + i]).all() for i, row in enumerate(rows))
    (result,) = run(tmp_path / "t", Eagle3(depth=4, top_k=8, max_nodes=32))
    assert len(result.tokens) == 49


BROKEN = {
    "llama-moe-trace": ["", "a,b,c\n", "0,0\n", "0,0,1\n0,0,2\n", "0,0,1,2\n1,0,1\n", "-1,0,1\n"],
    "lattice": ["", "{}\n", "not json\n", LATTICE[:85] + "\n" + LATTICE[:85] + "\n"],
    "policylang": ["", "PAR1"],
    "sglang": ["", "PK"],
    "s2-moe": ["", "{}", "[]", '[{"nodes": [{}]}]', '[{"nodes": 3}]'],
    "esft": ["", "PK"],
}


@pytest.mark.parametrize(("name", "text"), [(n, t) for n, ts in BROKEN.items() for t in ts])
def test_a_file_that_is_not_of_the_format_is_refused(tmp_path, name, text):
    path = save(tmp_path, "file", text)
    with pytest.raises(InvalidInputError):
        import_trace(name, path, tmp_path / "t", SIZE)
    assert not (tmp_path / "t").exists()


def test_every_format_has_a_case_here():
    assert set(BROKEN) == set(FORMATS)


def test_the_size_of_an_expert_has_to_be_said(tmp_path):
    path = save(tmp_path, "trace.jsonl", LATTICE)
    with pytest.raises(InvalidInputError, match="--expert-bytes"):
        import_trace("lattice", path, tmp_path / "t")


def test_unknown_format_and_missing_file(tmp_path):
    with pytest.raises(InvalidInputError, match="Did you mean 'lattice'"):
        import_trace("latice", tmp_path / "x", tmp_path / "t", SIZE)
    with pytest.raises(InvalidInputError, match="no file"):
        import_trace("lattice", tmp_path / "x", tmp_path / "t", SIZE)


def test_s2_moe_refuses_accepted_nodes_off_a_path(tmp_path):
    steps = s2_steps()
    steps[0]["nodes"][1]["accepted"] = True
    path = save(tmp_path, "trace.json", json.dumps(steps))
    with pytest.raises(InvalidInputError, match="path from the root"):
        import_trace("s2-moe", path, tmp_path / "t", SIZE)
