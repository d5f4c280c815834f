"""The worker that runs one engine of a bench.

Engines keep threads that spin for a while after every run. Two engines in one process, or two that run in turn without
a pause, take each other's cores; so each gets a process, and the caller lets the last one fall quiet first.

A worker's folder holds what the engine is to run:

    job.json     {"threads", "artifact", "inputs": [name, …], "serve"}
    model.onnx   for the engines that read ONNX
    inputs.npz   the inputs in the order of "inputs"
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.host.cpu_claims import CLAIMS
from autotune.host.fork_server import Handler, Job, Refused
from autotune.validation.engine_precision import artifact_precision, onnxruntime_precision
from schedules.vocabulary.errors import AutotuneError, MeasureError

MULTIPLYING = frozenset(
    {"Convolution", "Deconvolution", "FullyConnected", "MatMul", "RNNCell", "RNNSeq", "ScaledDotProductAttention"}
)
"""OpenVINO's layers that multiply matrices, in which a model spends its time."""

PRECISIONS = {"f32": "fp32", "f16": "fp16", "i8": "int8", "u8": "int8"}
"""OpenVINO's names of precisions → ours, where they differ."""


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
class Work:
    """What to run: see the module."""

    folder: Path
    threads: int
    artifact: Path
    feed: dict[str, NDArray[Any]]
    serve: Mapping[str, Any] | None = None

    @property
    def model(self) -> str:
        """Path of the ONNX file."""
        return str(self.folder / "model.onnx")


@dataclass(frozen=True)
class Engine:
    """A loaded model.

    Attributes:
        run: one inference, outputs as NumPy arrays that the caller may read.
        clients: number of clients → what each of them runs; None where all of them may call ``run``.
    """

    version: str
    precision: str
    run: Callable[[], object]
    clients: Callable[[int], list[Callable[[], object]]] | None = None


# Every engine is imported where it is used: a process must hold no threads of an engine that it does not time, and
# the reference engines are optional.
def _tune(work: Work) -> Engine:
    from autotune import __version__
    from autotune.runtime.serve_options import ServeOptions
    from autotune.runtime.session import InferenceSession

    if work.serve is None:
        session = InferenceSession(work.artifact, work.threads)
    else:
        session = InferenceSession(work.artifact, serve=ServeOptions(**work.serve))
    return Engine(__version__, artifact_precision(work.artifact), lambda: session.run(None, work.feed))


def _onnxruntime(work: Work) -> Engine:
    import onnxruntime

    session, precision = _onnxruntime_session(work, work.threads), _onnxruntime_precision(work)
    return Engine(onnxruntime.__version__, precision, lambda: session.run(None, work.feed))


def _onnxruntime_per_client(work: Work) -> Engine:
    """A session for every client, each on its share of the threads."""
    import onnxruntime

    @cache  # for every round: of a large model they take seconds to load
    def clients(count: int) -> list[Callable[[], object]]:
        sessions = [_onnxruntime_session(work, max(1, work.threads // count)) for _ in range(count)]
        return [partial(session.run, None, work.feed) for session in sessions]

    return Engine(onnxruntime.__version__, _onnxruntime_precision(work), clients(1)[0], clients)


def _onnxruntime_precision(work: Work) -> str:
    return onnxruntime_precision(Path(work.model), _onnxruntime_options(work.threads))


def _onnxruntime_session(work: Work, threads: int) -> Any:
    import onnxruntime

    options = _onnxruntime_options(threads)
    return onnxruntime.InferenceSession(work.model, options, providers=["CPUExecutionProvider"])


def _onnxruntime_options(threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    return options


def _openvino(work: Work) -> Engine:
    return _compiled_by_openvino(work, {"INFERENCE_PRECISION_HINT": "f32"})


def _openvino_default(work: Work) -> Engine:
    return _compiled_by_openvino(work, {})


def _openvino_throughput(work: Work) -> Engine:
    return _compiled_by_openvino(work, {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "THROUGHPUT"})


def _compiled_by_openvino(work: Work, settings: Mapping[str, Any]) -> Engine:
    import openvino

    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": work.threads, **settings}
    compiled = openvino.Core().compile_model(work.model, "CPU", settings)
    request = compiled.create_infer_request()
    info = [operator.get_rt_info() for operator in compiled.get_runtime_model().get_ops()]
    layers = [(str(each["layerType"].astype(str)), str(each["runtimePrecision"].astype(str))) for each in info]
    precision = openvino_precision(layers, compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
    version = openvino.__version__.partition("-")[0]

    def clients(count: int) -> list[Callable[[], object]]:
        return [partial(_infer, compiled.create_infer_request(), work.feed) for _ in range(count)]

    return Engine(version, precision, lambda: request.infer(work.feed, share_inputs=True, share_outputs=True), clients)


def _infer(request: Any, feed: Mapping[str, NDArray[Any]]) -> object:
    """One asynchronous request of OpenVINO's, awaited."""
    request.start_async(feed, share_inputs=True)
    request.wait()
    return request.results


def openvino_precision(layers: Iterable[tuple[str, str]], floats: str) -> str:
    """The precision that OpenVINO computes a compiled model in, such as ``bf16`` or ``bf16+int8``.

    Args:
        layers: (type, precision) of every layer, by OpenVINO's names. Only those that multiply count: what moves and
            converts data at the borders of a model is in fp32 whatever the others are.
        floats: the precision of its floating point numbers, for a model without such layers.
    """
    found = {precision for kind, precision in layers if kind in MULTIPLYING} or {floats}
    return "+".join(sorted({PRECISIONS.get(precision, precision) for precision in found}))


ENGINES: dict[str, Callable[[Work], Engine]] = {
    "tune": _tune,
    "onnxruntime": _onnxruntime,
    "onnxruntime-per-client": _onnxruntime_per_client,
    "openvino": _openvino,
    "openvino-throughput": _openvino_throughput,
    "openvino-default": _openvino_default,
}


def load_work(folder: Path) -> Work:
    """The work in ``folder``."""
    described = json.loads((folder / "job.json").read_text())
    names = described["inputs"]
    with np.load(folder / "inputs.npz") as arrays:
        feed = dict(zip(names, (arrays[f"arr_{i}"] for i in range(len(names))), strict=True))
    return Work(folder, described["threads"], Path(described["artifact"]), feed, described.get("serve"))


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
        settings: the engine's name and the folder of its work.
    """

    def __init__(self, settings: tuple[str, str]) -> None:
        self._name, folder = settings
        self._folder = Path(folder)
        self._engine: Engine | None = None
        CLAIMS.enabled = False  # engines run in turn, each on the CPUs that it would have to itself

    def answer(self, job: Load | Outputs | Run | Serve) -> object:
        """Do one job; ``Load`` comes first."""
        if isinstance(job, Load):
            try:
                self._work = load_work(self._folder)
                self._engine = ENGINES[self._name](self._work)
            except AutotuneError as error:
                return Refused(MeasureError(f"{self._name} cannot start: {error}"))
            return self._engine.version, self._engine.precision
        assert self._engine is not None
        if isinstance(job, Outputs):
            self._work.feed.update(job.feed)  # which the engine reads at every run
            made: Any = self._engine.run()
            values = made.values() if isinstance(made, Mapping) else made
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
