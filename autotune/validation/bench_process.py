"""Engines of a bench in processes of their own, a wait until they are quiet, and what else used the CPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from autotune.host.fork_server import Start
from autotune.host.worker_pool import ForkServerProcess, Lost, WorkerPool
from autotune.validation.bench_engine import OURS, Load, Memory, Outputs, Run, Serve
from schedules.vocabulary.errors import MeasureError

HANDLER = "autotune.validation.bench_engine:EngineHandler"

QUIET_S = 0.15
"""Seconds without a run before an engine runs: by then the last engine's threads, which spin for a tenth of a second
and more after a run, have gone to sleep."""

QUIET_SHARE = 0.1
"""An engine is quiet when it used less than this share of one core over QUIET_S (the kernel counts in 10 ms)."""

QUIET_TRIES = 20
"""Looks after which an engine that is not quiet is refused: 3 s, far more than any that goes to sleep at all."""

START_TIMEOUT_S = 600.0
RUN_TIMEOUT_S = 600.0
"""Wall-clock limits of loading a model and of one round. Heuristic: an engine that exceeds them hangs."""

MEMORY = ("load_bytes", "serving_bytes")
"""Fields of an engine's peak memory."""


@dataclass
class EngineTimes:
    """One engine's latencies.

    Attributes:
        rounds: per round the timed runs in seconds, in order.
        way: how a peer with several ways ran; empty for others.
        memory: peak bytes while the engine was loaded, and afterwards, as ``bench_engine.Memory``; None where that was
            not asked.
    """

    name: str
    version: str
    precision: str
    rounds: list[list[float]] = field(default_factory=list)
    way: str = ""
    memory: tuple[int, int] | None = None

    @property
    def runs_s(self) -> list[float]:
        """Every run."""
        return [run for runs in self.rounds for run in runs]

    def to_data(self) -> dict[str, Any]:
        """As in ``tune bench --json``."""
        runs_ms = 1e3 * np.asarray(self.runs_s)
        p50, p90, p99 = (float(value) for value in np.percentile(runs_ms, (50, 90, 99)))
        return {
            "name": self.name,
            "version": self.version,
            "precision": self.precision,
            "runs": len(runs_ms),
            "min_ms": float(runs_ms.min()),
            "p50_ms": p50,
            "mean_ms": float(runs_ms.mean()),
            "p90_ms": p90,
            "p99_ms": p99,
            "way": self.way,
            **({} if self.memory is None else dict(zip(MEMORY, self.memory, strict=True))),
        }


class EngineProcess(AbstractContextManager["EngineProcess"]):
    """An engine in a worker process; see ``bench_engine.py``.

    Args:
        engine: which one.
        folder: what it is to run.
        name: in results and messages; None for the engine's.
    """

    def __init__(self, engine: str, folder: Path, name: str | None = None) -> None:
        self.name = name or engine
        self._server = ForkServerProcess()
        try:
            self._pool = WorkerPool(self._server, Start(HANDLER, (engine, str(folder))), 1, tries=1)
            version, precision = self._answer(Load(timeout_s=START_TIMEOUT_S))
        except BaseException:  # whatever goes wrong, Ctrl-C too: the process must not stay
            self.close()
            raise
        way = engine if engine not in (OURS, self.name) else ""
        self.times = EngineTimes(self.name, version, precision, way=way)
        self._usage = psutil.Process(self._pool.workers[0].pid)

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, runs: int, warmup: int) -> list[float]:
        """Seconds of ``runs`` runs after ``warmup`` untimed ones.

        Raises:
            MeasureError: if the process died or does not answer.
        """
        latencies: list[float] = self._answer(Run(runs, warmup, timeout_s=RUN_TIMEOUT_S))
        return latencies

    def outputs(self, feed: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The engine's outputs for ``feed``, in order.

        Raises:
            MeasureError: if the process died or does not answer.
        """
        outputs: list[NDArray[Any]] = self._answer(Outputs(feed, timeout_s=RUN_TIMEOUT_S))
        return outputs

    def serve(self, clients: int, seconds: float) -> tuple[float, list[float]]:
        """Requests per second of ``clients`` at once, and the seconds of every request.

        Raises:
            MeasureError: if the process died or does not answer.
        """
        rate, latencies = self._answer(Serve(clients, seconds, timeout_s=RUN_TIMEOUT_S))
        return float(rate), list(latencies)

    def memory(self) -> tuple[int, int]:
        """Peak bytes while the engine was loaded, and since then.

        Raises:
            MeasureError: if the process died or does not answer.
        """
        loaded, serving = self._answer(Memory(timeout_s=RUN_TIMEOUT_S))
        return int(loaded), int(serving)

    def cpu_s(self) -> float:
        """CPU seconds used so far, of all its threads."""
        times = self._usage.cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        """End the process."""
        self._server.close()

    def _answer(self, job: Load | Memory | Outputs | Run | Serve) -> Any:
        (answer,) = self._pool.run([job])
        if isinstance(answer, Lost) and answer.error == "timeout":
            raise MeasureError(f"{self.name} gave no answer in {job.timeout_s:.0f} s")
        if isinstance(answer, Lost):
            raise MeasureError(f"{self.name} ended ({answer.message}); leave it out of --against")
        return answer


class CpuMeter:
    """CPU time of processes other than the engine that runs: much of it makes a timing doubtful."""

    def __init__(self) -> None:
        self._others_s = 0.0
        self._all_s = 0.0

    @contextmanager
    def watching(self, engine: EngineProcess) -> Iterator[None]:
        """Count the body, in which ``engine`` runs."""
        before, own = psutil.cpu_times(), engine.cpu_s()
        yield
        after, own = psutil.cpu_times(), engine.cpu_s() - own
        spent = {name: getattr(after, name) - getattr(before, name) for name in before._fields}
        # Guests are counted in user time already. Steal is time that another virtual machine took.
        total = sum(seconds for name, seconds in spent.items() if not name.startswith("guest"))
        self._all_s += total
        self._others_s += max(0.0, total - spent["idle"] - spent.get("iowait", 0.0) - own)

    @property
    def others_cpu(self) -> float:
        """Share of all CPUs' time, from 0 to 1."""
        return self._others_s / self._all_s if self._all_s else 0.0


def wait_until_quiet(engines: Sequence[EngineProcess], sleep: Callable[[float], None] = time.sleep) -> None:
    """Return when no engine's threads spin any more.

    Raises:
        MeasureError: if they still do after some seconds.
    """
    for _ in range(QUIET_TRIES):
        before = [engine.cpu_s() for engine in engines]
        sleep(QUIET_S)
        busy = [engine.cpu_s() - used for engine, used in zip(engines, before, strict=True)]
        if max(busy) <= QUIET_SHARE * QUIET_S:
            return
    loud = engines[busy.index(max(busy))].name
    raise MeasureError(f"{loud} keeps its threads spinning after its runs, so no engine can be timed beside it")
