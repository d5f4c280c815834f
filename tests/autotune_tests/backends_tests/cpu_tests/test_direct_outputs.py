"""Large outputs, which kernels write where the caller wants them: the numbers are those of copied ones."""

import ctypes
from contextlib import closing

import numpy as np
import pytest

from autotune.backends.cpu.native_executor import NativeExecutor
from autotune.backends.cpu.native_library import OK, Run
from autotune.graph.arena import Slice
from autotune.graph.flat import Flat, FlatCall, Source, Use
from autotune.graph.lanes import cpu_lane
from autotune.graph.steps import CallJobs, LiveRows, LiveSizes, Operand, Piece, Step, Steps, arrange
from autotune.measure.output_check import aligned
from tests.autotune_tests.graph_tests.dags import random_edges, random_flat
from tests.simulated.placed import mix, sequential

LARGE = 3000
"""Doubles of an output that is not copied."""


def opened(library, flat):
    """An executor of one thread."""
    steps = arrange({1: flat}, [Piece("model", tuple(range(len(flat.calls))), 0)], (cpu_lane(0, 1),))
    return NativeExecutor({1: library}, steps, (), [-1])


def equal(ours, theirs):
    return len(ours) == len(theirs) and all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def run_into(executor, inputs, outputs):
    """Run with outputs in memory that the caller has chosen."""
    run = Run(executor._layout, inputs, outputs)
    assert executor.library.run(executor.handle, run.inputs_at, run.outputs_at, None, run.report, None) == OK


def written(library):
    """The place that the last kernel that notes it has written to."""
    return ctypes.c_void_p.in_dll(library._library, "written").value


def test_random_graphs_with_large_outputs(library):
    rng = np.random.default_rng(3)
    for number in range(200):
        flat = random_flat(rng, random_edges(rng, 10), choices=(1, 40, LARGE, LARGE + 7))
        with closing(opened(library, flat)) as executor:
            feeds = [rng.uniform(0.0, 10.0, 8) for _ in range(3)]
            results = [executor.run([x]) for x in feeds]  # all are held: a later run must not write into an earlier one
            assert all(equal(ours, sequential(flat, x)) for ours, x in zip(results, feeds, strict=True)), number


@pytest.mark.parametrize("offset", [0, 16, 8])
def test_a_kernel_writes_where_the_caller_wants_it(library, offset):
    read = (Use(Source("input", 0), (8,), "float64"),)
    flat = Flat((FlatCall("scratch", read, (LARGE,), "float64"),), (), {}, frozenset(), ())
    flat = Flat(flat.calls, (Use(Source("arena", 0), (LARGE,), "float64"),), {}, frozenset(), ())
    output = aligned((LARGE + 8,), np.dtype(np.uint64)).view(np.uint8)[offset : offset + 8 * LARGE].view(np.float64)
    x = np.arange(8.0)
    with closing(opened(library, flat)) as executor:
        run_into(executor, [x], [output])
        assert np.array_equal(output, mix(LARGE, [x]))
        assert (written(library) == output.ctypes.data) == (offset % 16 == 0)


def test_parts_of_a_concatenation_are_written_into_the_output(library):
    read = (Use(Source("input", 0), (8,), "float64"),)
    parts = [Use(Source("arena", number), (LARGE,), "float64") for number in (0, 1)]
    whole = Use(Source("arena", 2), (2 * LARGE,), "float64")
    calls = (
        FlatCall("mix", read, (LARGE,), "float64"),
        FlatCall("mix", (parts[0],), (LARGE,), "float64"),
        FlatCall("concatenate", tuple(parts), (2 * LARGE,), "float64"),
        FlatCall("mix", (whole, parts[1]), (LARGE,), "float64"),
    )
    slices = {0: Slice(2, 0), 1: Slice(2, 8 * LARGE)}
    outputs = (whole, Use(Source("arena", 3), (LARGE,), "float64"))
    x = np.arange(8.0)
    one = mix(LARGE, [x])
    other = mix(LARGE, [one])
    joined = np.concatenate([one, other])
    with closing(opened(library, Flat(calls, outputs, slices, frozenset({2}), ()))) as executor:
        assert equal(executor.run([x]), [joined, mix(LARGE, [joined, other])])


def test_an_output_that_is_a_part_of_another_tensor_is_copied(library):
    read, whole = Operand("input", 0, (8,), "float64"), Operand("arena", 0, (2 * LARGE,), "float64")
    part = Operand("arena", 8 * LARGE, (LARGE,), "float64")
    steps = Steps((Step("mix", (read, whole)),), (part,), 16 * LARGE, ())
    x = np.arange(8.0)
    with closing(NativeExecutor({1: library}, steps, (), [-1])) as executor:
        assert equal(executor.run([x]), [mix(2 * LARGE, [x])[LARGE:]])


def test_an_output_in_the_memory_of_an_input_leaves_it_until_all_is_read(library):
    read = Use(Source("input", 0), (LARGE,), "float64")
    first = Use(Source("arena", 0), (LARGE,), "float64")
    calls = tuple(FlatCall("mix", arguments, (LARGE,), "float64") for arguments in ((read,), (read, first)))
    flat = Flat(calls, (first, Use(Source("arena", 1), (LARGE,), "float64")), {}, frozenset(), ())
    memory, other = (aligned((LARGE,), np.dtype(np.float64)) for _ in range(2))
    memory[:] = x = np.random.default_rng(5).uniform(0.0, 10.0, LARGE)
    with closing(opened(library, flat)) as executor:
        run_into(executor, [memory], [memory, other])
    one = mix(LARGE, [x])
    assert equal([memory, other], [one, mix(LARGE, [x, one])])


def test_rows_that_do_not_count_are_copied(library):
    rows = 4 * LARGE
    steps = Steps(
        (Step("twice", (Operand("input", 0, (rows,), "float64"), Operand("arena", 0, (rows,), "float64"))),),
        (Operand("arena", 0, (rows,), "float64"),),
        8 * rows,
        (),
    )
    live = LiveSizes((LiveRows("n", rows, (CallJobs(1, 1, 1, rows, 8),)),))
    x = np.arange(float(rows))
    with closing(NativeExecutor({1: library}, steps, (), [-1], live=live)) as executor:
        assert np.array_equal(executor.run([x])[0], 2 * x)
        (output,) = executor.run_live([x], [5])
        assert np.array_equal(output[:5], 2 * x[:5])
        assert not output[5:].any()
