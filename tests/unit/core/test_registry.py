"""Registries: names, files, specs there and back, and what a wrong spec is told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from specfit.core.errors import InvalidInputError, UnknownPluginError
from specfit.core.registry import Registry


class Animal:
    """What the registries of this file hold."""


def new_registry() -> Registry[Animal]:
    return Registry("animal", "specfit.test-animals")


def with_cat() -> Registry[Animal]:
    registry = new_registry()

    @registry.register("cat")
    @dataclass
    class Cat(Animal):
        lives: int = 9
        weight: float = 4.0
        is_tame: bool = True
        name: str = "Tom"
        age: float | None = None

    return registry


def test_a_registered_class_is_found_by_its_name() -> None:
    registry = with_cat()
    assert registry.names() == ["cat"]
    assert registry.make("cat").lives == 9  # type: ignore[attr-defined]


def test_text_is_converted_by_the_type_of_the_field() -> None:
    cat = with_cat().make("cat:lives=3,weight=2.5,is_tame=false,name=Kim,age=1.5")
    assert vars(cat) == {"lives": 3, "weight": 2.5, "is_tame": False, "name": "Kim", "age": 1.5}


def test_an_optional_field_takes_none() -> None:
    assert with_cat().make("cat:age=none").age is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cat:lives=few", "Cat.lives must be int; got 'few'"),
        ("cat:is_tame=maybe", "Cat.is_tame must be bool; got 'maybe'"),
        ("cat:livs=3", "no parameter livs. Did you mean 'lives'?"),
        ("cat:lives", "must read name=value. Write cat:name=value"),
    ],
)
def test_a_wrong_parameter_is_told_what_must_hold(spec: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        with_cat().make(spec)
    assert message in str(error.value)


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(
        UnknownPluginError, match=r"no animal 'cta'. Did you mean 'cat'\? Known: cat"
    ):
        with_cat().get("cta")


def test_a_missing_parameter_is_named() -> None:
    registry = new_registry()

    @registry.register("bird")
    @dataclass
    class Bird(Animal):
        wings: int

    with pytest.raises(InvalidInputError, match=r"Bird needs a value for wings"):
        registry.make("bird")
    assert registry.make("bird", wings=2).wings == 2  # type: ignore[attr-defined]


def test_a_field_of_another_type_cannot_be_given_as_text() -> None:
    registry = new_registry()

    @registry.register("herd")
    @dataclass
    class Herd(Animal):
        members: tuple[int, ...] = ()

    with pytest.raises(InvalidInputError, match=r"Herd.members cannot be given as text"):
        registry.make("herd:members=3")


def test_a_second_registration_names_the_first_owner() -> None:
    registry = with_cat()

    class Dog(Animal): ...

    with pytest.raises(InvalidInputError, match=r"'cat' is registered already, by .*Cat"):
        registry.register("cat")(Dog)


def test_a_class_of_the_same_name_in_another_module_is_another_owner() -> None:
    registry = with_cat()
    other = type("Cat", (Animal,), {"__module__": "elsewhere"})
    other.__qualname__ = registry.get("cat").__qualname__
    with pytest.raises(InvalidInputError, match=r"registered already"):
        registry.register("cat")(other)


def test_a_spec_survives_json() -> None:
    registry = with_cat()
    cat = registry.make("cat:lives=3,age=2")
    spec = json.loads(json.dumps(registry.spec_of(cat)))
    assert registry.build(spec["name"], spec["params"]) == cat


FILE = """
from dataclasses import dataclass

@dataclass
class Threshold:
    min_path_prob: float = 0.05

class Plain:
    pass
"""


@pytest.fixture
def plugin_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_a_class_in_a_file_needs_no_future_import(plugin_file: Path) -> None:
    made = new_registry().make(f"{plugin_file}:Threshold:min_path_prob=0.25")
    assert made.min_path_prob == 0.25  # type: ignore[attr-defined]


def test_a_class_in_a_file_round_trips(plugin_file: Path) -> None:
    registry = new_registry()
    made = registry.make(f"{plugin_file}:Threshold:min_path_prob=0.25")
    spec = registry.spec_of(made)
    assert spec == {"name": f"{plugin_file}:Threshold", "params": {"min_path_prob": 0.25}}
    again = registry.build(spec["name"], spec["params"])
    assert again.min_path_prob == 0.25  # type: ignore[attr-defined]


def test_the_spec_of_a_class_that_registers_itself_names_its_file(plugin_file: Path) -> None:
    registry = new_registry()
    made = registry.make(f"{plugin_file}:Threshold")
    registry.register("threshold")(type(made))
    assert registry.spec_of(made)["name"] == f"{plugin_file}:Threshold"


def test_a_class_that_is_no_dataclass_has_no_parameters(plugin_file: Path) -> None:
    registry = new_registry()
    assert registry.spec_of(registry.make(f"{plugin_file}:Plain"))["params"] == {}
    with pytest.raises(InvalidInputError, match=r"Plain has no parameter size. Parameters: none"):
        registry.make(f"{plugin_file}:Plain:size=3")


def test_a_missing_class_is_told_the_nearest(plugin_file: Path) -> None:
    with pytest.raises(UnknownPluginError, match=r"no class Treshold. Did you mean 'Threshold'"):
        new_registry().get(f"{plugin_file}:Treshold")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownPluginError, match=r"no file .*absent.py to take the animal from"):
        new_registry().get(f"{tmp_path}/absent.py:Cat")


def test_a_file_that_fails_is_named_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(
        UnknownPluginError, match=r"broken.py cannot be imported: ZeroDivisionError"
    ):
        new_registry().get(f"{tmp_path}/broken.py:Cat")


def test_an_entry_point_is_loaded_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("pathlike", "pathlib:Path", "specfit.test-animals"),
        EntryPoint("absent", "no_such_module:Thing", "specfit.test-animals"),
    ]
    monkeypatch.setattr("specfit.core.registry.entry_points", lambda group: points)
    registry = with_cat()
    assert registry.names() == ["absent", "cat", "pathlike"]
    assert registry.get("pathlike") is Path
    with pytest.raises(UnknownPluginError, match=r"'absent' cannot be loaded from no_such_module"):
        registry.get("absent")
