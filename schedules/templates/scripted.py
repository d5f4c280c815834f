"""TVMScript of functions that are made again and again, without TVM's look at the sources of every caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.script.parser._core import parse, utils


def prim_func(s_tir: bool) -> Callable[[Callable[..., Any]], tirx.PrimFunc]:
    """``T.prim_func`` for a function whose annotations are no strings and that is no part of a class.

    TVM's own reads the source lines of all callers first, for classes and strings: 0.1 s each time in an import, on a
    Zen 3. The parser knows a decorator by the name ``prim_func``, and reads ``s_tir`` where it is written.
    """
    assert s_tir

    def parsed(function: Callable[..., Any]) -> tirx.PrimFunc:
        return parse(function, utils.inspect_function_capture(function))

    parsed.dispatch_token = "tirx"  # type: ignore[attr-defined]  # noqa: S105 - names a dialect
    return parsed
