"""TVMScript of functions that are made again and again, without TVM's look at the sources of every caller."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any

import tvm
from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with
from tvm.script.parser._core import Parser, doc, parse, scan_macro, utils
from tvm.tirx.script.parser.entry import TIRInline


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


def register_intrinsic(name: str, described: str, done: str) -> str:
    """Register what ``tensorize`` calls ``name``: the sources of what it replaces and of what it writes instead.

    Both are functions with the decorator ``scripted.prim_func``. Returns ``name``.
    """
    replaced, written = (parse(source, {"T": T, "scripted": sys.modules[__name__]}) for source in (described, done))
    tvm.s_tir.TensorIntrin.register(name, replaced, written, override=True)
    return name


class Inline(TIRInline):  # type: ignore[misc]  # TVM ships no types
    """A function of ``inline``, written anew wherever a script calls it."""

    def _find_parser_def(self) -> Parser:
        """Return the parser that reads the calling script: a variable of the frame that evaluates the call.

        Raises:
            RuntimeError: if no script calls it.
        """
        frame = inspect.currentframe()
        while frame is not None:
            parser = frame.f_globals.get(self.parser_object_name)
            if parser is not None:
                return parser
            frame = frame.f_back
        raise RuntimeError(f"{self.func.__name__} is called outside of a script")

    def get_macro_def(self) -> doc.FunctionDef:
        """Return the function's syntax tree."""
        return self._tree

    @cached_property
    def _tree(self) -> doc.FunctionDef:
        return super().get_macro_def()


def inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """``T.inline`` for a function outside of scripts.

    For each call, TVM's own looks for the source file of every frame on the stack, among all modules, and parses the
    function: half of the time that a kernel of attention takes, and more the deeper the stack is.
    """
    written = Inline(*scan_macro(function, utils.inspect_function_capture(function)), function)

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        return written(*arguments, **named)

    return call
