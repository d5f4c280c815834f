"""A model that answers from the first call, on ONNX Runtime, and is tuned meanwhile for the sizes that occur.

Requests run in the threads of their callers. A thread of this module's opens what the tuner builds, and a child process
tunes (``tuner_process.py``). Neither can lose an answer: a request goes to kernels only if they are open and were at
least as fast on live requests of its sizes, else to ONNX Runtime.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from autotune.artifact.manifest import read_manifest
from autotune.frame.noise import is_live
from autotune.graph.lanes import Lane
from autotune.host.machine import read_host
from autotune.runtime.adaptive.adapt import Adapt
from autotune.runtime.adaptive.model_cache import ModelCache, Specs
from autotune.runtime.adaptive.routes import KERNELS, REFERENCE, Route, Routes, Shapes
from autotune.runtime.adaptive.tuned_kernels import MOST_SIZES, TunedKernels, agree
from autotune.runtime.adaptive.tuner_process import ENDED, IDLE, TunerProcess
from autotune.runtime.adaptive.whole_model import WholeModel, left_behind
from autotune.runtime.artifact_executor import ArtifactExecutor
from autotune.runtime.batching import taken
from autotune.runtime.generation_executor import GenerationExecutor
from autotune.runtime.inputs import UNKNOWN, InputCheck
from autotune.runtime.serve_options import ServeOptions
from autotune.runtime.serving import Serving
from autotune.runtime.stream_queue import Place, StreamQueue
from autotune.runtime.threads.request import Request
from autotune.runtime.threads.workers import Workers
from schedules.vocabulary.errors import AutotuneError, ModelError, UsageError

Array = NDArray[Any]
T = TypeVar("T")

TICK_S = 0.2
"""Seconds between two looks at the tuner and at what it built."""

EXIT_S = 10.0
"""Seconds for which the end of the interpreter waits for a thread that opens an artifact."""


OFFERED = 32
"""Sizes that the tuner is told of at once, those with the most time first."""

logger = logging.getLogger(__name__)


class AdaptiveServing:
    """A model on ONNX Runtime and on what was tuned of it by now. Safe to call from several threads.

    Args:
        path: of the ONNX file.
        threads: of a run; None for every usable core.
        options: streams and queue of kernels; their requests are not joined into batches.
        adapt: how much the tuner may use, and when it ends.

    Raises:
        InstallError: if ONNX Runtime is not installed.
        ModelError: if there is no such file, or ONNX Runtime refuses it.
        UsageError: if an input is not a tensor, or requests should be joined.
    """

    seal = ""
    streams = 1
    lanes: tuple[Lane, ...] = ()
    generation: GenerationExecutor | None = None

    def __init__(self, path: Path, threads: int | None, options: ServeOptions, adapt: Adapt) -> None:
        if options.max_batch != 1:
            raise UsageError(f"max_batch is {options.max_batch}; adapt joins no requests: leave one out")
        if not path.is_file():
            what = "is not a file" if path.exists() else "does not exist"
            raise ModelError(f"{path} {what}; adapt serves an ONNX file")
        self._path, self._options, self._adapt = path.absolute(), options, adapt
        self.threads = threads or read_host().usable_threads
        self._model = WholeModel(self._path, self.threads)
        self._cache: ModelCache | None = None
        self._tuned: TunedKernels | None = None
        self._trouble = ""
        self._refused = ""  # the seal of an artifact that cannot serve: opening it again would bring nothing
        specs = self._recalled()
        self.inputs, self.outputs = specs or self._model.specs()
        self.provenance: dict[str, Any] = {"model": path.name}
        self.check = InputCheck([replace(spec, shape=_independent(spec.shape)) for spec in self.inputs])
        self.output_names = [spec.name for spec in self.outputs]
        self._names = [spec.name for spec in self.inputs]
        self._routes = Routes(self.inputs)
        if self._cache is not None and specs is None:
            self._cache.write_specs(self.inputs, self.outputs)
        self._begin()
        self._swap()

    @property
    def first(self) -> AdaptiveServing:
        """This object itself, which has the inputs and outputs."""
        return self

    def _begin(self) -> None:
        self._times: dict[Shapes, list[float]] = {}
        self._kept: list[Any] = []
        self._offered: set[Shapes] = set()
        self._queue = StreamQueue(self.threads, False, self._options.max_queue)
        self._workers = Workers(self.threads, "tune-reference")
        self._process: TunerProcess | None = None
        self._watcher: threading.Thread | None = None
        self._starting, self._stop = threading.Lock(), threading.Event()
        weakref.finalize(self, self._stop.set)

    def _start(self) -> None:
        """Begin to tune, after the first answer."""
        with self._starting:
            if self._watcher is not None or self._cache is None or self._stop.is_set():
                return
            settings = {
                "model": str(self._path),
                "out": str(self._cache.artifact),
                "threads": self.threads,
                "cpu_share": self._adapt.cpu_share,
                "until": self._adapt.remaining,
            }
            self._process = TunerProcess(settings, self._cache.folder / "tuner.log")
            arguments = (weakref.ref(self), self._process, self._stop)
            self._watcher = threading.Thread(target=_watch, args=arguments, name="tune-adapt", daemon=True)
            _watched[self._watcher] = self._stop
            self._watcher.start()

    def _recalled(self) -> tuple[Specs, Specs] | None:
        """The model's inputs and outputs as an earlier session kept them; None if there are none."""
        try:
            self._cache = cache = ModelCache(self._path, self.threads)
            cache.make()
        except OSError as error:
            self._cache, self._trouble = None, f"nothing is tuned: the cache cannot be written ({error})"
            logger.warning("%s: %s", self._path.name, self._trouble)
            return None
        return cache.read_specs() if cache.artifact.exists() else None

    def renew(self) -> None:
        """Begin again in the child of a fork, which has its own tuner."""
        _watched.clear()
        if self._process is not None:
            self._process.forget()
        self._model.renew()
        self._routes.renew()
        if self._tuned is not None and self._tuned.serving.survives_fork:
            self._tuned.serving.renew()
        else:
            left_behind.append(self._tuned)
            self._tuned, self.seal, self._refused = None, "", ""  # opened again, from the cache
        self._begin()

    def run(self, arrays: list[Array], timeout_s: float | None) -> list[Array]:
        """Every output, by the calling thread.

        Raises:
            BusyError: if all streams of the kernels were kept by others for ``timeout_s`` seconds.
            RunError: if the run fails.
        """
        shapes = tuple([array.shape for array in arrays])
        tuned = self._tuned  # before the route: one that was checked for other kernels is never used with these
        route, elements = self._routes.of(shapes)
        is_open = tuned is not None and tuned is self._tuned
        if tuned is None or not is_open or route.engine == REFERENCE or not tuned.serves(shapes, arrays):
            return self._on_reference(arrays, shapes, route, elements)
        if self._routes.turn(route) == REFERENCE:
            return self._on_reference(arrays, shapes, route, elements)
        if not route.is_checked:
            if self._routes.claim(route):
                return self._compared(tuned, arrays, shapes, route, elements)
            return self._on_reference(arrays, shapes, route, elements)
        return self._on_kernels(tuned, arrays, route, elements, timeout_s)

    def _on_reference(self, arrays: list[Array], shapes: Shapes, route: Route, elements: int) -> list[Array]:
        began = time.perf_counter()
        outputs = self._model.run(self._names, arrays)
        seconds = time.perf_counter() - began
        if (spent := self._times.get(shapes)) is not None:
            spent[0] += seconds
        elif len(self._times) < MOST_SIZES:
            self._times[shapes] = [seconds]
        self._note(route, REFERENCE, seconds, elements)
        return outputs

    def _on_kernels(
        self, tuned: TunedKernels, arrays: list[Array], route: Route, elements: int, timeout_s: float | None = None
    ) -> list[Array]:
        began = time.perf_counter()
        outputs = tuned.serving.run(tuned.completed(arrays), timeout_s)
        self._note(route, KERNELS, time.perf_counter() - began, elements)
        return outputs

    def _compared(
        self, tuned: TunedKernels, arrays: list[Array], shapes: Shapes, route: Route, elements: int
    ) -> list[Array]:
        """ONNX Runtime's answer, after which kernels are trusted with these sizes or are not."""
        try:
            wanted = self._on_reference(arrays, shapes, route, elements)
            try:
                outputs = self._on_kernels(tuned, arrays, route, elements)
            except AutotuneError as error:
                logger.warning("%s: kernels are not used for %s: %s", self._path.name, shapes, error)
                self._routes.choose(route, REFERENCE)
                return wanted
            route.is_checked = all(map(agree, outputs, wanted))
            if not route.is_checked:
                logger.warning("%s: kernels are not used for %s: their answers differ", self._path.name, shapes)
                self._routes.choose(route, REFERENCE)
            return wanted
        finally:  # after Ctrl-C, or an error of ONNX Runtime's, another request compares
            route.is_claimed = route.is_checked or route.engine is not None

    def _note(self, route: Route, engine: str, seconds: float, elements: int) -> None:
        if self._watcher is None:
            self._start()
        if self._routes.add(route, engine, seconds, elements):
            logger.info(
                "%s: sizes up to %s run on %s from now on; kernels are %.2f times as fast as ONNX Runtime",
                *(self._path.name, route.sizes, route.engine, route.gain),
            )

    def submit(
        self, arrays: list[Array], timeout_s: float | None, wanted: Sequence[int] | None = None
    ) -> Future[list[Array]]:
        """Run in a thread of the session's.

        Args:
            wanted: numbers of the outputs that are asked for; None for all.

        Raises:
            BusyError: if the queue was full for ``timeout_s`` seconds.
        """
        request, place = Request(), Place()
        offer = [partial(self._answer, request, arrays, wanted)]

        def work() -> None:
            answer = taken(offer)
            try:
                if answer is not None:
                    answer()
            finally:
                self._queue.release(place)

        place.start = lambda _: self._workers.put(work)
        self._queue.submit(place, timeout_s)
        self._workers.run_left()
        return request

    def _answer(self, request: Request, arrays: list[Array], wanted: Sequence[int] | None) -> None:
        if not request.set_running_or_notify_cancel():
            return
        try:
            outputs = self.run(arrays, None)
        except Exception as error:  # whatever a run raises, the caller whose request it was gets
            request.set_exception(error)
        else:
            request.set_result(outputs if wanted is None else [outputs[number] for number in wanted])

    def cancel(self) -> None:
        """End runs of kernels before their next kernel; ONNX Runtime runs to its end."""
        if self._tuned is not None:
            self._tuned.serving.cancel()

    def on_stream(
        self, work: Callable[[ArtifactExecutor, list[Array]], T], arrays: list[Array], timeout_s: float | None = None
    ) -> T:
        """Return the result of ``work`` on a stream of the kernels that are open, as ``Serving.on_stream``.

        Raises:
            UsageError: if there are none yet.
        """
        tuned = self._tuned
        if tuned is None:
            raise UsageError("nothing is tuned yet, so no kernels can be profiled; ask again when status() has some")
        return tuned.serving.on_stream(work, tuned.completed(arrays), timeout_s)

    def status(self) -> dict[str, Any]:
        """Return which engine answers which sizes, with its gain, and what the tuner does."""
        process = self._process
        return {
            "model": self._path.name,
            "tuner": self._trouble or (process.state if process is not None else "none"),
            "pid": None if process is None else process.pid,
            "artifact": None if self._tuned is None or self._cache is None else str(self._cache.artifact),
            "sizes": [
                {
                    "up_to": list(route.sizes),
                    "engine": route.engine or ("both" if route.requests[KERNELS] else REFERENCE),
                    "requests": dict(route.requests),
                    "gain": None if route.gain is None else round(route.gain, 3),
                }
                for route in self._routes.all()
            ],
        }

    def close(self) -> None:
        """End the tuner. Requests are answered as before."""
        self._keep_routes()
        with self._starting:
            self._stop.set()
            self._trouble = ENDED
        if self._watcher is not None:
            self._watcher.join()

    def tick(self, process: TunerProcess) -> None:
        """Open what was built, and tell the tuner what is missing; by the thread that owns ``process``."""
        was_tuning = process.pid is not None
        for sizes in process.listen():
            self._offered -= {tuple(map(tuple, shapes)) for shapes, _ in sizes}
        self._swap()
        if was_tuning and process.pid is None and process.state == IDLE:
            self._routes.time_again()
        times = {shapes: spent[0] for shapes, spent in list(self._times.items()) if shapes not in self._offered}
        heavy = sorted(times, key=times.__getitem__, reverse=True)[:OFFERED]
        if heavy and process.offer([[shapes, times[shapes]] for shapes in heavy]):
            self._offered.update(heavy)
        self._keep_routes()

    def _swap(self) -> None:
        """Open the artifact if it is another than the one that is open."""
        cache = self._cache
        if cache is None or not cache.artifact.exists():
            return
        try:
            seal = str(read_manifest(cache.artifact)["seal"])
            if seal in (self.seal, self._refused):
                return
            self._refused = seal
            serving = Serving(cache.artifact, self.threads, self._options)
        except (AutotuneError, OSError, MemoryError) as error:  # of another version, or damaged: it is built again
            logger.debug("%s is not used: %s", cache.artifact, error)
            return
        if [spec.name for spec in serving.first.inputs if not is_live(spec.name)] != self._names:
            return
        self._tuned = None  # while routes change, requests go to ONNX Runtime
        self._routes.begin_again()
        self._routes.restore(cache.read_routes(serving.seal))
        self.seal, self._tuned = serving.seal, TunedKernels(serving)

    def _keep_routes(self) -> None:
        """Write the choices of engines to the cache, for the next process."""
        routes = self._routes.to_data()
        if routes != self._kept and self._cache is not None and self._tuned is not None:
            self._cache.write_routes(self.seal, routes)
            self._kept = routes


_watched: dict[threading.Thread, threading.Event] = {}
"""Threads that look after tuners, and what stops them."""


@atexit.register
def _end_watchers() -> None:
    """Stop the threads before the interpreter ends, which must not end one beneath frames of native code."""
    for thread, stop in list(_watched.items()):
        stop.set()
        thread.join(EXIT_S)


def _watch(reference: weakref.ref[AdaptiveServing], process: TunerProcess, stop: threading.Event) -> None:
    """Look after the tuner until the session is closed or gone."""
    try:
        while not stop.wait(TICK_S):
            serving = reference()
            if serving is None:
                break
            serving.tick(process)
            del serving
    finally:
        process.end()
        _watched.pop(threading.current_thread(), None)


def _independent(shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The shape with no name for an open size: ONNX Runtime takes other sizes than names promise, too."""
    return tuple(size if isinstance(size, int) else UNKNOWN for size in shape)
