"""One candidate from program to shared library, inside a worker.

The library is how code moves from the process that compiles to the one that times: writing the object takes what a
JIT would take to emit the same code, linking it adds some 4 ms, and the code survives the death of either process.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Protocol

import tvm
from tvm import s_tir, tirx
from tvm.support import cc

from autotune.host.machine import is_foreign
from autotune.host.process_limits import is_out_of_memory
from autotune.host.shared_files import NO_SPACE
from autotune.measure.code_cache import Code, CodeCache, key_of, source_digest
from autotune.measure.messages import BuildJob, Built
from autotune.versions import installed
from schedules import lower
from schedules.config import Config
from schedules.lower import load_program, tvm_target
from schedules.target import Target
from schedules.templates.common.structure import Repack
from schedules.templates.common.traced import trace_of
from schedules.templates.cpu.passes import compiled
from schedules.vocabulary.errors import CompileError, MeasureError, ScheduleError, named_last_line
from tuning_logs.measurement import ErrorKind

LIBRARY_BYTES = 1 << 17
"""Size of a kernel's object file and library, which are 10 to 100 KB."""


class Lowering(Protocol):
    """How configs apply to programs; the module ``schedules.lower``, or one with the same three functions."""

    def lower(self, func: tirx.PrimFunc, config: Config, target: Target) -> s_tir.Schedule:
        """The scheduled program."""
        ...

    def assembly(self, func: tirx.PrimFunc, config: Config, target: Target, symbol: str) -> str:
        """The same as text for the system's assembler, or nothing."""
        ...

    def repack(self, func: tirx.PrimFunc, config: Config) -> dict[int, Repack]:
        """The parameters that the scheduled program wants in another form."""
        ...


ASSEMBLER = "as"
"""The system's, which comes with its linker."""


PROBE = ".intel_syntax noprefix\nvdpbf16ps zmm0, zmm1, dword ptr [rip]{1to16}\n"
"""The youngest instruction of kernels in assembly: an assembler that knows it knows all of them."""


def can_assemble(target: Target) -> bool:
    """Return whether this machine has an assembler for ``target`` that knows the instructions of kernels."""
    return not is_foreign(target.architecture) and _knows_instructions(shutil.which(ASSEMBLER))


@cache
def _knows_instructions(assembler: str | None) -> bool:
    if assembler is None:
        return False
    command = [assembler, "-o", os.devnull, "-"]
    return subprocess.run(command, input=PROBE, text=True, capture_output=True).returncode == 0


def object_of(library: str) -> str:
    """The object file beside a library."""
    return library.removesuffix(".so") + ".o"


class Builder:
    """Builds for one target.

    Args:
        target: what to build for.
        lowering: applies configs to programs.
        cache: code that was compiled before by ``schedules.lower``; None compiles everything.
    """

    def __init__(self, target: Target, lowering: Lowering, cache: CodeCache | None = None) -> None:
        self._target = target
        self._tvm_target = tvm_target(target)
        self._lowering = lowering
        self._linker = shutil.which("ld.lld") or shutil.which("ld")
        self._is_foreign = is_foreign(target.architecture)
        self._assembles = can_assemble(target)
        self._cache = cache
        self._surroundings = () if cache is None else surroundings(target)

    def build(self, job: BuildJob) -> Built:
        """Write ``job.library``; a failure is an answer.

        Raises:
            MeasureError: if the disk is full, which is no fault of the candidate.
        """
        start = time.perf_counter()
        stage: ErrorKind = "lower_error"
        trace = ""
        try:
            key = self._key(job)
            known = None if self._cache is None else self._cache.get(key)
            if known is not None:
                Path(object_of(job.library)).write_bytes(known.objects)
                return Built(time.perf_counter() - start, self._linked(job.library), trace=known.trace)
            func = load_program(Path(job.program).read_text())
            text = self._lowering.assembly(func, job.config, self._target, job.symbol) if self._assembles else ""
            if text:
                stage = "compile_error"
                code_hash = self.assemble(text, job.library)
            else:
                schedule = self._lowering.lower(func, job.config, self._target)
                stage, trace = "compile_error", _trace(schedule)
                code_hash = self.compile(schedule.mod["main"], job.symbol, job.library)
            if self._cache is not None:
                self._cache.put(key, Code(Path(object_of(job.library)).read_bytes(), trace))
        except Exception as error:  # whatever a candidate provokes is its measurement
            _refuse_full_disk(Path(job.library).parent)
            return Built(time.perf_counter() - start, error=_kind(error, stage), message=_message(error), trace=trace)
        return Built(time.perf_counter() - start, code_hash, trace=trace)

    def compile(self, func: tirx.PrimFunc, symbol: str, library: str) -> str:
        """Compile ``func`` as ``symbol`` into the shared library ``library``; returns the hash of its object code.

        The object file stays beside it. It holds no path or time, so its hash tells equal code of one task.
        """
        compiled(func, symbol, self._tvm_target).mod.write_to_file(object_of(library))
        return self._linked(library)

    def assemble(self, text: str, library: str) -> str:
        """Work like ``compile``, of a kernel in assembly."""
        done = subprocess.run([ASSEMBLER, "-o", object_of(library), "-"], input=text, text=True, capture_output=True)
        if done.returncode:
            *_, last = ["", *done.stderr.strip().splitlines()]
            raise CompileError(f"the assembler refused a kernel: {last or f'it ended with {done.returncode}'}")
        return self._linked(library)

    def _linked(self, library: str) -> str:
        """Link ``library`` from the object file beside it, unless it is of another architecture; the object's hash."""
        objects = object_of(library)
        if self._linker is None and not self._is_foreign:
            cc.create_shared(library, [objects])
        elif not self._is_foreign:
            # The linker itself rather than the compiler driver in front of it: 4 ms instead of 25. Symbols of the C
            # libraries are found in the process that loads it.
            assert self._linker is not None
            subprocess.run([self._linker, "-shared", "-o", library, objects], check=True, capture_output=True)
        return hashlib.sha256(Path(objects).read_bytes()).hexdigest()[:16]

    def _key(self, job: BuildJob) -> str:
        """Return where the cache keeps what ``job`` makes."""
        return key_of([*self._surroundings, Path(job.program).read_text(), job.config.to_json(), job.symbol])


def surroundings(target: Target) -> tuple[str, ...]:
    """Return what decides code besides a program, its config and its name: target, templates, this file, compiler."""
    compiler = [f"{name} {installed(name)}" for name in ("apache-tvm", "apache-tvm-ffi")]
    for library in sorted(Path(tvm.__file__).parent.glob("lib/libtvm_compiler*")):  # another build has the same version
        status = library.stat()
        compiler.append(f"{library} {status.st_size} {status.st_mtime_ns}")
    route = "assembled" if can_assemble(target) else "compiled"
    own = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    return target.to_json(), route, source_digest(Path(lower.__file__).parent), own, *compiler


def _trace(schedule: s_tir.Schedule) -> str:
    """The schedule's trace; empty where JSON cannot hold it, which is no fault of the candidate."""
    try:
        return trace_of(schedule)
    except ScheduleError:
        return ""


def _refuse_full_disk(folder: Path) -> None:
    """Raise ``MeasureError`` if no library can be written into ``folder``.

    The assembler, the linker and LLVM say so in words of their own; so a file of the size of a library is written.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(LIBRARY_BYTES))
    except OSError as error:
        if error.errno not in NO_SPACE:
            return
        message = f"no kernel can be written to {folder} ({error.strerror}); make room, then run it again"
        raise MeasureError(message) from error


def _kind(error: Exception, stage: ErrorKind) -> ErrorKind:
    if isinstance(error, MemoryError) or is_out_of_memory(str(error)):
        return "out_of_memory"
    return "lower_error" if isinstance(error, ScheduleError) else stage


def _message(error: Exception) -> str:
    return str(error) if isinstance(error, ScheduleError) else named_last_line(error)
