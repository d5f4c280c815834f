"""An artifact opened on streams: requests of many threads at once, and requests that nobody waits for.

A stream is a group of cores with executors of its own, so with an arena of its own; weights are the same memory for all
of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from autotune.artifact.directory import Artifact
from autotune.artifact.held_files import read_whole
from autotune.backends.executor import Streams
from autotune.frame.noise import NoiseSource
from autotune.runtime.artifact_executor import ArtifactExecutor
from autotune.runtime.batching import Batch, CallingThread, Member, Outcome, Turn, taken
from autotune.runtime.generation_executor import GenerationExecutor
from autotune.runtime.inputs import InputCheck
from autotune.runtime.key_value_caches import KeyValueCaches
from autotune.runtime.opened_artifact import OpenedArtifact, batcher_of, shapes_of_parts
from autotune.runtime.serve_options import ServeOptions
from autotune.runtime.stream_queue import FORKED, WIDE, ClosedQueue, Place, StreamQueue
from autotune.runtime.threads.request import Request
from autotune.runtime.threads.workers import Workers
from schedules.vocabulary.errors import BusyError, RunError

Array = NDArray[Any]
T = TypeVar("T")

NEXT = 1
"""Requests per stream that wait at the core with their arguments ready. More than one would make no stream busier,
and the choice of the next request belongs to the queue."""


class Serving:
    """One artifact on its streams. Safe to call from several threads.

    Args:
        path: of the artifact.
        threads: of a run on all cores, or on a stream where there are no others; None for what it was tuned for.
        options: streams, queue and batches.

    Raises:
        ArtifactError: if the artifact is damaged or not for this machine.
        UsageError: if its requests cannot be joined into batches and should be, or ``options.seed`` is none.
    """

    def __init__(self, path: Path, threads: int | None, options: ServeOptions) -> None:
        opened = read_whole(path, lambda place: OpenedArtifact(place, threads, options.streams))
        self.seal = opened.seal
        self._executors: Mapping[int, ArtifactExecutor] = opened.executors
        self._path, self._artifact, self._options = path, opened.artifact, options
        self.streams = opened.streams
        self._begin()
        self.first = self._executors.get(WIDE) or self._executors[0]
        frame = opened.artifact.frame if isinstance(opened.artifact, Artifact) else None
        self.noise = NoiseSource(self.first.inputs, options.seed, partial(shapes_of_parts, opened.artifact))
        one_set = isinstance(opened.artifact, Artifact)
        self.check = InputCheck(self.first.inputs, frame, self.noise, one_set=one_set)
        self.generation = self.first if isinstance(self.first, GenerationExecutor) else None
        if self.generation is not None:
            pasts = {cache.past for cache in self.generation.caches}
            rest = [spec for number, spec in enumerate(self.first.inputs) if number not in pasts]
            self.check_new = InputCheck(rest)
            presents = {cache.present for cache in self.generation.caches}
            outputs = enumerate(self.first.outputs)
            self.new_names = [spec.name for number, spec in outputs if number not in presents]
        self.output_names = [spec.name for spec in self.first.outputs]

    def _begin(self) -> None:
        """Make what holds requests, without any.

        Raises:
            UsageError: as the constructor, for batches.
            RunError: if there is no memory.
        """
        options = self._options
        self._batcher = None if options.max_batch == 1 else batcher_of(self._path, self._artifact, options)
        self._streams = self._native_streams() if self._batcher is None else None
        held = 0 if self._streams is None else min(NEXT * self.streams, options.max_queue)
        places = self.streams + held
        self._queue = StreamQueue(places, WIDE in self._executors, options.max_queue, held)
        self._workers = Workers(places, "tune-stream")
        self._left = self._workers.left
        self._running: set[Turn] = set()
        self._lock = threading.Lock()

    @property
    def survives_fork(self) -> bool:
        """Whether the child of a fork can run it."""
        return all(executor.survives_fork for executor in self._executors.values())

    def renew(self) -> None:
        """Begin again in the child of a fork, whose parent's requests are not its own."""
        for executor in self._executors.values():
            executor.resume()
        self.noise.renew()
        self._begin()
        if not self.survives_fork:
            self._streams, self._batcher, self._queue = None, None, ClosedQueue(FORKED)

    def _native_streams(self) -> Streams | None:
        """The streams, where a run is one call of the core's and no request gets all of them."""
        if WIDE in self._executors:
            return None
        first, *others = (self._executors[stream] for stream in range(self.streams))
        return first.streams(others)

    def run(self, arrays: list[Array], timeout_s: float | None) -> list[Array]:
        """Every output; the calling thread waits for a stream and runs on it, or for the batch that it becomes part of.

        Raises:
            BusyError: if there was no stream for ``timeout_s`` seconds, or no answer of a batch.
            RunError: as ``ArtifactExecutor.run``.
        """
        if self._streams is not None:
            try:
                return self._queue.during(self._streams.run, arrays, timeout_s)
            except BusyError:
                raise BusyError.after(timeout_s) from None
            finally:
                if self._left:
                    self._workers.run_left()
        if self._batcher is None:
            return self._on_stream(lambda executor: executor.run(arrays), timeout_s)
        return self._run_joined(arrays, timeout_s)

    def step(self, caches: KeyValueCaches, arrays: list[Array], timeout_s: float | None) -> list[Array]:
        """Implement ``GenerationExecutor.step``, by the calling thread, which waits for a stream and runs on it.

        Raises:
            BusyError, RunError: as ``run``.
        """

        def work(executor: ArtifactExecutor) -> list[Array]:
            assert isinstance(executor, GenerationExecutor)
            return executor.step(caches, arrays)

        return self._on_stream(work, timeout_s)

    def on_stream(
        self, work: Callable[[ArtifactExecutor, list[Array]], T], arrays: list[Array], timeout_s: float | None = None
    ) -> T:
        """Return ``work(executor, arrays)`` on a stream; on all cores if nothing else runs and there is such a stream.

        Raises:
            BusyError: if there was none for ``timeout_s`` seconds.
        """
        if self._streams is None:
            return self._on_stream(lambda executor: work(executor, arrays), timeout_s)
        held = self._streams.stream(timeout_s)
        try:
            executor = self._executors[held.__enter__()]
            return self._in_turn(Turn(executor.halt), executor, lambda: work(executor, arrays))
        finally:  # not ``with``: Ctrl-C at the end of its begin, or the begin of its end, would keep the stream
            try:
                held.__exit__(None, None, None)
            finally:
                held.__exit__(None, None, None)

    def _on_stream(self, work: Callable[[ArtifactExecutor], T], timeout_s: float | None) -> T:
        """Work like ``on_stream``, where streams are not the core's."""
        queue, place = self._queue, Place()
        try:
            queue.acquire(place, timeout_s)
            executor = self._executors[place.held]
            return self._in_turn(Turn(executor.halt), executor, lambda: work(executor))
        finally:
            try:
                queue.release(place)
            finally:  # again after Ctrl-C
                if not place.is_back:
                    queue.release(place)
            if self._left:
                self._workers.run_left()

    def _in_turn(self, turn: Turn, executor: ArtifactExecutor | None, work: Callable[[], T]) -> T:
        """Return the result of ``work``, which can be cancelled through ``turn``."""
        try:
            self._running.add(turn)
            return work()
        finally:
            try:
                self._leave_turn(turn, executor)
            finally:  # again after Ctrl-C
                if not turn.is_over:
                    self._leave_turn(turn, executor)

    def _leave_turn(self, turn: Turn, executor: ArtifactExecutor | None) -> None:
        """From now on it cannot be cancelled, and ``executor`` forgets it if it was."""
        with self._lock:
            self._running.discard(turn)
        if turn.cancelled and executor is not None:
            executor.resume()
        turn.is_over = True

    def submit(self, arrays: list[Array], timeout_s: float | None, wanted: Sequence[int] | None = None) -> Request:
        """Run in a thread of the session's; returns at once unless the queue is full.

        Args:
            wanted: numbers of the outputs that are asked for; None for all.

        Raises:
            BusyError: if the queue was full for ``timeout_s`` seconds.
            UsageError: for sizes that the artifact does not serve.
        """
        self.first.check(arrays)
        request = Request(self._stop)
        self._enter(Member(arrays, request, wanted), timeout_s)
        self._workers.run_left()
        return request

    def cancel(self) -> None:
        """End every run in progress before its next kernel, where that is possible, and none that begins later."""
        if self._streams is not None:
            self._streams.cancel_runs()
        with self._lock:
            for turn in list(self._running):
                if self._streams is None or turn.batch is None:  # else it is the core's, which may not have begun it
                    turn.end()

    def _run_joined(self, arrays: list[Array], timeout_s: float | None) -> list[Array]:
        """Work like ``run``, where requests are joined: the thread that opens a batch runs it.

        With a time limit, which a run could exceed, a thread of the session runs it.
        """
        self.first.check(arrays)
        request = Request(self._stop)
        caller = CallingThread() if timeout_s is None else None
        end = None if timeout_s is None else time.monotonic() + timeout_s

        def time_left() -> float | None:
            return None if end is None else max(0.0, end - time.monotonic())

        try:
            opened = self._enter(Member(arrays, request, caller=caller), time_left())
            if opened and caller is not None:
                caller.wait()
        finally:  # after Ctrl-C too: a stream that was taken is used and given back
            try:
                self._run_offered(caller)
            finally:
                self._run_offered(caller)
        try:
            return request.result(time_left())
        except TimeoutError:
            request.cancel()
            raise BusyError(f"the request was not answered in {timeout_s:g} s; allow a longer timeout") from None

    def _run_offered(self, caller: CallingThread | None) -> None:
        """Run the batch that this thread was offered, unless an earlier call did."""
        turn = None if caller is None else caller.leave()
        try:
            if turn is not None and not turn[0].ended:
                self._run_here(*turn, caller)
        finally:
            self._workers.run_left()

    def _run_here(self, batch: Batch, place: Place, own: CallingThread | None = None) -> None:
        """Run ``batch`` in this thread, which is ``own`` if a request of it is this thread's."""
        outcomes: list[Outcome] | Exception | None = None
        rest: Batch | None = None
        try:
            outcomes = self._made(batch, place.held)
        except Exception as error:  # every member raises it, but that of an alarm's handler is this thread's alone
            if own is not None:
                rest = self._others(batch, own)
            outcomes = error
        except BaseException:  # Ctrl-C, which is this thread's alone
            rest = self._others(batch, own)
            raise
        finally:
            if outcomes is None:
                outcomes = RunError("the run was interrupted")
            try:
                self._end(batch, place, outcomes, rest)
            finally:  # again after Ctrl-C
                if not batch.ended:
                    self._end(batch, place, outcomes, rest)

    def _others(self, batch: Batch, own: CallingThread | None) -> Batch:
        """Take out of ``batch`` the requests of other callers than ``own``, once nobody joins it any more."""
        if self._batcher is not None:
            self._batcher.close(batch, wait=False)
        return batch.without(own)

    def _end(self, batch: Batch, place: Place, outcomes: Sequence[Outcome] | Exception, rest: Batch | None) -> None:
        """Answer the members of ``batch``, and leave its stream to ``rest`` or the queue; it may be called again."""
        if self._batcher is not None and not batch.begun:  # it was interrupted while others could join
            self._batcher.close(batch, wait=False)
        if rest is not None and rest.members:
            self._start(rest, place)
        else:
            self._queue.release(place)  # before anyone learns of it, who may send the next request
        batch.finish(outcomes)
        batch.ended = True

    def _serve(self, offer: list[tuple[Batch, Place]]) -> None:
        """Run a batch, unless another thread has taken it from ``offer``."""
        if (turn := taken(offer)) is not None:
            self._run_here(*turn)

    def _enter(self, member: Member, timeout_s: float | None) -> bool:
        """Return whether ``member`` opens a batch, which then waits for a stream; else it joins one.

        Raises:
            BusyError: if the queue was full for ``timeout_s`` seconds.
        """
        batch = Batch()
        place = self._place_of(batch)
        try:
            if self._batcher is None:
                batch.members.append(member)
            elif self._batcher.join(member, batch) is None:
                return False
            self._queue.submit(place, timeout_s)
        except BusyError as error:
            self._refuse(batch, member, error)
            raise
        except BaseException:  # Ctrl-C: others may have joined what this thread was to run
            if batch.members:
                self._queue.put(place)
            raise
        return True

    def _place_of(self, batch: Batch) -> Place:
        place = Place()
        place.start = partial(self._start, batch)
        return place

    def _start(self, batch: Batch, place: Place) -> None:
        """Have ``batch`` run on the stream of ``place``. If this is interrupted, it is called again."""
        caller = batch.members[0].caller
        if caller is not None and caller.offer(batch, place):
            return
        if batch.offer is None:
            batch.offer = [(batch, place)]
        self._workers.put(partial(self._serve, batch.offer))

    def _made(self, batch: Batch, stream: int) -> list[Outcome]:
        """Return the outcome of every member of ``batch``."""
        if self._batcher is not None:
            self._batcher.close(batch)
        if self._streams is not None:
            call = self._streams.call(batch.members[0].arrays)
            # In its turn before it begins: one that has begun is cancelled through that.
            turn = Turn(call.cancel, batch)
            return self._in_turn(turn, None, lambda: [call.run(None)] if batch.begin() else [])
        executor = self._executors[stream]
        turn = Turn(executor.halt, batch)

        def run(arrays: list[Array]) -> list[Array]:
            if turn.cancelled:  # between runs of one batch
                raise RunError("the run was cancelled")
            return executor.run(arrays)

        def run_all() -> list[Outcome]:
            if not batch.begin():
                return []
            return batch.run(run) if self._batcher is None else self._batcher.run(batch, run)

        return self._in_turn(turn, executor, run_all)

    def _refuse(self, batch: Batch, member: Member, error: BusyError) -> None:
        """Refuse ``member``, which opened ``batch``; requests that have joined it meanwhile wait on."""
        if self._batcher is not None:
            self._batcher.close(batch, wait=False)
        others = [other for other in batch.members if other.answer is not member.answer]
        member.answer.set_exception(error)
        if others:
            rest = Batch(others, full=batch.full)
            rest.full.set()
            self._queue.put(self._place_of(rest))

    def _stop(self, request: Request) -> None:
        with self._lock:
            for turn in list(self._running):
                members = [] if turn.batch is None else turn.batch.members
                if len(members) == 1 and members[0].answer is request:
                    turn.end()
