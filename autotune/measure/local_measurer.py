"""LocalMeasurer: candidates built in parallel and timed alone, on this machine.

A batch has two phases: every candidate is built, by a worker per core of this machine whatever threads the target has;
then, with no build running, one worker checks and times them one after the other. Candidates whose code was timed
before, in this batch or an earlier one of the run, are given those runs and not run again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from autotune.host.fork_server import Start
from autotune.host.machine import read_host, thread_cpus
from autotune.host.worker_pool import ONE_THREAD, ForkServerProcess, Lost, WorkerPool
from autotune.measure.code_cache import CodeCache, user_cache
from autotune.measure.evaluator import (
    BASELINE_EVALUATOR,
    CONFIRMATIONS,
    FINAL_EVALUATOR,
    Evaluator,
    make_evaluator,
)
from autotune.measure.kernel_builder import object_of
from autotune.measure.machine_lock import MachineLock
from autotune.measure.measure_limits import (
    COPIES,
    MEMORY_SHARE,
    REFERENCE_TIMEOUT_S,
    MeasureLimits,
    RemoteTarget,
    Shared,
    kernel_variables,
)
from autotune.measure.measurer import Candidate, Origin, symbol_of
from autotune.measure.messages import BuildJob, Built, Library, Reference, ReferenceJob, Settings, Timed, TimeJob
from schedules.config import Config
from schedules.lower import BASELINE
from schedules.target import Target
from schedules.vocabulary.errors import CompileError, MeasureError
from tuning_logs.measurement import ErrorKind, Measurement

LOWERING = "schedules.lower"
KERNEL_HANDLER = "autotune.measure.kernel_handler:CpuHandler"


KEPT_LIBRARIES = 256
"""Built libraries that are kept on disk for ranking and shipping. Heuristic, not measured."""


class LocalMeasurer(AbstractContextManager["LocalMeasurer"]):
    """Builds on this machine, and measures on its CPU or on a ``RemoteTarget``.

    Args:
        target: what to build for and how many threads to run on; a CPU unless ``remote`` is given.
        evaluator: a name from ``EVALUATORS``, or an Evaluator.
        seed: of the inputs that candidates are checked on.
        limits: what a candidate may take.
        lowering: the module that applies configs to programs; another than the default, whose code is not kept, in
            tests only.
        remote: where candidates run, if not on this machine's CPU.
        shared: with other measurers.

    Attributes:
        compile_s, measure_s, at_once, cold_bytes: see ``MeasurementBackend``.
        ran_on: the machine that the last candidate ran on, if that is not this one.
    """

    origins: Sequence[Origin] = ()

    def __init__(
        self,
        target: Target,
        *,
        evaluator: str | Evaluator = "adaptive",
        seed: int = 0,
        limits: MeasureLimits = MeasureLimits(),
        lowering: str = LOWERING,
        remote: RemoteTarget | None = None,
        shared: Shared = Shared(),
    ) -> None:
        self.compile_s = 0.0
        self.measure_s = 0.0
        self.cold_bytes = 0
        self.ran_on = ""
        self._evaluator = make_evaluator(evaluator) if isinstance(evaluator, str) else evaluator
        self._limits = limits
        here_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        total_bytes = here_bytes if remote is None else remote.memory_bytes
        self._memory_bytes = limits.memory_bytes or total_bytes // MEMORY_SHARE
        self._own = None if shared.server is not None else ForkServerProcess(variables=ONE_THREAD)
        server = shared.server or self._own
        assert server is not None
        self._directory = Path(tempfile.mkdtemp(prefix="measurer-", dir=server.directory))
        self._lock = shared.lock or MachineLock()
        self._slack_s = 0.0 if remote is None else remote.slack_s
        self._closed = False
        self._count = 0
        self._libraries: OrderedDict[tuple[str, Config], Library] = OrderedDict()
        self._best: dict[str, tuple[str, Config]] = {}
        self._timed: dict[tuple[str, str], Measurement] = {}
        self._references: dict[str, Reference | Measurement] = {}
        self._baselines: dict[str, Measurement] = {}
        self._expected: dict[str, str] = {}
        cores = thread_cpus(target.threads) if remote is None else remote.cores
        device = "" if remote is None else remote.device
        self._cache = CodeCache(user_cache())
        folder = str(self._cache.folder) if lowering == LOWERING else ""
        settings = Settings(target, cores, seed, lowering, str(self._directory), device, folder)
        handler = KERNEL_HANDLER if remote is None else remote.handler
        start = Start(handler, settings, kernel_variables(target))
        # First: a worker that is no fork imports its handler while the server does.
        self._timers = WorkerPool(server, start, 1, fresh=remote is not None and not remote.forks)
        self.at_once = read_host().usable_threads
        self._builders = WorkerPool(server, start, self.at_once)

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End every worker process; safe to call twice."""
        if not self._closed:
            self._cache.prune()
        self._closed = True
        for pool in (self._timers, self._builders):
            pool.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        if self._own is not None:
            self._own.close()

    def measure(self, candidates: Sequence[Candidate], incumbent_s: float | None = None) -> list[Measurement]:
        """One measurement per candidate, in order; see ``Measurer``."""
        if not candidates:
            return []
        libraries = self._build(candidates)
        start = time.perf_counter()
        measured = []
        try:
            with self._lock.alone():
                for candidate, library in zip(candidates, libraries, strict=True):
                    measurement = self._time(candidate, library, incumbent_s)
                    measured.append(measurement)
                    if measurement.ok and (incumbent_s is None or measurement.latency_s < incumbent_s):
                        incumbent_s = measurement.latency_s
                        self._best[candidate.task.key] = (candidate.task.key, candidate.config)
        finally:
            self.measure_s += time.perf_counter() - start
        return measured

    def expect(self, candidates: Iterable[Candidate]) -> None:
        """Tasks that will be measured soon, soonest first: their untuned programs are built where a builder is idle.

        A task's first slot builds its untuned program too, and where that is one more than the builders, one waits.
        """
        self._expected = {candidate.task.key: candidate.program for candidate in candidates}

    def lead(self, incumbent: Candidate, latency_s: float) -> None:
        """Implement ``Measurer.lead``; it may also have been measured on another machine."""
        del latency_s  # ``measure`` is told it with every batch
        key = (incumbent.task.key, incumbent.config)
        if self._best.get(incumbent.task.key) != key:
            (library,) = self._build([incumbent], references=False)
            if library.built.error is None:
                self._best[incumbent.task.key] = key

    def baseline_s(self, candidate: Candidate) -> Measurement:
        """The untuned build's measurement of the candidate's task."""
        task = candidate.task
        if task.key not in self._baselines:
            self._build([replace(candidate, config=BASELINE)])
            self._reference(candidate)
        return self._baselines[task.key]

    def rank(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """Finalists of one task timed again, run by run in turn, so that drift meets all of them alike.

        Returns:
            One measurement per candidate, in order. Put the incumbent among them as the control.
        """
        libraries = self._build(candidates)
        start = time.perf_counter()
        hashes = list(dict.fromkeys(lib.built.code_hash for lib in libraries if lib.built.error is None))
        paths = {library.built.code_hash: library.path for library in libraries}
        configs = {lib.built.code_hash: c.config for lib, c in zip(libraries, candidates, strict=True)}
        reference = self._reference(candidates[0]) if hashes else None
        runs: dict[str, Timed] = {}
        if isinstance(reference, Reference):
            finalists = [(paths[code], configs[code]) for code in hashes]
            timed = self._run(finalists, candidates[0], reference, FINAL_EVALUATOR)
            runs = dict(zip(hashes, timed, strict=True))
        self.measure_s += time.perf_counter() - start
        return [
            self._measurement(
                library, reference if isinstance(reference, Measurement) else runs.get(library.built.code_hash)
            )
            for library in libraries
        ]

    def objects(self, candidates: Sequence[Candidate]) -> list[Path]:
        """Object files that hold the candidates' kernels under ``symbol_of`` their tasks.

        What was measured is at hand; the rest is compiled in parallel by the workers.

        Raises:
            CompileError: if any does not compile, naming all that do not, and why the first does not.
        """
        libraries = self._build(candidates, references=False)
        broken = [
            (c.task, lib.built) for c, lib in zip(candidates, libraries, strict=True) if lib.built.error is not None
        ]
        if broken:
            task, built = broken[0]
            why = f"{built.error}: {built.message}"
            message = f"{task.name} does not compile ({why}); tune it with another --seed"
            raise CompileError(message, [task.key for task, _ in broken])
        return [Path(object_of(library.path)) for library in libraries]

    def _build(self, candidates: Sequence[Candidate], references: bool = True) -> list[Library]:
        """Libraries of all candidates, and of their untuned program where it is needed, built in parallel."""
        if self._closed:
            raise MeasureError("this measurer is closed; open another one")
        start = time.perf_counter()
        wanted = dict.fromkeys((c.task.key, c.config) for c in candidates)
        programs = {c.task.key: c.program for c in candidates}
        for key in programs:
            if references and key not in self._references:
                wanted.setdefault((key, BASELINE))
            self._expected.pop(key, None)
        missing = [pair for pair in wanted if pair not in self._libraries]
        for key in list(self._expected) if references else []:
            if len(missing) % len(self._builders.workers) == 0:
                break
            programs[key] = self._expected.pop(key)
            if key not in self._references and (key, BASELINE) not in self._libraries:
                wanted.setdefault((key, BASELINE))
                missing.append((key, BASELINE))
        self._forget(set(wanted))
        jobs = [self._build_job(programs[key], key, config) for key, config in missing]
        with self._lock.together():
            answers = self._builders.run(jobs)
        for pair, job, answer in zip(missing, jobs, answers, strict=True):
            built = Built(answer.spent_s, "", answer.error, answer.message) if isinstance(answer, Lost) else answer
            self._libraries[pair] = Library(job.library, built)
        libraries = [self._libraries[c.task.key, c.config] for c in candidates]
        self.compile_s += time.perf_counter() - start
        return libraries

    def _forget(self, wanted: set[tuple[str, Config]]) -> None:
        """Drop the oldest libraries that are not wanted now."""
        for pair in list(self._libraries):
            if len(self._libraries) <= KEPT_LIBRARIES:
                return
            if pair not in wanted and pair not in self._best.values():
                path = self._libraries.pop(pair).path
                Path(path).unlink(missing_ok=True)
                Path(object_of(path)).unlink(missing_ok=True)

    def _build_job(self, program: str, key: str, config: Config) -> BuildJob:
        path = self._directory / f"{key}.json"
        if not path.exists():
            path.write_text(program)
        self._count += 1
        library = str(self._directory / f"{self._count}.so")
        limit = REFERENCE_TIMEOUT_S if config == BASELINE else self._limits.compile_s
        return BuildJob(str(path), config, library, symbol_of(key), timeout_s=limit, memory_bytes=self._memory_bytes)

    def _time(self, candidate: Candidate, library: Library, incumbent_s: float | None) -> Measurement:
        if library.built.error is not None:
            return self._measurement(library, None)
        identical = (candidate.task.key, library.built.code_hash)
        if identical in self._timed:
            return replace(self._timed[identical], compile_s=library.built.compile_s, run_s=0.0)
        reference = self._reference(candidate)
        if isinstance(reference, Measurement):
            return self._measurement(library, reference)
        measurement = self._duel(candidate, library, reference, incumbent_s)
        confirms = self._evaluator.races and self._control(candidate) is not None
        for _ in range(CONFIRMATIONS if confirms else 0):
            if incumbent_s is None or not measurement.ok or measurement.latency_s >= incumbent_s:
                break
            again = self._duel(candidate, library, reference, incumbent_s)
            kept = again if not again.ok or again.latency_s > measurement.latency_s else measurement
            measurement = replace(kept, run_s=measurement.run_s + again.run_s)
        self._timed[identical] = measurement
        return measurement

    def _duel(
        self, candidate: Candidate, library: Library, reference: Reference, incumbent_s: float | None
    ) -> Measurement:
        """One timing, in turn with the task's best config if that was measured in this run."""
        contender, control = [(library.path, candidate.config)], self._control(candidate)
        (timed,) = self._run(contender, candidate, reference, self._evaluator, incumbent_s, control)
        return self._measurement(library, timed)

    def _control(self, candidate: Candidate) -> tuple[str, Config] | None:
        """The library of the task's best config, if it was measured in this run."""
        best = self._best.get(candidate.task.key)
        return None if best is None else (self._libraries[best].path, best[1])

    def _run(
        self,
        libraries: list[tuple[str, Config]],
        candidate: Candidate,
        reference: Reference,
        evaluator: Evaluator,
        incumbent_s: float | None = None,
        control: tuple[str, Config] | None = None,
    ) -> list[Timed]:
        limit = self._limits.of_run(candidate.task, self._baselines[candidate.task.key].latency_s) * len(libraries)
        paths, configs = (tuple(column) for column in zip(*libraries, strict=True))
        program = str(self._directory / f"{candidate.task.key}.json")
        job = TimeJob(
            candidate.task,
            paths,
            configs,
            program,
            reference,
            evaluator,
            incumbent_s,
            control,
            self.cold_bytes,
            timeout_s=limit + self._slack_s,
            memory_bytes=self._memory_bytes + COPIES * candidate.task.bytes + 2 * self.cold_bytes,
        )
        with self._lock.alone():
            (answer,) = self._timers.run([job])
        if isinstance(answer, Lost):
            return [_failed(answer)] * len(libraries)
        self.ran_on = answer.host or self.ran_on
        return list(answer.runs)

    def _reference(self, candidate: Candidate) -> Reference | Measurement:
        """The task's right output, or the failure for which it has none."""
        task = candidate.task
        if task.key not in self._references:
            library = self._libraries[task.key, BASELINE]
            output = str(self._directory / f"{task.key}.npy")
            timed: Timed | None = None
            positive = False
            if library.built.error is None:
                job = ReferenceJob(
                    task,
                    library.path,
                    output,
                    BASELINE_EVALUATOR,
                    self.cold_bytes,
                    timeout_s=REFERENCE_TIMEOUT_S + self._slack_s,
                    memory_bytes=self._memory_bytes + COPIES * task.bytes + 2 * self.cold_bytes,
                )
                with self._lock.alone():
                    (answer,) = self._timers.run([job])
                if isinstance(answer, Lost):
                    timed = _failed(answer)
                else:
                    (timed,), positive = answer.runs, answer.positive
                    self.ran_on = answer.host or self.ran_on
            measurement = self._measurement(library, timed)
            self._baselines[task.key] = measurement
            self._references[task.key] = Reference(output, positive) if measurement.ok else measurement
        return self._references[task.key]

    def _measurement(self, library: Library, outcome: Timed | Measurement | None) -> Measurement:
        """The measurement of a library: its build error, or the outcome of its run."""
        built = library.built
        if built.error is not None:
            outcome = Timed((), 0.0, built.error, built.message)
        elif isinstance(outcome, Measurement):
            message = f"the untuned build that it would be checked against failed: {outcome.message}"
            failed = replace(outcome, message=message, compile_s=built.compile_s, run_s=0.0)
            return replace(failed, code_hash=built.code_hash, trace=built.trace)
        assert outcome is not None
        return Measurement(
            outcome.latencies_s,
            outcome.error,
            self._explained(outcome.error, outcome.message),
            built.compile_s,
            outcome.run_s,
            built.code_hash,
            built.trace,
        )

    def _explained(self, error: ErrorKind | None, message: str) -> str:
        if error != "out_of_memory":
            return message
        return f"it needs more than {self._memory_bytes >> 20} MiB besides its inputs ({message})"


def _failed(lost: Lost) -> Timed:
    """Return the failure that a lost job means for the libraries that it was to run."""
    return Timed((), lost.spent_s, lost.error, lost.message)
