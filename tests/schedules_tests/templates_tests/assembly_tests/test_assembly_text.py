"""The frame of a kernel: loops, constants, shares of jobs, workspaces and what it asks of the runtime."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te

from schedules.lower import tvm_target
from schedules.templates.assembly.assembly_text import ALLOCATE, FREE, HOOKS, LAUNCH, OF_THREAD, AssemblyText
from schedules.templates.cpu.passes import compiled, workspaces_of
from tests.schedules_tests.programs import Array, from_te
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    SYMBOL,
    TARGET,
    Watched,
    assembled,
    function_of,
    guarded,
    library_of,
    lines_of,
    linked,
    pool_of,
    run_by_tvm,
    run_library,
    run_watched,
    runs_here,
)


def counting(jobs: int, symbol: str = SYMBOL, add: int = 1) -> str:
    """A kernel (start, result) of one loop: result[job] = start[job] + ``add``."""
    code = AssemblyText(symbol)
    code.entry(2, [(".Lloop", jobs)])
    code.loop_over_jobs(".Lloop", jobs, 0, lambda: added(code, add))
    return code.text()


def added(code: AssemblyText, add: float) -> None:
    code.emit("mov rax, [r11]", "mov rcx, [r11+8]", "vmovss xmm0, dword ptr [rax+r15*4]")
    code.emit(f"vaddss xmm0, xmm0, {code.constant(add).removesuffix('{1to16}')}", "vmovss [rcx+r15*4], xmm0")


# -- text ------------------------------------------------------------------------------------------------------------


def test_labels_and_constants() -> None:
    code = AssemblyText(SYMBOL)
    assert len({code.label("x") for _ in range(10)} | {code.label() for _ in range(10)}) == 20
    assert code.constant(1.5) == code.constant(1.5) == code.constant_bits(0x3FC00000)
    assert len({code.constant(value) for value in (0.0, -0.0, math.inf, -math.inf, 1.5)}) == 5
    assert code.constant(math.nan).endswith("{1to16}")
    assert lines_of(code.text()).count(".long 1069547520") == 1


def test_a_loop_of_one_turn_is_no_loop() -> None:
    code = AssemblyText(SYMBOL)
    with code.repeated("r10", 1):
        code.emit("nop")
    assert "jnz" not in code.text()
    assert lines_of(code.text()).count("nop") == 1


@runs_here
def test_nested_loops_count_right(tmp_path: Path) -> None:
    """And their registers count down to 1."""
    code = AssemblyText("count")
    code.emit("xor eax, eax", "xor edx, edx")
    with code.repeated("r8", 3), code.repeated("r9", 1):
        with code.repeated("r10", 5):
            code.emit("add rax, 1", "imul rcx, r10, 10", "add rcx, r8", "add rdx, rcx")
        code.emit("add rax, 100")
    code.emit("imul rdx, rdx, 1000", "add rax, rdx", "ret")
    text = function_of("count", code)
    library = ctypes.CDLL(str(linked([assembled(text, tmp_path / "c.o")], tmp_path / "c.so")))
    library.count.restype = ctypes.c_uint64
    assert library.count() == 15 + 300 + 1000 * (3 * 10 * 15 + 5 * 6)


def test_a_text_has_no_stack_that_runs() -> None:
    assert '.section .note.GNU-stack,"",@progbits' in lines_of(counting(1))


# -- jobs ------------------------------------------------------------------------------------------------------------


@runs_here
def test_every_job_runs_once_on_any_number_of_threads() -> None:
    for jobs in (1, 2, 3, 7, 16, 100):
        with library_of(counting(jobs)) as library:
            for threads in (1, 2, 3, 4, 7, 16, 100, 101, 1000):
                start = np.random.default_rng(0).integers(0, 99, jobs).astype(np.float32)
                assert np.array_equal(run_library(library, [start], (jobs,), threads), start + 1), (jobs, threads)


@runs_here
def test_jobs_run_on_the_runtimes_threads() -> None:
    start = np.arange(1000, dtype=np.float32)
    for threads in (1, 2):
        assert np.array_equal(run_by_tvm(counting(1000), [start], (1000,), threads, calls=500), start + 1)


@runs_here
def test_tensors_come_bare_or_as_objects() -> None:
    with library_of(counting(16)) as library:
        for as_objects in (False, True):
            watched = Watched(library)
            start, (result, _) = guarded(np.ones(16, np.float32))[0], guarded(np.zeros(16, np.float32))
            assert watched.run([start, result], as_objects=as_objects) == 0
            assert (result == 2).all()
            assert watched.wrong == []


@runs_here
@pytest.mark.parametrize("tensors", [1, 2, 3, 8])
def test_the_closure_holds_every_tensor_and_the_stack_is_aligned(tensors: int) -> None:
    """The result gets one number of every tensor; a loop's own part of the stack begins at a vector's border."""
    code = AssemblyText(SYMBOL)
    code.entry(tensors + 1, [(".Lloop", 1)])

    def body() -> None:
        code.emit(f"mov rcx, [r11+{8 * tensors}]")
        for number in range(tensors):
            code.emit(
                f"mov rax, [r11+{8 * number}]", "vmovss xmm0, dword ptr [rax]", f"vmovss [rcx+{4 * number}], xmm0"
            )
        code.emit("vmovaps [rsp], zmm0", "vmovaps [rsp+128], zmm0")

    code.loop_over_jobs(".Lloop", 1, 192, body)
    arrays = [np.full(1, number + 0.5, np.float32) for number in range(tensors)]
    assert run_watched(code.text(), arrays, (tensors,)).tolist() == [number + 0.5 for number in range(tensors)]


@runs_here
def test_a_body_may_use_every_register_but_the_jobs_own() -> None:
    code = AssemblyText(SYMBOL)
    code.entry(2, [(".Lloop", 9)])

    def body() -> None:
        added(code, 1)
        names = ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", *(f"r{number}" for number in range(8, 15))]
        code.emit(
            *(f"mov {name}, -1" for name in names), *(f"vpternlogd zmm{i}, zmm{i}, zmm{i}, 255" for i in range(32))
        )

    code.loop_over_jobs(".Lloop", 9, 0, body)
    assert np.array_equal(run_watched(code.text(), [np.zeros(9, np.float32)], (9,), threads=2), np.ones(9))


# -- workspaces ------------------------------------------------------------------------------------------------------


def with_workspaces(shared: int, per_thread: int) -> str:
    """A kernel of two loops: the first fills the workspace with jobs' numbers, the second adds its own."""
    code = AssemblyText(SYMBOL)
    code.entry(1, [(".Lfirst", shared // 4), (".Lsecond", shared // 4)], shared, per_thread)

    def fill() -> None:
        code.emit("mov rax, [r11+8]", "vcvtsi2ss xmm0, xmm0, r15", "vmovss [rax+r15*4], xmm0")

    def add() -> None:
        code.emit("mov rax, [r11+8]", "vmovss xmm0, dword ptr [rax+r15*4]", f"mov rcx, [rbp-{OF_THREAD}]")
        code.emit("vmovss [rcx], xmm0", f"vaddss xmm0, xmm0, dword ptr [rcx+{per_thread - 4}]")
        code.emit("mov rdx, [r11]", "vmovss [rdx+r15*4], xmm0")

    def clear_and_add() -> None:
        code.emit(f"mov rcx, [rbp-{OF_THREAD}]", f"mov dword ptr [rcx+{per_thread - 4}], 0")
        add()

    code.loop_over_jobs(".Lfirst", shared // 4, 0, fill)
    code.loop_over_jobs(".Lsecond", shared // 4, 0, clear_and_add, per_thread)
    return code.text()


@runs_here
@pytest.mark.parametrize("threads", [1, 3])
def test_workspaces(threads: int, tmp_path: Path) -> None:
    text = with_workspaces(400, 128)
    assert workspaces_of(assembled(text, tmp_path / "k.o").read_bytes(), SYMBOL) == (400, 128)
    assert run_watched(text, [], (100,), threads).tolist() == list(range(100))
    with library_of(text) as library:
        watched = Watched(library, threads)
        watched.run([np.empty(100, np.float32)])
    assert watched.asked == [400, *[128] * threads]


@runs_here
@pytest.mark.parametrize("starved", [0, 1, 2])
def test_without_memory_a_kernel_fails(starved: int) -> None:
    """Of its own, before the first loop; of a thread, after which what is there is given back."""
    with library_of(with_workspaces(400, 128)) as library:
        watched = Watched(library, threads=2, starved=starved)
        assert watched.run([np.empty(100, np.float32)]) == -1
    assert watched.wrong == []
    assert watched.launches == (0 if starved == 0 else 2)


@runs_here
def test_a_workspace_of_4_gib_is_asked_for_whole() -> None:
    """No number of 32 bits holds its size."""
    code = AssemblyText(SYMBOL)
    code.entry(1, [(".Lloop", 1)], 2**32 + 64)
    code.loop_over_jobs(".Lloop", 1, 0, lambda: None)
    with library_of(code.text()) as library:
        watched = Watched(library, starved=0)
        assert watched.run([np.empty(1, np.float32)]) == -1
    assert watched.asked == [2**32 + 64]


def test_a_kernel_without_workspaces_tells_none() -> None:
    assert "tune_workspace" not in counting(4)


# -- libraries -------------------------------------------------------------------------------------------------------


def hooks_of(library: Path) -> dict[str, int]:
    """How many definitions of the runtime's functions a library has."""
    loaded = ctypes.CDLL(str(library))
    return {name: ctypes.addressof(ctypes.c_void_p.in_dll(loaded, name)) for name in HOOKS}


@runs_here
def test_two_kernels_in_one_library_share_the_runtime() -> None:
    start = np.zeros(8, np.float32)
    with library_of(counting(8, "one", 1), counting(8, "other", 10)) as library:
        assert set(hooks_of(library)) == {LAUNCH, ALLOCATE, FREE}
        for symbol, value in (("one", 1), ("other", 10)):
            assert (run_library(library, [start], (8,), 2, symbol) == value).all()
        module = tvm.runtime.load_module(str(library))
        with pool_of(2):
            for symbol, value in (("one", 1), ("other", 10)):
                result = tvm.runtime.tensor(start)
                module[symbol](tvm.runtime.tensor(start), result)
                assert (result.numpy() == value).all()


@pytest.fixture
def compiled_twice(tmp_path: Path) -> Callable[[str], Path]:
    """An object file of a parallel kernel that TVM has compiled: y = 2 x over 64 numbers."""

    def make(symbol: str) -> Path:
        x = te.placeholder((64,), name="x")
        sch = tvm.s_tir.Schedule(from_te(x, te.compute((64,), lambda i: x[i] * 2.0, name="y")))
        sch.parallel(sch.get_loops("y")[0])
        path = tmp_path / f"{symbol}.o"
        compiled(sch.mod["main"], symbol, tvm_target(TARGET)).mod.write_to_file(str(path))
        return path

    return make


@runs_here
@pytest.mark.parametrize("first", [True, False], ids=["assembly first", "compiled first"])
def test_a_compiled_kernel_in_the_same_library_shares_the_runtime(
    compiled_twice: Callable[[str], Path], tmp_path: Path, first: bool
) -> None:
    objects = [assembled(counting(64, "written"), tmp_path / "written.o"), compiled_twice("made")]
    library = linked(objects if first else objects[::-1], tmp_path / "both.so")
    module = tvm.runtime.load_module(str(library))

    def called(symbol: str) -> Array:
        result = tvm.runtime.tensor(np.zeros(64, np.float32))
        module[symbol](tvm.runtime.tensor(np.arange(64, dtype=np.float32)), result)
        return result.numpy()

    with pool_of(2):
        assert np.array_equal(called("written"), np.arange(64) + 1)
        assert np.array_equal(called("made"), np.arange(64) * 2)


@runs_here
def test_one_job_wakes_no_thread() -> None:
    """It is done by the caller, in the same way."""
    for jobs, launches in ((1, 0), (2, 1)):
        with library_of(counting(jobs)) as library:
            watched = Watched(library, threads=4)
            result = guarded(np.zeros(jobs, np.float32))[0]
            assert watched.run([np.zeros(jobs, np.float32), result]) == 0
        assert (watched.launches, watched.wrong, result.tolist()) == (launches, [], [1.0] * jobs)


@runs_here
def test_a_runtime_in_the_same_library_has_its_functions_used(tmp_path: Path) -> None:
    """As in an artifact, whose own runtime defines the pointers (``core.cc``)."""
    defined = "".join(f"\t.globl {name}\n\t.p2align 3\n{name}:\n\t.quad {7 + at}\n" for at, name in enumerate(HOOKS))
    objects = [assembled(counting(8), tmp_path / "kernel.o")]
    objects.append(assembled(f'\t.data\n{defined}\t.section .note.GNU-stack,"",@progbits\n', tmp_path / "runtime.o"))
    for number, order in enumerate((objects, objects[::-1])):
        library = ctypes.CDLL(str(linked(order, tmp_path / f"{number}.so")))
        assert [ctypes.c_void_p.in_dll(library, name).value for name in HOOKS] == [7, 8, 9]
