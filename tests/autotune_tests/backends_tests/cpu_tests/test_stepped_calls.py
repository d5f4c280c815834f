"""Kernels run one call at a time: whole, or some of their jobs, and as before afterwards."""

import numpy as np
import pytest

from autotune.backends.cpu.native_executor import NativeExecutor
from autotune.backends.cpu.stepped_calls import SteppedCalls
from autotune.graph.steps import Operand, Step, Steps
from autotune.measure.output_check import aligned
from schedules.vocabulary.errors import RunError

SIZE = 8
GIVEN, MADE = Operand("input", 0, (SIZE,), "float64"), Operand("arena", 0, (SIZE,), "float64")


def arrays(rng):
    x, y = (aligned((SIZE,), np.dtype(np.float64)) for _ in range(2))
    x[...], y[...] = rng.uniform(0.0, 10.0, SIZE), -1.0
    return x, y


@pytest.mark.parametrize("symbol", ["mix", "twice"])
def test_a_whole_call_is_as_the_core_makes_it(library, symbol):
    x, y = arrays(np.random.default_rng(0))
    step = Step(symbol, (GIVEN, MADE))
    stepped = SteppedCalls(library)
    with stepped.attached():
        stepped.run(step, [x.ctypes.data, y.ctypes.data])
    assert (stepped.loops, stepped.barriers) == (1, 0)
    machine = NativeExecutor({2: library}, Steps((step,), (MADE,), 64, ()), (), [-1, -1])
    assert np.array_equal(machine.run([x])[0], y)  # its loops lead to the core again
    machine.close()


@pytest.mark.parametrize("jobs", [[0], [3, 5], [7, 0], [8, 100], []])
def test_jobs_write_what_is_theirs(library, jobs):
    x, y = arrays(np.random.default_rng(1))
    stepped = SteppedCalls(library)
    with stepped.attached():
        stepped.run(Step("twice", (GIVEN, MADE)), [x.ctypes.data, y.ctypes.data], jobs)
    own = np.isin(np.arange(SIZE), jobs)
    assert np.array_equal(y, np.where(own, 2.0 * x, -1.0))


def test_workspaces_are_given(library):
    x, y = arrays(np.random.default_rng(2))
    stepped = SteppedCalls(library)
    with stepped.attached():
        stepped.run(Step("scratch", (GIVEN, MADE)), [x.ctypes.data, y.ctypes.data])
    assert (y != -1.0).all()


def test_a_kernel_that_fails_is_named(library):
    x, y = arrays(np.random.default_rng(3))
    x[0] = -1.0
    stepped = SteppedCalls(library)
    with stepped.attached(), pytest.raises(RunError, match="kernel touchy failed"):
        stepped.run(Step("touchy", (GIVEN, MADE)), [x.ctypes.data, y.ctypes.data])
