"""Requests joined into one run along an open size, such as the batch.

A batch is open from its first request until it is full, or until it has a stream and that request is as old as is
allowed. While all streams are busy batches fill without anyone waiting for that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune.interface import Interface
from autotune.runtime.stream_queue import Place
from autotune.runtime.threads.request import Request
from autotune.runtime.threads.thread_signal import Signal
from schedules.vocabulary.errors import RunError

logger = logging.getLogger(__name__)

Array = NDArray[Any]
T = TypeVar("T")
Outcome = list[Array] | Exception
"""The outputs of one request, or why there are none."""

Run = Callable[[list[Array]], list[Array]]


class CallingThread:
    """The thread whose request opened a batch, while it waits for a stream to run that batch itself."""

    def __init__(self) -> None:
        self._offered = Signal()
        self._lock = threading.Lock()
        self._turn: tuple[Batch, Place] | None = None
        self._left = False

    def offer(self, batch: Batch, place: Place) -> bool:
        """Return whether the thread runs ``batch`` on the stream of ``place``; else another has to."""
        with self._lock:
            if not self._left:
                self._turn = batch, place
        self._offered.set()
        return not self._left

    def wait(self) -> None:
        """Return when a stream was offered."""
        self._offered.wait()

    def leave(self) -> tuple[Batch, Place] | None:
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
        begun: whether its members can no longer be cancelled.
        ended: whether they have their answers, or other batches have them.
        offer: the batch and its place, for the one thread of the session's that takes them from here; None before the
            batch has a stream.
    """

    members: list[Member] = field(default_factory=list)
    rows: int = 0
    opened_s: float = field(default_factory=time.monotonic)
    full: Signal = field(default_factory=Signal)
    begun: bool = False
    ended: bool = False
    offer: list[tuple[Batch, Place]] | None = None

    def begin(self) -> list[Member]:
        """The members that were not cancelled; from now on they cannot be. If this is interrupted, it goes on there."""
        if not self.begun:
            self.members = [member for member in self.members if _begins(member.answer)]
            self.begun = True
        return self.members

    def without(self, own: CallingThread | None) -> Batch:
        """Take out the requests of other callers than ``own``, as a batch that nobody joins."""
        is_own = [own is not None and member.caller is own for member in self.members]
        members = list(zip(self.members, is_own, strict=True))
        rest = Batch([member for member, mine in members if not mine], begun=self.begun)
        rest.full.set()
        self.members = [member for member, mine in members if mine]
        return rest

    def run(self, run: Run) -> list[Outcome]:
        """Return the outcome of every member that is left, each run alone: an error is that member's."""
        return [_outcome(run, member) for member in self.members]

    def finish(self, outcomes: Sequence[Outcome] | Exception) -> None:
        """Answer every member that has no answer yet with what ``run`` made or raised."""
        if isinstance(outcomes, Exception):
            outcomes = [outcomes] * len(self.members)
        for member, outcome in zip(self.members, outcomes, strict=True):
            answer, wanted = member.answer, member.wanted
            if answer.done():  # by a call that was interrupted, maybe before it told anyone
                pass
            elif isinstance(outcome, Exception):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome if wanted is None else [outcome[number] for number in wanted])
            if isinstance(
                answer, Request
            ):  # a future swallows what an alarm's handler raises while it tells of its end
                answer.ended.set()


def _begins(answer: Future[list[Array]]) -> bool:
    """Return whether a request runs, from now on or since an attempt that was interrupted; not if it was cancelled."""
    if answer.running():
        return True
    try:
        return answer.set_running_or_notify_cancel()
    except (InvalidStateError, RuntimeError):  # that attempt has told those who wait for it
        return False


@dataclass(eq=False, slots=True)
class Turn:
    """The requests that run on a stream.

    Attributes:
        cancel: ends the run.
        batch: of requests; None where a caller has the stream.
        cancelled: whether it was.
        is_over: whether it can no longer be.
    """

    cancel: Callable[[], None]
    batch: Batch | None = None
    cancelled: bool = False
    is_over: bool = False

    def end(self) -> None:
        """Cancel it."""
        self.cancelled = True
        self.cancel()


def taken(offers: list[T]) -> T | None:
    """The last of ``offers``, for one thread alone; None if another has it."""
    try:
        return offers.pop()
    except IndexError:
        return None


def _outcome(run: Run, member: Member) -> Outcome:
    try:
        return run(member.arrays)
    except Exception as error:  # whatever a run raises, the caller whose request it was gets
        return error


class Batcher:
    """Puts requests into batches, and takes the outputs apart again. Safe to call from several threads.

    Args:
        interface: of the model; its calls may be made in several along ``symbol``, so they may also be joined. Every
            input and output has the symbol, on one axis.
        symbol: of which every input of a request has the same number of rows; who adds requests has checked that.
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

    def join(self, member: Member, new: Batch | None = None) -> Batch | None:
        """Add a request; its batch if that is a new one, which needs a stream.

        Args:
            new: what a new batch is to be, so that the caller has it even if this is interrupted.
        """
        arrays = member.arrays
        rows = arrays[0].shape[self._in[0]]
        # What else differs between shapes keeps requests apart.
        key = tuple(
            (*array.shape[:axis], *array.shape[axis + 1 :]) for array, axis in zip(arrays, self._in, strict=True)
        )
        new, own = Batch() if new is None else new, replace(member, rows=rows)
        with self._lock:
            before = self._open.get(key)
            batch = before if before is not None and before.rows + rows <= self._most else new
            if before is not None and batch is not before:
                before.full.set()
            batch.members.append(own)  # first: nobody may join a batch that nobody runs
            batch.rows += rows
            if batch.rows < self._most:
                self._open[key] = batch
            else:
                self._open.pop(key, None)
                batch.full.set()
        return new if batch is new else None

    def close(self, batch: Batch, wait: bool = True) -> None:
        """Return when ``batch`` is full or old enough; nobody joins it any more."""
        if wait:
            batch.full.wait(batch.opened_s + self._wait_s - time.monotonic())
        with self._lock:
            for key in [key for key, other in self._open.items() if other is batch]:
                del self._open[key]

    def run(self, batch: Batch, run: Run) -> list[Outcome]:
        """Return the outcome of every member of a batch that has begun, from one run of all of them.

        If that fails, every member is run alone: it may be one of them that makes it fail, or their number.
        """
        if len(batch.members) < 2:
            return batch.run(run)
        try:
            return self._run_joined(batch.members, run)
        except Exception as error:  # whatever it is, each member is to meet its own
            logger.debug("%d requests are run one by one: joined, they failed: %s", len(batch.members), error)
            return batch.run(run)

    def _run_joined(self, members: Sequence[Member], run: Run) -> list[Outcome]:
        joined = [
            np.concatenate([member.arrays[number] for member in members], axis) for number, axis in enumerate(self._in)
        ]
        rows = sum(member.rows for member in members)
        if any(array.shape[axis] != rows for array, axis in zip(joined, self._in, strict=True)):
            raise RunError("the arrays of a request were given another shape while it waited")
        joined_outputs = run(joined)
        outputs: list[Outcome] = []
        start = 0
        for member in members:
            stop = start + member.rows
            outputs.append(
                [
                    array[(*[slice(None)] * axis, slice(growth.of(start), growth.of(stop)))].copy()
                    for array, (axis, growth) in zip(joined_outputs, self._out, strict=True)
                ]
            )
            start = stop
        return outputs
