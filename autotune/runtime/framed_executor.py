"""Kernels with steps on the host around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.backends.executor import Executor, Span
from autotune.frame.frame import Frame
from autotune.runtime.artifact_executor import Array, Arrays, ArtifactExecutor


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
        return [values[spec.name] for spec in self.outputs]

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
