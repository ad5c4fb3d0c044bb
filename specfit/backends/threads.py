"""Work that threads share: its end is waited for, then the first error is raised."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, wait


def finish(jobs: Sequence[Future[None]]) -> None:
    """Return when all jobs are done; raise a job's error only then, so that none still writes."""
    wait(jobs)
    for job in jobs:
        job.result()
