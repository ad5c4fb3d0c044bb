"""Where cells run: every engine gives the same results, a wrong one says what to do."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import joblib
import pytest

from specfit.core.errors import InvalidInputError
from specfit.sim.engine import engine, run_jobs


def square(number: int) -> int:
    return number * number


@pytest.mark.parametrize("num_workers", [1, 2])
def test_every_job_is_run_once(num_workers: int) -> None:
    with engine("local"):
        jobs = (joblib.delayed(square)(number) for number in range(20))
        assert sorted(run_jobs(jobs, num_workers)) == [n * n for n in range(20)]


def test_an_engine_that_returns_lists_is_fed_in_rounds() -> None:
    """The multiprocessing backend, of which Ray's is a kind, returns no generator."""
    with pytest.raises(ValueError, match="return_as"), lists_only():
        joblib.Parallel(n_jobs=2, return_as="generator_unordered")
    started: list[int] = []

    def jobs() -> Iterator[object]:
        for number in range(20):
            started.append(number)
            yield joblib.delayed(square)(number)

    with lists_only():
        finished = run_jobs(jobs(), 2)
        first = next(finished)
        assert len(started) < 20
        assert sorted([first, *finished]) == [n * n for n in range(20)]


@contextmanager
def lists_only() -> Iterator[None]:
    with joblib.parallel_config("multiprocessing"):
        yield


@pytest.mark.parametrize("spec", ["dask", "rya", "slurm", "dask:localhost"])
def test_an_unknown_engine_is_refused(spec: str) -> None:
    with pytest.raises(InvalidInputError, match=f"got '{spec}'"), engine(spec):
        pass


@pytest.mark.parametrize(("spec", "package"), [("dask://h:1", "distributed"), ("ray", "ray")])
def test_a_missing_package_is_named_with_its_extra(
    spec: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidInputError, match=rf"needs {package}.*specfit\["), engine(spec):
        pass
