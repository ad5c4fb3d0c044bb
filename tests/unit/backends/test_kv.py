"""The key-value cache keeps scattered rows, grows, and trees are masked as each attention wants."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specfit.backends.kv import INITIAL_ROWS, KvCache, KvLayer, tree_mask
from specfit.core.errors import BackendError
from specfit.core.tree import DraftTree


def rows(first: int, count: int) -> torch.Tensor:
    return torch.arange(first, first + count).float()[None, None, :, None].expand(1, 2, count, 3)


def filled(count: int) -> KvLayer:
    layer = KvLayer()
    layer.update(rows(0, count), -rows(0, count))
    return layer


def held(layer: KvLayer) -> list[int]:
    keys, values = layer.keys[0, 0, : layer.num_rows, 0], layer.values[0, 1, : layer.num_rows, 2]
    assert torch.equal(keys, -values)
    return keys.int().tolist()


def test_update_returns_everything_so_far() -> None:
    layer = filled(4)
    keys, values = layer.update(rows(4, 2), -rows(4, 2))
    assert keys.shape == values.shape == (1, 2, 6, 3)
    assert held(layer) == [0, 1, 2, 3, 4, 5]
    assert layer.get_mask_sizes(3) == (9, 0)


def test_scattered_rows_are_kept_in_order() -> None:
    cache = KvCache(2)
    for layer in cache.layers:
        layer.update(rows(0, 13), -rows(0, 13))
    cache.keep(5, np.array([0, 3, 7]))
    assert [held(layer) for layer in cache.layers] == [[0, 1, 2, 3, 4, 5, 8, 12]] * 2
    assert cache.num_rows == 8


def test_leading_rows_are_kept_without_moving() -> None:
    cache = KvCache(1)
    cache.layers[0].update(rows(0, 9), -rows(0, 9))
    cache.keep(4, np.array([0, 1]))
    assert held(cache.layers[0]) == [0, 1, 2, 3, 4, 5]


def test_memory_grows_beyond_its_first_size() -> None:
    layer = filled(INITIAL_ROWS - 1)
    layer.update(rows(INITIAL_ROWS - 1, 5), -rows(INITIAL_ROWS - 1, 5))
    assert held(layer) == list(range(INITIAL_ROWS + 4))


def test_truncating_never_lengthens() -> None:
    layer = filled(4)
    layer.truncate(9)
    assert layer.num_rows == 4
    layer.truncate(1)
    assert held(layer) == [0]


def test_masks_of_both_attentions_say_the_same() -> None:
    tree = DraftTree.from_arrays(np.array([-1, 0, 0, 1], np.int32), np.ones(4))
    mask = tree_mask(tree.ancestor_mask, 2, "sdpa")
    expected = [
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 0, 1, 0],
        [1, 1, 1, 1, 0, 1],
    ]
    assert mask.dtype == torch.bool
    assert mask[0, 0].int().tolist() == expected
    additive = tree_mask(tree.ancestor_mask, 2, "eager")
    assert additive.dtype == torch.float32
    assert torch.equal(additive == 0, mask)
    assert float(additive.min()) == torch.finfo(torch.float32).min
    with pytest.raises(BackendError, match="cannot verify a tree"):
        tree_mask(tree.ancestor_mask, 2, "flash_attention_2")
