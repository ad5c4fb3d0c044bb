"""The routers of a checkpoint, for what applies them outside the target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specfit.backends.checkpoint import Checkpoint
from specfit.backends.safetensors_file import TensorFile
from specfit.core.errors import CheckpointError

_ROUTER = "model.layers.{}.mlp.gate.weight"
_NORM = "model.layers.{}.post_attention_layernorm.weight"


def read_routers(folder: Path) -> NDArray[np.float32]:
    """Return what each router makes of a hidden state of unit size, float32[L, E, D].

    That is its weights times those of the norm before it; nothing else is read.

    Raises
    ------
    CheckpointError
        The folder is no readable checkpoint, or a router is missing or quantised.
    """
    checkpoint = Checkpoint.open(folder)
    layers = range(checkpoint.config.num_hidden_layers)
    wanted = {name.format(layer) for name in (_ROUTER, _NORM) for layer in layers}
    found: dict[str, Tensor] = {}
    for path in checkpoint.files:
        with TensorFile(path) as file:
            found |= {name: file.read(name).float() for name in wanted & set(file.entries)}
    missing = sorted(wanted - set(found))
    if missing:
        raise CheckpointError(
            f"{folder} holds no plain {missing[0]}, so its routers cannot be applied. Give a "
            f"checkpoint whose routers are not quantised."
        )
    routers = [found[_ROUTER.format(n)] * found[_NORM.format(n)] for n in layers]
    result: NDArray[np.float32] = torch.stack(routers).numpy()
    return result
