"""Running an artifact of kernels, which is for one set of input shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.artifact.directory import Artifact
from autotune.backends.backend_catalog import backend_of
from autotune.backends.executor import Executor, LiveCase, Span, StreamCall, Streams
from autotune.frame.frame import Frame
from autotune.graph.steps import LiveRows
from autotune.host.dtypes import as_words, numpy_type, word
from autotune.interface import Growth
from autotune.runtime.artifact_executor import Array, Arrays, ArtifactExecutor, owned


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
        backend.check_host(artifact)
        self.inputs, self.outputs, self.provenance = artifact.inputs, artifact.outputs, artifact.provenance
        self.threads = threads or artifact.target.threads
        self._artifact = artifact
        self._kernels = backend.executor(artifact, self.threads, cpus)
        self.lanes = self._kernels.lanes
        self._outputs = [(spec, numpy_type(spec.dtype)) for spec in artifact.outputs]
        # Whether kernels read all inputs, in the type in which they are given.
        inputs = [(spec, numpy_type(spec.dtype)) for spec in artifact.inputs]
        self._as_given = all(0 not in spec.shape and word(dtype) == dtype for spec, dtype in inputs)
        # Whether the kernels make all outputs, in the type that users see.
        self._as_made = all(0 not in spec.shape and word(dtype) == dtype for spec, dtype in self._outputs)

    def run(self, arrays: Arrays) -> list[Array]:
        """Implement ``Executor.run``."""
        outputs = self._kernels.run(self._read(arrays))
        return outputs if self._as_made else self._as_users_see(outputs)

    def run_live(self, arrays: Arrays, live: Sequence[int]) -> list[Array]:
        """Implement ``Executor.run_live``."""
        outputs = self._kernels.run_live(self._read(arrays), live)
        return outputs if self._as_made else self._as_users_see(outputs)

    def run_rows(self, arrays: Arrays, count: int) -> list[Array]:
        """Implement ``Executor.run_rows``."""
        outputs = self._kernels.run_rows(self._read(arrays), count)
        return outputs if self._as_made else self._as_users_see(outputs, count)

    def live_rows(
        self, symbol: str, rows: int, cases: Sequence[LiveCase], growths: Sequence[Growth] = ()
    ) -> LiveRows | None:
        """See ``Backend.live_rows``; cases hold arrays as users give them."""
        read = [LiveCase(case.live, self._read(case.zeros), self._read(case.other)) for case in cases]
        return backend_of(self._artifact.target).live_rows(self._artifact, symbol, rows, read, growths)

    def profile(self, arrays: Arrays) -> list[tuple[str, float]]:
        """Implement ``Executor.profile``."""
        return self._kernels.profile(self._read(arrays))

    def timeline(self, arrays: Arrays) -> list[Span]:
        """Implement ``Executor.timeline``."""
        return self._kernels.timeline(self._read(arrays))

    @property
    def parts(self) -> Sequence[Executor]:
        """Implement ``Executor.parts``."""
        return (self._kernels,)

    def streams(self, others: Sequence[Executor]) -> Streams | None:
        """Implement ``Executor.streams``."""
        same = [other._kernels for other in others if isinstance(other, OneShapeExecutor)]
        streams = self._kernels.streams(same) if self._as_made else None
        return None if streams is None else OneShapeStreams(streams, self._read)

    def _read(self, arrays: Arrays) -> list[Array]:
        """Return the arrays that kernels read: dense, of types that they know, and not those without elements."""
        if not self._as_given:
            arrays = [as_words(array) for array in arrays if array.size]
        return [
            array if type(array) is np.ndarray and array.flags.c_contiguous else np.asarray(array, order="C")
            for array in arrays
        ]

    def _as_users_see(self, outputs: list[Array], count: int = 1) -> list[Array]:
        """All outputs of ``count`` runs, in the types that users see; no kernel makes one without elements."""
        kernels = iter(outputs)
        return [
            np.zeros((count * spec.shape[0], *spec.shape[1:]), dtype) if 0 in spec.shape else next(kernels).view(dtype)
            for spec, dtype in self._outputs
        ]


@dataclass(frozen=True)
class OneShapeStreams:
    """An implementation of ``Streams``, for arrays as users give them.

    Attributes:
        read: what kernels read of them.
    """

    kernels: Streams
    read: Callable[[Arrays], list[Array]]

    def call(self, inputs: Arrays) -> StreamCall:
        """Implement ``Streams.call``."""
        return self.kernels.call(self.read(inputs))

    def run(self, inputs: Arrays, timeout_s: float | None) -> list[Array]:
        """Implement ``Streams.run``."""
        return self.kernels.run(self.read(inputs), timeout_s)

    def cancel_runs(self) -> None:
        """Implement ``Streams.cancel_runs``."""
        self.kernels.cancel_runs()

    def stream(self, timeout_s: float | None) -> AbstractContextManager[int]:
        """Implement ``Streams.stream``."""
        return self.kernels.stream(timeout_s)


class FramedExecutor(ArtifactExecutor):
    """Runs the frame of an artifact and, within it, its kernels.

    Args:
        kernels: what the frame is around.
    """

    def __init__(self, kernels: ArtifactExecutor, frame: Frame) -> None:
        self._kernels, self._frame = kernels, frame
        self.inputs, self.outputs = frame.inputs, frame.outputs
        self.provenance, self.threads, self.lanes = kernels.provenance, kernels.threads, kernels.lanes

    def run(self, arrays: Arrays) -> list[Array]:
        """Implement ``Executor.run``; an output that is a sequence is a list of arrays."""
        values = self._values(arrays)
        outputs = self._kernels.run(self._given(values))
        values.update(zip((spec.name for spec in self._kernels.outputs), outputs, strict=False))
        self._frame.run(self._frame.after, values)
        return owned([values[spec.name] for spec in self.outputs], arrays)

    def profile(self, arrays: Arrays) -> list[tuple[str, float]]:
        """Implement ``Executor.profile``, of the kernels."""
        return self._kernels.profile(self._given(self._values(arrays)))

    def timeline(self, arrays: Arrays) -> list[Span]:
        """Implement ``Executor.timeline``, of the kernels."""
        return self._kernels.timeline(self._given(self._values(arrays)))

    @property
    def parts(self) -> Sequence[Executor]:
        """Implement ``Executor.parts``."""
        return (self._kernels,)

    def _values(self, arrays: Arrays) -> dict[str, Any]:
        values: dict[str, Any] = dict(zip((spec.name for spec in self.inputs), arrays, strict=True))
        self._frame.run(self._frame.before, values)
        return values

    def _given(self, values: dict[str, Any]) -> list[Array]:
        return [values[spec.name] for spec in self._kernels.inputs]
