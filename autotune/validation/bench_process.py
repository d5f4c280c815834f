"""The parent's side of a bench: engines in processes of their own, quiet before each turn, and who else was running."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import psutil

from schedules.errors import MeasureError

QUIET_S = 0.15
"""Idle time before an engine runs: the last one's spinning threads have gone to sleep by then."""
QUIET_SHARE = 0.1
"""An engine is quiet when it used less than this share of one core over QUIET_S (the kernel counts in 10 ms)."""
QUIET_TRIES = 20
START_TIMEOUT_S = 600.0
RUN_TIMEOUT_S = 600.0


@dataclass
class EngineTimes:
    """One engine's latencies.

    Attributes:
        rounds: per round the timed runs in seconds, in order.
    """

    name: str
    version: str
    precision: str
    rounds: list[list[float]] = field(default_factory=list)

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
        }


class EngineProcess:
    """An engine in a child process; see ``autotune.validation.bench_engine``."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._errors = (folder / f"{name}.stderr").open("w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "autotune.validation.bench_engine", name, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for the parent, which ends the children
        )
        try:
            told = self._answer(START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise
        self.times = EngineTimes(name, told["version"], told["precision"])
        self._usage = psutil.Process(self._process.pid)

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, runs: int, warmup: int) -> list[float]:
        """Seconds of ``runs`` runs after ``warmup`` untimed ones.

        Raises:
            MeasureError: if the process died or does not answer.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"warmup": warmup, "runs": runs}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise MeasureError(self._death()) from error
        return [float(latency) for latency in self._answer(RUN_TIMEOUT_S)["latencies_s"]]

    def cpu_s(self) -> float:
        """CPU seconds used so far, of all its threads."""
        times = self._usage.cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise MeasureError(self._death() if ready else f"{self.name} gave no answer in {timeout_s:.0f} s")
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            raise MeasureError(f"{self.name} cannot start: {told['error']}")
        return told

    def _death(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"{self.name} ended (exit {code}): {(lines or ['no message'])[-1][:300]}; leave it out of --against"


class CpuMeter:
    """What processes other than the engine that runs take of the CPUs: whether a timing can be believed."""

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
