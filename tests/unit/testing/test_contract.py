"""How contracts are run outside pytest."""

from __future__ import annotations

import pytest

from specfit.core._line import line
from specfit.core.errors import ContractError, InvalidInputError
from specfit.testing.contract import Contract, check, require
from specfit.testing.examples import example_cycle, example_tree


class NumberContract(Contract):
    def test_n10_is_small(self) -> None:
        require(self.make() < 100, "N10", "a number is below 100")

    def test_n2_is_even(self) -> None:
        require(self.make() % 2 == 0, "N2", f"{self.make()} is odd")


def test_rules_run_in_the_order_of_their_numbers() -> None:
    assert check(NumberContract, lambda: 4) == ["N2", "N10"]


def test_the_first_broken_rule_is_reported() -> None:
    with pytest.raises(ContractError, match=r"^N2: 101 is odd$") as error:
        check(NumberContract, lambda: 101)
    assert error.value.rule == "N2"


def test_an_exception_counts_as_the_rules_failure() -> None:
    with pytest.raises(ContractError, match=r"^N2: raised TypeError: .*"):
        check(NumberContract, lambda: None)


def test_the_contract_itself_stays_without_a_plugin() -> None:
    check(NumberContract, lambda: 4)
    with pytest.raises(NotImplementedError, match=r"needs make"):
        NumberContract.make()


def test_examples_of_every_shape() -> None:
    for shape in ("root", "chain", "star", "two-branches", "ties"):
        cycle = example_cycle(shape)
        assert cycle.expert_probs.probs.shape == (len(cycle.tree), 4, 16)
        assert (cycle.expert_probs.probs.sum(axis=2) == 2).all()
        assert line(cycle.terms.tau_s.copy())[0]


def test_an_unknown_example_is_told_the_nearest() -> None:
    with pytest.raises(InvalidInputError, match=r"no example 'chian'. Did you mean 'chain'"):
        example_tree("chian")
