"""One engine in a process of its own, told by its parent when to run: ``python -m autotune.validation.bench_engine NAME JOB``.

Engines keep threads that spin for a while after every run. Two engines in one process, or two that run in turn without
a pause, take each other's cores; so each gets a process, and the parent lets the last one fall quiet first.

    JOB/job.json     {"threads", "artifact", "inputs": [name, …]}
    JOB/model.onnx   for the engines that read ONNX
    JOB/inputs.npz   the inputs in the order of "inputs"

One JSON object per line: first the engine says what it is, {"version", "precision"}; then every line
{"warmup": w, "runs": k} on stdin is answered with {"latencies_s": [k numbers]}. {"error": text} ends it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from schedules.errors import AutotuneError


@dataclass(frozen=True)
class Job:
    """What to run: see the module."""

    folder: Path
    threads: int
    artifact: Path
    feed: dict[str, NDArray[Any]]

    @property
    def model(self) -> str:
        """Path of the ONNX file."""
        return str(self.folder / "model.onnx")


@dataclass(frozen=True)
class Engine:
    """A loaded model.

    Attributes:
        run: one inference, outputs as NumPy arrays that the caller may read.
    """

    version: str
    precision: str
    run: Callable[[], object]


# Every engine is imported where it is used: a process must hold no threads of an engine that it does not time, and
# the peers are optional.
def _tune(job: Job) -> Engine:
    from autotune import __version__
    from autotune.runtime.session import InferenceSession

    session = InferenceSession(job.artifact, job.threads)
    return Engine(__version__, "fp32", lambda: session.run(None, job.feed))


def _onnxruntime(job: Job) -> Engine:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(job.model, options, providers=["CPUExecutionProvider"])
    return Engine(onnxruntime.__version__, "fp32", lambda: session.run(None, job.feed))


def _openvino(job: Job) -> Engine:
    import openvino

    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": job.threads, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(job.model, "CPU", settings)
    request = compiled.create_infer_request()
    version = openvino.__version__.partition("-")[0]
    return Engine(version, "fp32", lambda: request.infer(job.feed, share_inputs=True, share_outputs=True))


ENGINES: dict[str, Callable[[Job], Engine]] = {"tune": _tune, "onnxruntime": _onnxruntime, "openvino": _openvino}


def load_job(folder: Path) -> Job:
    """The job in ``folder``."""
    told = json.loads((folder / "job.json").read_text())
    with np.load(folder / "inputs.npz") as arrays:
        feed = dict(zip(told["inputs"], (arrays[f"arr_{i}"] for i in range(len(told["inputs"]))), strict=True))
    return Job(folder, told["threads"], Path(told["artifact"]), feed)


def serve(engine: Engine, requests: TextIO, answer: Callable[[object], None]) -> None:
    """Run and time as told until ``requests`` ends."""
    answer({"version": engine.version, "precision": engine.precision})
    for line in requests:
        told = json.loads(line)
        for _ in range(told["warmup"]):
            engine.run()
        latencies = []
        for _ in range(told["runs"]):
            start = time.perf_counter()
            engine.run()
            latencies.append(time.perf_counter() - start)
        answer({"latencies_s": latencies})


def _main(name: str, folder: Path) -> None:
    # Answers keep stdout to themselves: whatever the engine prints goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value: object) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    try:
        engine = ENGINES[name](load_job(folder))
    except AutotuneError as error:
        answer({"error": str(error)})
        return
    serve(engine, sys.stdin, answer)


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
