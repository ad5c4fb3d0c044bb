"""The live backend: a Qwen3-MoE target whose experts are offloaded, and an EAGLE-3 drafter."""

from __future__ import annotations

import time
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from specfit.backends.checkpoint import Checkpoint
from specfit.backends.device import Device, EmulatedLink
from specfit.backends.drafter import Drafter
from specfit.backends.eagle3 import Eagle3Drafter
from specfit.backends.eagle3_checkpoint import HeadCheckpoint
from specfit.backends.eagle3_compiled import make_head
from specfit.backends.held_text import HeldText
from specfit.backends.layouts import make_layout
from specfit.backends.packed import OnLayer, bring_experts
from specfit.backends.sampling import Draw, TargetSampler
from specfit.backends.target import Target, TargetPass
from specfit.backends.text_rules import TextRules
from specfit.backends.tiers import HostBank, close_tiers, host_cache, make_store
from specfit.core.backend import Backend, Prefill, Request, Verification
from specfit.core.cache import ExpertCache, make_cache
from specfit.core.cache.ahead import AheadOfPass
from specfit.core.errors import BackendError, CheckpointError, InvalidInputError
from specfit.core.experts import Residency
from specfit.core.selection import Selection
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree

PREFILL_TOKENS = 512
"""Prompt tokens of one pass."""


class TorchBackend(Backend):
    """Decodes with a real model.

    Every request starts with an empty expert cache, which its prompt fills. Made by
    `specfit.backends.load`.

    Parameters
    ----------
    checkpoint : Checkpoint
        The target's.
    drafter : HeadCheckpoint or Drafter, optional
        The draft head's, or what drafts in its place; without one, nothing is drafted.
    device : Device
        Where the target runs.
    cache_spec : str
        Expert cache, ``lru:25%``.
    dtype : torch.dtype
        Of every weight.
    max_context : int
        Most tokens of a text, prompt included.
    packed : Path, optional
        Folder of the packed experts.
    on_layer : callable, optional
        Told of each layer of experts that has been loaded.
    experts : str, optional
        How the experts are kept, ``int4:128``; by default as the checkpoint has them: as codes, or
        in `dtype`.
    host : str, optional
        Cache of experts in host memory, ``lru:50%``; the rest stays in the packed file. By default
        host memory holds all.

    Raises
    ------
    InvalidInputError
        There is no host memory between the device and the disk, or a rule cannot be used live.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        drafter: HeadCheckpoint | Drafter | None,
        device: Device,
        cache_spec: str,
        dtype: torch.dtype,
        max_context: int,
        packed: Path | None = None,
        on_layer: OnLayer | None = None,
        experts: str | None = None,
        host: str | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.device = device
        self.layout = make_layout(checkpoint, device.torch_device, dtype, experts)
        self.geometry = checkpoint.geometry(self.layout.expert_bytes(checkpoint.config))
        self.stop_ids = checkpoint.stop_ids
        self.max_context = min(max_context, checkpoint.config.max_position_embeddings)
        self.cache_spec = cache_spec
        cache = make_cache(cache_spec, self.geometry, live=True)
        self.host_spec = host
        in_host = None if host is None else host_cache(device, host, self.geometry)
        bank = bring_experts(
            checkpoint, device, self.layout, packed, on_layer, stays_on_disk=host is not None
        )
        self.host = None if in_host is None else HostBank(bank, device, in_host)
        weights = checkpoint.load_others(dtype)
        self._store = make_store(bank, device, cache, self.host)
        self._target = Target(checkpoint, weights, self._store, self.layout)
        self._drafter = self._make_drafter(drafter)
        self._held = HeldText()
        self._ahead = AheadOfPass(self.geometry)
        self._is_started = False
        self._verified: tuple[Verification, TargetPass] | None = None
        self._num_committed = 0

    @property
    def cache(self) -> ExpertCache:
        """The expert cache in force."""
        return self._store.cache

    @property
    def target(self) -> Target:
        """The target model; what runs on it spoils the text that is being decoded, or held."""
        self._held.forget()
        return self._target

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The target's tokenizer."""
        try:
            return AutoTokenizer.from_pretrained(self.checkpoint.folder)
        except Exception as error:  # a damaged file raises what the library met first
            raise CheckpointError(
                f"{self.checkpoint.folder} has no readable tokenizer: {error}"
            ) from error

    def set_cache(self, spec: str) -> None:
        """Use another expert cache from the next request on; the weights stay loaded."""
        cache = make_cache(spec, self.geometry, live=True)
        self._store = make_store(self._store.bank, self.device, cache, self.host)
        self._target.use_store(self._store)
        self.cache_spec = spec
        self._held.forget()
        self._is_started = False

    def warm_up(self) -> None:
        """Compile what the first cycle would otherwise pay for; any request is lost."""
        self._is_started = False
        self._held.forget()
        if self._drafter is not None:
            self._drafter.reset()
            self._drafter.warm_up()

    def set_link(self, link: EmulatedLink | None) -> None:
        """Emulate another link, or none, from now on."""
        self.device.link = link

    def check_request(self, request: Request) -> None:
        """Raise unless the prompt is of the vocabulary and the text fits the context.

        Called by `start` too.

        Raises
        ------
        InvalidInputError
            A token is outside the vocabulary, or prompt and new tokens are too many.
        """
        outside = [t for t in request.prompt if not 0 <= t < self.geometry.vocab_size]
        if outside:
            raise InvalidInputError(
                f"token ids of this model are 0 to {self.geometry.vocab_size - 1}; the prompt "
                f"holds {outside[0]}. Was it made with another tokenizer?"
            )
        needed = len(request.prompt) + request.max_new_tokens
        if needed > self.max_context:
            raise InvalidInputError(
                f"prompt and new tokens must fit in a context of {self.max_context}; got "
                f"{len(request.prompt)} + {request.max_new_tokens}. Shorten the prompt, ask for "
                f"fewer tokens, or load with a larger max_context."
            )

    @torch.inference_mode()
    def start(self, request: Request) -> Prefill:
        """See `Backend.start`. The prompt is run in chunks of `PREFILL_TOKENS`."""
        self.check_request(request)
        started = self.clock()
        num_kept = self._reset(request)
        chunks = [
            request.prompt[i : i + PREFILL_TOKENS]
            for i in range(num_kept, len(request.prompt), PREFILL_TOKENS)
        ]
        passes = [self._run_chunk(chunk) for chunk in chunks]
        logits = self._target.logits(passes[-1].hidden[-1:])
        if self._rules is not None:
            logits = self._rules.apply(logits, [()])
        first_token = int(self._draw(logits, np.array([len(request.prompt)])).tokens[0])
        self._note_pairs(
            torch.cat([p.features for p in passes]), [*request.prompt[num_kept + 1 :], first_token]
        )
        if self._drafter is not None:
            self._drafter.catch_up()
        self._num_committed = len(request.prompt) + 1
        self._extend_text((first_token,))
        self._is_started = True
        return Prefill(
            first_token=first_token,
            routing=self._held.routing(),
            chunks=tuple(len(chunk) for chunk in chunks),
            seconds=self.clock() - started,
            num_kept=num_kept,
        )

    def residency(self) -> Residency:
        """See `Backend.residency`."""
        on_device = self.cache.residency()
        if self.host is None:
            return on_device
        return Residency(on_device.mask, self.host.cache.residency().mask)

    def prefetch(self, wanted: NDArray[np.float32]) -> None:
        """See `Backend.prefetch`. What is fetched counts as resident at once."""
        self._check_started()
        self._store.bring_ahead(self._ahead.fetch(wanted, self.cache))

    def keep_states(self) -> int:
        """See `Backend.keep_states`."""
        return super().keep_states() if self._drafter is None else self._drafter.keep_states()

    @torch.inference_mode()
    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        """See `Backend.draft_level`. Without a head the level is empty."""
        self._check_started()
        if self._drafter is None:
            return _empty_level()
        return self._drafter.draft_level(plan, tree)

    @torch.inference_mode()
    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        """See `Backend.verify`. May be called again before `commit`: the last call counts."""
        self._check_started()
        started, stalled = self.clock(), self.device.counters.stall_s
        self._target.kv.truncate(self._num_committed - 1)
        nodes = selection.nodes
        depths = tree.depths[nodes]
        result = self._target.run_tree(
            tree.tokens[nodes], depths, tree.ancestor_mask[np.ix_(nodes, nodes)]
        )
        logits = self._target.logits(result.hidden)
        if self._rules is not None:
            logits = self._rules.apply(logits, _paths(tree, nodes))
        draw = self._draw(logits, self._num_committed + depths.astype(np.int64))
        counts = self._store.counts
        num_prefetched, num_wasted = self._ahead.take(result.routing)
        stall_s = self.device.counters.stall_s - stalled
        verification = Verification(
            nodes=nodes,
            target_tokens=draw.tokens,
            target_probs=draw.probs,
            margins=draw.margins,
            routing=result.routing,
            num_hits=counts.num_hits,
            num_misses=counts.num_misses,
            num_evictions=counts.num_evictions,
            stall_s=stall_s,
            compute_s=self.clock() - started - stall_s,
            num_prefetched=num_prefetched,
            num_wasted=num_wasted,
            num_reads=int(counts.num_reads.sum()),
        )
        self._verified = (verification, result)
        return verification

    @torch.inference_mode()
    def commit(
        self, tree: DraftTree, accepted: tuple[int, ...], committed: tuple[int, ...]
    ) -> None:
        """See `Backend.commit`."""
        if self._verified is None:
            raise BackendError("nothing has been verified since the last commit.")
        verification, result = self._verified
        offsets = np.searchsorted(verification.nodes, (0, *accepted))
        with self._held.changing():  # what is interrupted half-way is not held
            self._target.kv.keep(self._num_committed - 1, offsets)
        path = (int(tree.tokens[0]), *committed[:-1])
        self._held.extend(path, verification.routing[offsets])
        self._note_pairs(result.features[torch.from_numpy(offsets)], list(committed))
        self._num_committed += len(committed)
        self._extend_text(committed)
        self._verified = None

    def clock(self) -> float:
        """Return the seconds of the machine's monotonic clock."""
        return time.perf_counter()

    def describe(self) -> dict[str, Any]:
        """See `Backend.describe`."""
        return {
            "backend": "torch",
            "model": self.checkpoint.folder.name,
            "drafter": "none" if self._drafter is None else self._drafter.name,
            "device": self.device.name,
            "precision": self.layout.kept.dtype,
            "weight_format": f"one block an expert, gate | up | down, {self.layout.kept.name}",
            "tokenizer_hash": self.checkpoint.tokenizer_hash,
            "cache": self.cache_spec,
            "slots_per_layer": self.cache.capacity,
            "cache_bytes": self.cache.capacity
            * self.geometry.num_layers
            * self.geometry.expert_bytes,
            "host": self.host_spec,
            "link": {**self.device.describe_link(), **(self.host.describe() if self.host else {})},
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }

    def close(self) -> None:
        """See `Backend.close`."""
        close_tiers(self.device, self.host)
        self._is_started = False

    def _make_drafter(self, given: HeadCheckpoint | Drafter | None) -> Drafter | None:
        if isinstance(given, HeadCheckpoint):
            embedding = self._target.model.model.embed_tokens.weight
            given = Eagle3Drafter(make_head(given, embedding))
        if given is not None:
            self._target.capture(given.aux_layer_ids)
        return given

    def _run_chunk(self, tokens: tuple[int, ...]) -> TargetPass:
        result = self._target.run(tokens)
        self._held.extend(tokens, result.routing)
        return result

    def _reset(self, request: Request) -> int:
        """Forget what was decoded before; return the tokens of the prompt whose state is kept."""
        self._is_started = False  # until the prompt has been run
        self._verified = None
        self._num_committed = 0
        self._ahead = AheadOfPass(self.geometry)
        self._sampler = TargetSampler(request.sampling)
        has_rules = request.sampling.reads_text
        self._rules = TextRules(request, self.geometry.vocab_size) if has_rules else None
        num_kept = self._held.num_kept(request.prompt) if request.keeps_prefix else 0
        if num_kept and self._drafter is not None and not self._drafter.rewind(num_kept):
            num_kept = 0
        self._held.truncate(num_kept)
        self._target.kv.truncate(num_kept)
        if not num_kept:
            self._store.reset()
        if not num_kept and self._drafter is not None:
            self._drafter.reset()
            self._drafter.start(request.prompt[0])
        return num_kept

    def _draw(self, logits: torch.Tensor, positions: NDArray[np.int64]) -> Draw:
        try:
            return self._sampler.draw(logits, positions)
        except BackendError as error:
            raise BackendError(f"{error} {self._target.where_not_finite()}") from None

    def _note_pairs(self, features: torch.Tensor, next_tokens: list[int]) -> None:
        if self._drafter is not None:
            self._drafter.extend(features, next_tokens)

    def _extend_text(self, tokens: tuple[int, ...]) -> None:
        if self._rules is not None:
            self._rules.extend(tokens)

    def _check_started(self) -> None:
        if not self._is_started:
            raise BackendError("no request is being decoded. Call start first.")


def _paths(tree: DraftTree, nodes: NDArray[np.intp]) -> list[list[int]]:
    """Return the tokens of the path to each node, the root's left out."""
    return [tree.tokens[list(tree.path(node)[1:])].tolist() for node in nodes.tolist()]


def _empty_level() -> DraftLevel:
    empty: NDArray[Any] = np.zeros(0)
    return DraftLevel(
        parents=empty.astype(np.int32),
        tokens=empty.astype(np.int64),
        log_probs=empty.astype(np.float32),
        ranks=empty.astype(np.int32),
        entropies=empty.astype(np.float32),
    )
