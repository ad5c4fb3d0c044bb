"""Where the cells of a sweep run: on this machine's cores, or on a Dask or Ray cluster.

joblib has a backend for each, and the clusters come with their own ways to start them: there is
nothing of our own here but the choice.
"""

from __future__ import annotations

import importlib.util
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import Any

import joblib

from specfit.core.errors import InvalidInputError, did_you_mean

LOCAL = "local"
DASK = "dask://"
RAY = "ray"
CELLS_A_ROUND = 4
"""Jobs a worker gets at a time from an engine that hands results back in rounds only."""


@contextmanager
def engine(spec: str) -> Iterator[None]:
    """Run joblib's parallel calls of the block where `spec` says.

    Parameters
    ----------
    spec : str
        ``"local"``: processes of this machine. ``"dask://HOST:PORT"``: the Dask cluster of that
        scheduler. ``"ray"``: the Ray cluster that the environment variable ``RAY_ADDRESS`` names,
        or a local one.

    Raises
    ------
    InvalidInputError
        There is no such engine, its package is not installed, or its scheduler does not answer.
    """
    if spec == LOCAL:
        yield
    elif spec.startswith(DASK):
        with _dask(spec.removeprefix(DASK)):
            yield
    elif spec == RAY:
        with _ray():
            yield
    else:
        raise InvalidInputError(
            f"an engine must be local, dask://HOST:PORT or ray; got '{spec}'."
            f"{did_you_mean(spec, [LOCAL, 'dask://HOST:PORT', RAY])}"
        )


def run_jobs(jobs: Iterable[Any], num_workers: int) -> Iterator[Any]:
    """Yield the results of joblib's delayed calls as they finish, in any order.

    Parameters
    ----------
    num_workers : int
        Processes of this machine, -1 for one a core; a cluster uses all that it has.
    """
    try:
        parallel = joblib.Parallel(n_jobs=num_workers, return_as="generator_unordered")
    except ValueError:  # Ray's backend returns lists only
        queue = iter(jobs)
        size = CELLS_A_ROUND * joblib.effective_n_jobs(num_workers)
        with joblib.Parallel(n_jobs=num_workers) as parallel:  # one pool for all rounds
            while batch := list(islice(queue, size)):
                yield from parallel(batch)
        return
    yield from parallel(jobs)


@cache
def end_with(parent: int) -> None:
    """End this worker when the process that started it is gone: killed, it cannot say so itself.

    Does nothing in that process itself, and where another one started the worker.
    """
    if os.getppid() == parent:
        threading.Thread(target=_wait_for_end, args=(parent,), daemon=True).start()


def _wait_for_end(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


@contextmanager
def _dask(address: str) -> Iterator[None]:
    _require("distributed", "dask")
    import distributed

    try:
        client = distributed.Client(f"tcp://{address}", timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"no Dask scheduler answers at {address}: {' '.join(str(error).split())}. Start one "
            f"with `dask scheduler`, and workers with `dask worker {address}`."
        ) from error
    with client, joblib.parallel_config("dask", client=client):
        yield


@contextmanager
def _ray() -> Iterator[None]:
    _require("ray", "ray")
    from ray.util.joblib import register_ray

    register_ray()
    with joblib.parallel_config("ray"):
        yield


def _require(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise InvalidInputError(
            f"this engine needs {package}, which is not installed. "
            f"Run: pip install 'specfit[{extra}]'"
        )
