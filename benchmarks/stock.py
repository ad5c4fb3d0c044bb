"""Plain decoding through our loop, everything resident, against stock `transformers.generate`."""

from __future__ import annotations

import time
from collections.abc import Sequence

from specfit.backends.reference import StockModel
from specfit.backends.torch_backend import TorchBackend
from specfit.core.backend import Request
from specfit.core.decode import DecodeLoop

NUM_ROUNDS = 5


def stock_speed(
    backend: TorchBackend, stock: StockModel, requests: Sequence[Request], loop: DecodeLoop
) -> float:
    """Return our tokens a second over theirs, prefill included in both, interleaved by prompt."""
    link = backend.device.link
    backend.set_cache("lru:100%")
    backend.set_link(None)
    ours = theirs = 0.0
    for _ in range(NUM_ROUNDS):
        for request in requests:
            started = time.perf_counter()
            stock.generate(request)
            between = time.perf_counter()
            loop.run(request)
            theirs += between - started
            ours += time.perf_counter() - between
    backend.set_link(link)
    return theirs / ours
