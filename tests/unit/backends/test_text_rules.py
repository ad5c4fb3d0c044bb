"""Rules that read the text are transformers' own processors on each node's text."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

from specfit.backends.text_rules import TextRules
from specfit.core.backend import Request
from specfit.core.errors import InvalidInputError
from specfit.core.noise import Sampling

V = 7
TOKENS = st.lists(st.integers(0, V - 1), max_size=8).map(tuple)
RULES = st.builds(
    Sampling,
    repetition_penalty=st.sampled_from([1.0, 0.7, 1.3]),
    no_repeat_ngram_size=st.integers(0, 4),
    min_new_tokens=st.integers(0, 5),
    suppress_tokens=st.sampled_from([(), (3,)]),
    begin_suppress_tokens=st.sampled_from([(), (2, 5)]),
    bad_words=st.lists(
        st.lists(st.integers(0, V - 1), min_size=1, max_size=3).map(tuple), max_size=3
    ).map(tuple),
)


def processors(rules: Sampling, num_prompt: int, stops: list[int]) -> LogitsProcessorList:
    """Return what `generate` would make of the rules, in its order."""
    made = LogitsProcessorList()
    if rules.repetition_penalty != 1:
        made.append(RepetitionPenaltyLogitsProcessor(rules.repetition_penalty))
    if rules.no_repeat_ngram_size:
        made.append(NoRepeatNGramLogitsProcessor(rules.no_repeat_ngram_size))
    if rules.bad_words:
        made.append(NoBadWordsLogitsProcessor([list(w) for w in set(rules.bad_words)], stops))
    if rules.min_new_tokens and stops:
        made.append(MinNewTokensLengthLogitsProcessor(num_prompt, rules.min_new_tokens, stops))
    if rules.suppress_tokens:
        made.append(SuppressTokensLogitsProcessor(rules.suppress_tokens))
    if rules.begin_suppress_tokens:
        made.append(SuppressTokensAtBeginLogitsProcessor(rules.begin_suppress_tokens, num_prompt))
    return made


@settings(max_examples=300)
@given(
    RULES,
    TOKENS.filter(bool),
    TOKENS,
    st.lists(TOKENS, min_size=1, max_size=4),
    st.sampled_from([[], [1], [1, 4]]),
)
def test_each_row_is_what_transformers_makes_of_its_text(
    rules: Sampling,
    prompt: tuple[int, ...],
    committed: tuple[int, ...],
    paths: list[tuple[int, ...]],
    stops: list[int],
) -> None:
    request = Request(prompt, 20, frozenset(stops), rules)
    ours = TextRules(request, V)
    for token in committed:  # one by one or together, it is the same text
        ours.extend((token,))
    logits = 3 * torch.randn(len(paths), V, generator=torch.Generator().manual_seed(1))
    found = ours.apply(logits.clone(), paths)
    theirs = processors(rules, len(prompt), stops)
    for row, path in enumerate(paths):
        text = torch.tensor([(*prompt, *committed, *path)])
        expected = theirs(text, logits[row : row + 1].clone())
        assert torch.equal(found[row : row + 1], expected)


def test_siblings_have_texts_of_their_own() -> None:
    """What one branch says does not count in another (a node's rules come from that node)."""
    request = Request((0, 1, 2), 9, sampling=Sampling(no_repeat_ngram_size=2))
    rules = TextRules(request, V)
    found = rules.apply(torch.zeros(2, V), [(0,), (3, 0)])
    assert found[0].isinf().nonzero().flatten().tolist() == [1]
    assert found[1].isinf().nonzero().flatten().tolist() == [1]
    found = rules.apply(torch.zeros(2, V), [(5, 6, 5), (5,)])
    assert found[0].isinf().nonzero().flatten().tolist() == [6]
    assert not found[1].isinf().any()


def test_unknown_tokens_are_refused() -> None:
    request = Request((0,), 2, sampling=Sampling(suppress_tokens=(V,)))
    with pytest.raises(InvalidInputError, match=f"0 to {V - 1}; a rule"):
        TextRules(request, V)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"min_p": 1.5}, "min_p"),
        ({"typical_p": 0.0}, "typical_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size"),
        ({"min_new_tokens": -1}, "min_new_tokens"),
        ({"bad_words": ((),)}, "bad word"),
    ],
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        Sampling(**wrong)
