"""``python -m research.serving MODEL… [--only STEP]``: what serves more requests, and how evenly it answers.

Of every model, two artifacts are tuned from one log: one for requests side by side (a stream per core) and one for a
request at a time. Then several clients send requests to both, to ONNX Runtime and to OpenVINO in turn (``tune bench
--clients``), and requests are sent at a share of what the streams can do, whether the last ones were answered or not.
What was done before is not done again; the tables show all that is there.

    tune      NAME.throughput.tuned and NAME.latency.tuned
    clients   NAME.clients.json: against our own artifact for a request at a time and the other engines, in turn
    load      NAME.load.json
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from autotune.runtime.session import InferenceSession
from research.core_speed import CoreSpeed
from tests.models import save

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build/serving"
TUNE = [sys.executable, "-c", "import sys; from autotune.cli.main import main; sys.exit(main())"]
STEPS = ("tune", "clients", "load")
OBJECTIVES = ("throughput", "latency")

LIGHT = (
    *("alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19"),
    "zfnet512",
)
"""The light models, of which the geometric means are taken together with the encoder."""

LOAD = 0.7
"""Requests per second of the load step over what the streams answer at most."""

CALLERS = 16
"""Threads that send requests: enough that one is idle when a request is due, else the delay counts.
Heuristic, not measured."""

SEGMENT_S, CAPACITY_S, LOAD_S = 0.4, 6.0, 24.0
"""Seconds between two looks at the machine's speed, and for which the most is sought, and requests are sent at the
share of it, for each way. 14 s of calm are 2,000 requests of 10 ms on two streams: the slowest percent of
them is 20. A bad spell of the machine may begin and end between two looks that are 1 s apart."""


def single_of(folder: Path, model: str) -> Path:
    """Our artifact for a request at a time."""
    return folder / f"{model}.latency.tuned"


def tune(folder: Path, model: str, objective: str, budget: str) -> None:
    """Make the artifact of one objective, unless it is there."""
    out, onnx = folder / f"{model}.{objective}.tuned", folder / f"{model}.onnx"
    if out.is_dir():
        return
    if not onnx.exists():
        save(model, onnx)
    line = ["run", str(onnx), "--objective", objective, "--budget", budget, "--log", str(folder / "log.db")]
    subprocess.run([*TUNE, *line, "--out", str(out), "--quiet"], check=True)


def clients(folder: Path, model: str, count: int, rounds: int) -> dict[str, Any]:
    """Let clients send requests to the streams and to all else in turn; what ``tune bench --json`` says."""
    against = f"{single_of(folder, model)},onnxruntime,openvino"
    line = ["bench", str(folder / f"{model}.throughput.tuned"), "--model", str(folder / f"{model}.onnx")]
    line += ["--clients", str(count), "--against", against, "--rounds", str(rounds), "--json", "--quiet"]
    with CoreSpeed() as speed:
        speed.look()
        done = subprocess.run([*TUNE, *line], check=True, stdout=subprocess.PIPE, text=True)
        speed.look()
    return {**json.loads(done.stdout), "apart_ns": speed.apart_ns}


def capacity(session: InferenceSession, feed: Mapping[str, Any], seconds: float) -> tuple[float, float]:
    """(requests per second, median seconds of one) with as many clients as there are streams."""
    laps: list[float] = []
    end = time.perf_counter() + seconds

    def send() -> None:
        while (began := time.perf_counter()) < end:
            session.run(None, feed)
            laps.append(time.perf_counter() - began)

    threads = [threading.Thread(target=send) for _ in range(session.streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(laps) / seconds, statistics.median(laps)


Sender = Callable[[InferenceSession, Mapping[str, Any], NDArray[np.float64]], NDArray[np.float64]]
"""(session, inputs, ``due``) → (n,) seconds from when a request was due until it was answered; ``due`` (n,) counts from
now, ascending. Requests are sent whether those before were answered or not."""


def by_callers(session: InferenceSession, feed: Mapping[str, Any], due: NDArray[np.float64]) -> NDArray[np.float64]:
    """A ``Sender`` of ``CALLERS`` threads that call ``run``, as a server with a thread per connection does."""
    ended = np.full(len(due), np.nan)
    numbers = itertools.count()
    began = time.perf_counter()

    def call() -> None:
        while (number := next(numbers)) < len(due):
            time.sleep(max(0.0, began + due[number] - time.perf_counter()))
            session.run(None, feed)
            ended[number] = time.perf_counter() - began

    callers = [threading.Thread(target=call) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return ended - due


def by_one_thread(session: InferenceSession, feed: Mapping[str, Any], due: NDArray[np.float64]) -> NDArray[np.float64]:
    """A ``Sender`` of one thread that calls ``run_async``, as a server with an event loop does."""
    ended = np.zeros(len(due))
    left = threading.Semaphore(0)
    began = time.perf_counter()

    def note(number: int) -> None:
        ended[number] = time.perf_counter() - began
        left.release()

    for number, moment in enumerate(due):
        time.sleep(max(0.0, began + moment - time.perf_counter()))
        session.run_async(None, feed).add_done_callback(lambda _, number=number: note(number))
    for _ in due:
        left.acquire()
    return ended - due


WAYS: dict[str, tuple[Sender, str]] = {
    "even, run": (by_callers, "even"),
    "even, run_async": (by_one_thread, "even"),
    "random, run": (by_callers, "random"),
    "random, run_async": (by_one_thread, "random"),
}
"""How requests are sent → who sends them, and when."""


def ideal_s(due: NDArray[np.float64], streams: int, service_s: float) -> NDArray[np.float64]:
    """(n,) what a ``Sender`` would give if every request took ``service_s`` on the first stream that is free."""
    free = [0.0] * streams
    answered = np.zeros(len(due))
    for number, moment in enumerate(due):
        ended = max(moment, heapq.heappop(free)) + service_s
        heapq.heappush(free, ended)
        answered[number] = ended - moment
    return answered


def percentiles(seconds: NDArray[np.float64]) -> dict[str, float]:
    """p50, p99 in ms, and their ratio."""
    p50, p99 = (1e3 * float(value) for value in np.percentile(seconds, (50, 99)))
    return {"p50_ms": p50, "p99_ms": p99, "ratio": p99 / p50}


def stolen_since(before: Any) -> float:
    """Share of the CPUs' time that the host gave to other machines since ``psutil.cpu_times`` was ``before``."""
    after = psutil.cpu_times()
    spent = {name: getattr(after, name) - getattr(before, name) for name in after._fields if "guest" not in name}
    return float(spent.get("steal", 0.0) / sum(spent.values()))


def load(folder: Path, model: str, seconds: float = LOAD_S) -> dict[str, Any]:
    """Send requests at a share of the most that the streams answer: evenly and at random moments, from several threads
    and from one.

    In segments, between which the machine's speed is looked at: the most is that of calm ones, and what was answered in
    calm ones is told beside all.
    """
    session = InferenceSession(folder / f"{model}.throughput.tuned")
    rng = np.random.default_rng(0)
    feed = {
        spec.name: rng.standard_normal([int(n) for n in spec.shape]).astype(np.float32)
        if "float" in spec.type
        else np.zeros([int(n) for n in spec.shape], np.int64)
        for spec in session.get_inputs()
    }
    facts: dict[str, Any] = {"streams": session.streams}
    with CoreSpeed() as speed:
        most = speed.segments(CAPACITY_S, lambda: capacity(session, feed, SEGMENT_S))
        calm = speed.calm(most) or [load_made for _, load_made in most]
        rate, service_s = (statistics.median(values) for values in zip(*calm, strict=True))
        count = int(LOAD * rate * SEGMENT_S)
        facts |= {"requests_per_s": rate, "service_ms": 1e3 * service_s}
        moments: dict[str, Callable[[], NDArray[np.float64]]] = {
            "even": lambda: np.arange(count) / (LOAD * rate),
            "random": lambda: np.cumsum(rng.exponential(1.0 / (LOAD * rate), count)),
        }
        sent = {}
        for name, (sender, when) in WAYS.items():
            before = psutil.cpu_times()
            send = partial(sender, session, feed)
            sent[name] = speed.segments(seconds, partial(_sent, send, moments[when], session.streams, service_s))
            facts[f"{name}_stolen"] = stolen_since(before)
        for name, segments in sent.items():
            facts[f"{name}_segments"] = [[look, 1e3 * float(took.max())] for look, (took, _) in segments]
            for which, some in (("calm", speed.calm(segments)), ("all", [segment for _, segment in segments])):
                if some:
                    took, ideal = (np.concatenate(laps) for laps in zip(*some, strict=True))
                    facts[f"{name}_{which}"] = {"segments": len(some), "requests": len(took)} | percentiles(took)
                    facts[f"{name}_{which}_ideal"] = percentiles(ideal)
        facts["looks"] = [list(pair) for pair in zip(speed.seen, speed.apart_ns, strict=True)]
    return facts


def _sent(
    send: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    moments: Callable[[], NDArray[np.float64]],
    streams: int,
    service_s: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What ``send`` gives in one segment, and what an ideal queue would."""
    due = moments()
    return send(due), ideal_s(due, streams, service_s)


def measured(folder: Path, model: str, step: str) -> dict[str, Any]:
    """What a step said; empty if it was not run."""
    path = folder / f"{model}.{step}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def clients_table(folder: Path, models: Sequence[str]) -> list[str]:
    """Lines of what ``clients`` measured, and geometric means."""
    head = "| model | requests/s | over our single stream | over ONNX Runtime, better way "
    lines = [head + "| over OpenVINO fp32, better hint | over the better of both |", "|---|" + "---:|" * 5]
    ratios: list[list[float]] = []
    for model in models:
        data = measured(folder, model, "clients")
        if not data:
            continue
        single, *others = (next(iter(by.values())) for by in data["speedup"].values())
        ratios.append([single, *others, min(others)])
        (low, high), rate = data["served"][0]["quartiles"], data["served"][0]["requests_per_s"]
        cells = [f"{rate:.1f} ({low:.1f}–{high:.1f})", *(f"{ratio:.2f}" for ratio in ratios[-1])]
        lines.append(f"| {model} | {' | '.join(cells)} |")
    means = [f"{statistics.geometric_mean(column):.2f}" for column in zip(*ratios, strict=True)]
    return [*lines, f"| geometric mean | | {' | '.join(means)} |"] if len(lines) > 2 else []


def load_table(folder: Path, models: Sequence[str]) -> list[str]:
    """Lines of what ``load`` measured."""
    head = "| model | requests/s at most | sent | seconds | p50, p99 ms | p99 / p50 | of an ideal queue "
    lines = [head + "| stolen by the host % |", "|---|---:|---|" + "---:|" * 5]
    for model in models:
        data = measured(folder, model, "load")
        for name, which in ((name, which) for name in WAYS for which in ("calm", "all")):
            if f"{name}_{which}" not in data:
                continue
            own, ideal = data[f"{name}_{which}"], data[f"{name}_{which}_ideal"]
            cells = [f"{own['segments'] * SEGMENT_S:.0f}", f"{own['p50_ms']:.1f}, {own['p99_ms']:.1f}"]
            cells += [f"{table['ratio']:.2f}" for table in (own, ideal)] + [f"{100 * data[f'{name}_stolen']:.1f}"]
            lines.append(f"| {model} | {data['requests_per_s']:.1f} | {name}, {which} | {' | '.join(cells)} |")
    return lines if len(lines) > 2 else []


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m research.serving", description=__doc__)
    parser.add_argument("models", nargs="*", default=[*LIGHT, "encoder"])
    parser.add_argument("--only", choices=STEPS, help="this step alone; every step unless given")
    parser.add_argument("--objective", choices=OBJECTIVES, help="of the tune step; both unless given")
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    steps = [options.only] if options.only else STEPS
    for model in options.models:
        for objective in [options.objective] if options.objective else OBJECTIVES:
            if "tune" in steps:
                tune(folder, model, objective, options.budget)
        work: dict[str, Callable[[], dict[str, Any]]] = {
            "clients": partial(clients, folder, model, options.clients, options.rounds),
            "load": partial(load, folder, model),
        }
        for step in (name for name in work if name in steps and not measured(folder, model, name)):
            (folder / f"{model}.{step}.json").write_text(json.dumps(work[step](), indent=1) + "\n")
    every = [*LIGHT, "encoder"]
    for lines in (clients_table(folder, every), load_table(folder, every)):
        print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
