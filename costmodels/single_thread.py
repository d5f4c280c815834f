"""Keep numeric libraries on one thread: matrices here are small, and the other cores are timing kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped,unused-ignore]

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def single_thread(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Run ``function`` with BLAS and OpenMP on one thread.

    On two busy cores a small Cholesky on two threads takes ten times longer than on one, and every weight that
    xgboost is given 4 ms instead of some µs: the threads wait for each other.
    """
    found: list[ThreadpoolController] = []

    @wraps(function)
    def limited(*arguments: Arguments.args, **named: Arguments.kwargs) -> Returned:
        if not found:  # looking through the loaded libraries costs a millisecond: once, when all of them are loaded
            found.append(ThreadpoolController())
        with found[0].limit(limits=1):
            return function(*arguments, **named)

    return limited
