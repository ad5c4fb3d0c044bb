"""4-bit experts: codes, kernels, blocks, checkpoints found in the wild, and the target's text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specfit.backends import load
from specfit.backends.checkpoint import Checkpoint
from specfit.backends.cpu import CpuDevice
from specfit.backends.expert_layout import PlainLayout
from specfit.backends.int4_kernels import CpuInt4Kernel, CudaInt4Kernel, make_kernel
from specfit.backends.int4_layout import Int4Layout
from specfit.backends.int4_matrix import quantize
from specfit.backends.packed import PackedExperts, bring_experts
from specfit.backends.ssd import SsdDevice
from specfit.core.backend import Request
from specfit.core.errors import CheckpointError, InvalidInputError
from specfit.core.expert_format import ExpertFormat
from specfit.core.shapes import QWEN3_30B_A3B
from specfit.policies.autoregressive import Autoregressive
from specfit.policies.eagle3 import Eagle3
from specfit.testing.random_policy import RandomPolicy
from tests.unit.backends.int4_models import (
    CONFIGS,
    GROUP,
    SIZE,
    int4_model,
    rounded_experts,
    write_quantized,
)
from tests.unit.backends.models import EXPERTS, LAYERS, PROMPT, D, decode, make_target, random_model

F32 = torch.float32
REQUEST = Request(PROMPT, 16)


def layout(group_size: int = GROUP) -> Int4Layout:
    return Int4Layout(ExpertFormat("float32", group_size), CpuInt4Kernel())


@settings(max_examples=30)
@given(
    st.integers(1, 5),
    st.integers(1, 3),
    st.sampled_from([32, 64]),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.integers(0, 2**32),
)
def test_codes_stand_for_the_nearest_of_sixteen_numbers(
    rows: int, groups: int, group_size: int, dtype: torch.dtype, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(rows, groups * group_size, generator=generator)
    matrix = quantize(numbers, group_size, dtype)
    assert matrix.codes.dtype == torch.uint8 and int(matrix.codes.max()) <= 15
    error = (matrix.numbers() - numbers).view(rows, groups, group_size).abs().amax(dim=-1)
    step = matrix.scales.float()
    slack = 1e-5 if dtype == F32 else 0.1  # scales rounded down leave the largest out of reach
    assert bool((error <= step * (0.5 + slack) + 16 * slack * step).all())
    each = [float(v) for v in (torch.arange(16) - 8) * step[0, 0] + matrix.zeros[0, 0].float()]
    best = min(abs(v - float(numbers[0, 0])) for v in each)
    assert abs(float(matrix.numbers()[0, 0] - numbers[0, 0])) <= best + 1e-6


def test_equal_numbers_are_kept() -> None:
    numbers = torch.full((2, 64), 0.25)
    assert torch.equal(quantize(numbers, 32, F32).numbers(), numbers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", [32, 128])
def test_the_kernel_multiplies_with_what_the_codes_stand_for(
    dtype: torch.dtype, columns: int
) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(70, columns, generator=generator).to(dtype)
    matrix = quantize(torch.randn(48, columns, generator=generator), 32, dtype)
    kernel = make_kernel(torch.device("cpu"), dtype)
    packed = kernel.view(kernel.pack(matrix.codes), 48, columns)
    scales = torch.stack([matrix.scales.t(), matrix.zeros.t()], dim=-1).contiguous()
    product = kernel.multiply(x, packed, 32, scales)
    expected = x.float() @ matrix.numbers().t()
    assert product.dtype == dtype
    torch.testing.assert_close(
        product.float(), expected, rtol=1e-2 if dtype != F32 else 1e-5, atol=1e-4
    )
    for count in (1, 2, 5, 17, 33):  # what a row gives does not depend on the other rows
        assert torch.equal(kernel.multiply(x[:count], packed, 32, scales), product[:count])


def test_bytes_of_a_block_are_codes_and_scales() -> None:
    assert QWEN3_30B_A3B.expert_bytes("bfloat16", "int4") == 3 * 2048 * 768 // 2 * 17 // 16
    checkpoint = Checkpoint.open(int4_model()[0])
    bank = bring_experts(checkpoint, CpuDevice(), layout())
    assert bank.dtype == torch.uint8
    size = layout().expert_bytes(checkpoint.config)
    assert bank.shape == (LAYERS, EXPERTS, size)
    assert size == 3 * SIZE * D // 2 + (2 * SIZE + D) * 2 * 4  # one group a row


@pytest.mark.parametrize(
    ("text", "said"),
    [("int8", "int4:GROUP"), ("int4:48", "32, 64, 128"), ("int4:", "int4:GROUP")],
)
def test_other_formats_are_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        ExpertFormat.parse(text, "float32")


def test_groups_must_fit_the_rows_and_the_kernel(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"no whole groups of 128. Use int4:32"):
        load(int4_model()[0], experts="int4")
    with pytest.raises(InvalidInputError, match="cannot be kept as int4"):
        load(random_model()[0], experts="int4:32")  # 24 columns
    make_target(tmp_path, hidden_size=40, moe_intermediate_size=32)
    with pytest.raises(InvalidInputError, match="no whole groups"):
        load(tmp_path, experts="int4:32")
    with pytest.raises(InvalidInputError, match="bfloat16 on a GPU"):
        make_kernel(torch.device("cuda"), F32)


def test_the_gpus_order_of_a_matrix_has_its_shape() -> None:
    kernel = CudaInt4Kernel(torch.device("cpu"))
    view = kernel.view(torch.zeros(64 * 96 // 2, dtype=torch.uint8), 64, 96)
    assert view.shape == (8, 3, 32, 1) and view.dtype == torch.int32  # 96 = 3 x 2 tiles of 16


# The text.


@pytest.mark.parametrize(("cache", "dtype"), [("none", "float32"), ("lru:25%", "bfloat16")])
def test_the_text_is_that_of_the_quantised_model_decoded_plainly(cache: str, dtype: str) -> None:
    folder = int4_model()[0]
    options = {"experts": "int4:32", "dtype": dtype}
    with load(folder, cache="lru:100%", drafter="none", **options) as plain:
        expected = decode(plain, Autoregressive(), REQUEST).tokens
    with load(folder, cache=cache, **options) as backend:
        assert backend.describe()["weight_format"].endswith("int4:32")
        assert backend.describe()["precision"] == dtype
        for policy in (Eagle3(3, 3, 10), RandomPolicy()):
            result = decode(backend, policy, REQUEST)
            assert result.tokens == expected
            moved = backend.device.counters.num_bytes
        assert backend._store.slot_bytes_are_current()
        assert moved % backend.geometry.expert_bytes == 0
        assert moved == backend.device.counters.num_copies * backend.geometry.expert_bytes


def test_in_float32_it_is_generates_text_with_the_rounded_weights() -> None:
    folder, model = int4_model()
    state, stock = rounded_experts(model), type(model)(model.config).eval()
    stock.load_state_dict(state)
    prompt = torch.tensor([PROMPT])
    with torch.inference_mode():
        output = stock.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=16, do_sample=False
        )
        other = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=16, do_sample=False
        )
    assert not torch.equal(output, other), "rounding to 4 bits changes this model's text"
    with load(folder, experts="int4:32") as backend:
        tokens = decode(backend, Eagle3(3, 3, 10), REQUEST).tokens
    assert list(tokens) == output[0, len(PROMPT) :].tolist()


def test_offloading_is_invisible_bit_by_bit() -> None:
    folder = int4_model()[0]
    hidden = []
    for cache in ("none", "lru:100%"):
        with load(folder, cache=cache, experts="int4:32", dtype="bfloat16") as backend:
            backend.start(REQUEST)
            with torch.inference_mode():
                hidden.append(backend.target.run(list(range(20))).hidden)
    assert torch.equal(*hidden)


@pytest.mark.slow
def test_experts_of_qwen3s_shape_write_the_text_of_plain_decoding(tmp_path: Path) -> None:
    """Two layers of 16 experts as large as those of Qwen3-30B-A3B, in bfloat16, groups of 128."""
    make_target(
        tmp_path,
        dtype=torch.bfloat16,
        hidden_size=2048,
        moe_intermediate_size=768,
        num_hidden_layers=2,
        initializer_range=0.02,
    )
    options = {"experts": "int4", "dtype": "bfloat16", "packed": tmp_path / "packed"}
    with load(tmp_path, cache="lru:100%", drafter="none", **options) as plain:
        expected = decode(plain, Autoregressive(), REQUEST).tokens
        assert plain.geometry.expert_bytes == QWEN3_30B_A3B.expert_bytes("bfloat16", "int4")
    with load(tmp_path, cache="none", drafter="ngram", **options) as backend:
        assert decode(backend, Eagle3(3, 2, 8), REQUEST).tokens == expected


# Packed files and disks.


def test_blocks_are_packed_mapped_and_read_from_disk(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(int4_model()[0])
    expected = bring_experts(checkpoint, CpuDevice(), layout())
    mapped = bring_experts(checkpoint, CpuDevice(), layout(), tmp_path)
    assert torch.equal(mapped, expected)
    packed = PackedExperts.of(checkpoint, layout(), tmp_path)
    packed.verify()
    assert packed.path.stat().st_size == expected.nbytes
    assert packed.path != PackedExperts.of(checkpoint, PlainLayout(F32), tmp_path).path
    assert CpuInt4Kernel().name in packed.path.name
    with load(int4_model()[0], experts="int4:32") as resident:
        text = decode(resident, Autoregressive(), REQUEST).tokens
    with load(int4_model()[0], experts="int4:32", device="ssd", packed=tmp_path) as backend:
        assert isinstance(backend.device, SsdDevice)
        assert decode(backend, Eagle3(3, 3, 10), REQUEST).tokens == text


# Checkpoints found in the wild.


@pytest.mark.parametrize("method", CONFIGS)
def test_a_quantised_checkpoint_writes_the_text_of_what_it_stands_for(
    method: str, tmp_path: Path
) -> None:
    stock = write_quantized(method, tmp_path)
    prompt = torch.tensor([PROMPT])
    with torch.inference_mode():
        output = stock.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=16, do_sample=False
        )
    with load(tmp_path, drafter="ngram") as backend:
        assert backend.layout.kept == ExpertFormat("float32", GROUP)
        tokens = decode(backend, Eagle3(3, 3, 10), REQUEST).tokens
    assert list(tokens) == output[0, len(PROMPT) :].tolist()
    numbers = torch.empty(LAYERS, EXPERTS, 3 * SIZE * D)
    Checkpoint.open(tmp_path).load_experts(numbers)
    experts = stock.model.layers[1].mlp.experts
    assert torch.equal(numbers[1, 3, -SIZE * D :], experts.down_proj[3].reshape(-1))


@pytest.mark.parametrize("method", CONFIGS)
def test_faults_of_quantised_checkpoints_are_named(method: str, tmp_path: Path) -> None:
    write_quantized(method, tmp_path)
    with pytest.raises(CheckpointError, match="4-bit groups of 32"):
        load(tmp_path, experts="int4:64")
    raw = json.loads((tmp_path / "config.json").read_text())
    changes = [{"bits": 8}, {"desc_act": True}, {"quant_method": "awq"}, {"group_size": -1}]
    if method != "gptq":
        changes = [{"format": "naive-quantized"}, {"config_groups": {}}]
    for change in changes:
        said = raw | {"quantization_config": raw["quantization_config"] | change}
        (tmp_path / "config.json").write_text(json.dumps(said))
        with pytest.raises(CheckpointError, match="is quantised as"):
            Checkpoint.open(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    from safetensors.torch import load_file, save_file

    tensors = load_file(tmp_path / "model.safetensors")
    codes = {"gptq": "qweight", "compressed-tensors": "weight_packed"}[method]
    name = f"model.layers.2.mlp.experts.5.up_proj.{codes}"
    save_file({k: v for k, v in tensors.items() if k != name}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        load(tmp_path)
    tensors[name] = tensors[name][:8, :2].contiguous()
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="do not belong together"):
        load(tmp_path)


def test_reordered_columns_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    write_quantized("gptq", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.mlp.experts.1.down_proj.g_idx"
    tensors[name] = tensors[name] + 1
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="desc_act"):
        load(tmp_path)
