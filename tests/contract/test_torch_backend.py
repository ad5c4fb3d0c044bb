"""The torch backend with a random model and a random head keeps the backend contract."""

from __future__ import annotations

from specfit.testing.backend_contract import BackendContract
from tests.unit.backends.models import random_backend


class TestTorchBackend(BackendContract):
    make = staticmethod(lambda cache="lru:50%": random_backend(cache, threads=1))
