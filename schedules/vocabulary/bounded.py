"""Data from files that anybody may have written, read within bounds: JSON, and compressed bytes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

MOST_DEPTH = 32
"""Deepest nesting of JSON in a log or a manifest; ours is at most seven levels deep."""

MOST_UNPACKED_BYTES = 64 * 1024 * 1024
"""Most bytes that one compressed text may become: programs hold no weights and take kilobytes."""

DAMAGE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""Whatever reading data raises that is not as this program writes it: infinity for a whole number is an
``OverflowError``, 1/0 for a fraction a ``ZeroDivisionError``, and NumPy's types have a syntax."""

_CONTAINERS = (dict, list)

PLAIN, GZIP = 15, 31
"""Forms of compressed bytes, as ``zlib`` numbers them."""


def parsed_json(text: str | bytes, most_depth: int | None = None) -> Any:
    """The data of a JSON text.

    Args:
        most_depth: objects and lists that may be within each other. None leaves it to the parser, which is faster on
            long texts.

    Raises:
        ValueError: if it is not JSON, not UTF-8, or nested too deeply.
    """
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if most_depth is not None:
        _check_depth(data, most_depth)
    return data


def _check_depth(data: object, most: int) -> None:
    level = [data] if isinstance(data, _CONTAINERS) else []
    for _ in range(most):
        level = [inner for outer in level for inner in _inside(outer) if isinstance(inner, _CONTAINERS)]
    if level:
        raise ValueError(f"it is nested more than {most} levels deep")


def _inside(data: object) -> Iterable[object]:
    return data.values() if isinstance(data, dict) else data  # type: ignore[return-value]


def unpacked(raw: bytes, form: int = PLAIN, most_bytes: int = MOST_UNPACKED_BYTES) -> bytes:
    """The bytes that were compressed to ``raw``, in the ``zlib`` form ``form``.

    Raises:
        ValueError: if they are damaged or more than ``most_bytes``.
    """
    stream = zlib.decompressobj(form)
    try:
        data = stream.decompress(raw, most_bytes + 1)
    except zlib.error as error:
        raise ValueError(f"its compressed bytes are damaged: {error}") from error
    if len(data) > most_bytes:
        raise ValueError(f"its compressed bytes become more than {most_bytes >> 20} MiB")
    if not stream.eof:
        raise ValueError("its compressed bytes end too early")
    return data


def is_whole(value: object) -> bool:
    """Return whether ``value`` is a whole number, also one of NumPy's; a truth value is none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Return whether ``value`` is a real number, also one of NumPy's; NaN is none."""
    return isinstance(value, Real) and value == value
