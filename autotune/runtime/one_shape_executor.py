"""Running an artifact of kernels, which is for one set of input shapes."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import numpy as np
import tvm

from autotune.artifact.directory import Artifact
from autotune.backends.backend_catalog import backend_of
from autotune.backends.cpu.libraries import set_threads
from autotune.backends.executor import Span
from autotune.host.dtypes import as_words, numpy_type, word
from autotune.host.pages import KERNEL_ALIGNMENT, paged
from autotune.interface import TensorSpec
from autotune.runtime.artifact_executor import Array, Arrays, ArtifactExecutor

SMALL_BYTES = 32 << 10
"""Inputs up to this size are always copied. Heuristic, not measured: copying them takes less time than to find out
whether kernels can read them where they are."""


class OneShapeExecutor(ArtifactExecutor):
    """Runs the kernels of one artifact.

    Args:
        threads: threads to run on; None for what the artifact was tuned for.
        cpus: logical CPUs to run on; none for the first of this process.

    Raises:
        ArtifactError: if a file is damaged, or this machine cannot run the artifact.
    """

    def __init__(self, artifact: Artifact, threads: int | None, cpus: Sequence[int] = ()) -> None:
        backend = backend_of(artifact.target)
        backend.check_host(artifact.target, artifact.path)
        self.inputs, self.outputs, self.provenance = artifact.inputs, artifact.outputs, artifact.provenance
        self.threads = threads or artifact.target.threads
        self._kernels = backend.executor(artifact, self.threads, cpus)
        self.lanes = self._kernels.lanes
        self._outputs = [(spec, numpy_type(spec.dtype)) for spec in artifact.outputs]
        # Whether the kernels make all outputs, in the type that users see.
        self._as_made = all(0 not in spec.shape and word(dtype) == dtype for spec, dtype in self._outputs)
        # Kernels have no use for tensors without elements.
        self._staging = [_Staging(spec) for spec in artifact.inputs if math.prod(spec.shape)]
        self._pool_per_thread = self._kernels.pool_per_thread
        self._thread = threading.local()  # not a set of ids: a new thread may get the id of one that ended

    def run(self, arrays: Arrays) -> list[Array]:
        """As ``ArtifactExecutor.run``."""
        made = self._kernels.run(self._tensors(arrays))
        return made if self._as_made else self._as_users_see(made)

    def profile(self, arrays: Arrays) -> list[tuple[str, float]]:
        """As ``ArtifactExecutor.profile``."""
        return self._kernels.profile(self._tensors(arrays))

    def timeline(self, arrays: Arrays) -> list[Span]:
        """As ``ArtifactExecutor.timeline``."""
        return self._kernels.timeline(self._tensors(arrays))

    def cancel(self) -> None:
        """As ``ArtifactExecutor.cancel``; TVM's virtual machine runs to its end."""
        self._kernels.cancel()

    def _tensors(self, arrays: Arrays) -> list[tvm.runtime.Tensor]:
        """What the kernels read."""
        if self._pool_per_thread and not hasattr(self._thread, "ready"):
            set_threads(self.threads)
            self._thread.ready = True
        if len(self._staging) < len(arrays):
            arrays = [array for array in arrays if array.size]
        return [staging.take(array) for staging, array in zip(self._staging, arrays, strict=True)]

    def _as_users_see(self, made: list[Array]) -> list[Array]:
        """All outputs, in the types that users see; no kernel makes one without elements."""
        kernels = iter(made)
        return [
            np.zeros(spec.shape, dtype) if 0 in spec.shape else next(kernels).view(dtype)
            for spec, dtype in self._outputs
        ]


class _Staging:
    """Where an input is copied to if kernels cannot read it where it is: they need aligned, dense, writable memory.

    The memory is kept, since fresh memory costs a page fault every 4 KiB.
    """

    def __init__(self, spec: TensorSpec) -> None:
        dtype = word(numpy_type(spec.dtype))
        size = math.prod(spec.shape) * dtype.itemsize
        self._array = paged(size).view(dtype).reshape(spec.shape)
        self._tensor = tvm.runtime.from_dlpack(self._array)

    def take(self, array: Array) -> tvm.runtime.Tensor:
        """``array`` as a tensor: the array's own memory if kernels can read that, else a copy."""
        array = as_words(array)
        if array.nbytes <= SMALL_BYTES:
            np.copyto(self._array, array)
            return self._tensor
        interface = array.__array_interface__
        address, read_only = interface["data"]
        if address % KERNEL_ALIGNMENT == 0 and interface["strides"] is None and not read_only:
            return tvm.runtime.from_dlpack(array)
        np.copyto(self._array, array)
        return self._tensor
