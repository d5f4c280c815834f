"""Injects mistakes into kernels in assembly and counts those that the check of measured kernels lets pass.

Every mutant runs in a process of its own: one that writes where it must not would spoil the verdict on the next.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from autotune.backends.cpu.libraries import set_threads
from autotune.host.fork_server import Job, Start
from autotune.host.machine import host_target, thread_cpus
from autotune.host.worker_pool import ONE_THREAD, ForkServerProcess, Lost, WorkerPool
from autotune.importer.load import load_model
from autotune.importer.program import Program, import_program, simplify
from autotune.measure.kernel_builder import Builder
from autotune.measure.kernel_handler import CpuHandler
from autotune.measure.kernel_timing import load
from autotune.measure.measure_limits import kernel_variables
from autotune.measure.measurer import Candidate, symbol_of
from autotune.measure.messages import BuildJob, Built, Reference, ReferenceJob, Settings, TimeJob
from autotune.measure.output_check import Array, Expected, aligned, numpy_dtype
from schedules.config import Config
from schedules.lower import BASELINE, assembly, load_program, repack
from schedules.target import Target
from tests.fuzz.graphs import kernel_model
from tests.models import cached
from tests.mutation import lowering
from tests.mutation.oracle import packed, strong_inputs
from tests.mutation.trial import QUICK, Tally

MODELS = ("tiny_cnn", "tiny_strided", "tiny_grouped", "tiny_branches", "tiny_gated", "tiny_unet", "tiny_encoder")
MODELS += ("tiny_mlp", "tiny_odd")
GRAPHS = 24
"""Random graphs of wide layers whose kernels are mutated too."""

RUN_S, BUILD_S, CONFIGS = 8.0, 60.0, 3
AROUND, NOTHING = 4096, 0xA5
"""Bytes before and behind every array that the oracle gives a kernel, and what they are."""


VERDICTS = ("equal", "rounding", "close", "wrong", "outside")
"""Of an accepted mutant: equal bits on all inputs; within ``ROUNDING``; within the check's tolerance; beyond it; or
something is written beside an array."""

ROUNDING = 1e-5
"""Deviation that two right kernels of a large layer have (``autotune/measure/output_check.py``)."""


@dataclass(frozen=True)
class Verdict:
    """One of ``VERDICTS``, and by how much outputs deviate."""

    kind: str
    deviation: float = np.inf


@dataclass(frozen=True)
class OracleJob(Job):
    """Compare two libraries of one candidate bit by bit."""

    candidate: Candidate
    right: str
    wrong: str


class MutantHandler(CpuHandler):
    """Checks kernels as a measuring worker does, and compares them bit by bit."""

    def answer(self, job: Any) -> Any:
        return differences(job, self._settings.target) if isinstance(job, OracleJob) else super().answer(job)


def differences(job: OracleJob, target: Target) -> Verdict:
    """How a mutant's outputs differ: one of ``VERDICTS``, and the largest deviation."""
    set_threads(target.threads)
    task, config = job.candidate.task, lowering.plain(job.candidate.config)
    forms = repack(load_program(job.candidate.program), config)
    kernels = [load(library, task) for library in (job.right, job.wrong)]
    farthest, equal = 0.0, True
    for inputs in strong_inputs(job.candidate):
        outputs = []
        for kernel in kernels:
            arguments = [_guarded(packed(array, forms.get(index))) for index, array in enumerate(inputs)]
            blank = aligned(task.shapes[-1], numpy_dtype(task.dtypes[-1]))
            blank.view(np.uint8).reshape(-1)[...] = NOTHING
            arguments.append(_guarded(blank))
            before = [whole.copy() for _, whole in arguments[:-1]]
            kernel(*(tvm.runtime.from_dlpack(array) for array, _ in arguments))
            changed = any((whole != old).any() for (_, whole), old in zip(arguments[:-1], before, strict=True))
            if kernel is kernels[1] and (changed or not _is_guarded(*arguments[-1])):
                return Verdict("outside")
            outputs.append(arguments[-1][0])
        if Expected.of(task, outputs[0]).mismatch(outputs[1]):
            return Verdict("wrong")
        equal = equal and outputs[0].tobytes() == outputs[1].tobytes()
        farthest = max(farthest, _deviation(*outputs))
    return Verdict("equal" if equal else "rounding" if farthest <= ROUNDING else "close", farthest)


def _deviation(right: Array, wrong: Array) -> float:
    """The largest difference of finite floats, as a share of the number and of the output's root mean square."""
    if right.dtype.kind != "f":
        return 0.0 if np.array_equal(right, wrong) else np.inf
    both = np.isfinite(right) & np.isfinite(wrong)
    ours, theirs = (array[both].astype(np.float64) for array in (wrong, right))
    if not ours.size:
        return 0.0
    scale = np.abs(theirs) + np.sqrt(np.mean(np.square(theirs))) + 1e-30
    return float(np.max(np.abs(ours - theirs) / scale))


def _guarded(array: Any) -> tuple[Any, Any]:
    """(a copy, all of the bytes around it)."""
    whole = np.full(array.nbytes + 2 * AROUND + 64, NOTHING, np.uint8)
    start = AROUND + (-(whole.ctypes.data + AROUND)) % 64
    inner = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    inner[...] = array
    return inner, whole


def _is_guarded(inner: Any, whole: Any) -> bool:
    start = inner.ctypes.data - whole.ctypes.data
    return bool((whole[:start] == NOTHING).all() and (whole[start + inner.nbytes :] == NOTHING).all())


class Judge(AbstractContextManager["Judge"]):
    """Builds and checks one kernel after another, each in a fresh worker."""

    def __init__(self, target: Target) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tune-mutants-"))
        settings = Settings(target, thread_cpus(target.threads), 0, lowering.LOWERING, str(self._folder))
        handler = f"{__name__}:MutantHandler"
        self._server = ForkServerProcess(self._folder, ONE_THREAD)
        self._start = Start(handler, settings, kernel_variables(target))
        self._builder = Builder(target, lowering)
        self._references: dict[str, Reference] = {}
        self._count = 0

    def __exit__(self, *exc: object) -> None:
        self._server.close()

    def build(self, candidate: Candidate, config: Config) -> tuple[str, Built]:
        """The library of a config, and how it was built."""
        self._count += 1
        program = self._folder / f"{candidate.task.key}.json"
        program.write_text(candidate.program)
        library = str(self._folder / f"{self._count}.so")
        symbol = symbol_of(candidate.task.key)
        return library, self._builder.build(BuildJob(str(program), config, library, symbol, timeout_s=BUILD_S))

    def alone(self, job: Job) -> Any:
        """The answer of a worker that does nothing else."""
        pool = WorkerPool(self._server, self._start, 1, tries=1)
        try:
            return pool.run([job])[0]
        finally:
            self._server.end(pool.workers[0])

    def rejection(self, candidate: Candidate, library: str) -> str:
        """The kind of error that the check reports; empty if it accepts the library."""
        config = lowering.plain(candidate.config)
        job = TimeJob(
            candidate.task,
            (library,),
            (config,),
            str(self._folder / f"{candidate.task.key}.json"),
            self._reference(candidate),
            QUICK,
            None,
            None,
            0,
            timeout_s=RUN_S,
        )
        answer = self.alone(job)
        return answer.error if isinstance(answer, Lost) else answer.runs[0].error or ""

    def oracle(self, candidate: Candidate, right: str, wrong: str) -> Verdict:
        """What ``differences`` says; ``wrong`` of a kernel that does not end or that kills its process."""
        answer = self.alone(OracleJob(candidate, right, wrong, timeout_s=RUN_S * 2))
        return answer if isinstance(answer, Verdict) else Verdict("wrong")

    def _reference(self, candidate: Candidate) -> Reference:
        key = candidate.task.key
        if key not in self._references:
            library, built = self.build(candidate, BASELINE)
            assert built.error is None, built.message
            output = str(self._folder / f"{key}.npy")
            answer = self.alone(ReferenceJob(candidate.task, library, output, QUICK, 0, timeout_s=BUILD_S))
            assert not isinstance(answer, Lost), answer
            self._references[key] = Reference(output, answer.positive)
        return self._references[key]


def assembled(models: Iterable[str], graphs: int, target: Target, rng: np.random.Generator) -> list[Candidate]:
    """Kernels in assembly of models and of random graphs: first guesses and some random configs."""
    by_key: dict[tuple[str, str], Candidate] = {}
    for program in _programs(models, graphs, target):
        for task in program.tasks:
            text, space = program.programs[task.key], program.spaces[task.key]
            samples = space.sample(2 * CONFIGS, rng) if space.knobs else []
            written = 0
            for config in (*space.initial[:1], *samples):
                if written < CONFIGS and assembly(load_program(text), config, target, "kernel"):
                    written += 1
                    by_key[task.key, config.to_json()] = Candidate(task, text, config)
    return list(by_key.values())


def _programs(models: Iterable[str], graphs: int, target: Target) -> Iterator[Program]:
    for name in models:
        yield import_program(simplify(load_model(cached(name))), target)
    for seed in range(graphs):
        yield import_program(simplify(kernel_model(seed)), target)


def run(
    count: int, models: Iterable[str] = MODELS, graphs: int = GRAPHS, seed: int = 0, tally: Tally | None = None
) -> Iterator[Tally]:
    """Inject ``count`` mistakes; yields the tally after each kernel."""
    target, rng = host_target(), np.random.default_rng(seed)
    pool = _in_turn(assembled(models, graphs, target, rng), rng)
    tally = tally or Tally()
    with Judge(target) as judge:
        for number in range(-(-count // PER_KERNEL)):
            candidate = pool[number % len(pool)]
            mine = [int(rng.integers(1 << 30)) for _ in range(min(PER_KERNEL, count - number * PER_KERNEL))]
            _batch(tally, judge, candidate, mine, target)
            yield tally


PER_KERNEL = 6
"""Mistakes made in a kernel before the next one's turn."""


def _in_turn(candidates: list[Candidate], rng: np.random.Generator) -> list[Candidate]:
    """Shuffled, and dealt so that kernels of every template alternate."""
    spaces: dict[str, list[Candidate]] = {}
    for place in rng.permutation(len(candidates)):
        spaces.setdefault(candidates[place].config.space, []).append(candidates[place])
    longest = max(map(len, spaces.values()))
    return [group[number] for number in range(longest) for group in spaces.values() if number < len(group)]


def _batch(tally: Tally, judge: Judge, right: Candidate, numbers: list[int], target: Target) -> None:
    original, built = judge.build(right, right.config)
    assert built.error is None, built.message
    rejected = judge.rejection(right, original)
    assert not rejected, f"{right.task.name} {right.config.to_json()}: {rejected}"
    text = assembly(load_program(right.program), right.config, target, symbol_of(right.task.key))
    for number in numbers:
        kind, line, _ = lowering.text_mistake(text, number)
        config = lowering.mutated(right.config, number, lowering.TEXT_KNOB)
        mutant = Candidate(right.task, right.program, config)
        library, again = judge.build(mutant, config)
        if again.error is not None:
            tally.harmless["does not assemble"] += 1
            continue
        error = "" if again.code_hash == built.code_hash else judge.rejection(mutant, library)
        if error:
            tally.rejected[error] += 1
            tally.by_kind[kind] += 1
            continue
        verdict = judge.oracle(mutant, original, library)
        if verdict.kind in ("equal", "rounding"):
            tally.harmless[f"{kind} ({verdict.kind})"] += 1
        else:
            passed = tally.close if verdict.kind == "close" else tally.missed
            if passed is tally.missed:
                tally.by_kind[kind] += 1
            changed = text.split("\n")[line].strip().replace("\t", " ")
            where = f"{changed!r} in {right.task.name} {right.config.to_json()}, mistake {number}"
            passed.append(f"{kind} ({verdict.kind}, {verdict.deviation:.1e}): {where}")
