"""Requests joined into one run along an open size, such as the batch.

A batch is open from its first request until it is full, or until it has a stream and that request is as old as is
allowed. While all streams are busy batches fill without anyone waiting for that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.interface import Interface

Array = NDArray[Any]
Run = Callable[[list[Array]], list[Array]]


class CallingThread:
    """The thread whose request opened a batch, while it waits for a stream to run that batch itself."""

    def __init__(self) -> None:
        self._offered = threading.Event()
        self._lock = threading.Lock()
        self._turn: tuple[Batch, int] | None = None
        self._left = False

    def offer(self, batch: Batch, stream: int) -> bool:
        """Whether the thread runs ``batch`` on ``stream``; else another has to."""
        with self._lock:
            if not self._left:
                self._turn = batch, stream
        self._offered.set()
        return not self._left

    def wait(self) -> None:
        """Return when a stream was offered."""
        self._offered.wait()

    def leave(self) -> tuple[Batch, int] | None:
        """The batch and the stream that were offered, if they were; nothing is taken from now on."""
        with self._lock:
            self._left = self._turn is None
        return self._turn


@dataclass(frozen=True)
class Member:
    """One request.

    Attributes:
        answer: where its outputs go.
        wanted: numbers of the outputs that are asked for; None for all.
        rows: of its arrays, where requests are joined.
        caller: the thread that waits for its answer and runs the batch if this request opens one; None for a thread
            of the session's.
    """

    arrays: list[Array]
    answer: Future[list[Array]]
    wanted: Sequence[int] | None = None
    rows: int = 0
    caller: CallingThread | None = None


@dataclass
class Batch:
    """Requests that run together.

    Attributes:
        rows: of all members.
        full: set once nothing more is waited for.
    """

    members: list[Member] = field(default_factory=list)
    rows: int = 0
    opened_s: float = field(default_factory=time.monotonic)
    full: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> list[Member]:
        """The members that were not cancelled; from now on they cannot be."""
        self.members = [member for member in self.members if member.answer.set_running_or_notify_cancel()]
        return self.members

    def run(self, run: Run) -> list[list[Array]]:
        """The outputs of every member that is left, each run alone."""
        return [run(member.arrays) for member in self.members]

    def finish(self, done: Future[list[list[Array]]]) -> None:
        """Answer every member with what ``run`` made or raised."""
        error = done.exception()
        if error is None:
            for member, outputs in zip(self.members, done.result(), strict=True):
                wanted = member.wanted
                member.answer.set_result(outputs if wanted is None else [outputs[number] for number in wanted])
        else:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Answer every member with ``error``."""
        for member in self.members:
            member.answer.set_exception(error)


class Batcher:
    """Puts requests into batches, and takes the outputs apart again. Safe to call from several threads.

    Args:
        interface: of the model; its calls may be made in several along ``symbol``, so they may also be joined.
        symbol: of which a request brings one row or more.
        most: rows of a batch; a request that brings more runs alone.
        wait_s: seconds that the first request of a batch waits for others.
    """

    def __init__(self, interface: Interface, symbol: str, most: int, wait_s: float) -> None:
        self._most, self._wait_s = most, wait_s
        self._in = [spec.shape.index(symbol) for spec in interface.inputs]
        self._out = [
            (spec.shape.index(symbol), interface.scale[number, spec.shape.index(symbol)])
            for number, spec in enumerate(interface.outputs)
        ]
        self._open: dict[object, Batch] = {}
        self._lock = threading.Lock()

    def join(self, member: Member) -> Batch | None:
        """Add a request; its batch if that is a new one, which needs a stream."""
        arrays = member.arrays
        rows = arrays[0].shape[self._in[0]]
        # What else differs between shapes keeps requests apart.
        key = tuple(
            (*array.shape[:axis], *array.shape[axis + 1 :]) for array, axis in zip(arrays, self._in, strict=True)
        )
        with self._lock:
            before = self._open.get(key)
            batch = before if before is not None and before.rows + rows <= self._most else Batch()
            if before is not None and batch is not before:
                before.full.set()
            self._open[key] = batch
            batch.members.append(replace(member, rows=rows))
            batch.rows += rows
            if batch.rows >= self._most:
                batch.full.set()
                del self._open[key]
        return batch if batch is not before else None

    def close(self, batch: Batch, wait: bool = True) -> None:
        """Return when ``batch`` is full or old enough; nobody joins it any more."""
        if wait:
            batch.full.wait(batch.opened_s + self._wait_s - time.monotonic())
        with self._lock:
            for key in [key for key, other in self._open.items() if other is batch]:
                del self._open[key]

    def run(self, batch: Batch, run: Run) -> list[list[Array]]:
        """The outputs of every member of a batch that has begun, from one run of all of them."""
        members = batch.members
        if len(members) < 2:
            return batch.run(run)
        joined = [
            np.concatenate([member.arrays[number] for member in members], axis) for number, axis in enumerate(self._in)
        ]
        made = run(joined)
        outputs = []
        start = 0
        for member in members:
            stop = start + member.rows
            outputs.append(
                [
                    array[(*[slice(None)] * axis, slice(int(scale * start), int(scale * stop)))].copy()
                    for array, (axis, scale) in zip(made, self._out, strict=True)
                ]
            )
            start = stop
        return outputs
