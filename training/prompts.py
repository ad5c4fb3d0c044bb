"""Writes the prompt files: ``demo`` and ``heldout`` the model never saw, ``tune`` is for fitting.

Questions of ``demo`` and ``heldout`` are GSM8K test, those of ``tune`` GSM8K train questions kept
out of training. Book prompts are paragraphs of the held-out and of the tuning pieces.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from tokenizers import Tokenizer

from corpus import Piece, load_corpus, question_prompt, read_test_documents

BOOK_TOKENS = 64
MAX_QUESTION_TOKENS = 120
DOYLE = "Arthur Conan Doyle"

Prompt = dict[str, str]


def opening(piece: Piece, tokenizer: Tokenizer) -> str | None:
    """Take ``BOOK_TOKENS`` tokens from a paragraph in mid piece, cut at a word; None if short."""
    paragraphs = piece.text.split("\n\n")
    text = "\n\n".join(paragraphs[len(paragraphs) // 2 :])
    encoding = tokenizer.encode(text)
    if len(encoding) <= BOOK_TOKENS:
        return None
    end = encoding.offsets[BOOK_TOKENS][0]
    return text[: text.rindex(" ", 0, end)]


def book_prompts(pieces: list[Piece], tokenizer: Tokenizer, rng: random.Random) -> list[Prompt]:
    """One prompt a piece, in random order; the source tells Doyle from the other authors."""
    prompts = []
    for piece in rng.sample(pieces, len(pieces)):
        text = opening(piece, tokenizer)
        if text:
            source = "books-doyle" if piece.title.startswith(DOYLE) else "books-others"
            prompts.append({"source": source, "text": text})
    return prompts


def question_prompts(
    documents: list[str], source: str, tokenizer: Tokenizer, rng: random.Random
) -> list[Prompt]:
    """Prompts of at most ``MAX_QUESTION_TOKENS`` tokens, in random order."""
    texts = [question_prompt(document) for document in rng.sample(documents, len(documents))]
    short = [text for text in texts if len(tokenizer.encode(text)) <= MAX_QUESTION_TOKENS]
    return [{"source": source, "text": text} for text in short]


def take(prompts: list[Prompt], source: str, count: int) -> list[Prompt]:
    """Remove and return the first ``count`` prompts of a source."""
    chosen = [prompt for prompt in prompts if prompt["source"] == source][:count]
    if len(chosen) < count:
        raise ValueError(f"{count} prompts of {source} wanted, {len(chosen)} left")
    for prompt in chosen:
        prompts.remove(prompt)
    return chosen


def write_prompts(path: Path, prompts: list[Prompt]) -> None:
    """Write JSON lines with ``id``, ``source`` and ``text``; ids carry the name of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"id": f"{path.stem}-{number:02d}", **prompt} for number, prompt in enumerate(prompts)]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    """Parse the arguments, choose disjoint prompts, write three files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--gsm8k-test", type=Path, required=True, help="GSM8K test, JSON lines")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of tokenizer.json")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    rng = random.Random(args.seed)
    tokenizer = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    corpus = load_corpus(args.corpus)
    test = read_test_documents(args.gsm8k_test)
    unseen = book_prompts(corpus.heldout.books, tokenizer, rng)
    unseen += question_prompts(test, "gsm8k-test", tokenizer, rng)
    tune = book_prompts(corpus.tune.books, tokenizer, rng)
    tune += question_prompts(corpus.tune.questions, "gsm8k-train", tokenizer, rng)

    books = {"books-doyle": 8, "books-others": 8}
    contents = {
        "heldout": (unseen, {"gsm8k-test": 8, **books}),
        "demo": (unseen, {"gsm8k-test": 6, "books-doyle": 2, "books-others": 2}),
        "tune": (tune, {"gsm8k-train": 8, **books}),
    }
    for name, (prompts, counts) in contents.items():
        chosen = [prompt for source, n in counts.items() for prompt in take(prompts, source, n)]
        write_prompts(args.out / f"{name}.jsonl", chosen)


if __name__ == "__main__":
    main()
