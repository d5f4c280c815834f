"""An artifact opened on streams: requests of many threads at once, and requests that nobody waits for.

A stream is a group of cores with executors of its own, so with an arena of its own; weights are the same memory for all
of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from autotune.artifact.composite import Composite, read_composite
from autotune.artifact.directory import Artifact, read_artifact
from autotune.artifact.manifest import AUTO, KERNELS, SHAPES, STREAMS, kind_of
from autotune.backends.backend_catalog import backend_of
from autotune.backends.executor import Streams
from autotune.host.machine import read_host, session_groups
from autotune.runtime.artifact_executor import ArtifactExecutor
from autotune.runtime.batching import Batch, Batcher, CallingThread, Member
from autotune.runtime.framed_executor import FramedExecutor
from autotune.runtime.generation_executor import GenerationExecutor
from autotune.runtime.inputs import InputCheck
from autotune.runtime.key_value_caches import KeyValueCaches
from autotune.runtime.multi_shape_executor import MultiShapeExecutor
from autotune.runtime.one_shape_executor import OneShapeExecutor
from autotune.runtime.segmented_executor import SegmentedExecutor
from autotune.runtime.serve_options import ServeOptions
from autotune.runtime.stream_queue import WIDE, StreamQueue
from schedules.errors import BusyError, RunError, UsageError

Array = NDArray[Any]

NEXT = 1
"""Requests per stream that wait at the core with their arguments ready. More than one would make no stream busier,
and the choice of the next request belongs to the queue."""


class Request(Future[list[Array]]):
    """The outputs of one request, all of them, once they are there.

    Args:
        stop: ends the run of this request if it is on, and no other.
    """

    def __init__(self, stop: Any) -> None:
        super().__init__()
        self._stop = stop

    def cancel(self) -> bool:
        """Whether the request will not run at all.

        One that runs already is ended before its next kernel: ``result`` then raises ``RunError``. One that was joined
        with others runs to its end.
        """
        if super().cancel():
            return True
        self._stop(self)
        return False


class Serving:
    """One artifact on its streams. Safe to call from several threads.

    Args:
        path: of the artifact.
        threads: of a run on all cores, or on a stream where there are no others; None for what it was tuned for.
        options: streams, queue and batches.

    Raises:
        ArtifactError: if the artifact is damaged or not for this machine.
        UsageError: if its requests cannot be joined into batches and should be.
    """

    def __init__(self, path: Path, threads: int | None, options: ServeOptions) -> None:
        opened = _Opened(path, threads, options.streams)
        self._executors: Mapping[int, ArtifactExecutor] = opened.executors
        self._streams = opened.native_streams() if options.max_batch == 1 else None
        held = 0 if self._streams is None else min(NEXT * opened.streams, options.max_queue)
        places = opened.streams + held
        self._queue = StreamQueue(places, WIDE in self._executors, options.max_queue, held)
        self._batcher = None if options.max_batch == 1 else _batcher(path, opened.artifact, options)
        self._pool = ThreadPoolExecutor(places, thread_name_prefix="tune-stream")
        self._running: dict[int, tuple[Batch, Callable[[], None]]] = {}
        self._lock = threading.Lock()
        self.streams = opened.streams
        self.first = self._executors.get(WIDE) or self._executors[0]
        frame = opened.artifact.frame if isinstance(opened.artifact, Artifact) else None
        self.check = InputCheck(self.first.inputs, frame)
        self.generation = self.first if isinstance(self.first, GenerationExecutor) else None
        if self.generation is not None:
            pasts = {cache.past for cache in self.generation.caches}
            rest = [spec for number, spec in enumerate(self.first.inputs) if number not in pasts]
            self.check_new = InputCheck(rest)
            presents = {cache.present for cache in self.generation.caches}
            outputs = enumerate(self.first.outputs)
            self.new_names = [spec.name for number, spec in outputs if number not in presents]
        self.output_names = [spec.name for spec in self.first.outputs]

    def run(self, arrays: list[Array], timeout_s: float | None) -> list[Array]:
        """Every output; the calling thread waits for a stream and runs on it, or for the batch that it becomes part of.

        Raises:
            BusyError: if there was no stream for ``timeout_s`` seconds, or no answer of a batch.
            RunError: as ``ArtifactExecutor.run``.
        """
        if self._streams is not None:
            end = None if timeout_s is None else time.monotonic() + timeout_s
            place = self._queue.acquire(timeout_s)
            try:
                return self._streams.run(arrays, None if end is None else end - time.monotonic())
            except BusyError:
                raise BusyError.after(timeout_s) from None
            finally:
                self._queue.release(place)
        if self._batcher is None:
            with self.stream(timeout_s) as executor:
                return executor.run(arrays)
        return self._run_joined(arrays, timeout_s)

    def step(self, caches: KeyValueCaches, arrays: list[Array], timeout_s: float | None) -> list[Array]:
        """As ``GenerationExecutor.step``, by the calling thread, which waits for a stream and runs on it.

        Raises:
            BusyError, RunError: as ``run``.
        """
        stream = self._queue.acquire(timeout_s)  # of decoders the core has no streams
        try:
            executor = self._executors[stream]
            assert isinstance(executor, GenerationExecutor)
            return executor.step(caches, arrays)
        finally:
            self._queue.release(stream)

    @contextmanager
    def stream(self, timeout_s: float | None = None) -> Iterator[ArtifactExecutor]:
        """The executor of a stream, for the body alone; all cores together if nothing else runs and there is that.

        Raises:
            BusyError: if there was none for ``timeout_s`` seconds.
        """
        if self._streams is not None:
            with self._streams.stream(timeout_s) as stream:
                yield self._executors[stream]
            return
        stream = self._queue.acquire(timeout_s)
        try:
            yield self._executors[stream]
        finally:
            self._queue.release(stream)

    def submit(self, arrays: list[Array], timeout_s: float | None, wanted: Sequence[int] | None = None) -> Request:
        """Run in a thread of the session's; returns at once unless the queue is full.

        Args:
            wanted: numbers of the outputs that are asked for; None for all.

        Raises:
            BusyError: if the queue was full for ``timeout_s`` seconds.
        """
        request = Request(self._stop)
        self._enter(Member(arrays, request, wanted), timeout_s)
        return request

    def cancel(self) -> None:
        """As ``ArtifactExecutor.cancel``, on every stream."""
        for executor in self._executors.values():
            executor.cancel()

    def _run_joined(self, arrays: list[Array], timeout_s: float | None) -> list[Array]:
        """As ``run``, where requests are joined: the thread that opens a batch runs it; with a time limit, which a run
        could exceed, a thread of the session's does.
        """
        request = Request(self._stop)
        caller = CallingThread() if timeout_s is None else None
        try:
            opened = self._enter(Member(arrays, request, caller=caller), timeout_s)
            if opened and caller is not None:
                caller.wait()
        finally:  # after Ctrl-C too: a stream that was taken is used and given back
            turn = None if caller is None else caller.leave()
            if turn is not None:
                self._run_here(*turn)
        try:
            return request.result(timeout_s)
        except TimeoutError:
            request.cancel()
            raise BusyError(f"the request was not answered in {timeout_s:g} s; allow a longer timeout") from None

    def _run_here(self, batch: Batch, stream: int) -> None:
        """Run ``batch`` in this thread, which opened it."""
        done: Future[list[list[Array]]] = Future()
        try:
            done.set_result(self._made(batch, stream))
        except BaseException as error:  # every member raises it, but for Ctrl-C, which is this thread's
            told = error if isinstance(error, Exception) else RunError("the run was interrupted")
            done.set_exception(told)
            if told is not error:
                raise
        finally:
            self._finish(batch, stream, done)

    def _enter(self, member: Member, timeout_s: float | None) -> bool:
        """Whether ``member`` opens a batch, which then waits for a stream; else it joins one.

        Raises:
            BusyError: if the queue was full for ``timeout_s`` seconds.
        """
        batch = Batch([member]) if self._batcher is None else self._batcher.join(member)
        if batch is not None:
            try:
                self._queue.submit(partial(self._start, batch), timeout_s)
            except BusyError as error:
                self._refuse(batch, error)
                raise
        return batch is not None

    def _start(self, batch: Batch, stream: int) -> None:
        caller = batch.members[0].caller
        if caller is None or not caller.offer(batch, stream):
            self._pool.submit(self._made, batch, stream).add_done_callback(partial(self._finish, batch, stream))

    def _made(self, batch: Batch, stream: int) -> list[list[Array]]:
        """The outputs of every member of ``batch``."""
        if self._batcher is not None:
            self._batcher.close(batch)
        if not batch.begin():
            return []
        if self._streams is not None:
            call = self._streams.call(batch.members[0].arrays)
            with self._lock:
                self._running[stream] = batch, call.cancel
            return [call.run(None)]
        with self._lock:
            self._running[stream] = batch, self._executors[stream].cancel
        run = self._executors[stream].run
        return batch.run(run) if self._batcher is None else self._batcher.run(batch, run)

    def _finish(self, batch: Batch, stream: int, done: Future[list[list[Array]]]) -> None:
        with self._lock:
            self._running.pop(stream, None)
        self._queue.release(stream)  # before anyone learns of it, who may send the next request
        batch.finish(done)

    def _refuse(self, batch: Batch, error: BusyError) -> None:
        if self._batcher is not None:
            self._batcher.close(batch, wait=False)
        batch.begin()
        batch.fail(error)

    def _stop(self, request: Request) -> None:
        with self._lock:
            for batch, cancel in self._running.values():
                if len(batch.members) == 1 and batch.members[0].answer is request:
                    cancel()


class _Opened:
    """The executors of every stream.

    Attributes:
        streams: how many there are.
        executors: number of a stream, or ``WIDE`` → what runs there.
    """

    def __init__(self, path: Path, threads: int | None, wanted: int | None) -> None:
        self._kind = kind_of(path)
        self.artifact = read_artifact(path) if self._kind == KERNELS else read_composite(path)
        tuned_for = _thread_counts(self.artifact)
        narrow, wide = min(tuned_for), max(tuned_for)
        self.streams = wanted or _streams(self.artifact.provenance.get(STREAMS, 1), narrow)
        if self.streams == 1:
            self.executors = {0: self._open(wide, threads, ())}
            return
        _check_cores_only(self.artifact)
        each = narrow
        if narrow == wide:
            each = threads or min(narrow, max(1, read_host().usable_threads // self.streams))
        groups = session_groups(self.streams, each)
        self.executors = {stream: self._open(narrow, each, group) for stream, group in enumerate(groups)}
        if narrow != wide:
            self.executors[WIDE] = self._open(wide, threads, ())

    def native_streams(self) -> Streams | None:
        """The streams, where a run is one call of the core's and no request gets all of them."""
        if WIDE in self.executors:
            return None
        first, *others = (self.executors[stream] for stream in range(self.streams))
        return first.streams(others)

    def _open(self, tuned_for: int, threads: int | None, cpus: Sequence[int]) -> ArtifactExecutor:
        """What runs the kernels that were tuned for so many threads."""
        if isinstance(self.artifact, Artifact):
            if self.artifact.caches:
                return GenerationExecutor(self.artifact, threads, cpus)
            kernels = OneShapeExecutor(self.artifact, threads, cpus)
            return kernels if self.artifact.frame is None else FramedExecutor(kernels, self.artifact.frame)
        if self._kind == SHAPES:
            if self.artifact.open(self.artifact.parts[0]).caches:
                return GenerationExecutor(self.artifact, threads, cpus)
            return MultiShapeExecutor(self.artifact, threads, cpus, tuned_for)
        return SegmentedExecutor(self.artifact, threads, cpus)


def _thread_counts(artifact: Artifact | Composite) -> set[int]:
    """The numbers of threads that kernels were tuned for."""
    if isinstance(artifact, Artifact):
        return {artifact.target.threads}
    return {part.threads for part in artifact.tuned} or {1}


def _streams(recorded: Any, threads: int) -> int:
    """The number of streams that an artifact was tuned for, on this machine."""
    return max(1, read_host().usable_threads // threads) if recorded == AUTO else int(recorded)


def _check_cores_only(artifact: Artifact | Composite) -> None:
    """Refuse streams of what is not run by cores alone.

    Raises:
        UsageError: if a device runs a part of it.
    """
    if isinstance(artifact, Artifact) and (artifact.device_parts or not backend_of(artifact.target).has_lanes):
        raise UsageError(
            f"{artifact.path} runs on a device, and streams are groups of CPU cores; open it with 1 stream"
        )


def _batcher(path: Path, artifact: Artifact | Composite, options: ServeOptions) -> Batcher:
    """What joins requests.

    Raises:
        UsageError: if that may change results, or the artifact has but one set of shapes.
    """
    interface = artifact.interface if isinstance(artifact, Composite) else None
    symbol = next((each for each in interface.symbols if each in interface.split), None) if interface else None
    if interface is None or symbol is None:
        raise UsageError(
            f"max_batch is {options.max_batch}, but {path} has no open batch whose rows are independent; "
            "tune it for several, as with --input 'NAME:{1,8}x3x224x224'"
        )
    return Batcher(interface, symbol, options.max_batch, options.max_wait_s)
