"""One registry a kind of plug-in: names to classes, specs to objects and back.

A spec is text: ``lru:25%``, ``eagle3:depth=5,top_k=4``, or ``path/to/file.py:Class:depth=5`` for a
class in a file. Parameters are the dataclass fields of the class.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from specfit.core.errors import InvalidInputError, UnknownPluginError, did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Names and classes of one kind of plug-in.

    Parameters
    ----------
    kind : str
        What it holds, for messages: ``"policy"``.
    group : str
        Entry-point group through which other packages add to it.
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._classes: dict[str, type[T]] = {}
        self._looked_for_entry_points = False

    def register(self, name: str) -> Callable[[type[Any]], type[Any]]:
        """Return a class decorator that registers the class under `name`."""

        def add(cls: type[Any]) -> type[Any]:
            owner = self._classes.get(name)
            if owner is not None and owner.__qualname__ != cls.__qualname__:
                raise InvalidInputError(
                    f"{self.kind} '{name}' is registered already, by {owner.__module__}.{owner.__qualname__}."
                    f" Choose another name."
                )
            self._classes[name] = cls
            return cls

        return add

    def names(self) -> list[str]:
        """Return the registered names, sorted."""
        self._load_entry_points()
        return sorted(self._classes)

    def get(self, name: str) -> type[T]:
        """Return the class registered under `name`, or the class named by ``file.py:Class``.

        Raises
        ------
        UnknownPluginError
            No such name, file or class; the message names the nearest.
        """
        if ".py:" in name:
            return self._from_file(name)
        self._load_entry_points()
        if name not in self._classes:
            known = ", ".join(self.names())
            raise UnknownPluginError(
                f"no {self.kind} '{name}'.{did_you_mean(name, self._classes)} Known: {known}."
            )
        return self._classes[name]

    def make(self, spec: str, **fixed: Any) -> T:
        """Return the object that a text spec describes.

        Parameters
        ----------
        spec : str
            ``name``, ``name:key=value,...`` or ``file.py:Class[:key=value,...]``.
        **fixed
            Further constructor arguments, given by the program and not by the spec.
        """
        name, params = self.parse(spec)
        return self.build(name, {**params, **fixed})

    def parse(self, spec: str) -> tuple[str, dict[str, str]]:
        """Split a spec into the name and its parameters, values still text."""
        head, found, rest = spec.partition(".py:")
        if found:
            class_name, _, params = rest.partition(":")
            name = f"{head}.py:{class_name}"
        else:
            name, _, params = spec.partition(":")
        pairs = [p for p in params.split(",") if p]
        parsed: dict[str, str] = {}
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if not equals:
                raise InvalidInputError(
                    f"'{pair}' in {self.kind} spec '{spec}' must read name=value. Write {name}:name=value."
                )
            parsed[key.strip()] = value.strip()
        return name, parsed

    def build(self, name: str, params: dict[str, Any]) -> T:
        """Return an object of the class `name` with these parameters; text is converted by field type."""
        cls = self.get(name)
        fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
        values: dict[str, Any] = {}
        for key, value in params.items():
            if key not in fields:
                raise InvalidInputError(
                    f"{cls.__name__} has no parameter {key}.{did_you_mean(key, fields)}"
                    f" Parameters: {', '.join(fields) or 'none'}."
                )
            values[key] = _convert(cls, fields[key], value) if isinstance(value, str) else value
        return cls(**values)

    def spec_of(self, plugin: object) -> dict[str, Any]:
        """Return the name of the plug-in's class and its parameters, in types that JSON knows."""
        names = [n for n, c in self._classes.items() if c is type(plugin)]
        name = names[0] if names else f"{type(plugin).__module__}:{type(plugin).__qualname__}"
        params = {
            f.name: getattr(plugin, f.name)
            for f in dataclasses.fields(plugin)  # type: ignore[arg-type]
            if f.init and f.repr
        }
        simple = {
            k: v for k, v in params.items() if isinstance(v, (bool, int, float, str, type(None)))
        }
        return {"name": name, "params": simple}

    def _load_entry_points(self) -> None:
        if self._looked_for_entry_points:
            return
        self._looked_for_entry_points = True
        for point in entry_points(group=self.group):
            self._classes.setdefault(point.name, point.load())

    def _from_file(self, name: str) -> type[T]:
        path, class_name = name.rsplit(":", 1)
        module = _import_file(Path(path), self.kind)
        found = getattr(module, class_name, None)
        if not isinstance(found, type):
            classes = [k for k, v in vars(module).items() if isinstance(v, type)]
            raise UnknownPluginError(
                f"{path} defines no class {class_name}.{did_you_mean(class_name, classes)}"
            )
        return found


def _convert(cls: type[Any], field: dataclasses.Field[Any], text: str) -> Any:
    kind = str(field.type)
    try:
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
    except (ValueError, KeyError):
        raise InvalidInputError(
            f"{cls.__name__}.{field.name} must be {kind}; got '{text}'."
        ) from None
    return text


def _import_file(path: Path, kind: str) -> ModuleType:
    if not path.is_file():
        raise UnknownPluginError(f"no file {path} to take the {kind} from. Check the path.")
    name = f"specfit_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UnknownPluginError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UnknownPluginError(
            f"{path} cannot be imported: {type(error).__name__}: {error}."
        ) from error
    return module
