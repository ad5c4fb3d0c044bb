"""Prefetchers, one a file, under one interface: which experts to copy before they are asked for."""

from specfit.core.prefetch.base import Prefetcher, PrefetchView, prefetchers
from specfit.core.prefetch.none import NoPrefetch
from specfit.core.prefetch.predicted import PredictedUnion
from specfit.core.prefetch.previous import PreviousToken

__all__ = [
    "NoPrefetch",
    "PredictedUnion",
    "PrefetchView",
    "Prefetcher",
    "PreviousToken",
    "prefetchers",
]
