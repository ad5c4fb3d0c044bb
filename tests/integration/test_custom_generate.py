"""`generate` with specfit behind it gives what `generate` gives without."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from specfit.backends import load
from specfit.backends.custom_generate import SpecfitGenerate
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop
from specfit.core.errors import InvalidInputError
from specfit.data import model_folder
from specfit.policies import Eagle3
from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile

TINY = model_folder("tiny")
PROMPT = torch.tensor([[5, 80, 200, 31, 7]])


@pytest.fixture(scope="module")
def loop() -> Iterator[DecodeLoop]:
    with load(TINY, cache="lru:50%", threads=1) as backend:
        inputs = UniformPredictor(backend.geometry), DrafterAcceptance()
        yield DecodeLoop(backend, Eagle3(3, 2, 8), ProfileCost(example_profile()), *inputs)


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()


def generate(model, given, **settings):
    settings = {"max_new_tokens": 16, "do_sample": False, "pad_token_id": 0, **settings}
    given = {"attention_mask": torch.ones_like(PROMPT), **given}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a model on another device
        return model.generate(PROMPT, **given, **settings)


def test_the_text_is_that_of_generate(loop, model):
    ours = generate(model, {"custom_generate": SpecfitGenerate(loop)})
    assert ours.tolist() == generate(model, {}).tolist()
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(TINY))
    hollow = generate(empty, {"custom_generate": SpecfitGenerate(loop)})
    assert hollow.tolist() == ours.tolist()


RULES = [
    {"repetition_penalty": 0.8},
    {"no_repeat_ngram_size": 2, "suppress_tokens": [293, 401]},
    {
        "min_new_tokens": 8,
        "eos_token_id": [0, 13],
        "bad_words_ids": [[260], [200, 31], [13]],
        "begin_suppress_tokens": [267],
        "repetition_penalty": 0.9,
    },
]


@pytest.mark.parametrize("rules", RULES)
def test_rules_that_read_the_text_are_those_of_generate(loop, model, rules):
    ours = generate(model, {"custom_generate": SpecfitGenerate(loop)}, **rules)
    expected = generate(model, {}, **rules)
    assert ours.tolist() == expected.tolist()
    assert expected.tolist() != generate(model, {}).tolist()


def test_one_key_samples_one_text(loop, model):
    settings = {"do_sample": True, "temperature": 1.0, "top_k": 20}
    texts = [
        generate(model, {"custom_generate": SpecfitGenerate(loop, key)}, **settings).tolist()
        for key in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"exponential_decay_length_penalty": (2, 1.1)}, "no logits processor Exponential"),
        ({"num_beams": 2}, "no beams"),
        ({"max_time": 1.0}, "no stopping criterion MaxTimeCriteria"),
        ({"return_dict_in_generate": True}, "returns tokens only"),
    ],
)
def test_what_would_be_left_out_is_refused(loop, model, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        generate(model, {"custom_generate": SpecfitGenerate(loop)}, **settings)
