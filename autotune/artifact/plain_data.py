"""Frozen dataclasses as plain JSON data and back: the files of an artifact hold what these two functions make.

A dataclass is an object of its fields, a tuple is a list, ``Config`` and ``Target`` are as their own JSON has
them, and a path is its text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from schedules.config import Config
from schedules.target import Target

T = TypeVar("T")


def encode(value: Any) -> Any:
    """``value`` as plain data; fields that few values have, marked ``sparse``, are absent where they are None."""
    if isinstance(value, Config | Target):
        return json.loads(value.to_json())
    if is_dataclass(value):
        own = {field: getattr(value, field.name) for field in fields(value)}
        return {
            field.name: encode(item)
            for field, item in own.items()
            if item is not None or not field.metadata.get("sparse")
        }
    if isinstance(value, Path):
        return str(value)
    return [encode(item) for item in value] if isinstance(value, tuple) else value


def decode(kind: type[T], data: Any) -> T:
    """The value of type ``kind`` that ``encode`` made ``data`` of; fields that are absent take their defaults.

    Raises:
        TypeError, ValueError, AttributeError, UsageError: if ``data`` is not of this type.
    """
    make: Any = _decoder  # a type is hashable, which mypy does not see
    value: T = make(kind)(data)
    return value


@cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    """Return the function that makes a value of ``kind``; it is kept, since looking types up takes long."""
    if kind in (Config, Target):
        return lambda data: kind.from_json(json.dumps(data))
    if kind is Path:
        return Path
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return lambda data: kind(**{name: _decoder(hints.get(name))(value) for name, value in data.items()})
    kinds = get_args(kind)
    if get_origin(kind) is tuple:
        if kinds[-1] is not Ellipsis:
            return lambda data: tuple(_decoder(own)(item) for own, item in zip(kinds, data, strict=True))
        item = _decoder(kinds[0])
        return tuple if item is _as_it_is else lambda data: tuple(map(item, data))
    if type(None) in kinds:
        present = _decoder(kinds[0])
        return lambda data: None if data is None else present(data)
    return _as_it_is


def _as_it_is(data: Any) -> Any:
    return data
