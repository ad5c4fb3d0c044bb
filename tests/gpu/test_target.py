"""On a CUDA device the bundled target says what it says on the CPU: ground for a CUDA backend."""

from __future__ import annotations

import pytest

from tests.sources import PACKAGE

pytestmark = pytest.mark.gpu


def test_target_logits_agree_in_float32() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    torch.backends.cuda.matmul.allow_tf32 = False
    target = AutoModelForCausalLM.from_pretrained(PACKAGE / "data" / "tiny", dtype=torch.float32)
    tokens = torch.arange(2, 66)[None]  # [1, T]
    with torch.inference_mode():
        expected = target.eval()(tokens).logits
        logits = target.to("cuda")(tokens.to("cuda")).logits.cpu()
    assert logits.shape == (1, 64, target.config.vocab_size)
    torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-3)
