"""Every shipped backend keeps the backend contract."""

from __future__ import annotations

from specfit.testing.backend_contract import BackendContract
from specfit.testing.toy import toy_backend


class TestToyBackend(BackendContract):
    make = staticmethod(lambda cache="lru:50%": toy_backend(cache))
