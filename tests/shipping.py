"""Kernels as a run ships them, built in this process: assembly where a template writes it, else compiled code."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import tvm
from tvm import tirx

from autotune.artifact.plan import Choice, Plan
from autotune.importer.program import Program
from autotune.measure.code_cache import Code, CodeCache, key_of, user_cache
from autotune.measure.kernel_builder import Builder, object_of, surroundings
from autotune.measure.measurer import Candidate, symbol_of
from autotune.measure.messages import BuildJob
from schedules import lower
from schedules.config import Config
from schedules.lower import BASELINE, program_of
from schedules.target import Target
from schedules.vocabulary.errors import CompileError, ScheduleError

COMPILED = b"TVMMod"
"""Name of the source file in every object that TVM's compiler writes; the assembler is told none."""

DRAWS = 8
"""Random configs tried per kernel until one applies: a space may hold some that do not."""

LIMIT_S = 120.0
"""Formal: nothing here enforces a job's limit. Callers that need one run in a worker."""


class ObjectBuilder(Builder):
    """A builder that links no library of each kernel: an artifact is linked from objects."""

    def _linked(self, library: str) -> str:
        return hashlib.sha256(Path(object_of(library)).read_bytes()).hexdigest()[:16]


@cache
def shipping_builder(target: Target, folder: Path) -> Builder:
    """The builder of a run's workers, with its code cache below ``folder``."""
    return ObjectBuilder(target, lower, CodeCache(folder))


@cache
def compiling_builder(target: Target, folder: Path, kind: type[Builder]) -> Builder:
    """The builder of ``CompiledOnly``. A folder has code of one lowering: its keys do not tell them apart."""
    cache = CodeCache(folder.with_name("compiled"))
    cache.prune()
    return kind(target, CompiledOnly(), cache)


def compiled_library(func: tirx.PrimFunc, config: Config, target: Target, folder: Path) -> str:
    """Compile ``func`` under ``config`` as ``main`` and return the shared library's path, in ``folder``.

    Raises:
        ScheduleError: if the config is illegal.
        CompileError: if its program cannot be compiled.
    """
    program, library = folder / "program.json", str(folder / "kernel.so")
    program.write_text(program_of(func))
    job = BuildJob(program=str(program), config=config, library=library, symbol="main", timeout_s=LIMIT_S)
    built = compiling_builder(target, user_cache(), Builder).build(job)
    if built.error is not None:
        raise (ScheduleError if built.error == "lower_error" else CompileError)(built.message)
    return library


_surroundings = cache(surroundings)
"""What decides code besides program and config; hashing all sources takes a while."""


def loaded_kernel(func: tirx.PrimFunc, config: Config, target: Target) -> tvm.runtime.PackedFunc:
    """The kernel of ``compiled_library``, loaded into this process."""
    with tempfile.TemporaryDirectory() as folder:
        return tvm.runtime.load_module(compiled_library(func, config, target, Path(folder)))["main"]


def is_assembled(code: bytes) -> bool:
    """Whether an object file was written as assembly."""
    return COMPILED not in code


class CompiledOnly:
    """A lowering whose kernels are all compiled: ``schedules.lower`` without its assembly."""

    lower, repack = staticmethod(lower.lower), staticmethod(lower.repack)

    @staticmethod
    def assembly(func: object, config: Config, target: Target, symbol: str) -> str:
        return ""


class InlineMeasurer:
    """Builds kernels by ``Builder.build``: what ``LocalMeasurer.objects`` does in its workers.

    Args:
        target: what to build for.
        folder: an existing folder for programs and libraries.
        assembled: whether templates may write assembly, as they do in a run.

    Attributes:
        assembled, compiled: kernels built so far, those from the code cache too.
    """

    def __init__(self, target: Target, folder: Path, assembled: bool = True) -> None:
        shipping = shipping_builder(target, user_cache())
        self._builder = shipping if assembled else compiling_builder(target, user_cache(), ObjectBuilder)
        self._folder = folder
        self._built: dict[tuple[str, str], Path] = {}
        self.assembled = self.compiled = 0

    def objects(self, candidates: Sequence[Candidate]) -> list[Path]:
        """As ``LocalMeasurer.objects``.

        Raises:
            CompileError: if a kernel cannot be built.
        """
        return [self._object(candidate) for candidate in candidates]

    def _object(self, candidate: Candidate) -> Path:
        key = (candidate.task.key, candidate.config.to_json())
        if key not in self._built:
            program = self._folder / f"{candidate.task.key}.json"
            program.write_text(candidate.program)
            library = str(self._folder / f"kernel-{len(self._built)}.so")
            symbol = symbol_of(candidate.task.key)
            built = self._builder.build(BuildJob(str(program), candidate.config, library, symbol, timeout_s=LIMIT_S))
            if built.error is not None:
                raise CompileError(f"{candidate.task.name}, {key[1]}: {built.error}: {built.message}")
            path = Path(object_of(library))
            if is_assembled(path.read_bytes()):
                self.assembled += 1
            else:
                self.compiled += 1
            self._built[key] = path
        return self._built[key]


def first_guesses(program: Program, target: Target, most_loss: int = lower.MOST_LOSSY) -> dict[str, Config]:
    """Task key → its template's first initial config that applies; the untuned config where there is none.

    Args:
        most_loss: how much accuracy a config may give up (``schedules.lower.loss``).
    """
    allowed = {
        task.key: [config for config in program.spaces[task.key].initial if lower.loss(config) <= most_loss]
        for task in program.tasks
    }
    return {key: _applied(program, key, configs, target) or BASELINE for key, configs in allowed.items()}


def random_configs(program: Program, target: Target, seed: int) -> dict[str, Config]:
    """Task key → a random config that applies, the same in every program; the untuned config where none was found."""
    chosen = {}
    for task in program.tasks:
        space = program.spaces[task.key]
        digest = hashlib.sha256(f"{task.key}/{seed}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        samples = space.sample(DRAWS, rng) if space.knobs else []
        chosen[task.key] = _applied(program, task.key, samples, target) or BASELINE
    return chosen


def untuned_plan(program: Program, target: Target) -> Plan:
    """The plan that builds every task untuned."""
    return plan_of(dict.fromkeys((task.key for task in program.tasks), BASELINE), target)


def plan_of(configs: Mapping[str, Config], target: Target) -> Plan:
    """The plan that builds each task, named by its key, with its config."""
    return Plan(target, tuple(Choice(key, config, None) for key, config in sorted(configs.items())))


def _applied(program: Program, key: str, configs: Iterable[Config], target: Target) -> Config | None:
    """The first of ``configs`` that can be lowered."""
    text = program.programs[key]
    return next((config for config in configs if _applies(text, config, target)), None)


def _applies(program: str, config: Config, target: Target) -> bool:
    """Whether ``config`` can be lowered; that it could be is kept beside the code of kernels."""
    cache = CodeCache(user_cache())
    known = key_of([*_surroundings(target), program, config.to_json(), "applies"])
    if cache.get(known) is None:
        try:
            lower.lower(lower.load_program(program), config, target)
        except ScheduleError:
            return False
        cache.put(known, Code(b""))
    return True
