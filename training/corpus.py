"""Cuts the raw corpus into training, held-out and tuning text, and prepares token streams.

Books are cut into pieces at paragraph breaks; every fortieth piece is held out for evaluation and
another every fortieth for tuning. GSM8K train questions are used for training except the last
``NUM_TUNE_QUESTIONS``; GSM8K test questions are never part of the corpus.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

SEPARATOR = "<|endoftext|>"
ANSWER_MARK = "\nAnswer:"
PIECE_CHARS = 6000
PIECE_CYCLE = 40
HELDOUT_SLOT = 7
TUNE_SLOT = 27
NUM_TUNE_QUESTIONS = 200
QUESTIONS_PER_UNIT = 12


@dataclass(frozen=True)
class Piece:
    """A piece of a book; ``title`` is its line in ``books.list.txt``, "Author: Title"."""

    title: str
    text: str


@dataclass(frozen=True)
class Split:
    """Text of one split: pieces of books, and GSM8K documents (question with answer)."""

    books: list[Piece]
    questions: list[str]


@dataclass(frozen=True)
class Corpus:
    """The three disjoint splits; ``heldout.questions`` is empty (use the GSM8K test file)."""

    train: Split
    tune: Split
    heldout: Split


def read_documents(path: Path) -> list[str]:
    """Read the documents of one file, separated by lines that hold ``SEPARATOR``."""
    documents = path.read_text(encoding="utf-8").split(SEPARATOR)
    return [document.strip("\n") for document in documents if document.strip()]


def cut_pieces(document: str, max_chars: int) -> list[str]:
    """Cut a document at paragraph breaks into pieces of about ``max_chars`` characters."""
    pieces, current, length = [], [], 0
    for paragraph in document.split("\n\n"):
        if current and length + len(paragraph) > max_chars:
            pieces.append("\n\n".join(current))
            current, length = [], 0
        current.append(paragraph)
        length += len(paragraph) + 2
    pieces.append("\n\n".join(current))
    return pieces


def load_pieces(folder: Path) -> list[Piece]:
    """All pieces of all books, in the order of ``books.list.txt``."""
    titles = (folder / "books.list.txt").read_text(encoding="utf-8").splitlines()
    books = read_documents(folder / "books.txt")
    return [
        Piece(title, text)
        for title, book in zip(titles, books, strict=True)
        for text in cut_pieces(book, PIECE_CHARS)
    ]


def load_corpus(folder: Path) -> Corpus:
    """Load ``books.txt``, ``books.list.txt`` and ``gsm8k_train.txt`` and split them."""
    slots = [(number % PIECE_CYCLE, piece) for number, piece in enumerate(load_pieces(folder))]
    heldout = [piece for slot, piece in slots if slot == HELDOUT_SLOT]
    tune = [piece for slot, piece in slots if slot == TUNE_SLOT]
    train = [piece for slot, piece in slots if slot not in (HELDOUT_SLOT, TUNE_SLOT)]
    questions = read_documents(folder / "gsm8k_train.txt")
    return Corpus(
        train=Split(train, questions[:-NUM_TUNE_QUESTIONS]),
        tune=Split(tune, questions[-NUM_TUNE_QUESTIONS:]),
        heldout=Split(heldout, []),
    )


def read_test_documents(path: Path) -> list[str]:
    """Read GSM8K JSON lines as documents in the training format, calculator marks removed."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    answers = [re.sub(r"<<[^>]*>>", "", row["answer"]) for row in rows]
    return [
        f"Question: {row['question'].strip()}\nAnswer: {answer.strip()}"
        for row, answer in zip(rows, answers, strict=True)
    ]


def question_prompt(document: str) -> str:
    """Return what a prompt gives of a GSM8K document: up to the colon of "Answer:"."""
    return document[: document.index(ANSWER_MARK) + len(ANSWER_MARK)]


def training_units(split: Split, gsm8k_repeats: int, rng: random.Random) -> list[str]:
    """Mix a split: book pieces once, questions ``gsm8k_repeats`` times, in random order."""
    units = [piece.text + "\n" + SEPARATOR for piece in split.books]
    for _ in range(gsm8k_repeats):
        questions = rng.sample(split.questions, len(split.questions))
        for start in range(0, len(questions), QUESTIONS_PER_UNIT):
            group = questions[start : start + QUESTIONS_PER_UNIT]
            units.append("".join(question + "\n" + SEPARATOR for question in group))
    rng.shuffle(units)
    return units


def encode_stream(units: list[str], tokenizer: Tokenizer) -> np.ndarray:
    """Encode units and join them into one stream of token ids, uint16 [num_tokens]."""
    encodings = tokenizer.encode_batch(units)
    return np.concatenate([np.asarray(encoding.ids, dtype=np.uint16) for encoding in encodings])
