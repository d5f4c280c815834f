"""Running a segmented artifact: its segments one after the other, fallback partitions on ONNX Runtime."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.artifact.composite import Composite, Part
from autotune.artifact.directory import Artifact
from autotune.artifact.manifest import KERNELS
from autotune.importer.third_party import ThirdPartyError, third_party
from autotune.runtime.artifact_executor import Array, Arrays, ArtifactExecutor
from autotune.runtime.inputs import InputCheck
from autotune.runtime.one_shape_executor import OneShapeExecutor
from schedules.errors import InstallError, RunError, last_line

INSTALL = "pip install 'tune-compiler[bench]'"
LONGEST_REASON = 300
"""Characters of an error of ONNX Runtime's that are shown."""

Values = Mapping[str, Array]


class SegmentedExecutor(ArtifactExecutor):
    """Runs segments one after the other; values pass between them by name.

    Args:
        threads: threads to run on; None for what the artifact was tuned for.

    Raises:
        ArtifactError: if a file is damaged, or this machine cannot run the artifact.
        InstallError: if ONNX Runtime is not installed.
    """

    def __init__(self, artifact: Composite, threads: int | None) -> None:
        self.inputs, self.outputs = artifact.interface.inputs, artifact.interface.outputs
        self.provenance = artifact.provenance
        tuned = {part.path: TunedSegment(part, artifact.open(part), threads) for part in artifact.tuned}
        self.threads = next((segment.threads for segment in tuned.values()), threads or 1)
        self._segments = [
            tuned[part.path] if part.kind == KERNELS else FallbackSegment(part, self.threads) for part in artifact.parts
        ]

    def run(self, arrays: Arrays) -> list[Array]:
        """As ``ArtifactExecutor.run``.

        Raises:
            RunError: if a segment fails; a fallback partition is named.
        """
        values = self._values(arrays)
        for segment in self._segments:
            values.update(segment.run(values))
        return [values[spec.name] for spec in self.outputs]

    def profile(self, arrays: Arrays) -> list[tuple[str, float]]:
        """As ``ArtifactExecutor.profile``; a fallback partition is one entry, named after its file."""
        values = self._values(arrays)
        spent: list[tuple[str, float]] = []
        for segment in self._segments:
            spent += segment.profile(values)
            values.update(segment.run(values))
        return spent

    def cancel(self) -> None:
        """As ``ArtifactExecutor.cancel``, at the next tuned kernel."""
        for segment in self._segments:
            segment.cancel()

    def _values(self, arrays: Arrays) -> dict[str, Array]:
        return {spec.name: array for spec, array in zip(self.inputs, arrays, strict=True)}


class TunedSegment:
    """A segment that tuned kernels run."""

    def __init__(self, part: Part, artifact: Artifact, threads: int | None) -> None:
        self._executor = OneShapeExecutor(artifact, threads)
        self._check = InputCheck(artifact.inputs)
        self._inputs, self._outputs = _names(part)

    @property
    def threads(self) -> int:
        """Threads that its kernels run on."""
        return self._executor.threads

    def run(self, values: Values) -> dict[str, Array]:
        """What it makes of ``values``, by name."""
        return dict(zip(self._outputs, self._executor.run(self._arrays(values)), strict=True))

    def profile(self, values: Values) -> list[tuple[str, float]]:
        """(symbol, seconds) of every kernel call of one run."""
        return self._executor.profile(self._arrays(values))

    def cancel(self) -> None:
        """End a run in progress before its next kernel."""
        self._executor.cancel()

    def _arrays(self, values: Values) -> list[Array]:
        """The segment's inputs; checked, since ONNX Runtime may have made them in another shape."""
        return self._check.arrays({name: values[name] for name in self._inputs})


class FallbackSegment:
    """A segment that ONNX Runtime runs, on as many threads as the kernels."""

    def __init__(self, part: Part, threads: int) -> None:
        self._part = part
        self._session = open_onnxruntime(part.path, threads)
        self._inputs, self._outputs = _names(part)

    def run(self, values: Values) -> dict[str, Array]:
        """What it makes of ``values``, by name.

        Raises:
            RunError: if it fails.
        """
        try:
            with third_party():
                made = self._session.run(self._outputs, {name: values[name] for name in self._inputs})
        except ThirdPartyError as error:
            reason, operators = last_line(error.__cause__ or error)[:LONGEST_REASON], ", ".join(self._part.operators)
            raise RunError(f"fallback partition {self._part.path.name} ({operators}) failed: {reason}") from error
        return dict(zip(self._outputs, made, strict=True))

    def profile(self, values: Values) -> list[tuple[str, float]]:
        """The name of its file, and the seconds of one run."""
        began = time.perf_counter()
        self.run(values)
        return [(self._part.path.stem, time.perf_counter() - began)]

    def cancel(self) -> None:
        """Does nothing: ONNX Runtime runs to its end."""


def _names(part: Part) -> tuple[list[str], list[str]]:
    return [spec.name for spec in part.inputs], [spec.name for spec in part.outputs]


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
