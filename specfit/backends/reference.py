"""The stock model: what an unmodified transformers model generates, for comparison.

Everything is resident and nothing is replaced; it shares no code with the offloaded target.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from specfit.core.backend import Request
from specfit.core.errors import InvalidInputError
from specfit.core.noise import Sampling


class StockModel:
    """A checkpoint as transformers loads it.

    Parameters
    ----------
    folder : Path
        Where it lies.
    dtype : str
        Of the weights.
    """

    def __init__(self, folder: Path, dtype: str = "float32") -> None:
        with _no_progress_bar():
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        self._model = model.eval()

    @torch.inference_mode()
    def generate(self, request: Request, **options: Any) -> tuple[int, ...]:
        """Return the tokens that greedy `generate` adds to the prompt.

        Parameters
        ----------
        options
            More arguments for it: ``prompt_lookup_num_tokens=10``.

        Raises
        ------
        InvalidInputError
            The request samples: stock sampling draws other noise, so its text has no equal here.
        """
        if not request.sampling.is_greedy:
            raise InvalidInputError("the stock model is compared under greedy decoding only.")
        prompt = torch.tensor([request.prompt])
        output = self._model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=request.max_new_tokens,
            do_sample=False,
            num_beams=1,
            eos_token_id=sorted(request.stop_ids) or None,
            pad_token_id=0,
            **greedy_settings(request.sampling),
            **options,
        )
        return tuple(output[0, len(request.prompt) :].tolist())


def greedy_settings(sampling: Sampling) -> dict[str, Any]:
    """Return the rules that greedy `generate` knows and that do something, by its names."""
    words = [list(word) for word in sampling.bad_words]
    rules = {
        "repetition_penalty": sampling.repetition_penalty,
        "no_repeat_ngram_size": sampling.no_repeat_ngram_size or None,
        "min_new_tokens": sampling.min_new_tokens or None,
        "suppress_tokens": list(sampling.suppress_tokens) or None,
        "begin_suppress_tokens": list(sampling.begin_suppress_tokens) or None,
        "bad_words_ids": words or None,
    }
    return {name: value for name, value in rules.items() if value is not None}


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()
