"""Keep linear algebra on one thread: matrices here are small, and the other cores are timing kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped,unused-ignore]

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


@cache
def _controller() -> ThreadpoolController:
    # looking through the loaded libraries costs a millisecond, so it is done once, when NumPy and SciPy are loaded
    return ThreadpoolController()


def single_thread(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Run ``function`` with BLAS on one thread: on two busy cores a small Cholesky takes ten times longer."""

    @wraps(function)
    def limited(*arguments: Arguments.args, **named: Arguments.kwargs) -> Returned:
        with _controller().limit(limits=1, user_api="blas"):
            return function(*arguments, **named)

    return limited
