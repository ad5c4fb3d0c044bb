"""What every backend and its drafter keep: the target's own text, whatever is drafted or cached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from specfit.core.backend import Backend, Request, Verification
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop, DecodeResult, walk
from specfit.core.noise import Sampling
from specfit.core.policy import Policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree, frontier
from specfit.testing._fixed_policies import FirstNodes, Plain
from specfit.testing.contract import Contract, check, require
from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile
from specfit.testing.random_policy import RandomPolicy

PLAN = DraftPlan(3, 3, 1024)


class BackendContract(Contract):
    """B1 to B8, B10 and D1 to D7. ``make(cache)`` returns a backend with the given expert cache.

    B9, agreement of devices, needs two of them. D2, D5 and D6 show through B4 and D7 only: a
    drafter that lost count of the text drafts something else after it. A backend without a drafter
    passes the D rules with empty levels.
    """

    prompts: ClassVar[tuple[tuple[int, ...], ...]] = ((3, 1, 4, 1, 5), (2, 7, 1, 8, 2, 8, 1, 8, 2))
    num_tokens: ClassVar[int] = 14
    tolerance: ClassVar[float] = 1e-4
    """How far rounding at another width may carry a probability or a margin."""

    @staticmethod
    def make(cache: str = "lru:50%") -> Any:
        """Return a fresh backend."""
        raise NotImplementedError("set make = staticmethod(lambda cache='lru:50%': ...)")

    def test_b1_greedy_text_is_the_targets(self) -> None:
        """Whatever is drafted and selected, the tokens are those of plain decoding."""
        self._require_plain_text("B1", Sampling())

    def test_b2_sampled_text_has_the_targets_law(self) -> None:
        """With equal keyed noise the tokens are those of plain sampling; keys give other texts."""
        texts = {self._require_plain_text("B2", Sampling(1.0, noise_key=k)) for k in range(4)}
        require(len(texts) > 1, "B2", "four noise keys gave one text")

    def test_b3_a_node_sees_its_path_alone(self) -> None:
        """The target's answer at a node is that of verifying only the path to it."""
        backend, tree = self._drafted()
        whole = backend.verify(tree, Selection(tree, np.ones(len(tree), bool)))
        for node in range(len(tree)):
            path = tree.path(node)
            alone = backend.verify(tree, Selection.from_nodes(tree, path))
            self._require_same_answers("B3", f"node {node}", _at(whole, path), alone)

    def test_b4_the_context_is_what_was_committed(self) -> None:
        """After scattered nodes are accepted, the next pass equals that of a fresh run."""
        for prompt in self.prompts:
            plain = self._run(Plain(), Request(prompt, 6)).tokens
            backend: Backend = self.make()
            backend.start(Request(prompt, 20))
            tree = _scattered(plain, backend.geometry.vocab_size)
            answer = backend.verify(tree, Selection(tree, np.ones(len(tree), bool)))
            accepted, emitted = walk(tree, answer)
            require(accepted == (3, 7), "B4", f"nodes 3 and 7 carry the text; accepted {accepted}")
            backend.commit(tree, accepted, emitted)
            context = (*prompt, plain[0], *emitted)
            fresh: Backend = self.make()
            root = fresh.start(Request(context[:-1], 20)).first_token
            require(root == context[-1], "B4", f"next root {context[-1]}, of a fresh run {root}")
            ours, theirs = (_verify_root(b, root) for b in (backend, fresh))
            self._require_same_answers("B4", "the pass after a commit", ours, theirs)

    def test_b5_activated_experts_are_reported(self) -> None:
        """Routing holds K different experts a layer; hits and misses sum to their union."""
        backend, tree = self._drafted()
        g = backend.geometry
        routing = (answer := _verify_all(backend, tree)).routing
        shape = (len(tree), g.num_layers, g.experts_per_token)
        require(routing.shape == shape, "B5", f"routing {routing.shape}, not {shape}")
        inside = (routing >= 0).all() and (routing < g.num_experts).all()
        require(inside, "B5", f"expert ids from {routing.min()} to {routing.max()}")
        distinct = (np.diff(np.sort(routing, axis=2), axis=2) > 0).all()
        require(distinct, "B5", "a node is routed to one expert twice")
        unions = [len(np.unique(routing[:, layer])) for layer in range(g.num_layers)]
        counted = (answer.num_hits + answer.num_misses).tolist()
        require(counted == unions, "B5", f"hits and misses {counted}, but unions {unions}")

    def test_b6_residency_is_what_was_copied(self) -> None:
        """Hits were resident; misses come in, evictions leave; the times are times."""
        backend, tree = self._drafted()
        before = backend.residency().mask
        answer = _verify_all(backend, tree)
        resident = [
            int(before[layer, np.unique(answer.routing[:, layer])].sum())
            for layer in range(len(before))
        ]
        hits = answer.num_hits.tolist()
        require(hits == resident, "B6", f"hits {hits}, but {resident} were resident")
        grown = (backend.residency().mask.sum(axis=1) - before.sum(axis=1)).tolist()
        copied = (answer.num_misses - answer.num_evictions).tolist()
        require(grown == copied, "B6", f"residency grew by {grown}; copied less left {copied}")
        times = (answer.stall_s, answer.compute_s)
        require(min(times) >= 0, "B6", f"stall and compute {times} s")

    def test_b7_offloading_is_invisible(self) -> None:
        """At the smallest legal cache, without one, and with all resident: equal to the bit."""
        smallest = self.make().geometry.experts_per_token
        runs = {
            cache: self._run(FirstNodes(PLAN), Request(self.prompts[0], self.num_tokens), cache)
            for cache in ("lru:100%", f"lru:{smallest}", "none")
        }
        first, *others = runs.values()
        for other in others:
            require(other.tokens == first.tokens, "B7", "another cache, another text")
            for one, two in zip(first.cycles, other.cycles, strict=True):
                a, b = one.outcome.verification, two.outcome.verification
                for name in ("target_probs", "margins", "routing"):
                    same = np.array_equal(getattr(a, name), getattr(b, name))
                    require(same, "B7", f"{name} differ with another cache")

    def test_b8_closing_is_harmless(self) -> None:
        """Leaving the context manager frees; closing again does nothing."""
        with self.make() as backend:
            backend.start(Request(self.prompts[0], 4))
        backend.close()
        backend.close()

    def test_b10_start_begins_anew(self) -> None:
        """After a cycle that was never committed, a request runs as on a fresh backend."""
        request = Request(self.prompts[0], self.num_tokens)
        backend, tree = self._drafted(self.prompts[1])
        _verify_all(backend, tree)
        again = _loop(backend, FirstNodes(PLAN)).run(request)
        fresh = self._run(FirstNodes(PLAN), request)
        require(again.tokens == fresh.tokens, "B10", f"{again.tokens}, fresh {fresh.tokens}")
        counts = [
            [c.outcome.verification.num_misses.sum() for c in r.cycles] for r in (again, fresh)
        ]
        require(counts[0] == counts[1], "B10", "the misses differ from those of a fresh backend")

    def test_d1_the_drafter_obeys_the_plan(self) -> None:
        """Children of the plan's frontier only, at most top-k each, parents ascending."""
        for plan in (PLAN, DraftPlan(4, 1, 8), DraftPlan(2, 6, 64)):
            backend: Backend = self.make()
            tree = DraftTree.root(backend.start(Request(self.prompts[0], 20)).first_token)
            for _ in range(plan.depth):
                level = backend.draft_level(plan, tree)
                expanded = frontier(tree, plan.top_k).tolist()
                got = level.parents.tolist()
                require(got == sorted(got), "D1", f"parents {got} are not ascending")
                strangers = set(got) - set(expanded)
                require(not strangers, "D1", f"children of {strangers}; frontier {expanded}")
                most = max((got.count(parent) for parent in got), default=0)
                require(most <= plan.top_k, "D1", f"{most} children of a node, top-k {plan.top_k}")
                tree = tree.grow(level)

    def test_d3_siblings_exclude_each_other(self) -> None:
        """Tokens of siblings differ, their probabilities sum to at most 1 and fall with rank."""
        backend, tree = self._drafted()
        for node in range(len(tree)):
            children = tree.children(node)
            tokens = tree.tokens[children].tolist()
            require(len(set(tokens)) == len(tokens), "D3", f"children of {node}: tokens {tokens}")
            known = all(0 <= token < backend.geometry.vocab_size for token in tokens)
            require(known, "D3", f"children of {node}: tokens {tokens}")
            total = float(tree.cond_probs[children].sum())
            require(total <= 1 + 1e-5, "D3", f"children of {node} have probability {total}")
            ranks = tree.ranks[children]
            require(sorted(ranks.tolist()) == list(range(len(ranks))), "D3", f"ranks {ranks}")
            by_rank = tree.log_probs[children][np.argsort(ranks)]
            require((np.diff(by_rank) <= 0).all(), "D3", f"log probabilities by rank {by_rank}")
        require((tree.entropies >= 0).all(), "D3", f"entropies {tree.entropies}")

    def test_d4_equal_requests_equal_trees(self) -> None:
        """A fresh drafter draws the same tree."""
        (_, one), (_, other) = self._drafted(), self._drafted()
        same = np.array_equal(one.tokens, other.tokens)
        require(same, "D4", f"tokens {one.tokens}, of a fresh drafter {other.tokens}")
        require(np.array_equal(one.log_probs, other.log_probs), "D4", "other probabilities")

    def test_d7_the_way_to_a_context_does_not_matter(self) -> None:
        """After plain steps, and after accepted drafts, the drafter draws the same tree."""
        prompt = self.prompts[0]
        plain = self._run(Plain(), Request(prompt, 6)).tokens
        tree = _scattered(plain, self.make().geometry.vocab_size)
        drafted: Backend = self.make()
        drafted.start(Request(prompt, 20))
        accepted, emitted = walk(tree, _verify_all(drafted, tree))
        drafted.commit(tree, accepted, emitted)
        stepped: Backend = self.make()
        token = stepped.start(Request(prompt, 20)).first_token
        for _ in emitted:
            root = DraftTree.root(token)
            token = int(_verify_root(stepped, token).target_tokens[0])
            stepped.commit(root, (), (token,))
        one, other = (_draft(backend, token) for backend in (drafted, stepped))
        same = np.array_equal(one.tokens, other.tokens)
        require(same, "D7", f"after drafts {one.tokens}, after plain steps {other.tokens}")
        close = np.allclose(one.cond_probs, other.cond_probs, atol=self.tolerance)
        require(close, "D7", "after drafts and after plain steps the probabilities differ")

    def _drafted(self, prompt: tuple[int, ...] | None = None) -> tuple[Backend, DraftTree]:
        """Return a started backend and a tree: drafted, and wide without a drafter too."""
        backend: Backend = self.make()
        root = backend.start(Request(prompt or self.prompts[0], 20)).first_token
        tree = _draft(backend, root)
        return backend, tree if len(tree) > 1 else _scattered((root, 1, 2), 4)

    def _run(self, policy: Policy, request: Request, cache: str = "lru:50%") -> DecodeResult:
        return _loop(self.make(cache), policy).run(request)

    def _require_plain_text(self, rule: str, sampling: Sampling) -> tuple[int, ...]:
        for prompt in self.prompts:
            request = Request(prompt, self.num_tokens, sampling=sampling)
            backend = self.make()
            plain = _loop(backend, Plain()).run(request).tokens
            for key in range(3):
                tokens = _loop(backend, RandomPolicy(), policy_key=key).run(request).tokens
                require(tokens == plain, rule, f"{tokens}, but plain decoding gives {plain}")
        return plain

    def _require_same_answers(
        self, rule: str, where: str, ours: Verification, theirs: Verification
    ) -> None:
        same = np.array_equal(ours.target_tokens, theirs.target_tokens)
        require(same, rule, f"{where}: {ours.target_tokens}, alone {theirs.target_tokens}")
        experts = np.array_equal(np.sort(ours.routing), np.sort(theirs.routing))
        require(experts, rule, f"{where}: other experts")
        for name in ("target_probs", "margins"):
            one, two = getattr(ours, name), getattr(theirs, name)
            close = np.allclose(one, two, rtol=self.tolerance, atol=self.tolerance)
            require(close, rule, f"{where}: {name} {one}, alone {two}")


def check_backend(make: Callable[..., Backend]) -> list[str]:
    """Check a backend against its contract; ``make(cache)`` as in `BackendContract`."""
    return check(BackendContract, make)


def _loop(backend: Backend, policy: Policy, policy_key: int = 0) -> DecodeLoop:
    return DecodeLoop(
        backend,
        policy,
        ProfileCost(example_profile()),
        UniformPredictor(backend.geometry),
        DrafterAcceptance(),
        policy_key=policy_key,
    )


def _draft(backend: Backend, root: int) -> DraftTree:
    tree = DraftTree.root(root)
    for _ in range(PLAN.depth):
        tree = tree.grow(backend.draft_level(PLAN, tree))
    return tree


def _scattered(text: tuple[int, ...], vocab_size: int) -> DraftTree:
    """Return a tree in which nodes 0, 3 and 7 carry the text; the others carry other tokens."""
    parents = np.array([-1, 0, 0, 0, 1, 1, 2, 3, 3], np.int32)
    depths = np.array([0, 1, 1, 1, 2, 2, 2, 2, 2])
    shifts = np.array([0, 1, 2, 0, 1, 2, 3, 0, 1])
    tokens = (np.array(text)[depths] + shifts) % vocab_size
    probs = np.where(parents < 0, 1.0, 0.3)
    return DraftTree.from_arrays(parents, probs, tokens)


def _verify_all(backend: Backend, tree: DraftTree) -> Verification:
    return backend.verify(tree, Selection(tree, np.ones(len(tree), bool)))


def _verify_root(backend: Backend, root: int) -> Verification:
    tree = DraftTree.root(root)
    return backend.verify(tree, Selection.root_only(tree))


def _at(answer: Verification, nodes: tuple[int, ...]) -> Verification:
    """Return the answers at some nodes; the counts stay those of the whole pass."""
    rows = np.searchsorted(answer.nodes, nodes)
    return Verification(
        nodes=answer.nodes[rows],
        target_tokens=answer.target_tokens[rows],
        target_probs=answer.target_probs[rows],
        margins=answer.margins[rows],
        routing=answer.routing[rows],
        num_hits=answer.num_hits,
        num_misses=answer.num_misses,
        num_evictions=answer.num_evictions,
        stall_s=answer.stall_s,
        compute_s=answer.compute_s,
    )
