"""What ``InferenceSession`` calls: one interface to artifacts of one set of shapes, of several, and of segments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from autotune.backends.executor import Span, Streams
from autotune.graph.lanes import Lane
from autotune.runtime.inputs import Spec

Array = NDArray[Any]
Arrays = Sequence[Array]


class ArtifactExecutor(ABC):
    """Runs an artifact on arrays, one per input of the model and in that order, one call at a time.

    Attributes:
        inputs, outputs: of the model.
        provenance: where the artifact comes from.
        threads: that kernels run on.
        lanes: what runs the subgraphs; empty where the model is not cut into subgraphs.
    """

    inputs: Sequence[Spec]
    outputs: Sequence[Spec]
    provenance: Mapping[str, Any]
    threads: int
    lanes: tuple[Lane, ...] = ()

    @property
    def survives_fork(self) -> bool:
        """Whether the child of a fork can run it."""
        return False

    def check(self, arrays: Arrays) -> None:  # noqa: B027  # most artifacts take every request of their inputs' shapes
        """Check that ``run`` takes these arrays, before they wait or are joined with those of others.

        Raises:
            UsageError: for sizes that the artifact does not serve.
        """

    @abstractmethod
    def run(self, arrays: Arrays) -> list[Array]:
        """Every output, in memory of the caller's.

        Args:
            arrays: of the shapes and types of ``inputs``.

        Raises:
            UsageError: for sizes that the artifact does not serve.
            RunError: if the run fails or is cancelled.
        """

    @abstractmethod
    def profile(self, arrays: Arrays) -> list[tuple[str, float]]:
        """(symbol, seconds) of every kernel call of one run, in order; empty where that cannot be measured."""

    def timeline(self, arrays: Arrays) -> list[Span]:
        """When every subgraph of one run ran; empty where that cannot be measured."""
        return []

    def cancel(self) -> None:
        """End the run in progress in another thread before its next kernel, where that is possible."""
        self.halt()
        self.resume()

    @abstractmethod
    def halt(self) -> None:
        """Work like ``cancel``; until ``resume``, runs that begin end at once, where that is possible."""

    def resume(self) -> None:  # noqa: B027  # where runs go on to their ends there is nothing to undo
        """Let runs begin again."""

    def streams(self, others: Sequence[ArtifactExecutor]) -> Streams | None:
        """This executor and others of the same artifact as streams; None where Python takes part in a run."""
        return None
