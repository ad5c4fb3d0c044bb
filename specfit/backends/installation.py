"""What the installed torch can do, for a report of a fault."""

from __future__ import annotations


def cuda_in_torch() -> str:
    """Return what torch says of CUDA in a few words; torch is loaded for that."""
    try:
        import torch
    except ModuleNotFoundError:
        return "torch is not installed: traces can be replayed, models not run"
    except OSError as error:
        return f"torch cannot be loaded: {' '.join(str(error).split())}"
    if torch.version.cuda is None:
        return "this torch is built without CUDA"
    if not torch.cuda.is_available():
        return f"built for CUDA {torch.version.cuda}; no usable device"
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"CUDA {torch.version.cuda}: {', '.join(names)}"
