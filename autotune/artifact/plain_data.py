"""Frozen dataclasses as plain JSON data and back: the files of an artifact hold what these two functions make.

A dataclass is an object of its fields, a tuple is a list, ``Config`` and ``Target`` are as their own JSON has
them, and a path is its text.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from schedules.config import Config
from schedules.target import Target

T = TypeVar("T")


def encode(value: Any) -> Any:
    """``value`` as plain data."""
    if isinstance(value, Config | Target):
        return json.loads(value.to_json())
    if is_dataclass(value):
        return {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Path):
        return str(value)
    return [encode(item) for item in value] if isinstance(value, tuple) else value


def decode(kind: type[T], data: Any) -> T:
    """The value of type ``kind`` that ``encode`` made ``data`` of; fields that are absent take their defaults.

    Raises:
        TypeError, ValueError, AttributeError, UsageError: if ``data`` is not of this type.
    """
    value: T = _decode(kind, data)
    return value


def _decode(kind: Any, data: Any) -> Any:
    if kind in (Config, Target):
        return kind.from_json(json.dumps(data))
    if kind is Path:
        return Path(data)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _decode(hints.get(name), value) for name, value in data.items()})
    kinds = get_args(kind)
    if get_origin(kind) is tuple:
        each = repeat(kinds[0], len(data)) if kinds[-1] is Ellipsis else kinds
        return tuple(_decode(own, item) for own, item in zip(each, data, strict=True))
    if type(None) in kinds and data is not None:
        return _decode(kinds[0], data)
    return data


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Types of a dataclass's fields; kept, since looking them up takes longer than all the rest."""
    return get_type_hints(kind)
