"""specfit behind `transformers`' own `generate`: pass it as ``custom_generate``.

`generate` prepares the prompt and its settings as for any model; this decodes with offloaded
experts instead of the model's own loop, and returns what `generate` returns. What specfit does not
do (batches, beams, processors and criteria of one's own) is refused, never ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from specfit.backends.generate_rules import rules_of
from specfit.core.backend import Request
from specfit.core.decode import DecodeLoop
from specfit.core.errors import InvalidInputError
from specfit.core.noise import Sampling

CRITERIA = ("MaxLengthCriteria", "EosTokenCriteria")


@dataclass(frozen=True)
class SpecfitGenerate:
    """A decoding method for ``model.generate(..., custom_generate=SpecfitGenerate(loop))``.

    Parameters
    ----------
    loop : DecodeLoop
        With a live backend that holds the checkpoint of the model. The model that `generate` is
        called on is asked for its configuration only, so its weights may be on the ``meta`` device.
    noise_key : int
        Key of the noise when sampling; one key gives one text, whatever the policy.
    """

    loop: DecodeLoop
    noise_key: int = 0

    def __call__(
        self,
        model: Any,
        input_ids: torch.Tensor,
        logits_processor: Any = (),
        stopping_criteria: Any = (),
        generation_config: Any = None,
        **_: Any,
    ) -> torch.Tensor:
        """Return prompt and continuation, int64[1, T].

        Raises
        ------
        InvalidInputError
            The call asks for what specfit does not do, or the model is not the backend's.
        """
        self._check(model, input_ids, stopping_criteria, generation_config)
        prompt = tuple(input_ids[0].tolist())
        room = int(generation_config.max_length) - len(prompt)
        stop_ids = _stop_ids(generation_config)
        rules = rules_of(logits_processor, len(prompt), stop_ids)
        request = Request(prompt, room, stop_ids, self._sampling(generation_config, rules))
        self.loop.backend.check_request(request)  # type: ignore[attr-defined] # a live backend
        tokens = self.loop.run(request).tokens
        new = torch.tensor([tokens], dtype=input_ids.dtype, device=input_ids.device)
        return torch.cat([input_ids, new], dim=1)

    def _sampling(self, config: Any, rules: dict[str, Any]) -> Sampling:
        if not config.do_sample:
            return Sampling(**rules)
        return Sampling(**{"temperature": 1.0, **rules, "noise_key": self.noise_key})

    def _check(self, model: Any, input_ids: torch.Tensor, criteria: Any, config: Any) -> None:
        if (config.num_beams or 1) != 1 or (config.num_return_sequences or 1) != 1:
            raise InvalidInputError("specfit has no beams and returns one text. Set both to 1.")
        if input_ids.shape[0] != 1:
            raise InvalidInputError(
                f"specfit decodes one text at a time; got a batch of {input_ids.shape[0]}. "
                f"Call generate once for each."
            )
        if config.return_dict_in_generate:
            raise InvalidInputError("specfit returns tokens only. Drop return_dict_in_generate.")
        foreign = [n for n in (type(c).__name__ for c in criteria) if n not in CRITERIA]
        if foreign:
            raise InvalidInputError(
                f"specfit knows no stopping criterion {foreign[0]}; it would be left out. "
                f"Known: {', '.join(CRITERIA)}."
            )
        geometry, told = self.loop.backend.geometry, model.config
        ours = (geometry.vocab_size, geometry.num_experts, geometry.experts_per_token)
        theirs = (told.vocab_size, told.num_experts, told.num_experts_per_tok)
        if ours != theirs:
            raise InvalidInputError(
                f"the model must be the backend's: vocabulary, experts and experts a token are "
                f"{theirs}; the backend's are {ours}. Load both from one folder."
            )


def _stop_ids(config: Any) -> frozenset[int]:
    given = config.eos_token_id
    if given is None:
        return frozenset()
    return frozenset([given] if isinstance(given, int) else map(int, given))
