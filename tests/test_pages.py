"""Pages show what the committed results say, and nothing else can get between their marks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.pages import BLOCKS, RESULTS, ROOT, Block, filled, load, parts
from benchmarks.search_page import block as search_block
from tests.test_docs import PAGES

MARK = re.compile(r"^<!-- ([\w-]+):start -->$", re.MULTILINE)


def name_of(block: Block) -> str:
    return f"{Path(block.page).stem}-{block.name}"


@pytest.mark.parametrize("block", BLOCKS, ids=name_of)
def test_a_page_shows_the_committed_results(block: Block) -> None:
    _, shown, _ = parts((ROOT / block.page).read_text("utf-8"), block.name)
    assert shown == block.text() + "\n", "run python -m benchmarks.pages"


def test_every_marked_block_is_written_by_a_program() -> None:
    marked = {
        (str(page.relative_to(ROOT)), name)
        for page in PAGES
        for name in MARK.findall(page.read_text("utf-8"))
    }
    assert marked == {(block.page, block.name) for block in BLOCKS}


def test_another_figure_in_the_results_is_another_page() -> None:
    rows = load(RESULTS / "search.jsonl")
    before = search_block(rows)
    rows[1]["value"] *= 2
    assert search_block(rows) != before


def test_only_the_named_block_is_replaced() -> None:
    page = "a\n<!-- x:start -->\nold\n<!-- x:end -->\nb\n<!-- y:start -->\nkept\n<!-- y:end -->\n"
    assert filled(page, "x", "new") == page.replace("old", "new")
    assert filled(filled(page, "x", "new"), "x", "old") == page


@pytest.mark.parametrize(
    "page",
    [
        "no mark at all\n",
        "<!-- x:start -->\nnever ends\n",
        "<!-- x:end -->\n<!-- x:start -->\n",
        "<!-- x:start -->\n<!-- x:end -->\n<!-- x:start -->\n<!-- x:end -->\n",
    ],
)
def test_a_page_without_its_marks_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=r"must hold <!-- x:start --> and then <!-- x:end -->"):
        parts(page, "x")
