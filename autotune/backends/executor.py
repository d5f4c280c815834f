"""One protocol for everything that runs a program or an artifact: lanes, devices, shapes, segments and streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
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


class Executor(ABC):
    """Runs a program or an artifact. Safe to call from several threads, which take turns.

    Attributes:
        lanes: what runs the subgraphs; empty where the program is not cut into subgraphs.
    """

    lanes: tuple[Lane, ...] = ()

    @property
    def parts(self) -> Sequence[Executor]:
        """The executors that this one runs on."""
        return ()

    @property
    def survives_fork(self) -> bool:
        """Whether the child of a fork can run it."""
        return bool(self.parts) and all(part.survives_fork for part in self.parts)

    def check(self, arrays: Arrays) -> None:  # noqa: B027  # most take every request of their inputs' shapes
        """Check that ``run`` takes these arrays, before they wait or are joined with those of others.

        Raises:
            UsageError: for sizes that the artifact does not serve.
        """

    @abstractmethod
    def run(self, arrays: Arrays) -> list[NDArray[Any]]:
        """One array per output, of the shapes of the model's outputs, in memory of their own.

        Args:
            arrays: one per input of the model; for a compiled program dense, and only those that have elements.

        Raises:
            UsageError: for sizes that the artifact does not serve.
            RunError: if a kernel failed or the run was cancelled.
        """

    def run_live(self, arrays: Arrays, live: Sequence[int]) -> list[NDArray[Any]]:
        """Work like ``run``, where of each open size (``Artifact.live``) the first rows count alone.

        What the others would yield may be left out: it may be anything.

        Args:
            live: how many rows of each.
        """
        return self.run(arrays)

    def run_rows(self, arrays: Arrays, count: int) -> list[NDArray[Any]]:
        """Run ``count`` times, as one call; the outputs of all runs, one behind the other along their first axis.

        Args:
            arrays: the inputs of all runs, one behind the other along their first axis; ``count`` is 1 at least.

        Raises:
            UsageError, RunError: as ``run``.
        """
        shares = [len(array) // count for array in arrays]
        runs = [
            self.run([array[row * share : (row + 1) * share] for array, share in zip(arrays, shares, strict=True)])
            for row in range(count)
        ]
        return [np.concatenate(parts) for parts in zip(*runs, strict=True)]

    def profile(self, arrays: Arrays) -> list[tuple[str, float]]:
        """(symbol, seconds) of every kernel call of one run, in order; empty where that cannot be measured."""
        return []

    def timeline(self, arrays: Arrays) -> list[Span]:
        """Return when every group of calls of one run ran; empty where that cannot be measured."""
        return []

    def cancel(self) -> None:
        """End the run in progress in another thread before its next kernel, where that is possible."""
        self.halt()
        self.resume()

    def halt(self) -> None:
        """Work like ``cancel``; until ``resume``, runs that begin end at once, where that is possible."""
        for part in list(self.parts):
            part.halt()

    def resume(self) -> None:
        """Let runs begin again."""
        for part in list(self.parts):
            part.resume()

    def streams(self, others: Sequence[Executor]) -> Streams | None:
        """This executor and others of the same program as streams; None where Python takes part in a run."""
        return None


class StreamCall(Protocol):
    """One request, ready to run."""

    def run(self, timeout_s: float | None) -> list[NDArray[Any]]:
        """Implement ``Executor.run``, on the first stream that is free.

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
        """A request for ``inputs``, which are as ``Executor.run`` takes them."""
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
