"""One registry a kind of plug-in: names to classes, specs to objects and back.

A spec is text: ``lru:25%``, ``eagle3:depth=5,top_k=4``, or ``path/to/file.py:Class:depth=5`` for a
class in a file. Parameters are the dataclass fields of the class.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import types
import typing
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from specfit.core.errors import InvalidInputError, UnknownPluginError, did_you_mean

T = TypeVar("T")
_Class = TypeVar("_Class", bound=type[Any])
FILE_MODULE = "specfit_plugin_"
"""Start of the module names of classes that were read from a file."""


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
        self._points: dict[str, EntryPoint] | None = None

    def register(self, name: str) -> Callable[[_Class], _Class]:
        """Return a class decorator that registers the class under `name`."""

        def add(cls: _Class) -> _Class:
            owner = self._classes.get(name)
            if owner is not None and _place(owner) != _place(cls):
                raise InvalidInputError(
                    f"{self.kind} '{name}' is registered already, by {_place(owner)}. "
                    f"Choose another name."
                )
            self._classes[name] = cls
            return cls

        return add

    def names(self) -> list[str]:
        """Return the registered names, sorted."""
        return sorted({*self._classes, *self._entry_points()})

    def get(self, name: str) -> type[T]:
        """Return the class registered under `name`, or the class named by ``file.py:Class``.

        Raises
        ------
        UnknownPluginError
            No such name, file or class; the message names the nearest.
        """
        if ".py:" in name:
            return self._from_file(name)
        if name.endswith(".py"):
            raise UnknownPluginError(
                f"{name} is a file; a {self.kind} is a class in it. Write {name}:ClassName."
            )
        if name not in self._classes and name in self._entry_points():
            self._classes[name] = self._load(self._entry_points()[name])
        if name not in self._classes:
            known = self.names()
            raise UnknownPluginError(
                f"no {self.kind} '{name}'.{did_you_mean(name, known)} Known: {', '.join(known)}."
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
                    f"'{pair}' in {self.kind} spec '{spec}' must read name=value. "
                    f"Write {name}:name=value."
                )
            parsed[key.strip()] = value.strip()
        return name, parsed

    def build(self, name: str, params: dict[str, Any]) -> T:
        """Return an object of the class `name`; values that are text are converted by field type.

        Raises
        ------
        InvalidInputError
            An unknown or missing parameter, or a value of another kind.
        """
        cls = self.get(name)
        unwritten = sorted(getattr(cls, "__abstractmethods__", ()))
        if unwritten:
            raise InvalidInputError(
                f"{cls.__name__} has no {', no '.join(unwritten)}: a {self.kind} must define "
                f"{'it' if len(unwritten) == 1 else 'them'}."
            )
        fields = _parameters(cls)
        for key in params:
            if key not in fields:
                raise InvalidInputError(
                    f"{cls.__name__} has no parameter {key}.{did_you_mean(key, fields)}"
                    f" Parameters: {', '.join(fields) or 'none'}."
                )
        for key, field in fields.items():
            if key not in params and _is_required(field):
                raise InvalidInputError(
                    f"{cls.__name__} needs a value for {key}. Write {name}:{key}=value."
                )
        return cls(**{key: _value(cls, key, value) for key, value in params.items()})

    def spec_of(self, plugin: object) -> dict[str, Any]:
        """Return the name and the parameters of a plug-in, in types that JSON knows.

        The name is the one under which `get` finds the class in any process: the registered one,
        or ``file.py:Class``, also if the class registers itself once its file is read.
        Parameters of other types (a hardware profile) are left out.
        """
        cls = type(plugin)
        names = [n for n, c in self._classes.items() if c is cls]
        params = {
            key: getattr(plugin, key) for key, field in _parameters(cls).items() if field.repr
        }
        simple = {
            k: v for k, v in params.items() if isinstance(v, (bool, int, float, str, type(None)))
        }
        is_known = names and not cls.__module__.startswith(FILE_MODULE)
        return {"name": names[0] if is_known else _file_name(cls), "params": simple}

    def _entry_points(self) -> dict[str, EntryPoint]:
        if self._points is None:
            self._points = {point.name: point for point in entry_points(group=self.group)}
        return self._points

    def _load(self, point: EntryPoint) -> type[T]:
        try:
            loaded: type[T] = point.load()
        except Exception as error:
            raise UnknownPluginError(
                f"{self.kind} '{point.name}' cannot be loaded from {point.value}: "
                f"{type(error).__name__}: {error}."
            ) from error
        return loaded

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


def _place(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _file_name(cls: type[Any]) -> str:
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return f"{file}:{cls.__qualname__}" if file else _place(cls)


def _parameters(cls: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    if not dataclasses.is_dataclass(cls):
        return {}
    return {f.name: f for f in dataclasses.fields(cls) if f.init}


def _is_required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _value(cls: type[Any], key: str, value: Any) -> Any:
    """Return the value of a parameter; text is converted to the type of its field."""
    if not isinstance(value, str):
        return value
    kind = typing.get_type_hints(cls)[key]
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kinds = typing.get_args(kind)
        if value.lower() == "none" and type(None) in kinds:
            return None
        kind = next(k for k in kinds if k is not type(None))
    try:
        if kind is bool:
            return {"true": True, "false": False}[value.lower()]
        if kind in (int, float, str):
            return kind(value)
    except (ValueError, KeyError):
        raise InvalidInputError(
            f"{cls.__name__}.{key} must be {kind.__name__}; got '{value}'."
        ) from None
    raise InvalidInputError(
        f"{cls.__name__}.{key} cannot be given as text: it is a {kind}. Set it in Python."
    )


def _import_file(path: Path, kind: str) -> ModuleType:
    if not path.is_file():
        raise UnknownPluginError(f"no file {path} to take the {kind} from. Check the path.")
    name = f"{FILE_MODULE}{path.stem}"
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
