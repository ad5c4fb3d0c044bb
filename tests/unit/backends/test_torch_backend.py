"""The live backend: trees equal their paths, state is kept and dropped as the loop says."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from specfit.backends import load
from specfit.backends.checkpoint import Checkpoint
from specfit.backends.device import EmulatedLink
from specfit.backends.eagle3_checkpoint import HeadCheckpoint
from specfit.backends.reference import StockModel
from specfit.backends.torch_backend import TorchBackend
from specfit.core.backend import Request
from specfit.core.errors import BackendError, CapacityError, CheckpointError, InvalidInputError
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree
from specfit.policies.autoregressive import Autoregressive
from specfit.policies.eagle3 import Eagle3
from specfit.testing.adversarial_device import random_orders
from tests.unit.backends.models import (
    PROMPT,
    D,
    V,
    decode,
    late_device,
    make_target,
    random_backend,
    random_model,
    stock_text,
)

REQUEST = Request(PROMPT, 24)


def random_tree(size: int, root: int, key: int = 0) -> DraftTree:
    rng = np.random.default_rng(key)
    parents = np.array([-1, *(int(rng.integers(0, i)) for i in range(1, size))], np.int32)
    tokens = rng.integers(0, V, size)
    tokens[0] = root
    return DraftTree.from_arrays(parents, halves(size), tokens)


def halves(size: int) -> np.ndarray:
    return np.array([1.0] + [0.5] * (size - 1))


def everything(tree: DraftTree) -> Selection:
    return Selection(tree, np.ones(len(tree), bool))


def path_logits(tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return random_model()[1](torch.tensor([tokens])).logits[0, -1]


@pytest.mark.parametrize("size", [1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129])
def test_a_trees_logits_are_those_of_its_paths(size: int) -> None:
    with random_backend("lru:4") as backend:
        root = backend.start(REQUEST).first_token
        tree = random_tree(size, root, size)
        with torch.inference_mode():
            result = backend._target.run_tree(tree.tokens, tree.depths, tree.ancestor_mask)
            logits = backend._target.logits(result.hidden)
    for node in range(0, size, max(1, size // 12)):
        expected = path_logits([*PROMPT, *tree.tokens[list(tree.path(node))].tolist()])
        torch.testing.assert_close(logits[node], expected, atol=2e-5, rtol=0)


def test_the_routing_is_the_routers() -> None:
    _, model = random_model()
    with random_backend() as backend:
        prefill = backend.start(REQUEST)
        tree = random_tree(6, prefill.first_token)
        verification = backend.verify(tree, everything(tree))
    chosen: list[np.ndarray] = []
    hooks = [
        layer.mlp.gate.register_forward_hook(lambda m, i, out: chosen.append(out[2].numpy()))
        for layer in model.model.layers
    ]
    with torch.inference_mode():
        model(torch.tensor([PROMPT]))
    for hook in hooks:
        hook.remove()
    expected = np.stack(chosen, axis=1)
    assert prefill.routing.dtype == np.int16
    assert (np.sort(prefill.routing) == np.sort(expected)).all()
    assert verification.routing.shape == (6, *expected.shape[1:])


def test_hits_and_misses_are_the_routing_and_the_residency() -> None:
    with random_backend("lru:6") as backend:
        root = backend.start(REQUEST).first_token
        for key in range(8):
            tree = random_tree(1 + 3 * key, root, key)
            before = backend.residency().mask.copy()
            result = backend.verify(tree, everything(tree))
            for layer in range(backend.geometry.num_layers):
                needed = np.unique(result.routing[:, layer])
                assert result.num_hits[layer] == before[layer, needed].sum()
                assert result.num_misses[layer] == (~before[layer, needed]).sum()
            assert backend._store.slot_bytes_are_current()


def committed_rows(backend: TorchBackend) -> torch.Tensor:
    rows = backend._target.kv.num_rows
    layers = backend._target.kv.layers
    return torch.stack([torch.cat([x.keys, x.values])[:, :, :rows] for x in layers])


def test_scattered_accepted_nodes_leave_a_plain_runs_keys() -> None:
    text = stock_text(REQUEST)
    with random_backend() as plain, random_backend() as backend:
        root = backend.start(REQUEST).first_token
        wrong = [(text[1] + i) % V for i in range(1, 7)]
        tree = DraftTree.from_arrays(
            np.array([-1, 0, 0, 0, 1, 2, 0, 3], np.int32),
            halves(8),
            np.array([root, *wrong[:2], text[1], *wrong[2:5], text[2]]),
        )
        verification = backend.verify(tree, everything(tree))
        answers = verification.target_tokens
        assert (answers[0], answers[3], answers[7]) == (text[1], text[2], text[3])
        backend.commit(tree, (3, 7), (text[1], text[2], text[3]))

        plain.start(REQUEST)
        for token, following in itertools.pairwise(text[:4]):
            alone = DraftTree.root(token)
            plain.verify(alone, Selection.root_only(alone))
            plain.commit(alone, (), (following,))
        torch.testing.assert_close(
            committed_rows(backend), committed_rows(plain), atol=1e-5, rtol=1e-5
        )
        assert backend._target.kv.num_rows == len(PROMPT) + 3


def test_the_last_verification_counts() -> None:
    text = stock_text(REQUEST)
    with random_backend() as backend:
        root = backend.start(REQUEST).first_token
        big, alone = random_tree(9, root), DraftTree.root(root)
        backend.verify(big, everything(big))
        backend.verify(alone, Selection.root_only(alone))
        backend.commit(alone, (), (text[1],))
        tree = DraftTree.root(text[1])
        assert backend.verify(tree, Selection.root_only(tree)).target_tokens[0] == text[2]


@pytest.mark.parametrize("abandoned", ["start", "draft", "verify", "commit"])
def test_after_an_abandoned_request_a_second_equals_a_fresh_one(abandoned: str) -> None:
    policy, second = Eagle3(depth=3, top_k=3, max_nodes=12), Request((9, 8, 7, 6, 5), 16)
    with random_backend() as fresh:
        expected = decode(fresh, policy, second)
    with random_backend() as backend:
        root = backend.start(REQUEST).first_token
        tree, plan = DraftTree.root(root), DraftPlan(3, 4, 64)
        if abandoned != "start":
            tree = tree.grow(backend.draft_level(plan, tree))
        if abandoned in ("verify", "commit"):
            tokens = backend.verify(tree, everything(tree)).target_tokens
        if abandoned == "commit":
            backend.commit(tree, (), (int(tokens[0]),))
        found = decode(backend, policy, second)
    assert found.tokens == expected.tokens
    for one, other in zip(found.cycles, expected.cycles, strict=True):
        one_seen, other_seen = one.outcome.verification, other.outcome.verification
        assert one_seen.num_misses.tolist() == other_seen.num_misses.tolist()
        assert one_seen.nodes.tolist() == other_seen.nodes.tolist()
        assert (
            one.outcome.cycle.tree.log_probs.tolist() == other.outcome.cycle.tree.log_probs.tolist()
        )


def test_an_error_in_the_middle_of_a_pass_leaves_the_backend_usable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with random_backend() as backend:
        backend.start(REQUEST)
        with monkeypatch.context() as patch:
            patch.setattr(backend.device, "wait", _cancel)
            tree = random_tree(31, 3)
            with pytest.raises(KeyboardInterrupt):
                backend.verify(tree, everything(tree))
        assert decode(backend, Autoregressive(), REQUEST).tokens == stock_text(REQUEST)


def _cancel(event: object) -> None:
    raise KeyboardInterrupt


def late_backend(cache: str, fail_at: int | None = None) -> TorchBackend:
    folder = random_model()[0]
    checkpoint = Checkpoint.open(folder)
    head = HeadCheckpoint.load(folder / "eagle3", checkpoint.config)
    return TorchBackend(checkpoint, head, late_device(fail_at), cache, torch.float32, 512)


@pytest.mark.parametrize("cache", ["none", "lru:4", "lru:50%"])
def test_a_device_that_delivers_late_changes_nothing(cache: str) -> None:
    with late_backend(cache) as backend:
        result = decode(backend, Eagle3(depth=2, top_k=3, max_nodes=9), REQUEST)
    assert result.tokens == stock_text(REQUEST)


@pytest.mark.parametrize("key", range(3))
def test_copies_that_arrive_at_any_time_change_nothing(key: int) -> None:
    (choose,) = random_orders(1, key)
    with late_backend("lru:4") as backend:
        backend.device._choose = choose
        result = decode(backend, Eagle3(depth=2, top_k=3, max_nodes=9), REQUEST)
        assert backend._store.slot_bytes_are_current()
    assert result.tokens == stock_text(REQUEST)


@pytest.mark.parametrize("fail_at", [0, 3, 20])
def test_a_failing_copy_is_an_error_and_the_next_request_works(fail_at: int) -> None:
    with late_backend("lru:4", fail_at) as backend:
        with pytest.raises(BackendError, match="a copy of expert weights failed"):
            decode(backend, Autoregressive(), REQUEST)
        assert decode(backend, Autoregressive(), REQUEST).tokens == stock_text(REQUEST)


def test_another_cache_and_link_reuse_the_weights() -> None:
    with random_backend("lru:4") as backend:
        bank = backend._store.bank
        first = decode(backend, Autoregressive(), REQUEST)
        backend.set_cache("lru:75%")
        backend.set_link(EmulatedLink(1e-6, 1e12))
        second = decode(backend, Autoregressive(), REQUEST)
        assert backend._store.bank is bank
        assert second.tokens == first.tokens
        assert misses(second) < misses(first)
        said = backend.describe()
        assert (said["cache"], said["slots_per_layer"]) == ("lru:75%", 12)
        assert said["link"]["kind"] == "emulated"
        with pytest.raises(CapacityError):
            backend.set_cache("lru:3")
        assert backend.cache.capacity == 12


def misses(result: Any) -> int:
    return sum(int(c.outcome.verification.num_misses.sum()) for c in result.cycles)


def test_stall_and_compute_are_the_seconds_of_the_pass() -> None:
    with random_backend("none", link=EmulatedLink(1e-3, 1e12)) as backend:
        root = backend.start(REQUEST).first_token
        tree = DraftTree.root(root)
        backend.verify(tree, Selection.root_only(tree))  # what is timed next is compiled
        started = backend.clock()
        result = backend.verify(tree, Selection.root_only(tree))
        took = backend.clock() - started
        copied = int(result.num_misses.sum())
        assert copied == backend.geometry.num_layers * backend.geometry.experts_per_token
        assert took >= 1e-3 * copied
        assert took / 3 < result.stall_s <= took
        assert result.stall_s + result.compute_s == pytest.approx(took, rel=0.2)


def test_without_a_head_nothing_is_drafted(tmp_path: Path) -> None:
    make_target(tmp_path)
    with load(tmp_path, cache="lru:8") as backend:
        backend.start(REQUEST)
        assert len(backend.draft_level(DraftPlan(2, 2, 9), DraftTree.root(3))) == 0
        assert decode(backend, Eagle3(), REQUEST).tokens == stock_text(REQUEST)
        assert backend.describe()["drafter"] == "none"


@pytest.mark.parametrize("norm_topk_prob", [True, False, None])
def test_router_weights_are_normed_as_the_configuration_says(
    tmp_path: Path, norm_topk_prob: bool | None
) -> None:
    make_target(tmp_path, norm_topk_prob=bool(norm_topk_prob))
    config = tmp_path / "config.json"
    raw = json.loads(config.read_text())
    if norm_topk_prob is None:  # off, in the class
        del raw["norm_topk_prob"]
    config.write_text(json.dumps(raw))
    with load(tmp_path, cache="lru:6") as backend:
        result = decode(backend, Autoregressive(), REQUEST)
    assert result.tokens == StockModel(tmp_path).generate(REQUEST)


def test_tied_router_scores_are_the_modules_own(tmp_path: Path) -> None:
    """With every score tied the ids are those that the router of the installed torch picks."""
    model = make_target(tmp_path)
    for layer in model.model.layers:
        layer.mlp.gate.weight.data.zero_()
    model.save_pretrained(tmp_path)
    with load(tmp_path, cache="lru:4") as backend:
        result = decode(backend, Eagle3(2, 2, 6), REQUEST)
        routing = backend.start(REQUEST).routing
    assert result.tokens == StockModel(tmp_path).generate(REQUEST)
    with torch.inference_mode():
        _, _, ids = model.model.layers[0].mlp.gate(torch.zeros(len(PROMPT), D))
    assert (np.sort(routing[:, 0]) == np.sort(ids.numpy())).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_router_that_gives_no_numbers_is_an_error(value: float) -> None:
    with random_backend() as backend:
        gate = backend._target.model.model.layers[1].mlp.gate
        good = gate.weight.clone()
        gate.weight.data.fill_(value)
        with pytest.raises(BackendError, match=r"not finite\..* in layer 1\."):
            backend.start(REQUEST)
        gate.weight.data.copy_(good)
        assert decode(backend, Autoregressive(), REQUEST).tokens == stock_text(REQUEST)


def test_a_long_prompt_is_run_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specfit.backends.torch_backend.PREFILL_TOKENS", 7)
    prompt = tuple(np.random.default_rng(1).integers(0, V, 40).tolist())
    request = Request(prompt, 12)
    with random_backend("lru:5") as backend:
        prefill = backend.start(request)
        assert prefill.chunks == (7, 7, 7, 7, 7, 5)
        assert prefill.routing.shape[0] == 40
        assert decode(backend, Eagle3(3, 2, 8), request).tokens == stock_text(request)


def test_a_text_must_fit_the_context() -> None:
    with (
        random_backend(max_context=20) as backend,
        pytest.raises(InvalidInputError, match=r"context of 20; got 8 \+ 24"),
    ):
        backend.start(REQUEST)


@pytest.mark.parametrize("token", [-1, V])
def test_a_prompt_must_be_of_the_vocabulary(token: int) -> None:
    with (
        random_backend() as backend,
        pytest.raises(InvalidInputError, match=f"holds {token}"),
    ):
        backend.start(Request((1, token, 2), 4))


def test_calls_out_of_order_are_errors() -> None:
    with random_backend() as backend:
        tree = DraftTree.root(1)
        with pytest.raises(BackendError, match="Call start first"):
            backend.verify(tree, Selection.root_only(tree))
        backend.start(REQUEST)
        with pytest.raises(BackendError, match="nothing has been verified"):
            backend.commit(tree, (), (1,))
        backend.close()
        with pytest.raises(BackendError, match="Call start first"):
            backend.draft_level(DraftPlan(1, 1, 2), tree)


def test_the_reference_model_of_the_same_process_stays_stock() -> None:
    folder, model = random_model()
    inputs = torch.tensor([PROMPT])
    with torch.inference_mode():
        before = model(inputs).logits
        with random_backend() as backend:
            backend.start(REQUEST)
            after = model(inputs).logits
            other = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        assert torch.equal(other(inputs).logits, before)
    assert type(other.model.layers[0].mlp.experts).__name__ == "Qwen3MoeExperts"
    assert torch.equal(before, after)


def test_bfloat16_weights_decode() -> None:
    with random_backend(dtype="bfloat16") as backend:
        assert backend.geometry.expert_bytes == 2 * 3 * 24 * 32
        result = decode(backend, Eagle3(2, 2, 6), REQUEST)
        assert len(result.tokens) == 24
        assert backend.describe()["precision"] == "bfloat16"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": "tinny"}, CheckpointError, "no model 'tinny'"),
        ({"device": "tpu"}, InvalidInputError, "device must be"),
        ({"dtype": "int8"}, InvalidInputError, "dtype must be"),
        ({"cache": "lru:2"}, CapacityError, "one token's experts"),
    ],
)
def test_loading_with_wrong_options(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    model = options.pop("model", random_model()[0])
    with pytest.raises(error, match=message):
        load(model, **options)
