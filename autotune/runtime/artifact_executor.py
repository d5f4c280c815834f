"""What ``InferenceSession`` calls: one protocol for artifacts of one set of shapes, of several, and of segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from autotune.backends.executor import Span
from autotune.graph.lanes import Lane
from autotune.runtime.inputs import Spec

Array = NDArray[Any]
Arrays = Sequence[Array]


class ArtifactExecutor(Protocol):
    """Runs an artifact on arrays, one per input of the model and in that order. Safe to call from several threads."""

    @property
    def inputs(self) -> Sequence[Spec]:
        """The model's inputs."""
        ...

    @property
    def outputs(self) -> Sequence[Spec]:
        """The model's outputs."""
        ...

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where the artifact comes from."""
        ...

    @property
    def threads(self) -> int:
        """Threads that kernels run on."""
        ...

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """What runs the subgraphs; empty where the model is not cut into subgraphs."""
        ...

    def run(self, arrays: Arrays) -> list[Array]:
        """Every output, in memory of the caller's.

        Args:
            arrays: of the shapes and types of ``inputs``.

        Raises:
            UsageError: for sizes that the artifact does not serve.
            RunError: if the run fails or is cancelled.
        """
        ...

    def profile(self, arrays: Arrays) -> list[tuple[str, float]]:
        """(symbol, seconds) of every kernel call of one run, in order; empty where that cannot be measured."""
        ...

    def timeline(self, arrays: Arrays) -> list[Span]:
        """When every subgraph of one run ran; empty where that cannot be measured."""
        ...

    def cancel(self) -> None:
        """End the runs in progress in other threads before their next kernel, where that is possible."""
        ...
