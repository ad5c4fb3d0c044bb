"""A plain EAGLE-3 tree decoder without a target cache: slow, short, independent of the package.

A tree has N nodes; node 0 is the root, the last committed token. Parents precede children.
Call under ``torch.inference_mode()``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import Qwen3MoeForCausalLM

from head_model import Eagle3Head, target_features


@dataclass(frozen=True)
class DraftPlan:
    """Shape of the dynamic tree: levels, children a node, nodes in all (root included)."""

    depth: int = 5
    top_k: int = 4
    num_nodes: int = 30


@dataclass(frozen=True)
class Node:
    """A draft token: its parent's index in the list, depth, and log path probability."""

    token: int
    parent: int
    depth: int
    score: float


@dataclass(frozen=True)
class Cycle:
    """One verification: committed tokens, and context and features (of all but the root) after."""

    committed: list[int]
    context: Tensor  # [T]
    features: Tensor  # [T - 1, F]


def ancestor_mask(nodes: list[Node]) -> Tensor:
    """Mark in row v the node v and its ancestors, bool [N, N]."""
    mask = torch.eye(len(nodes), dtype=torch.bool)
    for index, node in enumerate(nodes[1:], start=1):
        mask[index] |= mask[node.parent]
    return mask


class TreeDrafter:
    """Grows one draft tree level by level after a context [T] with features [T - 1, F]."""

    def __init__(
        self, head: Eagle3Head, embedding: nn.Embedding, context: Tensor, features: Tensor
    ):
        self.head = head
        self.embedding = embedding
        self.num_pairs = len(context) - 1
        self.nodes = [Node(int(context[-1]), -1, 0, 0.0)]
        self.fed: list[int] = []  # nodes with a row in the head, in order
        hidden, self.rows = head.midlayer(
            embedding(context[None, 1:]),
            head.fc(features)[None],
            torch.arange(self.num_pairs),
            torch.ones(self.num_pairs, self.num_pairs, dtype=torch.bool).tril(),
            None,
        )
        self.hidden = {0: hidden[0, -1]}

    def expand(self, frontier: list[int], top_k: int) -> list[int]:
        """Give every node of the frontier ``top_k`` children; returns the new nodes."""
        first = len(self.nodes)
        hidden = torch.stack([self.hidden[index] for index in frontier])
        best = self.head.logits(hidden).log_softmax(dim=-1).topk(top_k, dim=-1)
        target_ids = self.head.draft_target_ids()[best.indices]
        for place, parent in enumerate(frontier):
            above = self.nodes[parent]
            for log_prob, token in zip(best.values[place], target_ids[place], strict=True):
                score = above.score + log_prob.item()
                self.nodes.append(Node(int(token), parent, above.depth + 1, score))
        return list(range(first, len(self.nodes)))

    def feed(self, frontier: list[int]) -> None:
        """Run the head on nodes of one depth, each reading the hidden state of its parent."""
        nodes = [self.nodes[index] for index in frontier]
        self.fed += frontier
        lineage = ancestor_mask(self.nodes)[frontier][:, self.fed]
        mask = torch.cat([torch.ones(len(nodes), self.num_pairs, dtype=torch.bool), lineage], dim=1)
        hidden, self.rows = self.head.midlayer(
            self.embedding(torch.tensor([[node.token for node in nodes]])),
            torch.stack([self.hidden[node.parent] for node in nodes])[None],
            torch.full((len(nodes),), self.num_pairs - 1 + nodes[0].depth),
            mask,
            self.rows,
        )
        self.hidden |= dict(zip(frontier, hidden[0], strict=True))

    def best(self, indices: list[int], count: int) -> list[int]:
        """Choose the ``count`` nodes of highest score; ties go to the lower depth, then index."""
        rank = {i: (-self.nodes[i].score, self.nodes[i].depth, i) for i in indices}
        return sorted(indices, key=rank.__getitem__)[:count]


def draft_tree(drafter: TreeDrafter, plan: DraftPlan) -> list[Node]:
    """Draft the EAGLE-2 tree: expand the best nodes of each level, keep the best of all."""
    frontier = [0]
    for depth in range(1, plan.depth + 1):
        children = drafter.expand(frontier, plan.top_k)
        if depth < plan.depth:
            frontier = drafter.best(children, plan.top_k)
            drafter.feed(frontier)
    pool = list(range(1, len(drafter.nodes)))
    kept = [0, *sorted(drafter.best(pool, plan.num_nodes - 1))]
    place = {index: new for new, index in enumerate(kept)} | {-1: -1}
    nodes = [drafter.nodes[index] for index in kept]
    return [Node(n.token, place[n.parent], n.depth, n.score) for n in nodes]


def run_target(
    target: Qwen3MoeForCausalLM, aux_layer_ids: tuple[int, ...], prefix: Tensor, nodes: list[Node]
) -> tuple[Tensor, Tensor]:
    """Features and logits of a prefix [T] followed by tree nodes, each [T + N, ...]."""
    num_prefix, num_rows = len(prefix), len(prefix) + len(nodes)
    mask = torch.ones(num_rows, num_rows, dtype=torch.bool).tril()
    mask[num_prefix:, num_prefix:] = ancestor_mask(nodes)
    depths = torch.tensor([node.depth for node in nodes], dtype=torch.int64)
    features, logits = target_features(
        target,
        aux_layer_ids,
        input_ids=torch.cat([prefix, torch.tensor([node.token for node in nodes])])[None],
        position_ids=torch.cat([torch.arange(num_prefix), num_prefix + depths])[None],
        attention_mask=mask[None, None],
    )
    return features[0], logits[0]


def draw(logits: Tensor, temperature: float, generator: torch.Generator) -> int:
    """One token of the target's law at a temperature; 0 takes the best one."""
    if temperature == 0:
        return int(logits.argmax())
    probs = (logits / temperature).softmax(dim=-1)
    return int(probs.multinomial(1, generator=generator))


def verify(
    target: Qwen3MoeForCausalLM,
    aux_layer_ids: tuple[int, ...],
    context: Tensor,
    nodes: list[Node],
    temperature: float,
    generator: torch.Generator,
) -> Cycle:
    """Sample and match: draw the target's token at each node and follow the child that has it."""
    prefix = context[:-1]
    features, logits = run_target(target, aux_layer_ids, prefix, nodes)
    children = {(node.parent, node.token): index for index, node in enumerate(nodes)}
    path, committed = [0], []
    while True:
        committed.append(draw(logits[len(prefix) + path[-1]], temperature, generator))
        child = children.get((path[-1], committed[-1]))
        if child is None:
            break
        path.append(child)
    kept = torch.cat([torch.arange(len(prefix)), len(prefix) + torch.tensor(path)])
    return Cycle(committed, torch.cat([context, torch.tensor(committed)]), features[kept])


def decode(
    target: Qwen3MoeForCausalLM,
    head: Eagle3Head,
    prompt: Tensor,
    plan: DraftPlan,
    temperature: float,
    max_new_tokens: int,
    seed: int,
) -> Iterator[list[int]]:
    """Yield the committed tokens of each cycle, up to ``max_new_tokens`` or the end of text."""
    generator = torch.Generator().manual_seed(seed)
    aux, eos = head.config.aux_layer_ids, target.config.eos_token_id
    features, _ = target_features(target, aux, input_ids=prompt[None, :-1])
    cycle, num_new = Cycle([], prompt, features[0]), 0
    while num_new < max_new_tokens and eos not in cycle.committed:
        drafter = TreeDrafter(head, target.model.embed_tokens, cycle.context, cycle.features)
        nodes = draft_tree(drafter, plan)
        cycle = verify(target, aux, cycle.context, nodes, temperature, generator)
        num_new += len(cycle.committed)
        yield cut_at(cycle.committed, eos)


def cut_at(tokens: list[int], eos: int) -> list[int]:
    """Tokens up to the first end of text, included."""
    return tokens[: tokens.index(eos) + 1] if eos in tokens else tokens
