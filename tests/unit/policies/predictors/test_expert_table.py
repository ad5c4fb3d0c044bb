from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfit.core.errors import CheckpointError, InvalidInputError
from specfit.core.experts import ModelGeometry
from specfit.core.history import NEVER, RoutingHistory
from specfit.core.tree import DraftTree
from specfit.policies.predictors import TokenTable, Uniform
from specfit.policies.predictors._kernels import bucket_of, scale_to_total
from specfit.policies.predictors.expert_table import NO_PARENT, TABLE_FILE, ExpertTable

GEOMETRY = ModelGeometry(
    num_layers=2, num_experts=4, experts_per_token=2, expert_bytes=100, vocab_size=3
)


def make_table(age_odds: np.ndarray | None = None) -> ExpertTable:
    """Token 0 has row 1, which prefers experts 0 and 1; the others use the flat row 0."""
    odds_of_code = np.linspace(1, 256, 256).astype(np.float32)
    codes = np.zeros((2, 2, 4), np.uint8)
    codes[1, :, :2] = 9
    if age_odds is None:
        age_odds = np.ones((2, 2, 3), np.float32)
    return ExpertTable(
        geometry=GEOMETRY,
        fitted_on="0" * 64,
        codes=codes,
        odds_of_code=odds_of_code,
        row_of_token=np.array([1, 0, 0], np.int32),
        parent_codes=np.array([[[0] * 4] * 2, [[0, 1, 0, 0], [0] * 4]], np.uint8),
        odds_of_parent_code=odds_of_code,
        parent_row_of_token=np.array([0, 1, 0], np.int32),
        age_edges=np.array([0, 4], np.int64),
        temperatures=np.zeros(1),
        age_odds=age_odds[None],
        novelty=1.0,
    )


def probs(
    table: ExpertTable,
    tokens: list[int],
    depths: list[int],
    ages: np.ndarray,
    parent: int = NO_PARENT,
) -> np.ndarray:
    parents = np.full(len(tokens), parent)
    return table.probs(np.array(tokens, np.int64), parents, np.array(depths, np.int32), ages)


def test_probabilities_are_those_of_the_odds_scaled_to_k() -> None:
    found = probs(make_table(), [0], [0], np.full((2, 4), NEVER))
    scale = 1 / np.sqrt(10)  # 10 c / (1 + 10 c) + c / (1 + c) = 1
    expected = [10 * scale / (1 + 10 * scale)] * 2 + [scale / (1 + scale)] * 2
    assert found.shape == (1, 2, 4)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[0], [expected, expected], atol=1.1e-3)


def test_tokens_without_a_row_share_the_back_off() -> None:
    found = probs(make_table(), [1, 2], [0, 1], np.full((2, 4), NEVER))
    np.testing.assert_allclose(found, 0.5, rtol=1e-6)


def test_the_parent_token_changes_the_odds() -> None:
    without = probs(make_table(), [1], [1], np.full((2, 4), NEVER), parent=0)
    found = probs(make_table(), [1], [1], np.full((2, 4), NEVER), parent=1)
    np.testing.assert_allclose(without, 0.5, rtol=1e-6)
    np.testing.assert_allclose(found[0, 1], 0.5, rtol=1e-6)  # layer 1 has no such effect
    odds = found[0, 0] / (1 - found[0, 0])
    np.testing.assert_allclose(odds / odds[0], [1, 2, 1, 1], rtol=1e-3)


def test_recent_experts_gain_where_their_bucket_says_so() -> None:
    age_odds = np.ones((2, 2, 3), np.float32)
    age_odds[0, 0] = [4.0, 2.0, 1.0]
    ages = np.array([[0, 3, 5, NEVER], [0, 3, 5, NEVER]])
    found = probs(make_table(age_odds), [1, 1], [0, 1], ages)
    at_root, below = found[0], found[1]
    assert at_root[0, 0] > at_root[0, 1] > at_root[0, 2] == at_root[0, 3]
    np.testing.assert_allclose(at_root[1], 0.5, rtol=1e-6)  # layer 1 has no correction
    np.testing.assert_allclose(below, 0.5, rtol=1e-6)  # depth 1 has none either


def test_never_needed_means_more_in_a_longer_history() -> None:
    table = make_table(age_odds=np.array([[[1.0, 1.0, 0.1]] * 2] * 2, np.float32))
    table = replace(table, age_edges=np.array([4, NEVER + 10], np.int64))
    arrays = (np.array([1]), np.array([NO_PARENT]), np.zeros(1, np.int32))
    short, long = (
        table.probs(*arrays, np.array([[0, 0, 0, NEVER + length]] * 2)) for length in (10, 11)
    )
    np.testing.assert_allclose(short, 0.5, rtol=1e-6)
    assert (long[0, :, 3] < 0.2).all()


def test_the_last_depth_slot_serves_all_deeper_nodes() -> None:
    age_odds = np.ones((2, 2, 3), np.float32)
    age_odds[1, :, 0] = 3.0
    ages = np.array([[0, 9, 9, 9], [0, 9, 9, 9]])
    found = probs(make_table(age_odds), [0, 0], [1, 7], ages)
    np.testing.assert_array_equal(found[0], found[1])


def test_between_two_temperatures_the_odds_are_between_theirs() -> None:
    age_odds = np.ones((2, 2, 2, 3), np.float32)
    age_odds[0, 0, 0], age_odds[1, 0, 0] = [1.0, 2.0, 8.0], [4.0, 2.0, 2.0]
    table = replace(make_table(), temperatures=np.array([0.0, 1.0]), age_odds=age_odds)
    for temperature, expected in ((0, [1, 2, 8]), (0.5, [2, 2, 4]), (1, [4, 2, 2]), (3, [4, 2, 2])):
        found = table.at(temperature)
        assert found.temperatures == [temperature]
        np.testing.assert_allclose(found.age_odds[0, 0, 0], expected, rtol=1e-6)
        np.testing.assert_allclose(found.age_odds[0, 1], 1.0)


@pytest.mark.parametrize("values", [[1.0, 0.0], [-1.0, 0.0], [0.0, np.inf], [0.0, np.nan]])
def test_temperatures_that_no_target_has_are_refused(values: list[float]) -> None:
    table = make_table()
    odds = np.repeat(table.age_odds, 2, axis=0)
    with pytest.raises(InvalidInputError, match="temperatures"):
        replace(table, temperatures=np.array(values), age_odds=odds)


@pytest.mark.parametrize("novelty", [-0.1, 2, float("nan"), "0.9", None])
def test_a_novelty_that_is_no_share_is_refused(novelty: object) -> None:
    with pytest.raises(InvalidInputError, match="novelty must be from 0 to 1"):
        replace(make_table(), novelty=novelty)


def test_a_predictor_takes_the_odds_of_its_temperature(tmp_path: Path) -> None:
    age_odds = np.ones((2, 2, 2, 3), np.float32)
    age_odds[1, :, :, 0] = 5.0
    table = replace(make_table(), temperatures=np.array([0.0, 1.0]), age_odds=age_odds)
    table.save(TABLE_FILE, tmp_path, {})
    history = RoutingHistory(GEOMETRY)
    history.append(np.array([[[0, 1], [0, 1]]], np.int16))
    root = DraftTree.root(1)
    greedy, drawn = (TokenTable(str(tmp_path), t).predict(root, history, 0) for t in (0.0, 1.0))
    np.testing.assert_allclose(greedy, 0.5, rtol=1e-6)
    assert (drawn[0, :, :2] > 0.6).all()


@pytest.mark.parametrize("spread", [0.5, 3.0, 12.0])
@pytest.mark.parametrize(
    "kernel",
    [scale_to_total, getattr(scale_to_total, "py_func", scale_to_total)],
    ids=["jit", "python"],
)
def test_scaled_probabilities_sum_to_the_total(kernel: object, spread: float) -> None:
    rng = np.random.default_rng(7)
    for size, total in ((5, 1), (64, 8), (64, 63), (127, 6)):
        odds = np.exp(rng.normal(0, spread, size)).astype(np.float32)
        out = np.empty(size, np.float32)
        kernel(odds, np.float32(total), out)  # type: ignore[operator]
        assert abs(out.sum() - total) <= 1e-3 * total
        assert (out >= 0).all()
        assert (out <= 1).all()
        assert (np.diff(out[np.argsort(odds)]) >= 0).all()


def test_kernel_and_its_python_twin_agree() -> None:
    rng = np.random.default_rng(3)
    odds = np.exp(rng.normal(0, 2, 64)).astype(np.float32)
    compiled, plain = np.empty(64, np.float32), np.empty(64, np.float32)
    scale_to_total(odds, np.float32(8), compiled)
    getattr(scale_to_total, "py_func", scale_to_total)(odds, np.float32(8), plain)
    np.testing.assert_allclose(compiled, plain, atol=1e-6)


def test_what_was_saved_is_what_is_loaded(tmp_path: Path) -> None:
    table = make_table()
    table.save(TABLE_FILE, tmp_path, {"tokens": 12})
    loaded = ExpertTable.load(TABLE_FILE, tmp_path)
    assert loaded.geometry == table.geometry
    assert loaded.fitted_on == table.fitted_on
    for name in ("codes", "odds_of_code", "row_of_token", "age_edges", "temperatures", "age_odds"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(table, name))
    assert not list(tmp_path.glob("*.partial"))


def test_token_table_predicts_the_new_nodes_only(tmp_path: Path) -> None:
    make_table().save(TABLE_FILE, tmp_path, {})
    predictor = TokenTable(str(tmp_path))
    tree = DraftTree.from_arrays(
        np.array([-1, 0, 0], np.int32), np.array([1, 0.5, 0.25]), np.array([0, 1, 2])
    )
    history = RoutingHistory(GEOMETRY)
    history.append(np.array([[[0, 1], [2, 3]]], np.int16))
    whole = predictor.predict(tree, history, 0)
    assert whole.shape == (3, 2, 4)
    np.testing.assert_array_equal(predictor.predict(tree, history, 1), whole[1:])


def test_a_table_of_another_geometry_is_refused(tmp_path: Path) -> None:
    make_table().save(TABLE_FILE, tmp_path, {})
    other = ModelGeometry(2, 8, 2, 100, 3)
    with pytest.raises(CheckpointError, match="num_experts 4 where the target has 8"):
        TokenTable(str(tmp_path)).check_geometry(other)
    TokenTable(str(tmp_path)).check_geometry(ModelGeometry(2, 4, 2, 999, 3))  # bytes do not matter


def test_a_table_with_wrong_arrays_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="age_odds"):
        make_table(age_odds=np.zeros((2, 2, 3), np.float32))
    with pytest.raises(InvalidInputError, match="age_odds"):
        make_table(age_odds=np.ones((2, 2, 2), np.float32))


def test_uniform_says_k_of_e_and_checks_its_geometry() -> None:
    predictor = Uniform(GEOMETRY)
    found = predictor.predict(DraftTree.root(1), RoutingHistory(GEOMETRY), 0)
    np.testing.assert_array_equal(found, np.full((1, 2, 4), 0.5, np.float32))
    with pytest.raises(CheckpointError, match="num_layers 2 where the target has 3"):
        predictor.check_geometry(ModelGeometry(3, 4, 2, 100, 3))


@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=6, unique=True).map(sorted),
    st.integers(0, 120),
)
def test_an_age_belongs_to_the_first_bucket_that_reaches_it(edges: list[int], age: int) -> None:
    reaching = [bucket for bucket, edge in enumerate(edges) if age <= edge]
    expected = reaching[0] if reaching else len(edges)
    assert bucket_of(age, np.array(edges, np.int64)) == expected


def test_an_expert_that_was_never_needed_ages_with_the_history() -> None:
    edges = np.array([3, NEVER, NEVER + 10], np.int64)
    assert [bucket_of(NEVER + length, edges) for length in (0, 1, 10, 11)] == [1, 2, 2, 3]
