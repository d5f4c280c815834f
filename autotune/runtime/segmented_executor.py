"""Running a segmented artifact: its segments one after the other, fallback partitions on ONNX Runtime."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.artifact.composite import Composite, Part
from autotune.artifact.manifest import THREADS
from autotune.backends.executor import Executor
from autotune.host.third_party import ThirdPartyError, foreign_runs, third_party
from autotune.runtime.artifact_executor import Array, Arrays, ArtifactExecutor, owned
from autotune.runtime.inputs import InputCheck
from autotune.runtime.one_shape_executor import OneShapeExecutor
from schedules.vocabulary.errors import InstallError, ModelError, RunError, last_line

INSTALL = "pip install 'tune-compiler[bench]'"
SILENT = 4
"""ONNX Runtime's level of messages: fatal ones only. An error comes as an exception."""

LONGEST_REASON = 300
"""Characters of an error of ONNX Runtime's that are shown."""


class SegmentedExecutor(ArtifactExecutor):
    """Runs segments one after the other; values pass between them by name.

    Args:
        threads: threads to run on; None for what the artifact was tuned for.
        cpus: logical CPUs of the kernels; none for the first of this process. ONNX Runtime goes where it likes.

    Raises:
        ArtifactError: if a file is damaged, or this machine cannot run the artifact.
        InstallError: if ONNX Runtime is not installed.
    """

    def __init__(self, artifact: Composite, threads: int | None, cpus: Sequence[int] = ()) -> None:
        self.inputs, self.outputs = artifact.interface.inputs, artifact.interface.outputs
        self.provenance = artifact.provenance
        tuned = {part.path: OneShapeExecutor(artifact.open(part), threads, cpus) for part in artifact.tuned}
        alone = threads or int(artifact.provenance.get(THREADS, 1))  # ONNX Runtime runs everything
        self.threads = next((executor.threads for executor in tuned.values()), alone)
        self._segments: list[ArtifactExecutor] = [
            tuned.get(part.path) or FallbackExecutor(part, self.threads) for part in artifact.parts
        ]
        # ONNX Runtime may make a value in another shape than kernels were built for.
        self._checks: dict[ArtifactExecutor, InputCheck] = {
            executor: InputCheck(executor.inputs, inner=True) for executor in tuned.values()
        }

    def run(self, arrays: Arrays) -> list[Array]:
        """Implement ``Executor.run``.

        Raises:
            RunError: if a segment fails; a fallback partition is named.
        """
        values = {spec.name: array for spec, array in zip(self.inputs, arrays, strict=True)}
        for segment in self._segments:
            values |= self._made(segment, self._read(segment, values))
        return owned([values[spec.name] for spec in self.outputs], arrays)

    def profile(self, arrays: Arrays) -> list[tuple[str, float]]:
        """Implement ``Executor.profile``; a fallback partition is one entry, named after its file."""
        values = {spec.name: array for spec, array in zip(self.inputs, arrays, strict=True)}
        spent: list[tuple[str, float]] = []
        for segment in self._segments:
            own = self._read(segment, values)
            spent += segment.profile(own)
            values |= self._made(segment, own)
        return spent

    @property
    def parts(self) -> Sequence[Executor]:
        """Implement ``Executor.parts``."""
        return self._segments

    def _read(self, segment: ArtifactExecutor, values: Mapping[str, Array]) -> list[Array]:
        """The inputs of a segment."""
        feed = {spec.name: values[spec.name] for spec in segment.inputs}
        check = self._checks.get(segment)
        return check.arrays(feed) if check else list(feed.values())

    def _made(self, segment: ArtifactExecutor, arrays: Arrays) -> dict[str, Array]:
        """Return the outputs of a segment, by name."""
        return {spec.name: array for spec, array in zip(segment.outputs, segment.run(arrays), strict=True)}


class FallbackExecutor(ArtifactExecutor):
    """Runs a fallback partition on ONNX Runtime, on as many threads as the kernels."""

    def __init__(self, part: Part, threads: int) -> None:
        self.inputs, self.outputs, self.provenance, self.threads = part.inputs, part.outputs, {}, threads
        self._part = part
        self._session = open_onnxruntime(part.path, threads)
        self._runs = foreign_runs()

    def run(self, arrays: Arrays) -> list[Array]:
        """Implement ``Executor.run``."""
        feed = {spec.name: array for spec, array in zip(self.inputs, arrays, strict=True)}
        try:
            with third_party(), self._runs:
                return list(self._session.run([spec.name for spec in self.outputs], feed))
        except ThirdPartyError as error:
            reason, operators = last_line(error.__cause__ or error)[:LONGEST_REASON], ", ".join(self._part.operators)
            raise RunError(f"fallback partition {self._part.path.name} ({operators}) failed: {reason}") from error

    def profile(self, arrays: Arrays) -> list[tuple[str, float]]:
        """Implement ``Executor.profile``: the name of the file, and the seconds of one run."""
        began = time.perf_counter()
        self.run(arrays)
        return [(self._part.path.stem, time.perf_counter() - began)]


def open_onnxruntime(model: Path, threads: int, from_bytes: bool = True) -> Any:
    """An ONNX Runtime session over the ONNX file ``model``.

    Its optimiser refuses some models that it runs, as where a branch that is never taken does not fit: such a one runs
    without.

    Args:
        from_bytes: read the file here, for a fallback partition that may be replaced; else the model may have data in
            other files.

    Raises:
        InstallError: if it is not installed.
        ModelError: if it refuses the file.
    """
    try:
        import onnxruntime  # optional: an extra
    except ImportError as error:
        raise InstallError(f"{model.name} runs on ONNX Runtime, which is not installed; {INSTALL}") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # kernels between need the cores
    options.log_severity_level = SILENT
    try:
        data = model.read_bytes() if from_bytes else str(model)
    except OSError as error:
        raise ModelError(f"{model} cannot be read ({error.strerror}); copy or build it again") from error
    try:
        with third_party():
            return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except ThirdPartyError:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        with third_party():
            return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except ThirdPartyError as error:
        what = f"fallback partition {model.name}" if from_bytes else model.name
        raise ModelError(f"ONNX Runtime refuses {what}: {error}; export the model again") from error
