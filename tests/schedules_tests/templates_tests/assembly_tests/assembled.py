"""Kernels in assembly, made with the system's tools and run: by TVM's runtime, or by a runtime under watch.

The runtime under watch runs the parts of a parallel loop one after another, as many as a test likes, fills workspaces
with NaN and checks that kernels keep the registers that the calling convention leaves to the caller, the upper halves
of vectors, what surrounds their tensors, and every workspace to give back.
"""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pytest
import tvm
import tvm_ffi

from schedules.config import Config
from schedules.lower import assembly, claim, repack
from schedules.target import Target
from schedules.templates.assembly.assembly_text import ALLOCATE, FREE, LAUNCH, SAVED, AssemblyText
from schedules.templates.cpu.passes import ALIGNMENT, CACHE_LINE
from tests.schedules_tests.guarded import fenced
from tests.schedules_tests.programs import Array, Shape, shapes

TARGET = Target(kind="llvm", isa="avx512", mcpu="skylake-avx512", threads=2)
NARROW = Target(kind="llvm", isa="avx2", mcpu="haswell", threads=2)
SYMBOL = "kernel"

Test = TypeVar("Test", bound=Callable[..., Any])

NO_TOOLS = not (shutil.which("as") and shutil.which("ld"))


def runs_here(test: Test, isa: str = "avx512") -> Test:
    """Marks of a test that assembles and runs a kernel."""
    marked = pytest.mark.skipif(NO_TOOLS, reason="no assembler and linker (binutils)")(test)
    return cast("Test", pytest.mark.isa(isa)(marked))


def narrow_runs_here(test: Test) -> Test:
    """The same of one for ``NARROW``."""
    return runs_here(test, "avx2")


NOTHING = 0xFF
"""Bytes beside an array, which no kernel may read or write: NaN in floats."""

TENSOR_POINTER = 7
"""TVM's type code of a bare ``DLTensor``."""

PROBE = f"""
.intel_syntax noprefix
.text
.globl probe
probe:
    push rbp
    {"; ".join(f"push {register}" for register in SAVED)}
    sub rsp, 24
    mov [rsp+8], r9
    mov rax, [rip+kept]
    mov [rsp+16], rax
    mov [rip+kept], rsp
    mov rax, rdi
    mov rdi, rsi
    mov rsi, rdx
    mov rdx, rcx
    mov rcx, r8
    mov rbp, 1000
    {"; ".join(f"mov {register}, {number}" for number, register in enumerate(SAVED))}
    call rax
    mov rcx, [rip+kept]
    mov r10, rcx
    sub r10, rsp
    mov rsp, rcx
    mov r9, [rsp+16]
    mov [rip+kept], r9
    mov r9, [rsp+8]
    mov [r9], r10
    mov [r9+8], rbp
    {"; ".join(f"mov [r9+{16 + 8 * number}], {register}" for number, register in enumerate(SAVED))}
    {"; ".join(f"vmovups [r9+{64 + 32 * number}], ymm{number}" for number in range(16))}
    add rsp, 24
    {"; ".join(f"pop {register}" for register in reversed(SAVED))}
    pop rbp
    ret
.local kept
.comm kept,8,8
.section .note.GNU-stack,"",@progbits
"""
"""int probe(function, a, b, c, d, found): calls function(a, b, c, d) and writes what it left of registers to found."""


def assembled(text: str, path: Path) -> Path:
    """The object file ``path`` of a text."""
    done = subprocess.run(["as", "-o", str(path), "-"], input=text, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr[:400]
    assert not done.stderr, done.stderr[:400]
    return path


def lines_of(text: str) -> list[str]:
    """Its instructions, whatever stands between their parts."""
    return [" ".join(line.split()) for line in text.splitlines()]


def function_of(symbol: str, code: AssemblyText) -> str:
    """A text that begins with a function of C's."""
    return code.text().replace("\t.text\n", f"\t.text\n\t.globl {symbol}\n{symbol}:\n", 1)


def linked(objects: Sequence[Path], library: Path) -> Path:
    """The shared library of these objects."""
    subprocess.run(["ld", "-shared", "-o", str(library), *map(str, objects)], check=True)
    return library


@contextmanager
def library_of(*texts: str) -> Iterator[Path]:
    """A shared library of these texts, and the probe's; it may go once it is loaded."""
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / f"{number}.o" for number in range(len(texts) + 1)]
        objects = [assembled(text, place) for text, place in zip((*texts, PROBE), places, strict=True)]
        yield linked(objects, Path(folder) / "kernel.so")


def guarded(array: Array, alignment: int = ALIGNMENT) -> tuple[Array, Array]:
    """(a copy that ends where a page begins that nobody may touch, as closely as alignment allows; all around it)."""
    inside, whole = fenced(array.nbytes, at_end=True, alignment=alignment)
    whole[:] = NOTHING
    inner = inside.view(array.dtype).reshape(array.shape)
    inner[...] = array
    return inner, whole


def is_untouched(inner: Array, whole: Array) -> bool:
    """Whether nothing was written before and behind."""
    start = inner.ctypes.data - whole.ctypes.data
    return bool((whole[:start] == NOTHING).all() and (whole[start + inner.nbytes :] == NOTHING).all())


def nothing(shape: Shape, dtype: Any = np.float32) -> Array:
    """An array of which every byte is ``NOTHING``."""
    return np.full(math.prod(shape) * np.dtype(dtype).itemsize, NOTHING, np.uint8).view(dtype).reshape(shape)


class _Tensor(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("rest", ctypes.c_uint64 * 5))


class _Argument(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("filling", ctypes.c_int32), ("value", ctypes.c_void_p))


class _Environment(ctypes.Structure):
    _fields_ = (("sync", ctypes.c_void_p), ("count", ctypes.c_int32))


INT, POINTER, U64 = ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64
LAUNCHER = ctypes.CFUNCTYPE(INT, POINTER, POINTER, INT)
ALLOCATOR = ctypes.CFUNCTYPE(POINTER, INT, INT, U64, INT, INT)
RELEASER = ctypes.CFUNCTYPE(INT, INT, INT, POINTER)


class Watched:
    """A library's kernels with the runtime under watch.

    Args:
        threads: parts of every parallel loop.
        starved: number of the allocation that fails, from 0; -1 for none.
    """

    def __init__(self, library: Path, threads: int = 1, starved: int = -1) -> None:
        self.library = ctypes.CDLL(str(library))
        self.wrong: list[str] = []
        self.asked: list[int] = []
        self.launches = 0
        self._alive: dict[int, tuple[Array, Array]] = {}
        self._threads, self._starved = threads, starved
        hooks = ((LAUNCH, LAUNCHER(self._launch)), (ALLOCATE, ALLOCATOR(self._allocate)), (FREE, RELEASER(self._free)))
        self._hooks = hooks  # alive as long as they are called
        for name, hook in hooks:
            try:
                POINTER.in_dll(self.library, name).value = ctypes.cast(hook, POINTER).value
            except ValueError:  # a library without kernels
                continue

    def call(self, function: int, *arguments: int | None) -> int:
        """What ``function`` answers; what it leaves of registers is checked."""
        registers = (ctypes.c_uint64 * 80)()
        self.library.probe.argtypes = [POINTER] * 6
        four = [*arguments, *[None] * (4 - len(arguments))]
        code = int(self.library.probe(function, *four, ctypes.addressof(registers)))
        values = list(registers)
        if values[:7] != [0, 1000, 0, 1, 2, 3, 4]:
            self.wrong.append(f"registers are {values[:7]}")
        if any(values[8 + 4 * number + half] for number in range(16) for half in (2, 3)):
            self.wrong.append("upper halves of vectors are left dirty")
        return code

    def run(self, arrays: Sequence[Array], symbol: str = SYMBOL, as_objects: bool = False) -> int:
        """Call a kernel with these tensors, bare or as TVM's objects."""
        header = 24 if as_objects else 0
        kind = 70 if as_objects else TENSOR_POINTER
        tensors = [ctypes.create_string_buffer(header + ctypes.sizeof(_Tensor)) for _ in arrays]
        for tensor, array in zip(tensors, arrays, strict=True):
            _Tensor.from_buffer(tensor, header).data = array.ctypes.data
        packed = (_Argument * len(arrays))(*[_Argument(kind, 0, ctypes.addressof(tensor)) for tensor in tensors])
        function = ctypes.cast(getattr(self.library, f"__tvm_ffi_{symbol}"), POINTER).value
        assert function is not None
        code = self.call(function, None, ctypes.addressof(packed), len(arrays), None)
        if self._alive:
            self.wrong.append(f"{len(self._alive)} workspaces are not given back")
        return code

    def _launch(self, function: int, closure: int, count: int) -> int:
        self.launches += 1
        if count:
            self.wrong.append(f"{count} threads are asked for")
        environment = _Environment(None, self._threads)
        codes = [self.call(function, i, ctypes.addressof(environment), closure) for i in range(self._threads)]
        return next((code for code in codes if code), 0)

    def _allocate(self, kind: int, number: int, count: int, *_: int) -> int | None:
        self.asked.append(count)
        if len(self.asked) - 1 == self._starved:
            return None
        if (kind, number) != (1, 0):
            self.wrong.append(f"memory of device {kind, number} is asked for")
        inner, whole = guarded(nothing((count,), np.uint8), CACHE_LINE)
        self._alive[inner.ctypes.data] = inner, whole
        return int(inner.ctypes.data)

    def _free(self, kind: int, number: int, pointer: int) -> int:
        memory = self._alive.pop(pointer, None)
        if memory is None:
            self.wrong.append("a workspace is given back that was never made")
        elif not is_untouched(*memory):
            self.wrong.append("something is written beside a workspace")
        return 0


def run_watched(text: str, arrays: Sequence[Array], shape: Shape, threads: int = 1, dtype: Any = np.float32) -> Array:
    """The result of the kernel ``text``, of this shape."""
    with library_of(text) as library:
        return run_library(library, arrays, shape, threads, dtype=dtype)


def run_library(
    library: Path,
    arrays: Sequence[Array],
    shape: Shape,
    threads: int = 1,
    symbol: str = SYMBOL,
    dtype: Any = np.float32,
) -> Array:
    """As ``run_watched``, of a kernel that is linked already."""
    watched = Watched(library, threads)
    copies = [guarded(array)[0] for array in arrays]
    result, whole = guarded(nothing(shape, dtype))
    assert watched.run([*copies, result], symbol) == 0
    assert watched.wrong == []
    assert is_untouched(result, whole), "something is written beside the result"
    same = (one.tobytes() == other.tobytes() for one, other in zip(copies, arrays, strict=True))  # NaN is not NaN
    assert all(same), "an operand is written"
    return result


@contextmanager
def pool_of(threads: int) -> Iterator[None]:
    """TVM's thread pool with so many threads. As soon as it is asked for anything, it puts this one on a single CPU."""
    cpus = os.sched_getaffinity(0)
    before = tvm.get_global_func("runtime.NumThreads")()
    configure = tvm.get_global_func("runtime.config_threadpool")
    configure(1, threads)
    try:
        yield
    finally:
        configure(1, before)
        os.sched_setaffinity(0, cpus)


def run_by_tvm(
    text: str, arrays: Sequence[Array], shape: Shape, threads: int = 2, calls: int = 1, dtype: Any = np.float32
) -> Array:
    """The result of the kernel ``text`` on the runtime's own threads."""
    copies = [guarded(array)[0] for array in arrays]
    result, whole = guarded(nothing(shape, dtype))
    with library_of(text) as library, pool_of(threads):
        function = tvm.runtime.load_module(str(library))[SYMBOL]
        # NumPy hands over no bfloat16, and no kernel asks for types.
        bits = [array if array.dtype.kind in "iuf" else array.view(np.uint16) for array in (*copies, result)]
        tensors = [tvm_ffi.from_dlpack(array, require_alignment=ALIGNMENT) for array in bits]
        for _ in range(calls):
            function(*tensors)
    assert is_untouched(result, whole), "something is written beside the result"
    return result


def numbers(func: object, seed: int = 0, scale: float = 1.0) -> list[Array]:
    """Random arrays of both signs for all parameters but the last."""
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(shape) * scale).astype(np.float32) for shape in shapes(func)[:-1]]


def repacked(func: object, config: Config, arrays: Sequence[Array]) -> list[Array]:
    """The arrays as a config's kernel takes them."""
    changed = {index: how.apply(arrays[index]) for index, how in repack(func, config).items()}
    return [changed.get(index, array) for index, array in enumerate(arrays)]


def text_of(func: object, config: Config, symbol: str = SYMBOL, target: Target = TARGET) -> str:
    """The kernel of a config; there must be one."""
    text = assembly(func, config, target, symbol)
    assert text, config.to_json()
    return text


def left(func: object, target: Target = TARGET) -> bool:
    """Whether every config's kernel is left to the compiler."""
    space = claim(func, target).space
    return not any(assembly(func, space.config(row), target, SYMBOL) for row in space.rows)


def covering(func: object, most: int, seed: int = 0, target: Target = TARGET, **fixed: int) -> list[Config]:
    """Configs that between them have every choice of every knob, as far as ``most`` of them go.

    Args:
        fixed: knobs and what they must be.
    """
    space = claim(func, target).space
    columns = space.columns(space.rows)
    chosen = [columns[name] == value for name, value in fixed.items()]
    rows = np.flatnonzero(np.logical_and.reduce([np.ones(len(space.rows), bool), *chosen]))
    assert len(rows), fixed
    order = np.random.default_rng(seed).permutation(rows)[:2000]
    configs = [space.config(space.rows[row]) for row in order]
    seen: set[tuple[str, object]] = set()
    configs_kept = []
    for config in configs:
        if len(configs_kept) < most and not seen.issuperset(config.items):
            configs_kept.append(config)
            seen.update(config.items)
    return configs_kept


def largest_tile(func: object, names: Sequence[str], target: Target = TARGET) -> Config:
    """A config whose tile has most sums; ``names`` are the knobs that multiply to their number."""
    space = claim(func, target).space
    columns = space.columns(space.rows)
    sums = np.prod([columns[name] for name in names], axis=0)
    return space.config(space.rows[int(np.argmax(np.where(columns.get("algorithm", sums * 0) == 0, sums, 0)))])


def is_near(actual: Array, expected: Array, tolerance: float) -> bool:
    """Whether all of it is right but for so much of the largest number."""
    assert actual.shape == expected.shape
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    return bool(np.abs(actual - expected).max() <= tolerance * np.abs(expected).max())  # false for NaN
