"""Kernels and the core that calls them → a shared library.

Kernels are compiled by the measurer's workers, one object file each, where a compiler that hangs can be killed (a
legal kernel was seen to compile for more than 90 s). The linker puts them together: what was measured is what ships.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from autotune.artifact.directory import lane_library
from autotune.artifact.plan import Plan
from autotune.graph.steps import Steps
from autotune.host.compilers import compile_with, compiler_identity
from autotune.importer.program import Program
from autotune.measure.code_cache import Code, CodeCache, key_of, user_cache
from autotune.measure.measurer import Candidate, MeasurementBackend, symbol_of
from schedules.lower import load_program
from schedules.templates.common.movements import concat_axis, is_choice
from schedules.templates.cpu.passes import workspaces_of


def compile_kernels(program: Program, plan: Plan, measurer: MeasurementBackend) -> dict[str, Path]:
    """Symbol → object file of every kernel of ``plan``.

    Raises:
        MeasureError: if a kernel does not compile.
    """
    candidates = [Candidate(task, program.programs[task.key], plan.config(task.key)) for task in program.tasks]
    symbols = [symbol_of(task.key) for task in program.tasks]
    return dict(zip(symbols, measurer.objects(candidates), strict=True))


def workspaces_in(kernels: Mapping[str, Path], threads: int) -> dict[str, int]:
    """Symbol → bytes that the kernel asks for while it runs on so many threads, of those that do."""
    told = {symbol: workspaces_of(path.read_bytes(), symbol) for symbol, path in kernels.items()}
    return {symbol: once + threads * per_thread for symbol, (once, per_thread) in told.items() if once + per_thread}


def concats_of(program: Program) -> dict[str, int]:
    """Symbol → axis of the kernels that only concatenate."""
    axes = {task.key: concat_axis(load_program(program.programs[task.key])) for task in program.tasks}
    return {symbol_of(key): axis for key, axis in axes.items() if axis is not None}


def choices_of(program: Program) -> frozenset[str]:
    """Symbols of the kernels that only choose between two tensors."""
    programs = ((task.key, load_program(program.programs[task.key])) for task in program.tasks)
    return frozenset(symbol_of(key) for key, func in programs if is_choice(func))


CORE = Path(__file__).with_name("core.cc")
"""Core that runs flat programs; compiled with every artifact, so that a machine that only runs needs no compiler."""

CORE_OPTIONS = ("-O2", "-std=c++17", "-fno-exceptions", "-fno-rtti", "-pthread")
SHARED = ("-shared", "-fPIC", "-static-libgcc", "-Wl,--as-needed", "-Wl,--no-undefined")
"""A library needs nothing but the C library and its relatives: no C++ runtime, and nothing that TVM would provide."""


def link_kernels(kernels: dict[str, Path], library: Path, architecture: str = "") -> None:
    """Write ``library`` with the kernels and the core that calls them, for a flat program.

    The kernels alone, as one object, are left beside it: what a C library is linked from (``exchange/export_c.py``).

    Args:
        architecture: as ``Target.architecture``; empty for this machine's.
    """
    with tempfile.TemporaryDirectory(prefix="tune-core-") as folder:
        core = Path(folder) / "core.o"
        core.write_bytes(_compiled_core(core, architecture))
        objects = [str(core)]
        if kernels:
            merged = merged_object(library)
            paths = [str(path) for path in kernels.values()]
            compile_with(["-r", "-nostdlib", "-o", str(merged), *paths], architecture)
            objects.append(str(merged))
        compile_with([*CORE_OPTIONS, *SHARED, "-s", "-o", str(library), *objects], architecture)


def link_lanes(objects: Mapping[int, Mapping[str, Path]], steps: Steps, whole: int, library: Path) -> None:
    """Write a library per size of lane of cores, each with the kernels that such lanes call.

    Args:
        objects: threads of a lane → symbol → object file.
        whole: threads of the lanes that ``library`` is for; the others' libraries lie next to it.
    """
    calls = iter(steps.calls)
    # Every lane that is named needs its library, even if it runs nothing.
    used: dict[int, set[str]] = {whole: set(), **{lane.threads: set() for lane in steps.lanes if not lane.device}}
    for group in steps.groups:
        lane, symbols = steps.lanes[group.lane], {next(calls).symbol for _ in range(group.calls)}
        if not lane.device:
            used[lane.threads] |= symbols
    for threads, symbols in used.items():
        kernels = {symbol: objects[threads][symbol] for symbol in sorted(symbols)}
        link_kernels(kernels, library if threads == whole else library.with_name(lane_library(threads)))


def _compiled_core(scratch: Path, architecture: str) -> bytes:
    """The core's object code, from the user's code cache where this compiler compiled the same core before.

    Args:
        scratch: where the compiler may write.
    """
    cache = CodeCache(user_cache())
    options = (*CORE_OPTIONS, "-fPIC", "-c")
    sources = [path.read_text() for path in (CORE, CORE.with_suffix(".h"))]
    key = key_of([*sources, *options, architecture, compiler_identity(architecture)])
    known = cache.get(key)
    if known is None:
        compile_with([*options, "-o", str(scratch), str(CORE)], architecture)
        known = Code(scratch.read_bytes())
        cache.put(key, known)
    return known.objects


def merged_object(library: Path) -> Path:
    """Return where ``link_kernels`` leaves the kernels of ``library`` as one object."""
    return library.with_suffix(".o")
