"""The plug-ins that the package itself registers."""

from __future__ import annotations

from typing import Any

from specfit.core.registry import Registry


def shipped(registry: Registry[Any]) -> set[type]:
    """Return the registered classes, without those of other tests."""
    classes = {registry.get(name) for name in registry.names()}
    return {cls for cls in classes if cls.__module__.startswith("specfit.")}
