"""One head in every published format gives the same logits; each flag changes them as it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from specfit.backends.eagle3 import Eagle3Drafter, Eagle3Head
from specfit.backends.eagle3_checkpoint import HeadCheckpoint
from specfit.backends.eagle3_compiled import make_head as suitable_head
from specfit.core.tree import DraftPlan, DraftTree
from tests.unit.backends.models import (
    AUX_LAYERS,
    DRAFT_V,
    HEAD_CONFIG,
    D,
    head_tensors,
    target_config,
)
from tests.unit.backends.naive_head import rms, run_rows
from tests.unit.backends.test_eagle3 import EMBEDDING, FEATURES, NEXT_TOKENS

GENERATOR = torch.Generator().manual_seed(3)
AUX_KEY = "eagle_aux_hidden_state_layer_ids"
PLAIN = {k: v for k, v in HEAD_CONFIG.items() if k != "eagle_config"}
BIAS_ROWS = {
    "self_attn.q_proj": 64,
    "self_attn.k_proj": 32,
    "self_attn.v_proj": 32,
    "self_attn.o_proj": D,
    "mlp.gate_proj": 48,
    "mlp.up_proj": 48,
    "mlp.down_proj": D,
}
BIASES = {
    f"midlayer.{name}.bias": torch.randn(rows, generator=GENERATOR)
    for name, rows in BIAS_ROWS.items()
}
FC_NORMS = {f"fc_norm.{i}.weight": torch.rand(D, generator=GENERATOR) for i in range(3)}


def write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, str(folder / "model.safetensors"))
    return folder


def eagle(folder: Path, tensors: dict[str, Tensor]) -> Path:
    """EAGLE and AngelSlim: a pickle without the embedding, with a flag that would tie it."""
    folder.mkdir()
    config = PLAIN | {"architectures": ["LlamaForCausalLMEEagle3"], "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    torch.save(tensors, folder / "pytorch_model.bin")
    return folder


def specforge(folder: Path, tensors: dict[str, Tensor]) -> Path:
    """SpecForge: its own copy of the embedding, output ids, a RoPE buffer."""
    nested = {"eagle_config": {AUX_KEY: list(AUX_LAYERS), "use_aux_hidden_state": True}}
    more = {
        "embed_tokens.weight": EMBEDDING,
        "midlayer.self_attn.rotary_emb.inv_freq": torch.ones(8),
    }
    return write(folder, PLAIN | nested, tensors | more)


def speculators(folder: Path, tensors: dict[str, Tensor]) -> Path:
    """Speculators: another prefix, nested settings, input ids."""
    config = {
        "speculators_model_type": "eagle3",
        "speculators_config": {"algorithm": "eagle3", "proposal_methods": []},
        "transformer_layer_config": PLAIN,
        "draft_vocab_size": DRAFT_V,
        "norm_before_residual": False,
        AUX_KEY: [i + 1 for i in AUX_LAYERS],
    }
    renamed = {k.replace("midlayer.", "layers.0."): v for k, v in tensors.items()}
    return write(folder, config, renamed | {"embed_tokens.weight": EMBEDDING})


def modelopt(folder: Path, tensors: dict[str, Tensor]) -> Path:
    """ModelOpt: names of EAGLE below ``model.``, and its own block of settings."""
    nested = {"eagle_config": {AUX_KEY: list(AUX_LAYERS), "use_last_layernorm": True}}
    return write(folder, PLAIN | nested, {f"model.{k}": v for k, v in tensors.items()})


FORMATS: dict[str, Callable[[Path, dict[str, Tensor]], Path]] = {
    "eagle": eagle,
    "specforge": specforge,
    "speculators": speculators,
    "modelopt": modelopt,
}


def logits_of(checkpoint: HeadCheckpoint) -> Tensor:
    head = Eagle3Head(checkpoint, EMBEDDING)
    hidden = head.forward(torch.tensor(NEXT_TOKENS), head.project(FEATURES), 0, None)
    best = head.best(hidden, DRAFT_V)
    order = torch.from_numpy(best.tokens).argsort(dim=-1)
    return torch.from_numpy(best.log_probs).gather(1, order)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_logits(tmp_path: Path, name: str) -> None:
    known = {"eagle_config": {AUX_KEY: list(AUX_LAYERS)}}
    folder = write(tmp_path / "known", PLAIN | known, head_tensors())
    expected = logits_of(HeadCheckpoint.load(folder, target_config()))
    folder = FORMATS[name](tmp_path / name, head_tensors())
    if name == "eagle":  # it names no layers, and a target of 4 has no usual ones
        (folder / "specfit-head.json").write_text(json.dumps({"aux_layer_ids": AUX_LAYERS}))
    checkpoint = HeadCheckpoint.load(folder, target_config())
    assert checkpoint.aux_layer_ids == AUX_LAYERS
    assert torch.equal(logits_of(checkpoint), expected)


def naive(tensors: dict[str, Tensor], path: list[int], flags: dict[str, Any]) -> Tensor:
    """Return log probabilities after a path, every row computed anew."""
    features = FEATURES
    if "fc_norm.0.weight" in tensors:
        parts = features.chunk(3, -1)
        features = torch.cat(
            [rms(part, tensors[f"fc_norm.{i}.weight"]) for i, part in enumerate(parts)], -1
        )
    hidden, tokens = features @ tensors["fc.weight"].T, list(NEXT_TOKENS)
    given = {"theta": 10000.0, "norm_before_residual": False}
    last = run_rows(tensors, EMBEDDING[tokens], hidden, **given)[-1]
    for token in path:
        tokens.append(token)
        fed = rms(last, tensors["norm.weight"]) if flags.get("feeds_normed") else last
        hidden = torch.cat([hidden, fed[None]])
        last = run_rows(tensors, EMBEDDING[tokens], hidden, **given)[-1]
    normed = last if flags.get("norms_output") is False else rms(last, tensors["norm.weight"])
    return (normed @ tensors["lm_head.weight"].T * flags.get("logit_scale", 1.0)).log_softmax(-1)


@pytest.mark.parametrize(
    ("config", "more", "flags"),
    [
        ({}, {}, {}),
        ({}, FC_NORMS, {}),
        ({}, BIASES, {}),
        ({"norm_output": False}, {}, {"norms_output": False}),
        ({"norm_output": True}, {}, {}),
        ({"logit_scale": 0.25}, {}, {"logit_scale": 0.25}),
        ({"speculators_model_type": "eagle3", "norm_output": True}, {}, {"feeds_normed": True}),
    ],
)
def test_flags_do_what_they_say(
    tmp_path: Path, config: dict[str, Any], more: dict[str, Tensor], flags: dict[str, Any]
) -> None:
    tensors = head_tensors() | more
    checkpoint = HeadCheckpoint.load(
        write(tmp_path / "head", HEAD_CONFIG | config, tensors), target_config()
    )
    ids = checkpoint.target_ids.tolist()
    for head in (Eagle3Head(checkpoint, EMBEDDING), suitable_head(checkpoint, EMBEDDING)):
        drafter = Eagle3Drafter(head)
        drafter.extend(FEATURES, NEXT_TOKENS)
        tree, plan = DraftTree.root(NEXT_TOKENS[-1]), DraftPlan(3, 2, 64)
        for _ in range(plan.depth):
            tree = tree.grow(drafter.draft_level(plan, tree))
        for node in range(len(tree)):
            children = tree.children(node)
            path = tree.tokens[list(tree.path(node)[1:])].tolist()
            expected = naive(tensors, path, flags) if len(children) else torch.zeros(0)
            for child in children:
                place = ids.index(int(tree.tokens[child]))
                assert tree.log_probs[child] == pytest.approx(float(expected[place]), abs=3e-5)


def test_fc_norms_are_as_many_as_layers(tmp_path: Path) -> None:
    from specfit.core.errors import CheckpointError

    two = {k: v for k, v in FC_NORMS.items() if "2" not in k}
    folder = write(tmp_path / "head", HEAD_CONFIG, head_tensors() | two)
    with pytest.raises(CheckpointError, match="2 fc_norm for 3"):
        HeadCheckpoint.load(folder, target_config())
