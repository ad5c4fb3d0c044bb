"""Trains the EAGLE-3 head of specfit-tiny by unrolling it on its own hidden states.

Half of every batch is corpus text, half was written by the target. In unrolled step k the head
reads its hidden states of step k - 1; its queries attend the pairs up to their own and, beyond,
only their own earlier steps, as a chain drafted from that pair would.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import Qwen3MoeForCausalLM

from corpus import encode_stream, load_corpus, training_units
from experts import SORTED_EXPERTS, register_sorted_experts
from head_model import Eagle3Head, HeadConfig, load_head, save_head, target_features
from workers import (
    SharedClock,
    add_worker_arguments,
    average_gradients,
    cosine_after,
    is_first,
    own_part,
    run_workers,
)

WARM_UP_STEPS = 40
CONSTANT_SHARE = 0.2
FINAL_LR_SHARE = 0.02
CLIP_NORM = 0.5
STEP_DECAY = 0.9
ROW_TOKENS = 256
ROWS_PER_STEP = 8
SHARP_TEMPERATURE = 0.6
SHARP_WEIGHT = 0.3
LOG_EVERY_STEPS = 25
GSM8K_REPEATS = 2
NUM_TUNE_ROWS = 64


@dataclass(frozen=True)
class Lesson:
    """What the target says about a batch: B rows of T tokens.

    embeddings [B, T, D] and features [B, T, F] of the tokens; target_logits [B, T, Vd] restricted
    to the draft vocabulary; is_covered [B, T]: the best target token is in the draft vocabulary.
    """

    embeddings: Tensor
    features: Tensor
    target_logits: Tensor
    is_covered: Tensor


@torch.no_grad()
def make_lesson(target: Qwen3MoeForCausalLM, head: Eagle3Head, tokens: Tensor) -> Lesson:
    """Run the frozen target on tokens [B, T]."""
    features, logits = target_features(target, head.config.aux_layer_ids, input_ids=tokens)
    return Lesson(
        embeddings=target.model.embed_tokens(tokens),
        features=features,
        target_logits=logits[..., head.t2d],
        is_covered=head.t2d[logits.argmax(dim=-1)],
    )


def unroll_mask(num_pairs: int, num_base: int, step: int) -> Tensor:
    """Mask of unrolled step ``step``, bool [P, S + P]: causal on step 0, then own steps only."""
    base = torch.ones(num_pairs, num_base, dtype=torch.bool).tril()
    own = [torch.eye(num_pairs, num_base - k, dtype=torch.bool) for k in range(1, step + 1)]
    return torch.cat([base, *own], dim=1)


def unroll(head: Eagle3Head, lesson: Lesson, num_steps: int) -> Iterator[tuple[Tensor, slice]]:
    """Yield draft logits [B, P, Vd] of each step with the slice of T that they predict."""
    hidden = head.fc(lesson.features[:, :-1])
    num_base, past = hidden.shape[1], None
    for step in range(num_steps):
        num_pairs = num_base - step
        predicted = slice(step + 1, step + 1 + num_pairs)
        hidden, past = head.midlayer(
            lesson.embeddings[:, predicted],
            hidden[:, :num_pairs],
            torch.arange(step, step + num_pairs),
            unroll_mask(num_pairs, num_base, step),
            past,
        )
        yield head.logits(hidden), predicted


def step_loss(logits: Tensor, target_logits: Tensor, is_covered: Tensor) -> Tensor:
    """Cross-entropy to the target's law, partly to a sharper one for low temperatures."""
    law = target_logits.softmax(dim=-1)
    sharp = (target_logits / SHARP_TEMPERATURE).softmax(dim=-1)
    mixed = (1.0 - SHARP_WEIGHT) * law + SHARP_WEIGHT * sharp
    losses = -(mixed * logits.log_softmax(dim=-1)).sum(dim=-1)
    return (losses * is_covered).sum() / is_covered.sum()


def head_loss(head: Eagle3Head, lesson: Lesson, num_steps: int) -> Tensor:
    """Weighted mean of the losses of the unrolled steps."""
    weights = [STEP_DECAY**step for step in range(num_steps)]
    losses = [
        step_loss(logits, lesson.target_logits[:, cut], lesson.is_covered[:, cut])
        for logits, cut in unroll(head, lesson, num_steps)
    ]
    return sum(w * loss for w, loss in zip(weights, losses, strict=True)) / sum(weights)


@torch.no_grad()
def agreement(head: Eagle3Head, lesson: Lesson, num_steps: int, top_k: int) -> list[float]:
    """Share of positions, a step, whose best target token is among the head's ``top_k``."""
    shares = []
    for logits, cut in unroll(head, lesson, num_steps):
        best = lesson.target_logits[:, cut].argmax(dim=-1, keepdim=True)
        is_hit = (logits.topk(top_k, dim=-1).indices == best).any(dim=-1)
        shares.append((is_hit & lesson.is_covered[:, cut]).float().mean().item())
    return shares


def cut_rows(stream: np.ndarray) -> Tensor:
    """Cut a stream into rows, int64 [num_rows, ROW_TOKENS]; the rest is dropped."""
    num_rows = len(stream) // ROW_TOKENS
    rows = stream[: num_rows * ROW_TOKENS].reshape(num_rows, ROW_TOKENS)
    return torch.from_numpy(rows.astype(np.int64))


def draft_vocabulary(rows: Tensor, vocab_size: int, draft_vocab_size: int) -> Tensor:
    """Choose the most frequent target ids, sorted, int64 [Vd]."""
    counts = torch.bincount(rows.reshape(-1), minlength=vocab_size)
    return counts.topk(draft_vocab_size).indices.sort().values


def learning_rate(step: int, progress: float, peak: float) -> float:
    """Warm-up, constant, then a cosine over the share of the time that has passed."""
    if step < WARM_UP_STEPS:
        return peak * (step + 1) / WARM_UP_STEPS
    return peak * cosine_after(progress, CONSTANT_SHARE, FINAL_LR_SHARE)


def batches(sources: tuple[Tensor, Tensor], seed: int) -> Iterator[Tensor]:
    """Endless batches [ROWS_PER_STEP, ROW_TOKENS], half from each source."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        halves = [
            rows[torch.randint(len(rows), (ROWS_PER_STEP // 2,), generator=generator)]
            for rows in sources
        ]
        yield torch.cat(halves)


def train(
    head: Eagle3Head,
    target: Qwen3MoeForCausalLM,
    data: Iterator[Tensor],
    args: argparse.Namespace,
) -> None:
    """Train for ``args.minutes``."""
    optimizer = torch.optim.AdamW(
        head.parameters(), lr=args.peak_lr, betas=(0.9, 0.95), weight_decay=0.01, fused=True
    )
    clock, number, average = SharedClock(), 0, None
    while (seconds := clock.elapsed()) < 60 * args.minutes:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(number, seconds / (60 * args.minutes), args.peak_lr)
        loss = head_loss(head, make_lesson(target, head, own_part(next(data))), args.unroll)
        loss.backward()
        average_gradients(head)
        torch.nn.utils.clip_grad_norm_(head.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average = loss.item() if average is None else 0.95 * average + 0.05 * loss.item()
        number += 1
        if number % LOG_EVERY_STEPS == 0 and is_first():
            print(f"{seconds:5.0f} s  step {number}  loss {average:.4f}", flush=True)


def report(head: Eagle3Head, target: Qwen3MoeForCausalLM, rows: Tensor, num_steps: int) -> None:
    """Print the agreement with the target on held-out rows."""
    lesson = make_lesson(target, head, rows)
    for top_k in (1, 4):
        shares = agreement(head, lesson, num_steps, top_k)
        print(f"held-out top-{top_k} " + " ".join(f"{share:.3f}" for share in shares), flush=True)


def new_head(target: Qwen3MoeForCausalLM, rows: Tensor, draft_vocab_size: int) -> Eagle3Head:
    """Make a head with random layer weights and the most frequent tokens of rows to draft from."""
    vocab_size = target.config.vocab_size
    head = Eagle3Head(HeadConfig(vocab_size, draft_vocab_size))
    head.set_draft_vocabulary(draft_vocabulary(rows, vocab_size, draft_vocab_size), target)
    return head


def work(args: argparse.Namespace) -> None:
    """One worker: prepare target, head and data, the same in all workers, and train."""
    register_sorted_experts()
    tokenizer = Tokenizer.from_file(str(args.target / "tokenizer.json"))
    target = Qwen3MoeForCausalLM.from_pretrained(args.target, dtype=torch.float32).eval()
    target.set_experts_implementation(SORTED_EXPERTS)
    corpus, rng = load_corpus(args.corpus), random.Random(args.seed)
    text_rows = cut_rows(encode_stream(training_units(corpus.train, GSM8K_REPEATS, rng), tokenizer))
    generated_rows = torch.cat([cut_rows(np.load(file).reshape(-1)) for file in args.generated])
    rows = torch.cat([text_rows, generated_rows])
    head = load_head(args.init) if args.init else new_head(target, rows, args.draft_vocab)
    if is_first():
        print(
            f"draft vocabulary covers {head.t2d[rows].float().mean():.4f} of the text", flush=True
        )
    train(head, target, batches((text_rows, generated_rows), args.seed), args)
    if is_first():
        tune_rows = cut_rows(encode_stream(training_units(corpus.tune, 1, rng), tokenizer))
        report(head, target, tune_rows[:: len(tune_rows) // NUM_TUNE_ROWS], args.unroll)
        save_head(head, args.out)


def main() -> None:
    """Parse the arguments and start the workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--target", type=Path, required=True, help="folder of the exported target")
    parser.add_argument(
        "--generated", type=Path, nargs="+", required=True, help="files written by selfgen.py"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the head")
    parser.add_argument("--init", type=Path, help="folder of a head to start from")
    parser.add_argument("--minutes", type=float, default=14.0)
    parser.add_argument("--peak-lr", type=float, default=2e-3)
    parser.add_argument("--draft-vocab", type=int, default=1536)
    parser.add_argument("--unroll", type=int, default=5, help="unrolled steps")
    add_worker_arguments(parser)
    run_workers(work, parser.parse_args())


if __name__ == "__main__":
    main()
