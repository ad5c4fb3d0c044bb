"""Live backends. The only part of specfit that imports torch, and only when a model is loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from specfit.core.errors import InvalidInputError
from specfit.data import model_folder

if TYPE_CHECKING:
    from specfit.backends.device import Device, EmulatedLink
    from specfit.backends.drafter import Drafter
    from specfit.backends.torch_backend import TorchBackend

__all__ = ["load", "make_device"]

HEAD_FOLDER = "eagle3"


def load(
    model: str | Path,
    *,
    head: str | Path | None = None,
    drafter: str | None = None,
    cache: str = "lru:25%",
    link: EmulatedLink | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    threads: int | None = None,
    max_context: int = 4096,
    packed: Path | None = None,
    on_layer: Callable[[int, int], None] | None = None,
    experts: str | None = None,
    host: str | None = None,
) -> TorchBackend:
    """Return a backend with its model loaded.

    Parameters
    ----------
    model : str or Path
        Folder of a Qwen3-MoE checkpoint, or ``"tiny"``, the bundled model.
    head : str or Path, optional
        Folder of an EAGLE-3 head. Default: the folder ``eagle3`` of the model, if there is one;
        otherwise nothing is drafted.
    drafter : str, optional
        What drafts instead of a head: ``ngram``, ``ngram:max_length=4``, ``model:FOLDER`` with a
        smaller model that shares the tokenizer, ``my.py:MyDrafter`` or ``none``.
    cache : str
        Expert cache: ``lru:25%``, ``lru:16``, ``lru:8GiB``, ``none``.
    link : EmulatedLink, optional
        Link to emulate between host and device.
    device : str
        ``"cpu"``, ``"ssd"`` (computes on the CPU, reads experts from the packed file on disk),
        ``"cuda"`` or ``"cuda:1"``. The CUDA path has been tested against a stand-in
        only; `tests/gpu` holds it against the CPU where there is a GPU.
    dtype : str
        Of the weights: ``float32`` or ``bfloat16``.
    threads : int, optional
        Threads of torch, for the whole process. Default: as they are.
    max_context : int
        Most tokens of a text, prompt included; never more than the model's positions.
    packed : Path, optional
        Folder in which the experts are kept packed: written by the first start, which may be
        interrupted, and mapped by later ones.
    on_layer : callable, optional
        Called with the layers of experts that have been loaded, and all of them.
    experts : str, optional
        How experts are kept, copied and computed: ``int4`` or ``int4:64``, 4-bit codes in groups of
        128 or 64; the target is then the quantised model. By default as the checkpoint has them.
    host : str, optional
        Cache of experts in host memory, ``lru:50%``: what the device misses comes from there, and
        is read there from the packed file first if need be. By default host memory holds all.

    Raises
    ------
    CheckpointError
        The model or the head is missing, damaged or of another architecture.
    """
    folder = model_folder(model)
    import torch

    from specfit.backends.checkpoint import Checkpoint
    from specfit.backends.eagle3_checkpoint import HeadCheckpoint
    from specfit.backends.torch_backend import TorchBackend

    where = make_device(device, link)
    if dtype not in ("float32", "bfloat16"):
        raise InvalidInputError(f"dtype must be float32 or bfloat16; got '{dtype}'.")
    checkpoint = Checkpoint.open(folder)
    head_folder = _head_folder(folder, head) if drafter is None else None
    head_checkpoint = HeadCheckpoint.load(head_folder, checkpoint.config) if head_folder else None
    chosen = head_checkpoint if drafter is None else _drafter(drafter, folder, where)
    if threads is not None:
        torch.set_num_threads(threads)
    backend = TorchBackend(
        checkpoint,
        chosen,
        where,
        cache,
        getattr(torch, dtype),
        max_context,
        packed,
        on_layer,
        experts,
        host,
    )
    backend.warm_up()
    return backend


def make_device(name: str, link: EmulatedLink | None) -> Device:
    """Return the device of a name, ``"cpu"``, ``"ssd"`` or ``"cuda:N"``; `link` is emulated."""
    import torch

    from specfit.backends.cpu import CpuDevice
    from specfit.backends.cuda import CudaDevice
    from specfit.backends.ssd import SsdDevice

    if name == "cpu":
        return CpuDevice(link)
    if name == "ssd":
        return SsdDevice(link)
    kind, _, index = name.partition(":")
    if kind != "cuda" or not (index or "0").isdecimal():
        raise InvalidInputError(f"device must be 'cpu', 'ssd', 'cuda' or 'cuda:N'; got '{name}'.")
    if link is not None:
        raise InvalidInputError("a link is emulated on the CPU only; a GPU has its own.")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(index or 0) >= count:
        raise InvalidInputError(
            f"device '{name}' needs a CUDA device; torch.cuda.is_available() is "
            f"{torch.cuda.is_available()} and {count} are seen. Use device='cpu'."
        )
    return CudaDevice(int(index or 0))


def _drafter(spec: str, target: Path, device: Device) -> Drafter | None:
    import specfit.backends.ngram  # noqa: F401 - registers itself
    from specfit.backends.draft_model import load_draft_model
    from specfit.backends.drafter import drafters

    kind, _, rest = spec.partition(":")
    if spec == "none":
        return None
    if kind == "model":
        return load_draft_model(Path(rest), target, device.torch_device)
    return drafters.make(spec)


def _head_folder(model: Path, head: str | Path | None) -> Path | None:
    if head is not None:
        return Path(head)
    default = model / HEAD_FOLDER
    return default if default.is_dir() else None
