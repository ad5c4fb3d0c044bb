from collections.abc import Iterator
from pathlib import Path

import pytest
import rich.style  # noqa: F401 - draws from the global generator once, when it is imported

from tests.forked import forked_programs


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the path, with a `specfit` that starts at once."""
    with forked_programs(tmp_path_factory.mktemp("programs")) as folder:
        yield folder
