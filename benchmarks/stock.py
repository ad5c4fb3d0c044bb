"""Our loop, everything resident, against what stock `transformers.generate` offers.

``python -m benchmarks.stock`` prints the tokens a second of plain decoding and of an EAGLE-3 tree
over those of stock generation, plain and with prompt lookup, prefill included in all of them; what
of our cycles is neither the target's forward pass nor the drafter's; and how long copies over an
emulated link take, over copies x latency + bytes / bandwidth. Assisted generation does
not apply to the bundled model: no smaller model shares its tokenizer. It ends with status 1 if a
text differs or a bar is missed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from specfit.backends.cpu import CpuDevice
from specfit.backends.device import EmulatedLink
from specfit.backends.reference import StockModel
from specfit.backends.torch_backend import TorchBackend
from specfit.core.backend import Request
from specfit.core.decode import DecodeLoop, DecodeResult

NUM_ROUNDS = 5
LOOKUPS = (2, 5, 10)
"""Tokens that prompt lookup drafts at most; the best counts."""
LEAST = {"plain": 1.0, "eagle3 over prompt lookup": 1.2}
MOST_OVERHEAD = 0.1
NUM_BATCHES = 30
MOST_LINK_ERROR = 0.05


def stock_speed(
    backend: TorchBackend, stock: StockModel, requests: Sequence[Request], loop: DecodeLoop
) -> float:
    """Return our tokens a second over theirs, prefill included in both, interleaved by prompt."""
    link = backend.device.link
    backend.set_cache("lru:100%")
    backend.set_link(None)
    took = seconds_of({"ours": loop.run, "theirs": stock.generate}, requests)
    backend.set_link(link)
    return took["theirs"] / took["ours"]


def seconds_of(
    ways: dict[str, Callable[[Request], object]], requests: Sequence[Request]
) -> dict[str, float]:
    """Return the seconds that each way takes for all requests, a request's median of the rounds."""
    took = np.zeros((len(ways), NUM_ROUNDS, len(requests)))
    for turn in range(NUM_ROUNDS):
        for place, request in enumerate(requests):
            for number, way in enumerate(ways.values()):
                started = time.perf_counter()
                way(request)
                took[number, turn, place] = time.perf_counter() - started
    return dict(zip(ways, np.median(took, axis=1).sum(axis=1).tolist(), strict=True))


def link_ratio() -> float:
    """Return the seconds of copies over an emulated link, submission to arrival, over its formula.

    The median of many batches of four, since a busy machine wakes some waits late.
    """
    link = EmulatedLink(latency_s=20e-6, bandwidth_bytes_per_s=2e8)
    device, blocks = CpuDevice(link), torch.zeros(2, 4, 2**18)
    copies = list(zip(*blocks, strict=True))
    ratios = []
    for _ in range(NUM_BATCHES):
        started = time.perf_counter()
        device.wait(device.copy(copies, None))
        took = time.perf_counter() - started
        ratios.append(took / sum(link.copy_s(source.nbytes) for source, _ in copies))
    device.close()
    return float(np.median(ratios))


def overhead(results: Sequence[DecodeResult]) -> float:
    """Return the share of cycle time that is neither verifying, drafting nor waiting for copies."""
    timings = [cycle.timings for result in results for cycle in result.cycles]
    return sum(t.select_s + t.commit_s for t in timings) / sum(t.cycle_s for t in timings)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; return the exit status."""
    from benchmarks.decode import DATA, Bench, requests_of
    from specfit.backends import load
    from specfit.policies import Autoregressive, Eagle3
    from specfit.testing.examples import example_profile

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=64, help="new tokens a prompt")
    parser.add_argument("--num-prompts", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    given = parser.parse_args(arguments)
    backend = load("tiny", cache="lru:100%", threads=given.threads)
    stock = StockModel(backend.checkpoint.folder)
    prompts = DATA / "prompts" / "heldout.jsonl"
    requests = requests_of(backend, prompts, given.tokens, given.num_prompts)
    expected = tuple(map(stock.generate, requests))
    bench = Bench(backend, example_profile(), requests, expected)  # no policy here reads it
    loops = {
        "plain": bench.loop(Autoregressive()),
        "eagle3": bench.loop(Eagle3(depth=5, top_k=2, max_nodes=12)),
    }
    results = {name: [loop.run(r) for r in requests] for name, loop in loops.items()}
    lookups = {f"lookup {n}": partial(stock.generate, prompt_lookup_num_tokens=n) for n in LOOKUPS}
    for name, texts in {n: [r.tokens for r in found] for n, found in results.items()}.items():
        if texts != list(bench.expected):
            print(f"FAILED: a text of {name} differs from stock generate's")
            return 1
    ways = {n: loop.run for n, loop in loops.items()} | {"stock": stock.generate} | lookups
    took = seconds_of(ways, requests)
    best = min(took[name] for name in lookups)
    ratios = {
        "plain": took["stock"] / took["plain"],
        "eagle3 over stock": took["stock"] / took["eagle3"],
        "prompt lookup over stock": took["stock"] / best,
        "eagle3 over prompt lookup": best / took["eagle3"],
    }
    shares = {name: overhead(found) for name, found in results.items()}
    print(f"measured on this CPU, {given.threads} threads, all resident, {len(requests)} prompts")
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}")
    for name, share in shares.items():
        print(f"{name}: {share:.1%} of cycle time is neither verifying, drafting nor waiting")
    link = link_ratio()
    print(f"emulated link: {link:.3f} of copies x latency + bytes / bandwidth")
    missed = [f"the emulated link: {link:.3f}"] if abs(link - 1) > MOST_LINK_ERROR else []
    missed += [f"{n} is {ratios[n]:.2f}, not {bar}" for n, bar in LEAST.items() if ratios[n] < bar]
    missed += [f"overhead of {n}: {s:.1%}" for n, s in shares.items() if s > MOST_OVERHEAD]
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
