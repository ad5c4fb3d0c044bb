"""Trains the Qwen3-MoE target of specfit-tiny from scratch, on a CPU, for a given time.

Learning rate and sequence length follow the share of the time that has passed: warm-up, constant,
then a cosine to ``FINAL_LR_SHARE``; sequences of 256 tokens, then of 512 in the last part.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

from corpus import SEPARATOR, Split, encode_stream, load_corpus, training_units
from experts import SORTED_EXPERTS, register_sorted_experts
from workers import (
    SharedClock,
    add_worker_arguments,
    average_gradients,
    cosine_after,
    is_first,
    own_part,
    run_workers,
)

PEAK_LR = 3e-3
WARM_UP_STEPS = 60
CONSTANT_SHARE = 0.4
FINAL_LR_SHARE = 0.02
WEIGHT_DECAY = 0.1
CLIP_NORM = 1.0
ROUTER_LOSS_WEIGHT = 0.005
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
        router_aux_loss_coef=ROUTER_LOSS_WEIGHT,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=eos_token_id,
        pad_token_id=eos_token_id,
    )


def learning_rate(step: int, progress: float) -> float:
    """Learning rate at a step, ``progress`` being the share of the time that has passed."""
    if step < WARM_UP_STEPS:
        return PEAK_LR * (step + 1) / WARM_UP_STEPS
    return PEAK_LR * cosine_after(progress, CONSTANT_SHARE, FINAL_LR_SHARE)


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
    texts = {"books": [piece.text for piece in split.books], "gsm8k": split.questions}
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


def training_loss(model: Qwen3MoeForCausalLM, tokens: Tensor) -> Tensor:
    """Cross-entropy plus the mean of the router losses of the layers; tokens [B, T].

    The stock loss balances expert indices over all layers at once, which lets experts of a single
    layer die, so it is replaced by one for each layer.
    """
    output = model.model(input_ids=tokens, output_router_logits=True, use_cache=False)
    config = model.config
    router_losses = [
        load_balancing_loss_func((logits,), config.num_experts, config.num_experts_per_tok)
        for logits in output.router_logits
    ]
    logits = model.lm_head(output.last_hidden_state[:, :-1]).flatten(0, 1)
    text_loss = torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
    return text_loss + ROUTER_LOSS_WEIGHT * sum(router_losses) / len(router_losses)


def parameter_groups(model: torch.nn.Module) -> list[dict]:
    """Weight decay on matrices, none on norm weights."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    return [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": vectors, "weight_decay": 0.0},
    ]


class Trainer:
    """Holds the model, its optimizer and the clock of one worker."""

    def __init__(self, model: Qwen3MoeForCausalLM, out: Path, minutes: float):
        self.model = model
        self.out = out
        self.seconds = 60 * minutes
        self.optimizer = torch.optim.AdamW(
            parameter_groups(model), lr=PEAK_LR, betas=(0.9, 0.95), fused=True
        )
        self.clock = SharedClock()

    def step(self, number: int, batch: Tensor, progress: float) -> float:
        """One optimizer step on this worker's part of a batch; returns its loss."""
        own = own_part(batch)
        if progress < SHORT_SHARE:
            own = own.reshape(-1, SHORT_TOKENS)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(number, progress)
        loss = training_loss(self.model, own)
        loss.backward()
        average_gradients(self.model)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def checkpoint(self, seconds: float, validation: dict[str, Tensor]) -> None:
        """Print the validation losses and save the model, replacing the last checkpoint."""
        self.model.eval()
        losses = {name: mean_loss(self.model, blocks) for name, blocks in validation.items()}
        self.model.train()
        self.model.save_pretrained(self.out)
        shown = "  ".join(f"{name} {loss:.3f}" for name, loss in losses.items())
        print(f"{seconds:6.0f} s  validation  {shown}", flush=True)

    def run(self, data: Iterator[Tensor], validation: dict[str, Tensor], every_s: float) -> None:
        """Train until the time is over, with a checkpoint every ``every_s`` seconds."""
        average, number, due_s = None, 0, every_s
        while (seconds := self.clock.elapsed()) < self.seconds:
            loss = self.step(number, next(data), seconds / self.seconds)
            average = loss if average is None else 0.98 * average + 0.02 * loss
            number += 1
            if number % LOG_EVERY_STEPS == 0 and is_first():
                tokens = number * BLOCKS_PER_STEP * BLOCK_TOKENS
                print(
                    f"{seconds:6.0f} s  step {number}  {tokens / 1e6:.2f} M tokens"
                    f"  loss {average:.3f}  {tokens / seconds:.0f} tokens/s",
                    flush=True,
                )
            if seconds > due_s:
                due_s = seconds + every_s
                if is_first():
                    self.checkpoint(seconds, validation)
        if is_first():
            self.checkpoint(seconds, validation)


def initial_model(args: argparse.Namespace, tokenizer: Tokenizer) -> Qwen3MoeForCausalLM:
    """Load the checkpoint to continue from, or make a model with random weights."""
    if args.init:
        model = Qwen3MoeForCausalLM.from_pretrained(args.init, dtype=torch.float32)
    else:
        eos = tokenizer.token_to_id(SEPARATOR)
        model = Qwen3MoeForCausalLM(target_config(tokenizer.get_vocab_size(), eos))
    model.set_experts_implementation(SORTED_EXPERTS)
    return model.train()


def work(args: argparse.Namespace) -> None:
    """One worker: prepare model and data, the same in all workers, and train."""
    register_sorted_experts()
    tokenizer = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    corpus = load_corpus(args.corpus)
    units = training_units(corpus.train, GSM8K_REPEATS, random.Random(args.seed))
    blocks = cut_blocks(encode_stream(units, tokenizer))
    if is_first():
        print(f"{blocks.numel() / 1e6:.2f} M training tokens an epoch", flush=True)
    trainer = Trainer(initial_model(args, tokenizer), args.out, args.minutes)
    data = batches(blocks, torch.Generator().manual_seed(args.seed))
    trainer.run(data, validation_blocks(corpus.tune, tokenizer), 60 * args.checkpoint_minutes)


def main() -> None:
    """Parse the arguments and start the workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of tokenizer.json")
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--init", type=Path, help="checkpoint to continue from")
    parser.add_argument("--minutes", type=float, default=32.0)
    parser.add_argument("--checkpoint-minutes", type=float, default=4.0)
    add_worker_arguments(parser)
    run_workers(work, parser.parse_args())


if __name__ == "__main__":
    main()
