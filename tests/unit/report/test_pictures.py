import warnings

import numpy as np
import pytest

from specfit.core.selection import Selection
from specfit.core.tree import DraftTree
from specfit.report.speed import SpeedBar, draw_speed
from specfit.report.style import save, visible
from specfit.report.tree import TreeView, draw_tree, leaf_rows


def view(parents, texts=None):
    tree = DraftTree.from_arrays(
        np.array(parents, np.int32), np.array([1.0] + [0.5] * (len(parents) - 1))
    )
    selected = Selection.from_nodes(tree, (0, 1) if len(tree) > 1 else (0,)).mask
    return TreeView(
        tree=tree,
        texts=texts or tuple(f" t{i}" for i in range(len(tree))),
        accept_probs=tree.cond_probs,
        expert_s=np.linspace(0, 0.02, len(tree)),
        selected=selected,
        accepted=np.arange(len(tree)) == 0,
        title="a tree",
        caption="some nodes",
    )


def test_leaves_are_one_below_the_other_and_parents_at_their_middle():
    tree = view([-1, 0, 0, 1, 1, 2]).tree
    assert leaf_rows(tree).tolist() == [1.25, 0.5, 2.0, 0.0, 1.0, 2.0]


def test_no_two_cards_overlap():
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 40, 200):
        parents = [-1, *(int(rng.integers(0, i)) for i in range(1, size))]
        tree = view(parents).tree
        places = {(int(d), float(r)) for d, r in zip(tree.depths, leaf_rows(tree), strict=True)}
        assert len(places) == size


@pytest.mark.parametrize("size", [1, 2, 60])
def test_a_tree_of_any_size_is_drawn_and_saved_twice(tmp_path, size):
    paths = save(draw_tree(view([-1] + [0] * (size - 1))), tmp_path / "tree")
    assert [p.name for p in paths] == ["tree.png", "tree.svg"]
    assert all(p.stat().st_size > 1000 for p in paths)


def test_the_same_picture_has_the_same_bytes(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for stem in (first, second):
        save(draw_tree(view([-1, 0, 0])), stem)
    assert first.with_suffix(".svg").read_bytes() == second.with_suffix(".svg").read_bytes()


def test_any_token_can_be_shown(tmp_path):
    texts = ("$x^2$ $", "\n\t ", "日本", "\ufffd\x00", "a" * 40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(draw_tree(view([-1, 0, 0, 0, 0], texts)), tmp_path / "tree")


def test_blanks_are_made_visible_and_long_tokens_are_cut():
    assert visible(" the\n", 11) == "␣the↵"
    assert visible("altogether", 5) == "alto…"


def test_the_speed_picture_is_saved_twice(tmp_path):
    bars = [
        SpeedBar("plain", "cache lru:25%", 40.0, 40.0, 40.0, 42.0, "plain decoding"),
        SpeedBar("ours", "cache lru:25%", 50.0, 47.0, 52.0, 51.0, "1.25×", is_ours=True),  # noqa: RUF001
    ]
    figure = draw_speed(bars, title="speed", caption="two\nlines", reference=bars[0])
    assert all(p.stat().st_size > 1000 for p in save(figure, tmp_path / "speed"))
