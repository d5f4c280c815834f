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
    controllers: list[ThreadpoolController] = []

    @wraps(function)
    def limited(*arguments: Arguments.args, **named: Arguments.kwargs) -> Returned:
        if not controllers:  # a look through the loaded libraries costs a millisecond: once, when all are loaded
            controllers.append(ThreadpoolController())
        with controllers[0].limit(limits=1):
            return function(*arguments, **named)

    return limited
