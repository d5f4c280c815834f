"""Arenas keep weights cold, and a task's arguments are what a model's kernel would meet."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm

from autotune.host.machine import host_target
from autotune.host.pages import KERNEL_ALIGNMENT
from autotune.measure.evaluator import FixedCount
from autotune.measure.kernel_timing import CpuBench, Loaded
from autotune.measure.messages import ReferenceJob, Settings
from autotune.measure.output_check import aligned, normal_block
from autotune.measure.timed_memory import ROW, Arena, compile_producer, planes_of
from schedules.task import Task
from tests.autotune_tests.measure_tests import faults


def nothing(*arguments: object) -> None:
    """A kernel that writes nothing."""


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def test_two_uses_of_a_stretch_are_far_apart() -> None:
    arena = Arena(normal_block(0))
    arena.least_bytes = 4 * 1024
    starts = [arena.views([floats(128), floats(100)])[0].ctypes.data for _ in range(6)]
    assert len(set(starts[:4])) == 4
    assert starts[4] == starts[0]  # 240 floats each, with padding: four stretches in 1024
    assert starts[1] - starts[0] == 4 * 240


def test_views_are_aligned_disjoint_and_hold_ordinary_numbers() -> None:
    first, second = Arena(normal_block(0)).views([floats(3, 5), floats(7)])
    assert (first.shape, second.shape) == ((3, 5), (7,))
    assert first.ctypes.data % KERNEL_ALIGNMENT == second.ctypes.data % KERNEL_ALIGNMENT == 0
    assert not np.shares_memory(first, second)
    assert np.all(np.isfinite(first))
    assert np.ptp(first) > 0
    assert not np.any(Arena(normal_block(0)).views([np.zeros(5, np.int32)])[0])


def test_weights_of_two_types_are_as_far_apart_together() -> None:
    """Weights of 4 bits and their scales are read at the same pace: 1,024 bytes and 256 of every 1,280."""
    arena = Arena(normal_block(0))
    arena.least_bytes = 10 * 1280
    levels, scales = np.zeros(1024, np.uint8), floats(64)
    places = [[view.ctypes.data for view in arena.views([scales, levels])] for _ in range(11)]
    assert [view.dtype for view in arena.views([scales, levels])] == [np.float32, np.uint8]
    for number, size in ((0, 256), (1, 1024)):
        assert [place[number] - places[0][number] for place in places] == [size * (i % 10) for i in range(11)]


@pytest.fixture(scope="module")
def bench() -> CpuBench:
    target = host_target(1)
    settings = Settings(target, (0,), 0, faults.LOWERING, "")
    bench = CpuBench.__new__(CpuBench)  # without _open, which would pin this process's threads
    CpuBench._open, opened = lambda self: None, CpuBench._open  # type: ignore[method-assign]
    try:
        CpuBench.__init__(bench, settings, faults, compile_producer(target))
    finally:
        CpuBench._open = opened  # type: ignore[method-assign]
    return bench


def test_weights_are_cut_from_the_arena_and_activations_are_rewritten(bench: CpuBench) -> None:
    shapes = ((4, ROW), (ROW, 8), (4,), (4, 8))
    task = Task("k", "dense", "fake", "dense", shapes, ("float32", "float32", "int32", "float32"), (1,), 1, 1)
    prepared = bench._fresh(task, positive=False, draw=0)
    assert prepared.cold == [1]
    assert len(prepared.warm) == 1
    assert prepared.live[0] is not prepared.inputs[0]
    assert np.array_equal(prepared.live[0], prepared.inputs[0])
    assert prepared.live[2] is prepared.inputs[2]
    assert np.isnan(prepared.edged[0]).sum() == 1
    assert prepared.edged[1] is prepared.inputs[1]
    assert np.isfinite(prepared.inputs[0]).all()
    for edges in (True, False):
        prepared.output[...] = 1
        assert np.all(np.isnan(bench._output(Loaded(nothing, nothing, {}), prepared, edges)))


def test_the_untuned_kernel_meets_weights_as_cold_as_candidates(
    bench: CpuBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it looks faster than they are: 2.9 MB were read in 39 µs where the model needed 57."""
    met: list[int] = []
    monkeypatch.setattr(CpuBench, "reference", lambda self, job: met.append(self._arena.least_bytes))
    task = Task("k", "dense", "fake", "dense", ((4, ROW), (ROW, 8), (4, 8)), ("float32",) * 3, (1,), 1, 1)
    for cold in (1 << 30, 0):
        bench.answer(ReferenceJob(task, "a.so", "a.npy", FixedCount(1), cold, timeout_s=1.0))
    assert met == [1 << 30, bench._cold_bytes]


@pytest.mark.parametrize(("data", "weight"), [("bfloat16", "bfloat16"), ("uint8", "int8")])
def test_short_types_are_as_cold_and_as_warm(bench: CpuBench, data: str, weight: str) -> None:
    """A bias comes before the weight, and is the smaller one."""
    shapes = ((4, 64), (8,), (64, 8), (4, 8))
    task = Task("s", "dense", "fake", "dense", shapes, (data, "float32", weight, "float32"), (1, 2), 1, 1)
    prepared = bench._fresh(task, positive=False, draw=0)
    assert prepared.cold == [1, 2]
    assert [tensor.shape[1] for tensor, *_ in prepared.warm] == [ROW]
    assert prepared.live[0] is not prepared.inputs[0]
    (view,) = bench._arena.views([prepared.inputs[2]])
    assert np.ptp(view.astype(np.int64)) > 0


@pytest.mark.parametrize(
    ("shape", "planes"),
    [((2, ROW), (2, 1)), ((4, 3 * ROW), (12, 1)), ((2, 3, 5, 7, 16), (5, 7)), ((1, 3, 5, 7, 8), (52, 1))],
)
def test_the_producer_negates_in_place(shape: tuple[int, ...], planes: tuple[int, int]) -> None:
    assert planes_of(shape, 4) == planes
    array = aligned((math.prod(shape),), np.dtype(np.float32))
    array[...] = np.arange(array.size)
    before, whole = array.copy(), array.size // ROW * ROW
    view = array[:whole].view(np.int32).reshape(-1, ROW)
    compile_producer(host_target(1))(tvm.runtime.from_dlpack(view), *planes)
    assert np.array_equal(array[:whole], -before[:whole])
    assert np.array_equal(array[whole:], before[whole:])
