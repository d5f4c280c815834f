"""Which jobs may be left out, found by running a program of made-up kernels."""

import numpy as np
import pytest

from autotune.backends.cpu.live_rows import live_rows
from autotune.backends.cpu.native_executor import NativeExecutor
from autotune.backends.executor import LiveCase
from autotune.graph.lanes import cpu_lane
from autotune.graph.steps import CallJobs, Group, LiveSizes, Operand, Step, Steps, nested
from autotune.interface import Growth

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


def cases(*lives, rows=SIZE):
    """Calls of ``rows`` rows, which stand in the input as often as there is room."""
    rng = np.random.default_rng(0)
    live_cases = []
    for live in lives:
        zeros = rng.uniform(1.0, 10.0, SIZE)
        other = zeros.copy()
        dead = np.arange(SIZE) % rows >= live
        zeros[dead], other[dead] = 0.0, 20.0 + np.arange(dead.sum())
        live_cases.append(LiveCase(live, [zeros], [other]))
    return live_cases


def rows_of(library, steps, *lives, rows=SIZE):
    return live_rows(library, steps, (), "batch", rows, cases(*lives or range(rows - 1, 0, -1), rows=rows))


def test_jobs_of_single_rows_are_found(library):
    live = rows_of(library, chain("twice", "twice"))
    assert live.calls == (CallJobs(SIZE, 1, SIZE, 1),) * 2
    assert (live.symbol, live.rows) == ("batch", SIZE)


@pytest.mark.parametrize("rows", [2, 4])
def test_rows_may_stand_several_times_in_a_result(library, rows):
    live = rows_of(library, chain("twice"), rows=rows)
    assert live.calls == (CallJobs(SIZE, 1, rows, 1, outer=SIZE // rows),)


HALF = Growth().then(1, 0, 2)


def halved():
    """Rows doubled, and pairs of these added by the second of two loops: half as many rows."""
    made = Operand("arena", BYTES, (SIZE // 2,), "float64")
    calls = Step("twice", (operand(0), operand(1))), Step("pairs", (operand(1), made))
    return Steps(calls, (made,), 2 * BYTES, ())


def test_rows_that_grow_otherwise_are_found_in_the_last_loop(library):
    lives = range(SIZE - 1, 0, -1)
    live = live_rows(library, halved(), (), "batch", SIZE, cases(*lives), [HALF])
    assert live.calls[1] == CallJobs(SIZE // 2, 1, SIZE // 2, 1, growth=HALF, loop=1)
    assert live_rows(library, halved(), (), "batch", SIZE, cases(*lives)).calls[1] == WHOLE


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_core_leaves_out_rows_that_grow_otherwise(library, threads):
    steps, sizes = halved(), range(SIZE - 1, 0, -1)
    live = LiveSizes((live_rows(library, steps, (), "batch", SIZE, cases(*sizes), [HALF]),))
    machine = NativeExecutor({threads: library}, steps, (), [-1] * threads, live=live)
    for case in cases(*sizes):
        machine.run([np.full(SIZE, np.nan)])
        count = HALF.of(case.live)
        whole = 4 * case.zeros[0].reshape(-1, 2).sum(axis=1)
        (made,) = machine.run_live(case.zeros, [case.live])
        assert np.array_equal(made[:count], whole[:count])
        assert np.isnan(made[count:]).all()  # as the earlier run left it
    machine.close()


def test_a_case_in_which_nothing_differs_shows_nothing(library):
    steps = chain("twice")
    same = LiveCase(3, *([np.ones(SIZE)] for _ in range(2)))
    live = live_rows(library, steps, (), "batch", SIZE, [*cases(4), same])
    assert live == rows_of(library, steps, 4)
    assert live_rows(library, steps, (), "batch", SIZE, [same]) is None


def test_what_no_number_would_spoil_is_zeroed(library):
    """Finite numbers are multiplied by zero there; what is left out may be none."""
    live = rows_of(library, chain("twice", "glance", "twice"))
    assert [jobs.row_bytes for jobs in live.calls] == [8, 0, 0]
    assert all(jobs.groups == SIZE for jobs in live.calls)


def test_what_another_call_reads_is_zeroed(library):
    live = rows_of(library, chain("twice", "mix"))
    assert live.calls == (CallJobs(SIZE, 1, SIZE, 1, row_bytes=8), WHOLE)


def test_nothing_is_left_out_of_calls_whose_rows_mix(library):
    assert rows_of(library, chain("mix")) is None


def test_programs_on_several_lanes_run_whole(library):
    lanes = {"lanes": (cpu_lane(0, 1),), "groups": (Group("model", 0, 1),)}
    assert rows_of(library, chain("twice", **lanes)) is None


@pytest.mark.parametrize(
    "symbols", [("twice", "twice"), ("twice", "mix"), ("twice", "mix", "twice"), ("twice", "glance", "twice")]
)
def test_live_rows_are_those_of_a_whole_run(library, symbols):
    steps = chain(*symbols)
    machine = NativeExecutor({2: library}, steps, (), [-1, -1], live=LiveSizes((rows_of(library, steps),)))
    for case in cases(*range(1, SIZE)):
        machine.run([np.full(SIZE, np.nan)])
        (whole,), (few,) = machine.run(case.zeros), machine.run_live(case.zeros, [case.live])
        assert np.array_equal(few[: case.live], whole[: case.live])
    machine.close()


@pytest.mark.parametrize("symbols", [("twice", "twice"), ("glance", "twice"), ("twice", "glance")])
def test_rows_and_their_parts_are_left_out_at_once(library, symbols):
    """Eight numbers are two rows of four parts."""
    steps = chain(*symbols)
    rows, parts = (
        live_rows(library, steps, (), name, *halves_or_quarters(size)) for name, size in (("rows", 2), ("parts", 4))
    )
    live = LiveSizes(nested([parts, rows]))
    assert [size.symbol for size in live.sizes] == ["rows", "parts"]
    machine = NativeExecutor({2: library}, steps, (), [-1, -1], live=live)
    x = np.random.default_rng(0).uniform(1.0, 10.0, (2, 4))
    for row, part in np.ndindex(2, 4):
        zeros = np.zeros((2, 4))
        zeros[: row + 1, : part + 1] = x[: row + 1, : part + 1]
        machine.run([np.full(SIZE, np.nan)])
        (whole,), (few,) = machine.run([zeros.ravel()]), machine.run_live([zeros.ravel()], [row + 1, part + 1])
        own = np.s_[: row + 1, : part + 1]
        assert np.array_equal(few.reshape(2, 4)[own], whole.reshape(2, 4)[own])
    machine.close()


def halves_or_quarters(size):
    """Arguments of ``live_rows`` for the two rows, or the four parts of each."""
    if size == 4:
        return 4, cases(3, 2, 1, rows=4)
    (zeros,), (other,) = cases(4)[0].zeros, cases(4)[0].other
    return 2, [LiveCase(1, [zeros], [other])]
