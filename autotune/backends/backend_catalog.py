"""Which backend serves a target: the one place of ``autotune`` that looks at ``Target.kind``."""

from __future__ import annotations

from autotune.backends.backend import Backend
from autotune.backends.cpu.cpu_backend import CpuBackend
from autotune.backends.cuda.cuda_backend import CudaBackend
from schedules.target import Target

CUDA: Backend = CudaBackend()
BACKENDS: dict[str, Backend] = {backend.kind: backend for backend in (CpuBackend(CUDA), CUDA)}


def backend_of(target: Target) -> Backend:
    """The backend of ``target``'s kind."""
    return BACKENDS[target.kind]
