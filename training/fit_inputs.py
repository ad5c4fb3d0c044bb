"""Fits the two inputs of selection for a target and its head: expert table, acceptance curves.

The training split gives the table's counts: corpus text, and what the target writes after prompts,
greedy and at two temperatures. What it writes after prompts of the tuning split calibrates the
table and gives the acceptance curves. Corpus text does not: it goes on to experts that the text has
not needed yet more often than what the target writes itself. Looping text is easy to draft and to
route, so inputs fitted on it would promise too much: it only tells what repetition is worth to
acceptance. Prompts that results are reported on are in neither split.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer
from torch import Tensor
from transformers import DynamicCache, Qwen3MoeForCausalLM

from corpus import Split, load_corpus
from experts import SORTED_EXPERTS, register_sorted_experts
from head_model import load_head
from observe import MAX_DEPTH, Text, Watcher, acceptance_sample, routing_sample, text_nodes
from selfgen import BOOK_SHARE, prompt_source, sample
from specfit.core.experts import ModelGeometry
from specfit.policies.acceptance.acceptance_curves import CURVES_FILE
from specfit.policies.fingerprint import fingerprint
from specfit.policies.fitting.acceptance_curves import fit_acceptance_curves
from specfit.policies.fitting.expert_table import fit_expert_table
from specfit.policies.fitting.routing_sample import RoutingSample
from specfit.policies.predictors.expert_table import TABLE_FILE

TEMPERATURES = (0.0, 0.7, 1.0)
ROW_TOKENS = 256
BOOK_CHARACTERS = 1500
BOOK_PROMPT_TOKENS = 64
PROMPT_TOKENS = 128
NEW_TOKENS = 64
ROWS_PER_BATCH = 96


@torch.inference_mode()
def write_texts(
    target: Qwen3MoeForCausalLM, prompts: list[list[int]], temperature: float, seed: int
) -> list[Text]:
    """Let the target continue each prompt by ``NEW_TOKENS`` or to the end of its text."""
    generator = torch.Generator().manual_seed(seed)
    temperatures = torch.full((len(prompts),), temperature)
    cache = DynamicCache(config=target.config)
    written = torch.tensor([prompt[:1] for prompt in prompts])
    for place in range(1, max(map(len, prompts)) + NEW_TOKENS):
        output = target(input_ids=written[:, -1:], past_key_values=cache, use_cache=True)
        tokens = sample(output.logits[:, -1], temperatures, generator)
        for row, prompt in enumerate(prompts):
            if place < len(prompt):
                tokens[row] = prompt[place]
        written = torch.cat([written, tokens[:, None]], dim=1)
    eos = target.config.eos_token_id
    return [
        Text(_until(row[: len(prompt) + NEW_TOKENS], eos, len(prompt)), len(prompt))
        for row, prompt in zip(written, prompts, strict=True)
    ]


def _until(row: Tensor, stop_id: int, first: int) -> Tensor:
    """Cut a row after the first ``stop_id`` at or after ``first``."""
    stops = (row[first:] == stop_id).nonzero()
    return row[: first + int(stops[0, 0]) + 1] if len(stops) else row


def generated_texts(
    target: Qwen3MoeForCausalLM, tokenizer: Tokenizer, split: Split, num_rows: int, seed: int
) -> Iterator[tuple[float, list[Text]]]:
    """Texts of every temperature after the same ``num_rows`` prompts."""
    draw = prompt_source(split, tokenizer, random.Random(seed), BOOK_PROMPT_TOKENS)
    drawn = (draw()[:PROMPT_TOKENS] for _ in count())
    prompts = list(islice(filter(None, drawn), num_rows))
    for temperature in TEMPERATURES:
        texts = []
        for start in range(0, num_rows, ROWS_PER_BATCH):
            batch = prompts[start : start + ROWS_PER_BATCH]
            texts += write_texts(target, batch, temperature, seed + start)
        yield temperature, texts


def corpus_texts(tokenizer: Tokenizer, split: Split, num_rows: int, seed: int) -> list[Text]:
    """Cuts of the split's documents, books and questions alike; all tokens count as written.

    A cut never runs on into another document, which would bring in experts of another subject.
    """
    rng = random.Random(seed)
    texts: list[Text] = []
    while len(texts) < num_rows:
        document = rng.choice(split.questions)
        if rng.random() < BOOK_SHARE:
            book = rng.choice(split.books).text
            document = book[book.find(" ", rng.randrange(len(book))) + 1 :][:BOOK_CHARACTERS]
        tokens = tokenizer.encode(document).ids[:ROW_TOKENS]
        if len(tokens) > MAX_DEPTH:
            texts.append(Text(torch.tensor(tokens), 0))
    return texts


class Collection:
    """Samples of one split, gathered text by text."""

    def __init__(self, watcher: Watcher):
        self.watcher = watcher
        self.streams: list[np.ndarray] = []
        self.nodes: list = []

    def add(self, texts: list[Text]) -> None:
        """Run the texts that do not loop."""
        for text in texts:
            if not text.loops:
                drafts, routing, cache = self.watcher.drafts(text)
                self.streams.append(routing)
                self.nodes.append(text_nodes(self.watcher, text, drafts, routing, cache))

    def routing(self) -> RoutingSample:
        """All nodes so far."""
        return routing_sample(self.streams, self.nodes)


def geometry_of(target: Qwen3MoeForCausalLM) -> ModelGeometry:
    """Shape constants of the target, experts in bfloat16."""
    c = target.config
    return ModelGeometry(
        num_layers=c.num_hidden_layers,
        num_experts=c.num_experts,
        experts_per_token=c.num_experts_per_tok,
        expert_bytes=3 * c.hidden_size * c.moe_intermediate_size * 2,
        vocab_size=c.vocab_size,
    )


def main() -> None:
    """Parse the arguments, collect, fit, save both files or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--target", type=Path, required=True, help="folder of the model")
    parser.add_argument("--out", type=Path, help="folder to write to; default: the model's")
    parser.add_argument("--train-rows", type=int, default=448, help="texts of a kind")
    parser.add_argument("--tune-rows", type=int, default=448, help="texts of a kind")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=("predictor", "acceptance"), help="default: both")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    register_sorted_experts()
    tokenizer = Tokenizer.from_file(str(args.target / "tokenizer.json"))
    target = Qwen3MoeForCausalLM.from_pretrained(args.target, dtype=torch.float32).eval()
    target.set_experts_implementation(SORTED_EXPERTS)
    head_dir = args.target / "eagle3"
    watcher = Watcher(target, load_head(head_dir), np.random.default_rng(args.seed))
    corpus, started = load_corpus(args.corpus), time.monotonic()

    about = {
        "program": "training/fit_inputs.py",
        "tune_rows": args.tune_rows,
        "seed": args.seed,
        "versions": f"torch {torch.__version__}, transformers {transformers.__version__}",
    }
    out = args.out or args.target
    tune = dict(generated_texts(target, tokenizer, corpus.tune, args.tune_rows, args.seed + 1))
    if args.only != "predictor":
        samples = {
            temperature: acceptance_sample(texts, (watcher.drafts(text)[0] for text in texts))
            for temperature, texts in tune.items()
        }
        curves = fit_acceptance_curves(samples, fingerprint(args.target, head_dir))
        provenance = about | {
            "num_drafted": {str(t): len(s.accepted) for t, s in samples.items()},
            "num_looping": {str(t): int(s.looping.sum()) for t, s in samples.items()},
            "texts": f"the target's own ({NEW_TOKENS} tokens after a prompt)",
        }
        curves.save(CURVES_FILE, out / "acceptance", provenance)
        print(f"{time.monotonic() - started:5.0f} s  acceptance {provenance['num_drafted']} nodes")
    if args.only != "acceptance":
        learnt = Collection(watcher)
        learnt.add(corpus_texts(tokenizer, corpus.train, args.train_rows, args.seed))
        drawn = generated_texts(target, tokenizer, corpus.train, args.train_rows, args.seed)
        for _, texts in drawn:
            learnt.add(texts)
        follow: dict[float, RoutingSample] = {}
        for temperature, texts in tune.items():
            collection = Collection(watcher)
            collection.add(texts)
            follow[temperature] = collection.routing()
        train = learnt.routing()
        table = fit_expert_table(train, follow, geometry_of(target), fingerprint(args.target))
        provenance = about | {
            "train_rows": args.train_rows,
            "num_train_nodes": len(train.tokens),
            "num_tune_nodes": {str(t): len(s.tokens) for t, s in follow.items()},
            "texts": f"the target's own ({NEW_TOKENS} tokens after a prompt, looping ones left "
            "out), and corpus text to train on",
        }
        table.save(TABLE_FILE, out / "predictor", provenance)
        print(f"{time.monotonic() - started:5.0f} s  experts {provenance['num_tune_nodes']} nodes")
    print(f"written to {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
