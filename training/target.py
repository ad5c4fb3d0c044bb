"""Trains the Qwen3-MoE target of specfit-tiny from scratch, on a CPU, for a given time.

Learning rate and sequence length follow the share of the time that has passed: warm-up, constant,
then a cosine to ``FINAL_LR_SHARE``; sequences of 256 tokens, then of 512 in the last part.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from corpus import SEPARATOR, Split, encode_stream, load_corpus, training_units
from experts import SORTED_EXPERTS, register_sorted_experts

PEAK_LR = 3e-3
WARM_UP_STEPS = 60
CONSTANT_SHARE = 0.4
FINAL_LR_SHARE = 0.02
WEIGHT_DECAY = 0.1
CLIP_NORM = 1.0
BLOCK_TOKENS = 512
BLOCKS_PER_STEP = 4
SHORT_TOKENS = 256
SHORT_SHARE = 0.85
GSM8K_REPEATS = 4
NUM_VALIDATION_BLOCKS = 24
LOG_EVERY_STEPS = 50


def target_config(vocab_size: int, eos_token_id: int) -> Qwen3MoeConfig:
    """Shape of specfit-tiny: 6 layers of 64 experts, 8 a token, 5.6 M parameters."""
    return Qwen3MoeConfig(
        vocab_size=vocab_size,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=64,
        num_experts_per_tok=8,
        moe_intermediate_size=32,
        norm_topk_prob=True,
        tie_word_embeddings=False,
        max_position_embeddings=BLOCK_TOKENS,
        rope_theta=10000.0,
        router_aux_loss_coef=0.003,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=eos_token_id,
        pad_token_id=eos_token_id,
    )


def learning_rate(step: int, progress: float) -> float:
    """Learning rate at a step, ``progress`` being the share of the time that has passed."""
    if step < WARM_UP_STEPS:
        return PEAK_LR * (step + 1) / WARM_UP_STEPS
    decay = min(1.0, max(0.0, (progress - CONSTANT_SHARE) / (1.0 - CONSTANT_SHARE)))
    cosine = 0.5 * (1.0 + math.cos(math.pi * decay))
    return PEAK_LR * (FINAL_LR_SHARE + (1.0 - FINAL_LR_SHARE) * cosine)


def cut_blocks(stream: np.ndarray) -> Tensor:
    """Cut a token stream into blocks, int64 [num_blocks, BLOCK_TOKENS]; the rest is dropped."""
    num_blocks = len(stream) // BLOCK_TOKENS
    blocks = stream[: num_blocks * BLOCK_TOKENS].astype(np.int64)
    return torch.from_numpy(blocks.reshape(num_blocks, BLOCK_TOKENS))


def batches(blocks: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
    """Endless batches [BLOCKS_PER_STEP, BLOCK_TOKENS], each epoch in a new order."""
    while True:
        order = torch.randperm(len(blocks), generator=generator)
        for chosen in order[: len(order) - len(order) % BLOCKS_PER_STEP].split(BLOCKS_PER_STEP):
            yield blocks[chosen]


def validation_blocks(split: Split, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """Blocks of each domain of a split, evenly spaced over it."""
    texts = {"books": split.books, "gsm8k": split.questions}
    chosen = {}
    for domain, documents in texts.items():
        units = [document + "\n" + SEPARATOR for document in documents]
        blocks = cut_blocks(encode_stream(units, tokenizer))
        chosen[domain] = blocks[:: max(1, len(blocks) // NUM_VALIDATION_BLOCKS)]
    return chosen


@torch.inference_mode()
def mean_loss(model: Qwen3MoeForCausalLM, blocks: Tensor) -> float:
    """Mean cross-entropy in nats a token, without the router loss."""
    losses = [model(input_ids=batch, labels=batch).loss.item() for batch in blocks.split(4)]
    return sum(losses) / len(losses)


def parameter_groups(model: torch.nn.Module) -> list[dict]:
    """Weight decay on matrices, none on norm weights."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    return [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": vectors, "weight_decay": 0.0},
    ]


class Trainer:
    """Holds the model, its optimizer and the clock of one run."""

    def __init__(self, model: Qwen3MoeForCausalLM, out: Path, minutes: float):
        self.model = model
        self.out = out
        self.seconds = 60 * minutes
        self.optimizer = torch.optim.AdamW(
            parameter_groups(model), lr=PEAK_LR, betas=(0.9, 0.95), fused=True
        )
        self.start = time.monotonic()

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    def step(self, number: int, batch: Tensor) -> float:
        """One optimizer step on a batch; returns its loss, router loss included."""
        progress = self.elapsed() / self.seconds
        if progress < SHORT_SHARE:
            batch = batch.view(-1, SHORT_TOKENS)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(number, progress)
        loss = self.model(input_ids=batch, labels=batch, output_router_logits=True).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def checkpoint(self, validation: dict[str, Tensor]) -> None:
        """Print the validation losses and save the model, replacing the last checkpoint."""
        self.model.eval()
        losses = {name: mean_loss(self.model, blocks) for name, blocks in validation.items()}
        self.model.train()
        self.model.save_pretrained(self.out)
        shown = "  ".join(f"{name} {loss:.3f}" for name, loss in losses.items())
        print(f"{self.elapsed():6.0f} s  validation  {shown}", flush=True)

    def run(self, data: Iterator[Tensor], validation: dict[str, Tensor], every_s: float) -> None:
        """Train until the time is over, with a checkpoint every ``every_s`` seconds."""
        average, number, due_s = None, 0, every_s
        while self.elapsed() < self.seconds:
            loss = self.step(number, next(data))
            average = loss if average is None else 0.98 * average + 0.02 * loss
            number += 1
            if number % LOG_EVERY_STEPS == 0:
                tokens = number * BLOCKS_PER_STEP * BLOCK_TOKENS
                speed = tokens / self.elapsed()
                print(
                    f"{self.elapsed():6.0f} s  step {number}  {tokens / 1e6:.2f} M tokens"
                    f"  loss {average:.3f}  {speed:.0f} tokens/s",
                    flush=True,
                )
            if self.elapsed() > due_s:
                self.checkpoint(validation)
                due_s = self.elapsed() + every_s
        self.checkpoint(validation)


def main() -> None:
    """Parse the arguments, prepare the data, train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of tokenizer.json")
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--init", type=Path, help="checkpoint to continue from")
    parser.add_argument("--minutes", type=float, default=32.0)
    parser.add_argument("--checkpoint-minutes", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    register_sorted_experts()
    tokenizer = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    corpus = load_corpus(args.corpus)
    units = training_units(corpus.train, GSM8K_REPEATS, random.Random(args.seed))
    blocks = cut_blocks(encode_stream(units, tokenizer))
    print(f"{blocks.numel() / 1e6:.2f} M training tokens an epoch", flush=True)

    if args.init:
        model = Qwen3MoeForCausalLM.from_pretrained(args.init, dtype=torch.float32)
    else:
        eos = tokenizer.token_to_id(SEPARATOR)
        model = Qwen3MoeForCausalLM(target_config(tokenizer.get_vocab_size(), eos))
    model.set_experts_implementation(SORTED_EXPERTS)
    trainer = Trainer(model, args.out, args.minutes)
    data = batches(blocks, torch.Generator().manual_seed(args.seed))
    trainer.run(data, validation_blocks(corpus.tune, tokenizer), 60 * args.checkpoint_minutes)


if __name__ == "__main__":
    main()
