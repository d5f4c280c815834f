"""What runs a compiled program: one protocol for CPU lanes, TVM's virtual machine and devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from autotune.graph.lanes import Lane
from autotune.graph.steps import Group

Arrays = Sequence[NDArray[Any]]


@dataclass(frozen=True)
class Span:
    """When a group of kernel calls ran, in seconds since the run began."""

    group: Group
    began_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended_s - self.began_s


class KernelExecutor(Protocol):
    """Runs one compiled program. Safe to call from several threads, which take turns."""

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """What runs its subgraphs; empty where the program is not cut into subgraphs."""
        ...

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        """One array per output, of the shapes of the model's outputs, in memory of their own.

        Args:
            inputs: dense arrays of any alignment, one per model input that has elements.

        Raises:
            RunError: if a kernel failed or the run was cancelled.
        """
        ...

    def profile(self, inputs: Arrays) -> list[tuple[str, float]]:
        """(symbol, seconds) of every kernel call of one run, in order; empty where that cannot be measured."""
        ...

    def timeline(self, inputs: Arrays) -> list[Span]:
        """When every group of calls of one run ran; empty where that cannot be measured."""
        ...

    def cancel(self) -> None:
        """End the run in progress before its next kernel, where that is possible."""
        ...
