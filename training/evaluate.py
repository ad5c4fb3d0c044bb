"""Evaluates specfit-tiny on text it never saw and prints the tables of its model card.

Losses, routing, and the mean acceptance length of a dynamic draft tree with sample-and-match
verification, beside the share of distinct 4-grams of what was written. Computes in float32.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import Qwen3MoeForCausalLM

from corpus import Split, load_corpus, read_test_documents
from experts import SORTED_EXPERTS, register_sorted_experts
from head import agreement, make_lesson
from head_model import Eagle3Head, load_head
from routing import RouterTap, balance_table, expert_loads, locality_lines, one_hot, route_blocks
from target import mean_loss, validation_blocks
from tree import DraftPlan, decode

TEMPERATURES = (0.0, 0.7, 1.0)
AGREEMENT_STEPS = 5


@dataclass
class Tally:
    """Counters of the decoding of some prompts; ratios are derived from them."""

    num_cycles: int = 0
    num_committed: int = 0
    num_experts: float = 0.0  # distinct experts a layer, summed over cycles
    distinct: list[float] = field(default_factory=list)

    def mean_acceptance_length(self) -> float:
        """Return committed tokens a cycle, the bonus token included."""
        return self.num_committed / self.num_cycles

    def mean_distinct(self) -> float:
        """Mean share of distinct 4-grams."""
        return sum(self.distinct) / len(self.distinct)


def distinct_share(tokens: list[int], size: int = 4) -> float:
    """Distinct n-grams over all n-grams; 1 for texts shorter than ``size``."""
    grams = [tuple(tokens[start : start + size]) for start in range(len(tokens) - size + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def decode_prompt(
    target: Qwen3MoeForCausalLM,
    head: Eagle3Head,
    prompt: Tensor,
    temperature: float,
    args: argparse.Namespace,
    tally: Tally,
) -> list[int]:
    """Decode one prompt, count it, return what was written."""
    plan, tap, written = DraftPlan(args.depth, args.top_k, args.nodes), RouterTap(target), []
    for committed in decode(target, head, prompt, plan, temperature, args.new_tokens, args.seed):
        nodes = tap.experts()[:, -plan.num_nodes :]  # [L, N, K]
        is_used = one_hot(nodes, target.config.num_experts).any(dim=1)
        tally.num_experts += is_used.sum(dim=1).float().mean().item()
        tally.num_cycles += 1
        tally.num_committed += len(committed)
        written += committed
    tap.close()
    tally.distinct.append(distinct_share(written))
    return written


def plain_greedy(target: Qwen3MoeForCausalLM, prompt: Tensor, num_tokens: int) -> list[int]:
    """Decode greedily with the target alone."""
    output = target.generate(
        input_ids=prompt[None],
        attention_mask=torch.ones_like(prompt)[None],
        do_sample=False,
        max_new_tokens=num_tokens,
    )
    return output[0, len(prompt) :].tolist()


@torch.inference_mode()
def acceptance_table(
    target: Qwen3MoeForCausalLM,
    head: Eagle3Head,
    tokenizer: Tokenizer,
    prompts: list[dict],
    args: argparse.Namespace,
) -> list[str]:
    """Markdown rows, one a temperature; under greedy decoding the text is compared with plain."""
    sources = list(dict.fromkeys(prompt["source"] for prompt in prompts))
    rows = [
        "| temperature | committed tokens a cycle | "
        + " | ".join(sources)
        + " | distinct 4-grams | experts a layer |",
        "|---" * (len(sources) + 4) + "|",
    ]
    num_equal = 0
    for temperature in TEMPERATURES:
        total, parts = Tally(), defaultdict(Tally)
        for prompt in prompts:
            ids = torch.tensor(tokenizer.encode(prompt["text"]).ids)
            written = decode_prompt(target, head, ids, temperature, args, parts[prompt["source"]])
            if temperature == 0:
                num_equal += written == plain_greedy(target, ids, len(written))
        for part in parts.values():
            total.num_cycles += part.num_cycles
            total.num_committed += part.num_committed
            total.num_experts += part.num_experts
            total.distinct += part.distinct
        cells = [f"{parts[source].mean_acceptance_length():.2f}" for source in sources]
        rows.append(
            f"| {temperature} | **{total.mean_acceptance_length():.2f}** | {' | '.join(cells)} "
            f"| {total.mean_distinct():.2f} | {total.num_experts / total.num_cycles:.1f} |"
        )
    rows += ["", f"Greedy text equal to plain greedy decoding: {num_equal} of {len(prompts)}."]
    return rows


def agreement_table(target: Qwen3MoeForCausalLM, head: Eagle3Head, blocks: Tensor) -> list[str]:
    """Markdown rows: agreement of the head with the target's best token at each unrolled step."""
    lesson = make_lesson(target, head, blocks)
    rows = ["| head | " + " | ".join(f"step {s + 1}" for s in range(AGREEMENT_STEPS)) + " |"]
    rows.append("|---" * (AGREEMENT_STEPS + 1) + "|")
    for top_k in (1, 4):
        shares = agreement(head, lesson, AGREEMENT_STEPS, top_k)
        rows.append(f"| top-{top_k} | " + " | ".join(f"{share:.2f}" for share in shares) + " |")
    return rows


def main() -> None:
    """Parse the arguments and print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--gsm8k-test", type=Path, required=True, help="GSM8K test, JSON lines")
    parser.add_argument("--model", type=Path, required=True, help="folder of the model and head")
    parser.add_argument("--prompts", type=Path, required=True, help="prompts, JSON lines")
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--top-k", type=int, default=4)
    parser.add_argument("--nodes", type=int, default=30, help="nodes of a tree, root included")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    register_sorted_experts()
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    target = Qwen3MoeForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    target.set_experts_implementation(SORTED_EXPERTS)
    head = load_head(args.model / "eagle3")
    prompts = [json.loads(line) for line in args.prompts.read_text().splitlines()]

    books = load_corpus(args.corpus).heldout.books
    unseen = Split(books, read_test_documents(args.gsm8k_test))
    blocks = validation_blocks(unseen, tokenizer)
    for domain, chosen in blocks.items():
        print(f"- Held-out loss, {domain}: {mean_loss(target, chosen):.3f} nats a token")
    every = torch.cat(list(blocks.values()))
    routed, num_experts = route_blocks(target, every), target.config.num_experts
    sections = [
        balance_table(expert_loads(routed, num_experts)),
        locality_lines(routed, num_experts),
        agreement_table(target, head, every),
        acceptance_table(target, head, tokenizer, prompts, args),
    ]
    for lines in sections:
        print("\n" + "\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
