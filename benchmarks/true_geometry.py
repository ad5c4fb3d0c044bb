"""Two layers of the true geometry of Qwen3-30B-A3B: loading within memory, decoding to the bit.

``python -m benchmarks.true_geometry`` writes a checkpoint of 3.7 GB with random weights in shards
(``--layers`` for more), loads it in a fresh process and compares the peak of its memory with the
weights, packs its experts, maps them, and decodes with the smallest cache, with all experts
resident, and over three tiers: slots, some experts in host memory, the rest on disk. It ends with
status 1 if a text differs, if the memory goes beyond weights + 2 GiB, or if loading stays below
70 % of the sequential read of the same files; or, on a machine that hands out memory more slowly
than its disk is read, of that. The folder is removed
unless ``--keep`` is given. ``--experts int4`` keeps the experts as 4-bit codes; rounding them takes
its time, so that loading is not held against a bar. CPU only: none of its figures is a GPU's.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from specfit.backends.direct_file import DirectFile, aligned_bytes

GIB = 2**30
BOUND_BYTES = 2 * GIB
LEAST_SHARE = 0.7
"""Of the disk's sequential read, or of memory's first use, that loading must reach."""
READERS = 8
READ_BYTES = 2**24
SHARD_BYTES = 2 * GIB
TINY = Path(__file__).parents[1] / "specfit" / "data" / "tiny"
PROMPT = tuple(range(100, 116))
NUM_TOKENS = 16
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "eos_token_id": None,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}


def tensor_shapes(layers: int) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor, in the order and spelling of the releases."""
    width, heads, kv, dim = 2048, 32, 4, 128
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (151936, width)}
    for i in range(layers):
        at, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
        shapes |= {
            f"model.layers.{i}.input_layernorm.weight": (width,),
            f"model.layers.{i}.post_attention_layernorm.weight": (width,),
            f"{at}q_proj.weight": (heads * dim, width),
            f"{at}k_proj.weight": (kv * dim, width),
            f"{at}v_proj.weight": (kv * dim, width),
            f"{at}o_proj.weight": (width, heads * dim),
            f"{at}q_norm.weight": (dim,),
            f"{at}k_norm.weight": (dim,),
            f"{mlp}gate.weight": (128, width),
        }
        for expert in range(128):
            name = f"{mlp}experts.{expert}."
            shapes |= {
                f"{name}gate_proj.weight": (768, width),
                f"{name}up_proj.weight": (768, width),
                f"{name}down_proj.weight": (width, 768),
            }
    return shapes | {"model.norm.weight": (width,), "lm_head.weight": (151936, width)}


def write_checkpoint(folder: Path, layers: int) -> int:
    """Write shards of random weights; return the bytes of all tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(1)
    shard: dict[str, torch.Tensor] = {}
    places: dict[str, str] = {}
    total = size = 0

    def flush() -> None:
        nonlocal size
        name = f"model-{len(set(places.values())) + 1:05d}.safetensors"
        save_file(shard, str(folder / name))
        places.update(dict.fromkeys(shard, name))
        shard.clear()
        size = 0

    for name, shape in tensor_shapes(layers).items():
        if "norm" in name:
            tensor = torch.ones(shape, dtype=torch.bfloat16)
        else:
            tensor = torch.empty(shape, dtype=torch.bfloat16).normal_(0, 0.02, generator=generator)
        shard[name] = tensor
        size += tensor.nbytes
        total += tensor.nbytes
        if size >= SHARD_BYTES:
            flush()
    flush()
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}))
    for path in TINY.glob("tokenizer*.json"):  # a small one, so that text can be typed
        shutil.copy(path, folder)
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total


def drop_from_memory(folder: Path) -> None:
    """Ask the system to forget what it holds of a folder's files."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_speed(folder: Path) -> float:
    """Return the bytes a second at which the shards are read from end to end, cold.

    Once by one thread and once by several, past the page cache; the faster counts.
    """
    return max(read_speed_of(folder, count) for count in (1, READERS))


def read_speed_of(folder: Path, num_threads: int) -> float:
    """Return the bytes a second with so many threads, each reading a part after the other."""
    drop_from_memory(folder)
    total, started = 0, time.perf_counter()
    buffers = [aligned_bytes(READ_BYTES) for _ in range(num_threads)]

    def read(file: DirectFile, thread: int) -> None:
        for first in range(thread * READ_BYTES, file.num_bytes, num_threads * READ_BYTES):
            file.read(first, buffers[thread][: min(READ_BYTES, file.num_bytes - first)])

    with ThreadPoolExecutor(num_threads) as pool:
        for path in sorted(folder.glob("*.safetensors")):
            file = DirectFile(path)
            deque(pool.map(partial(read, file), range(num_threads)), maxlen=0)
            total += file.num_bytes
            file.close()
    return total / (time.perf_counter() - started)


def memory_speed() -> float:
    """Return the bytes a second at which the system hands out memory that was not used before."""
    with mmap.mmap(-1, GIB) as memory:
        started = time.perf_counter()
        for first in range(0, GIB, mmap.PAGESIZE):
            memory[first] = 1
        return GIB / (time.perf_counter() - started)


def run_child(
    folder: Path, cache: str, packed: Path | None, experts: str | None, host: str | None
) -> dict[str, Any]:
    """Load and decode in a fresh process; return what it printed."""
    drop_from_memory(folder)
    arguments = [str(folder), "--child", cache, *(["--packed", str(packed)] if packed else [])]
    arguments += ["--experts", experts] if experts else []
    arguments += ["--host", host] if host else []
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.true_geometry", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def child(
    folder: Path, cache: str, packed: Path | None, experts: str | None, host: str | None
) -> dict[str, Any]:
    """Load, decode, and return seconds, peak memory and a hash of all answers."""
    import specfit.backends.torch_backend  # noqa: F401 - imports are not loading
    from specfit.backends import load
    from specfit.core.backend import Request
    from specfit.core.cost import ProfileCost
    from specfit.core.decode import DecodeLoop
    from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile
    from specfit.testing.random_policy import RandomPolicy

    before = most_memory()
    started = time.perf_counter()
    options = {"dtype": "bfloat16", "experts": experts, "max_context": 256, "host": host}
    backend = load(folder, cache=cache, packed=packed, **options)
    load_s = time.perf_counter() - started
    peak = most_memory()
    inputs = UniformPredictor(backend.geometry), DrafterAcceptance()
    loop = DecodeLoop(backend, RandomPolicy(max_depth=0), ProfileCost(example_profile()), *inputs)
    result = loop.run(Request(PROMPT, NUM_TOKENS))
    digest = hashlib.sha256(repr(result.tokens).encode())
    for cycle in result.cycles:
        digest.update(cycle.outcome.verification.margins.tobytes())
        digest.update(cycle.outcome.verification.routing.tobytes())
    return {
        "load_s": load_s,
        "peak_bytes": peak - before,
        "tokens_per_s": result.num_decoded / result.decode_s,
        "answers": digest.hexdigest()[:16],
    }


def most_memory() -> int:
    """Return the most bytes that this process has held in memory."""
    status = Path("/proc/self/status").read_text("ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def measure(folder: Path, layers: int, experts: str | None) -> int:
    """Run everything, print it, and return the exit status."""
    total = write_checkpoint(folder, layers)
    print(f"{layers} layers of Qwen3-30B-A3B's geometry, random weights: {total / 1e9:.2f} GB")
    disk, memory = read_speed(folder), memory_speed()
    speed = min(disk, memory)
    print(
        f"sequential read {disk / 1e9:.2f} GB/s, memory not used before {memory / 1e9:.2f} GB/s: "
        f"shares are of {'the read' if disk <= memory else 'the memory, which is slower here'}"
    )
    packed = folder / "packed"
    runs = {
        "load, smallest cache (lru:8)": ("lru:8", None, None),
        "load, all resident": ("lru:100%", None, None),
        "pack, smallest cache": ("lru:8", packed, None),
        "map, smallest cache": ("lru:8", packed, None),
        "three tiers, lru:8 and 16 in host memory": ("lru:8", packed, "lru:16"),
    }
    failures = []
    answers = set()
    for name, (cache, where, host) in runs.items():
        found = run_child(folder, cache, where, experts, host)
        beyond = found["peak_bytes"] - total
        answers.add(found["answers"])
        print(
            f"{name}: {found['load_s']:.1f} s, share {total / found['load_s'] / speed:.2f}; "
            f"peak of host memory {beyond / GIB:+.2f} GiB beyond the weights; "
            f"{found['tokens_per_s']:.2f} tokens/s on this CPU; answers {found['answers']}",
            flush=True,
        )
        is_judged = name.startswith("load") and experts is None
        if is_judged and total / found["load_s"] < LEAST_SHARE * speed:
            failures.append(f"{name} took longer than at {LEAST_SHARE:.0%} of that speed")
        if beyond > BOUND_BYTES:
            failures.append(f"{name} took more than weights + 2 GiB")
    if len(answers) > 1:
        failures.append("the answers differ")
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("true-geometry"))
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--experts", help="int4 or int4:64: keep them as 4-bit codes")
    parser.add_argument("--write", action="store_true", help="write the checkpoint and stop")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--packed", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--host", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        options = given.packed, given.experts, given.host
        print(json.dumps(child(given.folder, given.child, *options)))
        return 0
    if given.write:
        write_checkpoint(given.folder, given.layers)
        return 0
    try:
        return measure(given.folder, given.layers, given.experts)
    finally:
        if not given.keep:
            shutil.rmtree(given.folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
