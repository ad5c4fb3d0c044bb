"""Live backends. The only part of specfit that imports torch, and only when a model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specfit.core.errors import CheckpointError, InvalidInputError

if TYPE_CHECKING:
    from specfit.backends.device import EmulatedLink
    from specfit.backends.torch_backend import TorchBackend

__all__ = ["load"]

BUNDLED = {"tiny": Path(__file__).parent.parent / "data" / "tiny"}
HEAD_FOLDER = "eagle3"


def load(
    model: str | Path,
    *,
    head: str | Path | None = None,
    cache: str = "lru:25%",
    link: EmulatedLink | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    threads: int | None = None,
    max_context: int = 4096,
) -> TorchBackend:
    """Return a backend with its model loaded.

    Parameters
    ----------
    model : str or Path
        Folder of a Qwen3-MoE checkpoint, or ``"tiny"``, the bundled model.
    head : str or Path, optional
        Folder of an EAGLE-3 head. Default: the folder ``eagle3`` of the model, if there is one;
        otherwise nothing is drafted.
    cache : str
        Expert cache: ``lru:25%``, ``lru:16``, ``lru:8GiB``, ``none``.
    link : EmulatedLink, optional
        Link to emulate between host and device.
    device : str
        Only ``"cpu"`` so far.
    dtype : str
        Of the weights: ``float32`` or ``bfloat16``.
    threads : int, optional
        Threads of torch, for the whole process. Default: as they are.
    max_context : int
        Most tokens of a text, prompt included; never more than the model's positions.

    Raises
    ------
    CheckpointError
        The model or the head is missing, damaged or of another architecture.
    """
    import torch

    from specfit.backends.checkpoint import Checkpoint
    from specfit.backends.cpu import CpuDevice
    from specfit.backends.eagle3_checkpoint import HeadCheckpoint
    from specfit.backends.torch_backend import TorchBackend

    if device != "cpu":
        raise InvalidInputError(f"device must be 'cpu'; got '{device}'.")
    if dtype not in ("float32", "bfloat16"):
        raise InvalidInputError(f"dtype must be float32 or bfloat16; got '{dtype}'.")
    folder = _folder(model)
    checkpoint = Checkpoint.open(folder)
    head_folder = _head_folder(folder, head)
    head_checkpoint = HeadCheckpoint.load(head_folder, checkpoint.config) if head_folder else None
    if threads is not None:
        torch.set_num_threads(threads)
    backend = TorchBackend(
        checkpoint, head_checkpoint, CpuDevice(link), cache, getattr(torch, dtype), max_context
    )
    backend.warm_up()
    return backend


def _folder(model: str | Path) -> Path:
    folder = BUNDLED.get(str(model), Path(model))
    if not folder.is_dir():
        known = ", ".join(BUNDLED)
        raise CheckpointError(
            f"no model '{model}': it is neither a folder nor a bundled model ({known})."
        )
    return folder


def _head_folder(model: Path, head: str | Path | None) -> Path | None:
    if head is not None:
        return Path(head)
    default = model / HEAD_FOLDER
    return default if default.is_dir() else None
