"""Replays a trace under a policy, with a cache and a prefetcher, in simulated seconds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

from specfit.core.cache.base import ExpertCache
from specfit.core.cost import CostModel
from specfit.core.decode import DecodeLoop, DecodeResult, Observer
from specfit.core.errors import InvalidInputError
from specfit.core.passes import PassRunner
from specfit.core.policy import Policy
from specfit.core.predictor import AcceptanceModel, CoveragePredictor
from specfit.core.prefetch import Prefetcher
from specfit.core.profile import HardwareProfile
from specfit.sim.forced_backend import ForcedBackend
from specfit.sim.near_ties import NearTie
from specfit.sim.replay_backend import ReplayBackend
from specfit.sim.trace.reader import TraceReader

__all__ = [
    "NearTie",
    "ReplayBackend",
    "TracePrefetcher",
    "TraceReference",
    "connect_references",
    "replay",
]


class TraceReference(CoveragePredictor):
    """A predictor that looks at the trace it is replayed from: a reference, never for live use."""

    @abstractmethod
    def connect(self, backend: ReplayBackend) -> None:
        """Look at the trace behind this backend from now on."""


class TracePrefetcher(Prefetcher):
    """A prefetcher that looks at the trace it is replayed from: a reference, never for live use."""

    @abstractmethod
    def connect(self, backend: ReplayBackend) -> None:
        """Look at the trace behind this backend from now on."""


def connect_references(
    backend: ReplayBackend, predictor: CoveragePredictor, prefetcher: Prefetcher | None
) -> None:
    """Let those of them that look at the trace look at the one behind this backend."""
    if isinstance(predictor, TraceReference):
        predictor.connect(backend)
    if isinstance(prefetcher, TracePrefetcher):
        prefetcher.connect(backend)


def replay(
    trace: TraceReader,
    policy: Policy,
    cache: ExpertCache,
    profile: HardwareProfile,
    *,
    cost: CostModel,
    predictor: CoveragePredictor,
    acceptance: AcceptanceModel,
    policy_key: int = 0,
    observers: Sequence[Observer] = (),
    max_prompts: int | None = None,
    near_ties: list[NearTie] | None = None,
    prefetcher: Prefetcher | None = None,
    host: ExpertCache | None = None,
    passes: PassRunner | None = None,
) -> Iterator[DecodeResult]:
    """Yield what a policy would have done on each prompt of a trace, in simulated seconds.

    Parameters
    ----------
    cache : ExpertCache
        Allocated for the trace's geometry; it starts empty for each prompt.
    max_prompts : int, optional
        Stop after so many prompts.
    near_ties : list of NearTie, optional
        Gets the near ties that are met.
    prefetcher : Prefetcher, optional
        Chooses experts to copy ahead of each pass.
    host : ExpertCache, optional
        Which experts are in host memory; see `ReplayBackend`.
    passes : PassRunner, optional
        Runs every pass for real, over `cache`: seconds are measured then; see `ForcedBackend`.

    Raises
    ------
    InvalidInputError
        The profile hides what is copied ahead, and there is no prefetcher; or a host tier is given
        without a disk.
    """
    if profile.overlap == "pass" and prefetcher is None:
        raise InvalidInputError(
            "overlap 'pass' hides what is prefetched, and nothing is. Give a prefetcher, or "
            "overlap none, layer or resident."
        )
    if passes is None:
        backend = ReplayBackend(trace, cache, profile, host)
    else:
        backend = ForcedBackend(trace, passes, profile)
    if near_ties is not None:
        backend.near_ties = near_ties
    connect_references(backend, predictor, prefetcher)
    loop = DecodeLoop(
        backend, policy, cost, predictor, acceptance, observers, policy_key, prefetcher
    )
    for number, request in enumerate(backend.requests()):
        if max_prompts is not None and number >= max_prompts:
            return
        yield loop.run(request)
