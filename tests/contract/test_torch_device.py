"""The devices keep the device contract; for each rule there is one that breaks it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specfit.backends.cpu import CpuDevice
from specfit.backends.device import Copy, Device, EmulatedLink, Event
from specfit.backends.direct_file import DirectFile
from specfit.backends.file_bank import FileBlock
from specfit.backends.ssd import SsdDevice
from specfit.core.errors import BackendError, ContractError
from specfit.testing.adversarial_device import AdversarialDevice
from specfit.testing.device_contract import DeviceContract, check_device


class TestCpuDevice(DeviceContract):
    make = staticmethod(CpuDevice)


class TestSsdDevice(DeviceContract):
    make = staticmethod(SsdDevice)


class ReadsEverySource(SsdDevice):
    """Copies from files that hold what the given sources do."""

    def copy(self, copies: Sequence[Copy], after: Event | None) -> Event:
        return super().copy([(self._stored(source), to) for source, to in copies], after)

    def _stored(self, source: Tensor) -> FileBlock:
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"before it" + source.numpy().tobytes())
            file.flush()
            return FileBlock(DirectFile(Path(file.name)), 9, source.shape, source.dtype)


class TestReadingDevice(DeviceContract):
    make = staticmethod(ReadsEverySource)


class TestAdversarialDevice(DeviceContract):
    make = staticmethod(lambda link=None: AdversarialDevice(lambda n: n - 1, is_eager=True))


class DeliversNothing(CpuDevice):
    def copy(self, copies: Sequence[Copy], after: Event | None) -> Event:
        return super().copy([(source[:0], to[:0]) for source, to in copies], after)


class IsEarly(CpuDevice):
    def _occupy_link(self, copies: Sequence[Copy]) -> float:
        super()._occupy_link(copies)
        return 0.0


class OvertakesTheFirst(CpuDevice):
    """The first of several batches comes last."""

    held: tuple[Sequence[Copy], Event | None] | None = None

    def copy(self, copies: Sequence[Copy], after: Event | None) -> Event:
        if len(copies) == 2 and self.link is not None:
            self.held = (copies, after)
            return super().copy([], None)
        return super().copy(copies, after)


class CountsBatches(CpuDevice):
    def copy(self, copies: Sequence[Copy], after: Event | None) -> Event:
        event = super().copy(copies, after)
        self.counters.num_copies -= len(copies) - 1
        return event


class StartsWhenAsked(CpuDevice):
    """Time counts from the wait, not from submission."""

    def wait(self, event: Event) -> None:
        if self.link is not None:
            time.sleep(0.06)
        super().wait(event)


class SwallowsFailures(CpuDevice):
    def wait(self, event: Event) -> None:
        try:
            super().wait(event)
        except BackendError:
            return


class ReadsLate(CpuDevice):
    """Hands out what a slot holds when it is fetched, not what was computed from it."""

    last: Tensor | None = None

    def fetch(self, tensor: Tensor) -> Tensor:
        return tensor if self.last is None else self.last

    def copy(self, copies: Sequence[Copy], after: Event | None) -> Event:
        if len(copies) == 1 and float(copies[0][0][0]) == 9.0:
            self.last = copies[0][1]
        return super().copy(copies, after)


class FreesSourcesEarly(CpuDevice):
    def _move(self, copies: Sequence[Copy]) -> BaseException | None:
        if len(copies) == 3:  # so that the source has been overwritten
            time.sleep(0.2)
        return super()._move(copies)

    def synchronize(self, event: Event) -> None:
        return


class SaysNothing(CpuDevice):
    def describe_link(self) -> dict[str, object]:
        return {}


MUTANTS: list[tuple[str, Callable[[EmulatedLink | None], Device]]] = [
    ("L1", DeliversNothing),
    ("L2", IsEarly),
    ("L3", OvertakesTheFirst),
    ("L4", CountsBatches),
    ("L5", StartsWhenAsked),
    ("L6", SwallowsFailures),
    ("L7", ReadsLate),
    ("L8", SaysNothing),
    ("L9", FreesSourcesEarly),
]


@pytest.mark.parametrize(("rule", "make"), MUTANTS)
def test_the_broken_rule_is_named(rule: str, make: Callable[..., Device]) -> None:
    with pytest.raises(ContractError) as error:
        check_device(lambda link=None: make(link))
    assert error.value.rule == rule, str(error.value)


def test_every_rule_has_a_mutant() -> None:
    assert {rule for rule, _ in MUTANTS} == set(DeviceContract.rules())
    assert set(check_device(CpuDevice)) == set(DeviceContract.rules())


def test_a_slot_is_poisoned_until_its_bytes_are_there() -> None:
    device = AdversarialDevice(lambda options: 0)
    slot = device.allocate((2,), torch.float32)
    assert slot.isnan().all()
    device.copy([(torch.ones(2), slot)], None)
    device._step()
    assert slot.isnan().all()
    device.finish()
    assert slot.tolist() == [1, 1]
