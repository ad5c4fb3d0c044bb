from pathlib import Path

import numpy as np
import pytest

from specfit.core.backend import Request, Verification
from specfit.core.decode import CycleRecord, DecodeLoop, Observer
from specfit.core.policy import Outcome
from specfit.core.selection import Selection
from specfit.core.tree import DraftTree
from specfit.policies import Eagle3
from specfit.policies.acceptance import Adaptive, DepthRank
from specfit.policies.acceptance._repeats import WINDOW
from specfit.policies.acceptance.acceptance_curves import CURVES_FILE, AcceptanceCurves
from specfit.policies.predictors import Uniform
from specfit.testing.toy import toy_backend
from tests.unit.policies.acceptance.repeats import indifferent


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Curves that give the drafter's own probabilities back where the text does not repeat itself.

    Half of all parents go on; nine of ten where it does.
    """
    weights = np.zeros((1, 1, 1, 4))
    weights[..., 1], weights[..., 2] = 1.0, -1.0
    continuations = np.array([[[0.5, 0.75]]])
    lines, repeated = indifferent(continuations)
    lines[:, 1:9, 0], lines[:, 9:, 0] = 1.0, -1.0  # any run speaks for a node or against it
    repeated[:, 1:] = 0.9
    AcceptanceCurves("0" * 64, np.zeros(1), weights, continuations, lines, repeated).save(
        CURVES_FILE, tmp_path, {}
    )
    return str(tmp_path)


def make_tree() -> DraftTree:
    """Two children of the root, two of the better one; tokens equal indices."""
    return DraftTree.from_arrays(
        np.array([-1, 0, 0, 1, 1], np.int32), np.array([1, 0.5, 0.3, 0.5, 0.3])
    )


class FakeCycle:
    def __init__(self, tree: DraftTree) -> None:
        self.tree = tree
        self.acceptance = None  # a cycle that another model calibrated


def outcome(
    tree: DraftTree,
    nodes: list[int],
    targets: list[int],
    accepted: tuple[int, ...],
    committed: tuple[int, ...] = (),
) -> Outcome:
    """A cycle that verified `nodes` and got `targets`; what `observe` does not read is empty.

    Where nothing is committed, the text stays what it was.
    """
    empty = np.zeros(0)
    verification = Verification(
        np.array(nodes), np.array(targets), empty, empty, empty, empty, empty, empty, 0.0, 0.0
    )
    return Outcome(
        FakeCycle(tree), Selection.from_nodes(tree, nodes), verification, accepted, committed
    )  # type: ignore[arg-type]


def test_hits_raise_children_and_misses_lower_them(folder: str) -> None:
    tree = make_tree()
    for targets, accepted, sign in (([1, 3], (1,), 1), ([9], (), -1)):
        model = Adaptive(folder, step=0.5)
        before, chance = model.calibrate(tree), model.continuation(1, 2)
        model.observe(outcome(tree, [0, 1][: len(targets)], targets, accepted))
        after = model.calibrate(tree)
        assert (sign * (after - before)[[1, 3]] > 0.01).all()
        assert sign * (model.continuation(1, 2) - chance) > 0.01


def test_a_child_that_was_drafted_but_not_verified_counts_too(folder: str) -> None:
    tree, model = make_tree(), Adaptive(folder)
    model.observe(outcome(tree, [0], [1], ()))
    assert model.calibrate(tree)[1] > 0.5


def test_children_of_rejected_nodes_say_nothing(folder: str) -> None:
    tree = make_tree()
    both, root_only = Adaptive(folder), Adaptive(folder)
    both.observe(outcome(tree, [0, 1], [9, 3], ()))  # node 1 is wrong, so its child is not judged
    root_only.observe(outcome(tree, [0], [9], ()))
    np.testing.assert_array_equal(both.calibrate(tree), root_only.calibrate(tree))


def test_a_plain_step_teaches_nothing_and_reset_forgets(folder: str) -> None:
    tree, model = make_tree(), Adaptive(folder)
    fitted = DepthRank(folder).calibrate(tree)
    root = DraftTree.root(0)
    model.observe(outcome(root, [0], [1], ()))
    np.testing.assert_array_equal(model.calibrate(tree), fitted)
    model.observe(outcome(tree, [0], [1], ()))
    assert not np.array_equal(model.calibrate(tree), fitted)
    model.reset()
    np.testing.assert_array_equal(model.calibrate(tree), fitted)


def test_what_followed_the_same_tokens_before_is_expected_again(folder: str) -> None:
    """The text is 0 1 5 0: after 0 came 1, so child 1 gains, child 2 loses, and reset forgets."""
    tree, model = make_tree(), Adaptive(folder, step=0.0)
    before = model.calibrate(tree)
    model.observe(outcome(DraftTree.root(0), [0], [1], (), (1,)))
    model.observe(outcome(DraftTree.root(1), [0], [5], (), (5, 0)))
    after = model.calibrate(tree)
    assert after[1] == pytest.approx(1 / (1 + np.exp(-1)))
    assert after[2] == pytest.approx(1 / (1 + np.exp(1) * 7 / 3))
    assert model.continuation(1, 1) == pytest.approx(0.9)
    model.reset()
    np.testing.assert_array_equal(model.calibrate(tree), before)
    assert model.continuation(1, 1) == pytest.approx(0.5)


def test_a_run_older_than_the_window_is_forgotten(folder: str) -> None:
    tree, model = make_tree(), Adaptive(folder, step=0.0)
    before = model.calibrate(tree)
    model.observe(outcome(DraftTree.root(0), [0], [1], (), (1, *range(10, 10 + WINDOW), 0)))
    np.testing.assert_array_equal(model.calibrate(tree), before)


def test_it_comes_to_predict_what_happens(folder: str) -> None:
    """The drafter says 0.5 and is right nine times in ten."""
    rng = np.random.default_rng(0)
    tree = DraftTree.from_arrays(np.array([-1, 0], np.int32), np.array([1, 0.5]))
    model = Adaptive(folder, step=0.1)
    for _ in range(400):
        is_hit = rng.random() < 0.9
        model.observe(outcome(tree, [0], [1 if is_hit else 9], ()))
    assert model.calibrate(tree)[1] == pytest.approx(0.9, abs=0.1)


def test_siblings_move_together_in_log_odds_and_keep_their_shares(folder: str) -> None:
    tree, model = make_tree(), Adaptive(folder, step=0.5)
    before = model.calibrate(tree)
    model.observe(outcome(tree, [0], [1], ()))  # 0.8 was expected of the two, 1 came
    after = model.calibrate(tree)
    assert after[1] / after[2] == pytest.approx(before[1] / before[2])
    odds = [x[1:3].sum() / (1 - x[1:3].sum()) for x in (before, after)]
    assert np.log(odds[1] / odds[0]) == pytest.approx(0.5 * 0.2)
    assert model.continuation(1, 2) == pytest.approx(0.75 / (0.75 + 0.25 * np.exp(-0.1)))


def test_siblings_that_are_sure_stay_sure(folder: str) -> None:
    tree = DraftTree.from_arrays(np.array([-1, 0, 0], np.int32), np.array([1.0, 0.75, 0.25]))
    model = Adaptive(folder)
    for _ in range(9):
        model.observe(outcome(tree, [0], [9], ()))
    assert model.calibrate(tree)[1:].sum() == pytest.approx(1.0)


def test_the_loop_teaches_it_and_starts_each_request_anew(folder: str) -> None:
    backend = toy_backend()
    model = Adaptive(folder)
    seen: list[np.ndarray] = []

    class Watch(Observer):
        def on_cycle(self, record: CycleRecord) -> None:
            seen.append(model.calibrate(make_tree()))

    loop = DecodeLoop(
        backend,
        Eagle3(depth=2, top_k=2, max_nodes=5),
        None,  # type: ignore[arg-type]
        Uniform(backend.geometry),
        model,
        observers=[Watch()],
    )
    loop.run(Request((1, 2, 3), 12))
    first = list(seen)
    seen.clear()
    loop.run(Request((1, 2, 3), 12))
    assert len({tuple(probs) for probs in first}) > 1
    np.testing.assert_array_equal(first, seen)
