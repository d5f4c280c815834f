"""The worker that runs one engine of a bench.

Engines keep threads that spin for a while after every run. Two engines in one process, or two that run in turn without
a pause, take each other's cores; so each gets a process, and the caller lets the last one fall quiet first.

A worker's folder holds what the engine is to run:

    job.json     {"threads", "artifact", "inputs": [name, …], "serve", "source"}
    model.onnx   for the engines that read ONNX
    inputs.npz   the inputs in the order of "inputs"
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.host.cpu_claims import CLAIMS
from autotune.host.fork_server import Handler, Job, Refused
from autotune.host.third_party import ThirdPartyError, third_party
from autotune.validation.engine_precision import artifact_precision
from autotune.validation.peers.peer import Engine, Work, load_work
from autotune.validation.peers.peer_catalog import loader
from schedules.vocabulary.errors import AutotuneError, MeasureError

OURS = "tune"


@dataclass(frozen=True)
class Load(Job):
    """Load the engine; answered with its version and the precision of its numbers."""


@dataclass(frozen=True)
class Run(Job):
    """Run it; answered with the seconds of ``runs`` runs after ``warmup`` untimed ones."""

    runs: int
    warmup: int


@dataclass(frozen=True)
class Outputs(Job):
    """Run it once on these inputs; answered with its outputs in order."""

    feed: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Serve(Job):
    """Let ``clients`` send requests for some seconds, each the next as soon as the last is answered.

    Answered with the requests per second, and the seconds of every request that was on in that time. A request that was
    on for a part of the time counts by that part: there are few of them in the rounds of a slow model, and by the
    requests that fit the faster of two engines would gain more than it is faster.
    """

    clients: int
    seconds: float


@dataclass(frozen=True)
class Memory(Job):
    """Answered with the peak memory until the engine was loaded, and that since then, both in bytes.

    It is what the process holds in physical memory, beyond what it held before the engine was imported: code, weights
    and buffers.
    """


# Imported where it is used: a process must hold no threads of an engine that it does not time.
def _tune(work: Work) -> Engine:
    from autotune import __version__
    from autotune.runtime.serve_options import ServeOptions
    from autotune.runtime.session import InferenceSession

    if work.serve is None:
        session = InferenceSession(work.artifact, work.threads)
    else:
        session = InferenceSession(work.artifact, serve=ServeOptions(**work.serve))
    return Engine(__version__, artifact_precision(work.artifact), lambda: session.run(None, work.feed))


WARM_S = 0.1
"""Seconds of requests before those that count: threads start and caches fill. Heuristic, not measured."""


def serve(engine: Engine, clients: int, seconds: float) -> tuple[float, list[float]]:
    """Implement ``Serve``."""
    runs = [engine.run] * clients if engine.clients is None else engine.clients(clients)
    for run in runs:
        run()
    first = time.perf_counter() + WARM_S
    last = first + seconds
    needed = set(range(clients))  # clients send on until the last request that counts is answered

    def work(number: int) -> list[tuple[float, float]]:
        spans = []
        while needed:
            began = time.perf_counter()
            runs[number]()
            ended = time.perf_counter()
            spans.append((began, ended))
            if ended >= last:
                needed.discard(number)
        return [span for span in spans if span[0] < last and span[1] > first]

    with ThreadPoolExecutor(clients) as pool:
        counted = [span for spans in pool.map(work, range(clients)) for span in spans]
    answered = sum((min(end, last) - max(begin, first)) / (end - begin) for begin, end in counted)
    return answered / seconds, [end - begin for begin, end in counted]


class EngineHandler(Handler):
    """Runs one engine. It is loaded in the worker, since no engine survives a fork.

    Args:
        settings: ``tune``, or the name of a way to run a peer; and the folder of its work.
    """

    def __init__(self, settings: tuple[str, str]) -> None:
        self._name, folder = settings
        self._folder = Path(folder)
        self._engine: Engine | None = None
        CLAIMS.enabled = False  # engines run in turn, each on the CPUs that it would have to itself

    def answer(self, job: Load | Outputs | Run | Serve | Memory) -> object:
        """Do one job; ``Load`` comes first."""
        if isinstance(job, Load):
            self._bytes_before = _resident("VmRSS")
            try:
                with third_party():
                    self._work = load_work(self._folder)
                    self._engine = (_tune if self._name == OURS else loader(self._name))(self._work)
            except (AutotuneError, ThirdPartyError) as error:
                return Refused(MeasureError(f"{self._name} cannot start: {error}"))
            self._bytes_loaded = _resident("VmHWM") - self._bytes_before
            with suppress(OSError):  # where the system forbids it, both peaks are that of the whole life
                Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
            return self._engine.version, self._engine.precision
        assert self._engine is not None
        if isinstance(job, Memory):
            return self._bytes_loaded, _resident("VmHWM") - self._bytes_before
        if isinstance(job, Outputs):
            self._work.feed.update(job.feed)  # which the engine reads at every run
            outputs: Any = self._engine.run()
            values = outputs.values() if isinstance(outputs, Mapping) else outputs
            return [np.array(value) for value in values]
        if isinstance(job, Serve):
            return serve(self._engine, job.clients, job.seconds)
        for _ in range(job.warmup):
            self._engine.run()
        latencies = []
        for _ in range(job.runs):
            start = time.perf_counter()
            self._engine.run()
            latencies.append(time.perf_counter() - start)
        return latencies


def _resident(field: str) -> int:
    """Bytes of physical memory that this process holds (``VmRSS``), or held at most (``VmHWM``)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    return 0
