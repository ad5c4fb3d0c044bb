"""Who may import whom; a change of this table is a change of the architecture."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.sources import imported, modules

MAY_IMPORT = {
    "core": set(),
    "policies": {"core"},
    "sim": {"core"},
    "backends": {"core", "data"},
    "testing": {"core", "backends"},
    "report": {"core", "sim"},
    "data": {"core"},
    "cli": {"core", "policies", "sim", "backends", "testing", "report", "data"},
}
THIRD_PARTY = {
    "core": {"numpy", "numba"},
    "policies": {"numpy", "numba", "safetensors"},
    "sim": {"distributed", "joblib", "numpy", "pyarrow", "ray"},
    "backends": {"numpy", "numba", "torch", "transformers", "safetensors", "tokenizers"},
    "testing": {"numpy", "hypothesis", "pytest", "torch"},
    "report": {"numpy", "matplotlib"},
    "data": set(),
    "cli": {"numpy", "typer", "rich"},
}
"""Third-party packages of each layer."""
NOT_IN_CORE = {"time", "datetime", "random", "threading", "socket", "subprocess"}
"""The backend supplies the clock, the caller the generator."""
MAY_READ_FILES = {"specfit.core.cache.static", "specfit.core.profile", "specfit.core.registry"}
EVERY_MODULE = sorted(modules())


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def packages_of(module: str) -> set[str]:
    return {name.split(".")[0] for name in imported(modules()[module])}


@pytest.mark.parametrize("layer", sorted(MAY_IMPORT))
def test_a_layer_imports_only_the_layers_below(layer: str) -> None:
    allowed = MAY_IMPORT[layer] | {layer}
    upwards = [
        f"{module} imports {name}"
        for module in EVERY_MODULE
        if layer_of(module) == layer
        for name in imported(modules()[module])
        if name.startswith("specfit.") and layer_of(name) not in allowed
    ]
    assert upwards == []


@pytest.mark.parametrize("layer", sorted(THIRD_PARTY))
def test_a_layer_imports_only_its_packages(layer: str) -> None:
    allowed = THIRD_PARTY[layer] | set(sys.stdlib_module_names) | {"specfit"}
    foreign = {m: packages_of(m) - allowed for m in EVERY_MODULE if layer_of(m) == layer}
    assert {m: names for m, names in foreign.items() if names} == {}


def test_every_module_belongs_to_a_layer() -> None:
    assert {layer_of(m) for m in EVERY_MODULE} - {""} <= set(MAY_IMPORT)


def test_core_has_no_clock_no_threads_no_files() -> None:
    core = [m for m in EVERY_MODULE if layer_of(m) == "core"]
    assert {m: found for m in core if (found := packages_of(m) & NOT_IN_CORE)} == {}
    assert {m for m in core if "pathlib" in packages_of(m)} <= MAY_READ_FILES


def test_nothing_is_pickled() -> None:
    pickles = {"pickle", "shelve", "marshal", "dill"}
    assert {m: found for m in EVERY_MODULE if (found := packages_of(m) & pickles)} == {}


def test_only_backends_load_torch() -> None:
    light = [m for m in EVERY_MODULE if layer_of(m) not in ("backends", "testing")]
    light.remove("specfit.cli.__main__")
    program = (
        f"import importlib, sys\n"
        f"for name in {light!r}: importlib.import_module(name)\n"
        f"print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran.stderr


def test_importing_core_loads_neither_files_formats_nor_plots() -> None:
    core = [m for m in EVERY_MODULE if layer_of(m) == "core"]
    program = (
        f"import importlib, sys\n"
        f"for name in {core!r}: importlib.import_module(name)\n"
        f"print([m for m in ('pyarrow', 'matplotlib', 'rich') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran.stderr
