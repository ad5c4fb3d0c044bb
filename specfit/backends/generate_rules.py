"""Sampling settings from the processors that `generate` has made, so that none is left out.

The numbers are read from the processors themselves, not from the settings: a caller may have handed
in one of his own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from specfit.core.errors import InvalidInputError

Reader = Callable[[Any, int, frozenset[int]], dict[str, Any]]
"""Takes a processor, the tokens of the prompt and the stop tokens; gives fields of `Sampling`."""


def rules_of(
    processors: Iterable[Any], num_prompt: int, stop_ids: frozenset[int]
) -> dict[str, Any]:
    """Return the fields of `Sampling` that stand for some processors of transformers.

    Raises
    ------
    InvalidInputError
        One of them has no counterpart, or is set in a way that has none.
    """
    rules: dict[str, Any] = {}
    for processor in processors:
        name = type(processor).__name__
        if name not in READERS:
            raise InvalidInputError(
                f"specfit knows no logits processor {name}; it would be left out. "
                f"Known: {', '.join(READERS)}."
            )
        found = READERS[name](processor, num_prompt, stop_ids)
        if "min_new_tokens" in found:  # generate makes a processor of min_length beside it
            found["min_new_tokens"] = max(found["min_new_tokens"], rules.pop("min_new_tokens", 0))
        twice = sorted(found.keys() & rules.keys())
        if twice:
            raise InvalidInputError(f"{twice[0]} is asked for twice. Leave one out.")
        rules |= found
    return rules


def _penalty(processor: Any, num_prompt: int, stop_ids: frozenset[int]) -> dict[str, Any]:
    ignored = processor.prompt_ignore_length
    _require(ignored is None or not bool(ignored), "repetition_penalty over the whole prompt")
    return {"repetition_penalty": float(processor.penalty)}


def _bad_words(processor: Any, num_prompt: int, stop_ids: frozenset[int]) -> dict[str, Any]:
    return {"bad_words": tuple(tuple(map(int, word)) for word in processor.bad_word_ids)}


def _min_new_tokens(processor: Any, num_prompt: int, stop_ids: frozenset[int]) -> dict[str, Any]:
    _require(processor.prompt_length_to_skip == num_prompt, "min_new_tokens behind the prompt")
    _require(set(processor.eos_token_id.tolist()) == stop_ids, "min_new_tokens of the stop tokens")
    return {"min_new_tokens": int(processor.min_new_tokens)}


def _min_length(processor: Any, num_prompt: int, stop_ids: frozenset[int]) -> dict[str, Any]:
    _require(set(processor.eos_token_id.tolist()) == stop_ids, "min_length of the stop tokens")
    return {"min_new_tokens": max(0, int(processor.min_length) - num_prompt)}


def _begin(processor: Any, num_prompt: int, stop_ids: frozenset[int]) -> dict[str, Any]:
    _require(processor.begin_index == num_prompt, "begin_suppress_tokens behind the prompt")
    return {"begin_suppress_tokens": tuple(processor.begin_suppress_tokens.tolist())}


def _field(name: str, attribute: str) -> Reader:
    return lambda processor, num_prompt, stop_ids: {name: getattr(processor, attribute)}


def _require(is_met: bool, what: str) -> None:
    if not is_met:
        raise InvalidInputError(f"specfit has {what} only. Leave the processor to generate.")


READERS: dict[str, Reader] = {
    "RepetitionPenaltyLogitsProcessor": _penalty,
    "NoRepeatNGramLogitsProcessor": _field("no_repeat_ngram_size", "ngram_size"),
    "NoBadWordsLogitsProcessor": _bad_words,
    "MinLengthLogitsProcessor": _min_length,
    "MinNewTokensLengthLogitsProcessor": _min_new_tokens,
    "SuppressTokensLogitsProcessor": lambda processor, num_prompt, stop_ids: {
        "suppress_tokens": tuple(processor.suppress_tokens.tolist())
    },
    "SuppressTokensAtBeginLogitsProcessor": _begin,
    "TemperatureLogitsWarper": _field("temperature", "temperature"),
    "TopKLogitsWarper": _field("top_k", "top_k"),
    "TopPLogitsWarper": _field("top_p", "top_p"),
    "MinPLogitsWarper": _field("min_p", "min_p"),
    "TypicalLogitsWarper": _field("typical_p", "mass"),
}
