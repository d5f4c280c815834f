"""Running a segmented artifact: its segments one after the other, fallback partitions on ONNX Runtime."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from autotune.artifact.composite import Composite, Part
from autotune.artifact.directory import Artifact
from autotune.artifact.manifest import KERNELS
from autotune.backends.executor import Span
from autotune.graph.lanes import Lane
from autotune.runtime.artifact_executor import Array, Arrays
from autotune.runtime.inputs import InputCheck
from autotune.runtime.one_shape_executor import OneShapeExecutor
from schedules.errors import InstallError, RunError, last_line

INSTALL = "pip install 'tune-compiler[bench]'"
LONGEST_REASON = 300
"""Characters of an error of ONNX Runtime's that are shown."""

Values = Mapping[str, Array]


class Segment(Protocol):
    """Runs one segment on the values that were made before it."""

    part: Part

    def run(self, values: Values) -> Sequence[Array]:
        """Its outputs, in order."""
        ...

    def profile(self, values: Values) -> tuple[Sequence[Array], list[tuple[str, float]]]:
        """Its outputs, and (symbol, seconds) of what it spent its time on."""
        ...

    def cancel(self) -> None:
        """End a run in progress before its next kernel, where that is possible."""
        ...


class SegmentedExecutor:
    """Runs segments one after the other; values pass between them by name.

    Args:
        threads: threads to run on; None for what the artifact was tuned for.

    Raises:
        ArtifactError: if a file is damaged, or this machine cannot run the artifact.
        InstallError: if ONNX Runtime is not installed.
    """

    lanes: tuple[Lane, ...] = ()

    def __init__(self, artifact: Composite, threads: int | None) -> None:
        self.inputs, self.outputs = artifact.interface.inputs, artifact.interface.outputs
        self.provenance = artifact.provenance
        tuned = {part.path: TunedSegment(part, artifact.open(part), threads) for part in artifact.tuned}
        self.threads = next((segment.threads for segment in tuned.values()), threads or 1)
        self._segments: list[Segment] = [
            tuned[part.path] if part.kind == KERNELS else FallbackSegment(part, self.threads) for part in artifact.parts
        ]

    def run(self, arrays: Arrays) -> list[Array]:
        """As ``ArtifactExecutor.run``.

        Raises:
            RunError: if a segment fails; a fallback partition is named.
        """
        values = self._values(arrays)
        for segment in self._segments:
            values.update(zip(segment.part.outputs, segment.run(values), strict=True))
        return [values[spec.name] for spec in self.outputs]

    def profile(self, arrays: Arrays) -> list[tuple[str, float]]:
        """As ``ArtifactExecutor.profile``; a fallback partition is one entry, named after its file."""
        values = self._values(arrays)
        spent: list[tuple[str, float]] = []
        for segment in self._segments:
            made, own = segment.profile(values)
            values.update(zip(segment.part.outputs, made, strict=True))
            spent += own
        return spent

    def timeline(self, arrays: Arrays) -> list[Span]:
        """Empty: segments run one after the other."""
        return []

    def cancel(self) -> None:
        """As ``ArtifactExecutor.cancel``, at the next tuned kernel."""
        for segment in self._segments:
            segment.cancel()

    def _values(self, arrays: Arrays) -> dict[str, Array]:
        return {spec.name: array for spec, array in zip(self.inputs, arrays, strict=True)}


class TunedSegment:
    """A segment that tuned kernels run."""

    def __init__(self, part: Part, artifact: Artifact, threads: int | None) -> None:
        self.part = part
        self._executor = OneShapeExecutor(artifact, threads)
        self._check = InputCheck(artifact.inputs)
        names = [spec.name for spec in artifact.outputs]
        self._wanted = [names.index(name) for name in part.outputs]

    @property
    def threads(self) -> int:
        """Threads that its kernels run on."""
        return self._executor.threads

    def run(self, values: Values) -> list[Array]:
        """As ``Segment.run``."""
        return self._run(self._arrays(values))

    def profile(self, values: Values) -> tuple[list[Array], list[tuple[str, float]]]:
        """As ``Segment.profile``."""
        arrays = self._arrays(values)
        return self._run(arrays), self._executor.profile(arrays)

    def cancel(self) -> None:
        """As ``Segment.cancel``."""
        self._executor.cancel()

    def _arrays(self, values: Values) -> list[Array]:
        """The segment's inputs; checked, since ONNX Runtime may have made them in another shape."""
        return self._check.arrays({name: values[name] for name in self.part.inputs})

    def _run(self, arrays: Arrays) -> list[Array]:
        made = self._executor.run(arrays)
        return [made[number] for number in self._wanted]


class FallbackSegment:
    """A segment that ONNX Runtime runs, on as many threads as the kernels."""

    def __init__(self, part: Part, threads: int) -> None:
        self.part = part
        self._session = open_onnxruntime(part.path, threads)

    def run(self, values: Values) -> Sequence[Array]:
        """As ``Segment.run``.

        Raises:
            RunError: if it fails.
        """
        part = self.part
        try:
            made: Sequence[Array] = self._session.run(list(part.outputs), {name: values[name] for name in part.inputs})
        except Exception as error:  # ONNX Runtime has no class of its own for what can go wrong in a kernel
            reason = last_line(error)[:LONGEST_REASON]
            operators = ", ".join(part.operators)
            raise RunError(f"fallback partition {part.path.name} ({operators}) failed: {reason}") from error
        return made

    def profile(self, values: Values) -> tuple[Sequence[Array], list[tuple[str, float]]]:
        """As ``Segment.profile``."""
        began = time.perf_counter()
        made = self.run(values)
        return made, [(self.part.path.stem, time.perf_counter() - began)]

    def cancel(self) -> None:
        """Does nothing: ONNX Runtime runs to its end."""


def open_onnxruntime(model: Path, threads: int) -> Any:
    """An ONNX Runtime session over the ONNX file ``model``.

    Raises:
        InstallError: if it is not installed.
    """
    try:
        import onnxruntime  # optional: an extra
    except ImportError as error:
        raise InstallError(
            f"segments with operators that TVM cannot express run on ONNX Runtime, which is not installed; {INSTALL}"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # kernels between need the cores
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.read_bytes(), options, providers=["CPUExecutionProvider"])
