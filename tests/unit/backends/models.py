"""Models with random weights: small enough to build in a test, of the real architectures."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.utils import logging

from specfit.backends import load
from specfit.backends.checkpoint import Checkpoint
from specfit.backends.cpu import CpuDevice
from specfit.backends.device import Device
from specfit.backends.eagle3_checkpoint import HeadCheckpoint
from specfit.backends.reference import greedy_settings
from specfit.backends.torch_backend import TorchBackend
from specfit.core.backend import Request
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop, DecodeResult
from specfit.core.policy import Policy
from specfit.core.prefetch import Prefetcher
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree
from specfit.testing.adversarial_device import AdversarialDevice
from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile

V, D, LAYERS, EXPERTS, TOP_K, SIZE = 96, 32, 4, 16, 4, 24
DRAFT_V = 64
AUX_LAYERS = (0, 1, 3)
PROMPT = (5, 17, 80, 33, 2, 2, 61, 9)

torch.set_num_threads(1)  # threads that wait for one another make small models slow
logging.disable_progress_bar()


def target_config(**changes: Any) -> Qwen3MoeConfig:
    settings: dict[str, Any] = {
        "vocab_size": V,
        "hidden_size": D,
        "intermediate_size": 64,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_experts": EXPERTS,
        "num_experts_per_tok": TOP_K,
        "moe_intermediate_size": SIZE,
        "norm_topk_prob": True,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "initializer_range": 0.2,
    }
    return Qwen3MoeConfig(**settings | changes)


def make_target(folder: Path, **changes: Any) -> Qwen3MoeForCausalLM:
    """Write a random target to a folder and return it."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = (
            Qwen3MoeForCausalLM(target_config(**changes))
            .to(changes.get("dtype", torch.float32))
            .eval()
        )
    model.save_pretrained(folder)
    return model


def head_tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(11)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * 0.3

    ids = torch.randperm(V, generator=generator)[:DRAFT_V].sort().values
    known = torch.zeros(V, dtype=torch.bool)
    known[ids] = True
    return {
        "fc.weight": draw(D, 3 * D),
        "midlayer.self_attn.q_proj.weight": draw(64, 2 * D),
        "midlayer.self_attn.k_proj.weight": draw(32, 2 * D),
        "midlayer.self_attn.v_proj.weight": draw(32, 2 * D),
        "midlayer.self_attn.o_proj.weight": draw(D, 64),
        "midlayer.mlp.gate_proj.weight": draw(48, D),
        "midlayer.mlp.up_proj.weight": draw(48, D),
        "midlayer.mlp.down_proj.weight": draw(D, 48),
        "midlayer.input_layernorm.weight": 1 + draw(D),
        "midlayer.hidden_norm.weight": 1 + draw(D),
        "midlayer.post_attention_layernorm.weight": 1 + draw(D),
        "norm.weight": 1 + draw(D),
        "lm_head.weight": draw(DRAFT_V, D),
        "d2t": ids - torch.arange(DRAFT_V),
        "t2d": known,
    }


HEAD_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": D,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "vocab_size": V,
    "draft_vocab_size": DRAFT_V,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS)},
}


def make_head(
    folder: Path,
    tensors: dict[str, torch.Tensor] | None = None,
    config: dict[str, Any] | None = None,
) -> Path:
    """Write a random head to a folder and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors or head_tensors(), str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps(config or HEAD_CONFIG))
    return folder


@cache
def random_model() -> tuple[Path, Qwen3MoeForCausalLM]:
    """Return the folder of a random target with its head, and the stock model."""
    folder = Path(mkdtemp(prefix="specfit-test-"))
    model = make_target(folder)
    make_head(folder / "eagle3")
    return folder, model


def random_backend(cache: str = "lru:25%", **options: Any) -> TorchBackend:
    return load(random_model()[0], cache=cache, **options)


def late_device(fail_at: int | None = None) -> AdversarialDevice:
    """Return a device that delivers at the last moment, and poisons what is not there yet."""
    return AdversarialDevice(lambda options: 0, is_eager=True, fail_at=fail_at)


def stock_text(request: Request) -> tuple[int, ...]:
    """Return what the unmodified model of transformers generates greedily."""
    _, model = random_model()
    prompt = torch.tensor([request.prompt])
    with torch.inference_mode():
        output = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=request.max_new_tokens,
            do_sample=False,
            eos_token_id=sorted(request.stop_ids) or None,
            pad_token_id=0,
            **greedy_settings(request.sampling),
        )
    return tuple(output[0, len(request.prompt) :].tolist())


def decode(
    backend: TorchBackend,
    policy: Policy,
    request: Request,
    policy_key: int = 0,
    prefetcher: Prefetcher | None = None,
) -> DecodeResult:
    return DecodeLoop(
        backend,
        policy,
        ProfileCost(example_profile()),
        UniformPredictor(backend.geometry),
        DrafterAcceptance(),
        policy_key=policy_key,
        prefetcher=prefetcher,
    ).run(request)


class OracleBackend(TorchBackend):
    """Drafts the target's own text, most of the time, at a random place among random siblings.

    Set `truth` to the whole text, prompt included. So accepted nodes are scattered in the tree.
    """

    truth: tuple[int, ...] = ()
    hit_rate: float = 0.8

    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        root = self._num_committed - 1
        depth = tree.num_levels
        rng = np.random.default_rng([root, depth])
        newest = np.flatnonzero(tree.depths == depth)
        parents = np.sort(rng.permutation(newest)[: plan.top_k])
        tokens = [self._siblings(tree, int(p), root, plan.top_k, rng) for p in parents]
        count = len(parents) * plan.top_k
        return DraftLevel(
            parents=np.repeat(parents, plan.top_k).astype(np.int32),
            tokens=np.concatenate(tokens),
            log_probs=np.full(count, -np.log(plan.top_k), np.float32),
            ranks=np.tile(np.arange(plan.top_k, dtype=np.int32), len(parents)),
            entropies=np.zeros(count, np.float32),
        )

    def _siblings(
        self, tree: DraftTree, parent: int, root: int, count: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        tokens = rng.choice(V, count, replace=False).astype(np.int64)
        path = tree.tokens[list(tree.path(parent))].tolist()
        place = root + len(path)
        is_true = path == list(self.truth[root:place]) and place < len(self.truth)
        if is_true and self.truth[place] not in tokens and rng.random() < self.hit_rate:
            tokens[int(rng.integers(count))] = self.truth[place]
        return tokens


def oracle_backend(
    cache: str, truth: tuple[int, ...], device: Device | None = None
) -> OracleBackend:
    folder = random_model()[0]
    checkpoint = Checkpoint.open(folder)
    head = HeadCheckpoint.load(folder / "eagle3", checkpoint.config)
    backend = OracleBackend(checkpoint, head, device or CpuDevice(), cache, torch.float32, 512)
    backend.truth = truth
    return backend
