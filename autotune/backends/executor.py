"""What runs a compiled program: one protocol for CPU lanes, TVM's virtual machine and devices."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from autotune.graph.lanes import Lane
from autotune.graph.steps import Group

Arrays = Sequence[NDArray[Any]]


@dataclass(frozen=True)
class LiveCase:
    """Two calls whose first rows are the same.

    Attributes:
        live: how many.
        zeros, other: inputs with zeros behind them, and with something else.
    """

    live: int
    zeros: Arrays
    other: Arrays


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

    @property
    def survives_fork(self) -> bool:
        """Whether the child of a fork can run it."""
        ...

    def run(self, inputs: Arrays, live: int = 0) -> list[NDArray[Any]]:
        """One array per output, of the shapes of the model's outputs, in memory of their own.

        Args:
            inputs: dense arrays of any alignment, one per model input that has elements.
            live: rows of the artifact's open size that count (``Artifact.live``); what others would yield may be left
                out. 0 if all count.

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

    def halt(self) -> None:
        """End the run in progress, and those that begin until ``resume``, before the next kernel, where possible."""
        ...

    def resume(self) -> None:
        """Let runs begin again."""
        ...

    def streams(self, others: Sequence[KernelExecutor]) -> Streams | None:
        """This executor and others of the same program as streams; None where Python takes part in a run."""
        ...


class StreamCall(Protocol):
    """One request, ready to run."""

    def run(self, timeout_s: float | None) -> list[NDArray[Any]]:
        """Implement ``KernelExecutor.run``, on the first stream that is free.

        Raises:
            BusyError: if none was for ``timeout_s`` seconds.
            RunError: if a kernel failed, or the request was cancelled.
        """
        ...

    def cancel(self) -> None:
        """End its wait, or its run before the next kernel, and no other's; from any thread."""
        ...


class Streams(Protocol):
    """Executors of one program, of which a request gets the first that is free; first come, first served.

    Requests wait with their arguments ready and outside of Python's lock: a stream that is free begins the next one
    without Python.
    """

    def call(self, inputs: Arrays) -> StreamCall:
        """A request for ``inputs``, which are as ``KernelExecutor.run`` takes them."""
        ...

    def run(self, inputs: Arrays, timeout_s: float | None) -> list[NDArray[Any]]:
        """Run such a request now, as ``StreamCall.run`` does."""
        ...

    def cancel_runs(self) -> None:
        """End every run in progress before its next kernel."""
        ...

    def stream(self, timeout_s: float | None) -> AbstractContextManager[int]:
        """The number of an executor that is the caller's for the body alone.

        Raises:
            BusyError: if none was free for ``timeout_s`` seconds.
        """
        ...
