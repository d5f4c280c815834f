"""Which rows jobs make, found by running them."""

import numpy as np
import pytest

from autotune.backends.cpu.job_probe import WHOLE, Probe
from autotune.backends.cpu.stepped_calls import SteppedCalls
from autotune.graph.steps import CallJobs, Operand, Step
from autotune.measure.output_check import aligned

SIZE = 8


def probe_of(library, symbol, rows, outer, made=SIZE, loop=0):
    x, y = (aligned((size,), np.dtype(np.float64)) for size in (SIZE, made))
    x[...] = np.arange(1, SIZE + 1)
    step = Step(symbol, (Operand("input", 0, (SIZE,), "float64"), Operand("arena", 0, (made,), "float64")))
    stepped = SteppedCalls(library)
    with stepped.attached():
        stepped.run(step, [x.ctypes.data, y.ctypes.data])
        probe = Probe(stepped, step, [array.view(np.uint8) for array in (x, y)], rows, outer, loop)
        jobs = probe.spread()
        return jobs, probe.is_right(jobs, y.view(np.uint8)) if jobs.groups else None


@pytest.mark.parametrize(("rows", "outer"), [(SIZE, 1), (SIZE // 2, 2)])
def test_each_job_makes_a_row(library, rows, outer):
    assert probe_of(library, "twice", rows, outer) == (CallJobs(SIZE, 1, rows, 1, outer=outer), True)


def test_jobs_of_the_second_loop(library):
    half = SIZE // 2
    assert probe_of(library, "pairs", half, 1, half, 1) == (CallJobs(half, 1, half, 1, loop=1), True)


def test_jobs_that_make_no_rows_alone(library):
    assert probe_of(library, "twice", 1, SIZE)[0] == WHOLE
