"""Which backend serves a target: the one place of ``autotune`` that looks at ``Target.kind``.

A backend is imported when it is asked for: a session on the CPU loads nothing of CUDA's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from autotune.backends.backend import Backend
from autotune.versions import check_versions
from schedules.target import Target


@cache
def cpu_backend() -> Backend:
    """The backend of ``llvm`` targets."""
    from autotune.backends.cpu.cpu_backend import CpuBackend

    return CpuBackend(backend_of)


@cache
def cuda_backend() -> Backend:
    """The backend of ``cuda`` targets."""
    check_versions()
    from autotune.backends.cuda.cuda_backend import CudaBackend

    return CudaBackend()


BACKENDS: Mapping[str, Callable[[], Backend]] = {"llvm": cpu_backend, "cuda": cuda_backend}
"""Kind of target → its backend."""


def backend_of(target: Target) -> Backend:
    """The backend of ``target``'s kind."""
    return BACKENDS[target.kind]()
