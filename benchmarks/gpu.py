"""What a GPU does: the link's curve, verifying by nodes and context, tokens a second by policy.

``python -m benchmarks.gpu`` measures on the first CUDA device with the bundled model, or with
``--model FOLDER`` and ``--dtype bfloat16`` with a real one, and writes ``results/gpu.json`` with
its manifest. Where there is no device it says so and ends with status 0. Every text is held against
plain decoding on the same device; in float32 a difference ends the run with status 1, in bfloat16
it is counted and printed. No figure here comes from a CPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "gpu.json"
NUM_COPIES = (1, 2, 4, 8, 16, 32, 64)
REPEATS = 20
NODES = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS = (128, 1024, 4096)


def why_not() -> str:
    """Return why nothing can be measured here; empty if it can."""
    try:
        import torch
    except ModuleNotFoundError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return "no CUDA device: torch.cuda.is_available() is False"
    return ""


def median_s(action: Callable[[], None], repeats: int = REPEATS) -> float:
    """Return the median seconds of an action that has finished on the device."""
    import torch

    seconds = []
    for number in range(repeats + 3):
        torch.cuda.synchronize()
        started = time.perf_counter()
        action()
        torch.cuda.synchronize()
        if number >= 3:
            seconds.append(time.perf_counter() - started)
    return float(np.median(seconds))


def link_curve(expert_bytes: int) -> dict[str, Any]:
    """Return seconds of batches of expert copies, pinned, and of one copy of all their bytes."""
    import torch

    from specfit.backends.cuda import CudaDevice

    device = CudaDevice()
    most = max(NUM_COPIES)
    bank = device.allocate_host((most, expert_bytes), torch.uint8)
    slots = device.allocate((most, expert_bytes), torch.uint8)
    rows = []
    for count in NUM_COPIES:
        pairs = [(bank[i], slots[i]) for i in range(count)]
        seconds = median_s(lambda pairs=pairs: device.wait(device.copy(pairs, None)))
        rows.append({"copies": count, "seconds": seconds})
    one_copy_s = median_s(lambda: device.wait(device.copy([(bank, slots)], None)))
    design = np.array([[1.0, row["copies"]] for row in rows])
    fixed_s, copy_s = np.linalg.lstsq(design, np.array([r["seconds"] for r in rows]), rcond=None)[0]
    said = device.describe_link()
    device.close()
    return {
        "expert_bytes": expert_bytes,
        "unpinned_bytes": said["unpinned_bytes"],
        "batches": rows,
        "fixed_s": float(fixed_s),
        "copy_s": float(copy_s),
        "peak_bytes_per_s": most * expert_bytes / one_copy_s,
        "batched_share_of_peak": one_copy_s / rows[-1]["seconds"],
    }


def verify_grid(backend: Any) -> list[dict[str, float]]:
    """Return the seconds of verifying by nodes and context, with every expert resident."""
    from specfit.core.backend import Request
    from specfit.core.selection import Selection
    from specfit.core.tree import DraftTree

    backend.set_cache("lru:100%")
    rng, rows = np.random.default_rng(0), []
    vocabulary = backend.geometry.vocab_size
    for context in CONTEXTS:
        if context + max(NODES) > backend.max_context:
            continue
        prompt = tuple(rng.integers(0, vocabulary, context).tolist())
        root = backend.start(Request(prompt, max(NODES))).first_token
        for nodes in NODES:
            parents = np.array([-1, *((i - 1) // 2 for i in range(1, nodes))], np.int32)
            tokens = rng.integers(0, vocabulary, nodes)
            tokens[0] = root
            tree = DraftTree.from_arrays(parents, np.where(parents < 0, 1.0, 0.4), tokens)
            selection = Selection(tree, np.ones(nodes, bool))
            seconds = median_s(lambda t=tree, s=selection: backend.verify(t, s), 10)
            rows.append({"context": context, "nodes": nodes, "seconds": seconds})
    return rows


def decoding(
    backend: Any, prompts: Sequence[Sequence[int]], caches: Sequence[str], num_tokens: int
) -> list[dict[str, Any]]:
    """Return tokens a second of each policy at each cache size, and what the link did."""
    from specfit.backends.calibrate import calibrate
    from specfit.core.backend import Request
    from specfit.core.cost import ProfileCost
    from specfit.core.decode import DecodeLoop
    from specfit.core.noise import Sampling
    from specfit.policies import Autoregressive, Eagle3, SpecFit
    from specfit.policies.inputs import load_inputs

    profile = calibrate(backend)
    predictor, acceptance = load_inputs(backend.checkpoint.folder, backend.geometry, Sampling())
    policies = {
        "autoregressive": Autoregressive(),
        "eagle3": Eagle3(depth=5, top_k=4, max_nodes=16),
        "specfit": SpecFit(),
    }
    rows: list[dict[str, Any]] = []
    for cache in caches:
        backend.set_cache(cache)
        texts: dict[int, tuple[int, ...]] = {}
        for name, policy in policies.items():
            loop = DecodeLoop(backend, policy, ProfileCost(profile), predictor, acceptance)
            bytes_before = backend.device.counters.num_bytes
            results = [
                loop.run(Request(tuple(prompt), num_tokens, backend.stop_ids)) for prompt in prompts
            ]
            copied = backend.device.counters.num_bytes - bytes_before
            seconds = sum(result.decode_s for result in results)
            stall_s = sum(c.timings.stall_s for r in results for c in r.cycles)
            differing = sum(
                texts.setdefault(i, r.tokens) != r.tokens for i, r in enumerate(results)
            )
            rows.append(
                {
                    "cache": cache,
                    "policy": name,
                    "tokens_per_s": sum(r.num_decoded for r in results) / seconds,
                    "stall_share": stall_s / seconds,
                    "copied_bytes_with_prefill": copied,
                    "texts_that_differ": differing,
                }
            )
    return rows


def main() -> int:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--cache", action="append")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--packed", type=Path)
    given = parser.parse_args()
    if reason := why_not():
        print(f"skipped: {reason}")
        return 0
    import torch

    from specfit.backends import load
    from specfit.cli.manifest import manifest
    from specfit.cli.prompts import read_prompts

    prompt_file = Path(__file__).parents[1] / "specfit" / "data" / "prompts" / "heldout.jsonl"
    with load(given.model, device="cuda", dtype=given.dtype, packed=given.packed) as backend:
        prompts = [backend.tokenizer(p.text).input_ids for p in read_prompts(prompt_file)[:8]]
        found = {
            "device": torch.cuda.get_device_name(),
            "model": str(given.model),
            "dtype": given.dtype,
            "link": link_curve(9_437_184),
            "verify": verify_grid(backend),
            "decode": decoding(
                backend, prompts, given.cache or ["lru:50%", "lru:25%"], given.tokens
            ),
            **manifest(),
        }
    for part in ("verify", "decode"):
        for row in found[part]:
            print(json.dumps(row))
    print(json.dumps(found["link"]))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    differing = sum(row["texts_that_differ"] for row in found["decode"])
    print(f"texts that differ from plain decoding: {differing}; written to {RESULTS}")
    return 1 if differing and given.dtype == "float32" else 0


if __name__ == "__main__":
    sys.exit(main())
