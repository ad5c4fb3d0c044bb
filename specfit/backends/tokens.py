"""Text of tokens without torch: what reports need of a tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from specfit.core.errors import CheckpointError


def token_decoder(folder: Path) -> Callable[[Sequence[int]], str]:
    """Return a function from tokens to text, from the ``tokenizer.json`` of a model folder.

    Raises
    ------
    CheckpointError
        There is no such file, or it is damaged.
    """
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(f"{folder} holds no tokenizer.json. Give another --model.")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more precise
        raise CheckpointError(f"{path} cannot be read: {error}. Fetch it again.") from error
    return lambda tokens: str(tokenizer.decode(list(tokens)))
