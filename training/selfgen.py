"""Lets the target write text to train the head on: several temperatures, prompts of both domains.

Every row of the batch starts with a prompt that it is forced to follow; after an end of text the
row gets another prompt, so it looks like the training stream with the target's own answers.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import DynamicCache, Qwen3MoeForCausalLM

from corpus import SEPARATOR, Split, load_corpus, question_prompt
from experts import SORTED_EXPERTS, register_sorted_experts

ROW_TOKENS = 256
ROWS_PER_BATCH = 128
TEMPERATURES = (0.0, 0.7, 0.7, 1.0)
BOOK_PROMPT_TOKENS = 32
BOOK_SHARE = 0.5

NextPrompt = Callable[[], list[int]]


def prompt_source(
    split: Split, tokenizer: Tokenizer, rng: random.Random, book_tokens: int = BOOK_PROMPT_TOKENS
) -> NextPrompt:
    """Make a function that draws a prompt: token ids from a book, or of a question."""

    def draw() -> list[int]:
        if rng.random() < BOOK_SHARE:
            text = rng.choice(split.books).text
            start = text.find(" ", rng.randrange(len(text)))
            return tokenizer.encode(text[start + 1 : start + 400]).ids[:book_tokens]
        return tokenizer.encode(question_prompt(rng.choice(split.questions))).ids

    return draw


def sample(logits: Tensor, temperatures: Tensor, generator: torch.Generator) -> Tensor:
    """One token a row, [B]; rows of temperature 0 take the best one. logits [B, V]."""
    probs = (logits / temperatures.clamp(min=1e-3)[:, None]).softmax(dim=-1)
    drawn = probs.multinomial(1, generator=generator)[:, 0]
    return torch.where(temperatures == 0, logits.argmax(dim=-1), drawn)


@torch.inference_mode()
def generate_rows(
    target: Qwen3MoeForCausalLM,
    next_prompt: NextPrompt,
    temperatures: Tensor,
    eos_token_id: int,
    generator: torch.Generator,
) -> Tensor:
    """Write a row of ``ROW_TOKENS`` tokens for each temperature, int64 [B, ROW_TOKENS]."""
    num_rows = len(temperatures)
    forced = [next_prompt() or [eos_token_id] for _ in range(num_rows)]
    tokens = torch.tensor([row.pop(0) for row in forced])
    written = [tokens]
    cache = DynamicCache(config=target.config)
    for _ in range(ROW_TOKENS - 1):
        output = target(input_ids=tokens[:, None], cache=cache, use_cache=True)
        tokens = sample(output.logits[:, -1], temperatures, generator)
        for row in range(num_rows):
            if forced[row]:
                tokens[row] = forced[row].pop(0)
            elif tokens[row] == eos_token_id:
                forced[row] = next_prompt()
        written.append(tokens)
    return torch.stack(written, dim=1)


def main() -> None:
    """Parse the arguments, generate batches until the time is over, save one array."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--target", type=Path, required=True, help="folder of the exported target")
    parser.add_argument("--out", type=Path, required=True, help="file to write (.npy)")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    register_sorted_experts()
    tokenizer = Tokenizer.from_file(str(args.target / "tokenizer.json"))
    target = Qwen3MoeForCausalLM.from_pretrained(args.target, dtype=torch.float32)
    target.set_experts_implementation(SORTED_EXPERTS)
    next_prompt = prompt_source(load_corpus(args.corpus).train, tokenizer, random.Random(args.seed))
    temperatures = torch.tensor(TEMPERATURES).repeat(ROWS_PER_BATCH // len(TEMPERATURES))
    generator = torch.Generator().manual_seed(args.seed)
    eos = tokenizer.token_to_id(SEPARATOR)

    start, batches = time.monotonic(), []
    while not batches or time.monotonic() - start < 60 * args.minutes:
        batches.append(generate_rows(target, next_prompt, temperatures, eos, generator))
        seconds = time.monotonic() - start
        num_tokens = len(batches) * ROWS_PER_BATCH * ROW_TOKENS
        print(
            f"{seconds:5.0f} s  {num_tokens} tokens  {num_tokens / seconds:.0f} tokens/s",
            flush=True,
        )
    np.save(args.out, torch.cat(batches).numpy().astype(np.uint16))


if __name__ == "__main__":
    main()
