"""Which jobs may be left out, found by running a program of made-up kernels."""

import numpy as np
import pytest

from autotune.backends.cpu.live_rows import live_rows
from autotune.backends.cpu.native_executor import NativeExecutor
from autotune.backends.executor import LiveCase
from autotune.graph.lanes import cpu_lane
from autotune.graph.steps import CallJobs, Group, Operand, Step, Steps

SIZE = 8
BYTES = 8 * SIZE
WHOLE = CallJobs()


def operand(number):
    """The input, or a tensor of the arena."""
    place = ("input", 0) if number == 0 else ("arena", (number - 1) * BYTES)
    return Operand(*place, (SIZE,), "float64")


def chain(*symbols, **more):
    """Each kernel reads what the one before it has made."""
    calls = tuple(Step(symbol, (operand(i), operand(i + 1))) for i, symbol in enumerate(symbols))
    return Steps(calls, (operand(len(symbols)),), len(symbols) * BYTES, (), **more)


def cases(*lives):
    rng = np.random.default_rng(0)
    live_cases = []
    for live in lives:
        zeros = rng.uniform(1.0, 10.0, SIZE)
        other = zeros.copy()
        zeros[live:], other[live:] = 0.0, 20.0 + np.arange(SIZE - live)
        live_cases.append(LiveCase(live, [zeros], [other]))
    return live_cases


def rows_of(library, steps, *lives):
    return live_rows(library, steps, (), "batch", SIZE, cases(*lives or (1, 4, 7)))


def test_jobs_of_single_rows_are_found(library):
    live = rows_of(library, chain("twice", "twice"))
    assert live.calls == (CallJobs(SIZE, 1, SIZE, 1, row_bytes=8), CallJobs(SIZE, 1, SIZE, 1))
    assert (live.symbol, live.rows) == ("batch", SIZE)


def test_what_another_call_reads_is_zeroed(library):
    live = rows_of(library, chain("twice", "mix"))
    assert live.calls == (CallJobs(SIZE, 1, SIZE, 1, row_bytes=8), WHOLE)


def test_nothing_is_left_out_of_calls_whose_rows_mix(library):
    assert rows_of(library, chain("mix")) is None


def test_programs_on_several_lanes_run_whole(library):
    lanes = {"lanes": (cpu_lane(0, 1),), "groups": (Group("model", 0, 1),)}
    assert rows_of(library, chain("twice", **lanes)) is None


@pytest.mark.parametrize("symbols", [("twice", "twice"), ("twice", "mix"), ("twice", "mix", "twice")])
def test_live_rows_are_those_of_a_whole_run(library, symbols):
    steps = chain(*symbols)
    machine = NativeExecutor({2: library}, steps, (), [-1, -1], live=rows_of(library, steps))
    for case in cases(*range(1, SIZE)):
        machine.run([np.full(SIZE, np.nan)])
        (whole,), (few,) = machine.run(case.zeros), machine.run_live(case.zeros, case.live)
        assert np.array_equal(few[: case.live], whole[: case.live])
    machine.close()
