"""What is shown: plain lines in a pipe, a table on a terminal, nothing when quiet."""

import io

import pytest
from rich.console import Console

from autotune.events import PhaseBegan, SlotBegan, SlotDone, TuningBegan, TuningEnded
from autotune.report.progress import Progress, RunSummary, Steps, describe_state
from schedules.task import Task
from search.allocators.allocation import TaskState
from tests.autotune_tests.fakes import FakeClock


def task(key, weight=1, flop=2_000_000):
    return Task(key, f"fused_{key}", "toy", "toy", ((1,), (1,)), ("float32", "float32"), (), flop, 8, weight)


def state(key, *latencies, weight=1):
    return TaskState(key, "toy", weight, 2_000_000, 1e-5, latencies, (0.1,) * len(latencies))


A, B = task("a"), task("b", weight=3)
BEGAN = TuningBegan((A, B), (state("a"), state("b", 4e-5, weight=3)), 60.0)


def began(task_state, why="it is expected to cut most"):
    return SlotBegan(task_state, 2, why)


def slot(task_state, after, failed=0):
    return SlotDone(task_state, after, 2, failed, 1.0, ("timeout",) * failed)


def test_scoresummary_adds_up_what_happened():
    clock = FakeClock()
    summary = RunSummary(clock)
    summary.update(BEGAN)
    assert (summary.trials, summary.untouched) == (0, 1)
    assert summary.kernels_s == pytest.approx(12e-5)
    summary.update(slot(A, state("a", 3e-5, None), failed=1))
    clock.now += 15
    assert (summary.trials, summary.failed, summary.untouched) == (2, 1, 0)
    assert summary.kernels_s == pytest.approx(15e-5)
    assert (summary.elapsed_s, summary.left_s) == (15, 45)
    assert "15.0 s of 60 s: 2 trials (1 failed), best kernels 0.150 ms" in summary.headline()


def test_slowest_first_and_untouched_before_all():
    summary = RunSummary(FakeClock())
    summary.update(BEGAN)
    assert summary.slowest(9) == [A, B]
    summary.update(slot(A, state("a", 3e-5)))
    assert summary.slowest(9) == [B, A]
    assert summary.slowest(1) == [B]


def test_a_state_in_numbers():
    assert describe_state(A, state("a", 4e-5, 2e-5)) == ("20.0", "100", "50 %")
    assert describe_state(A, state("a")) == ("–", "–", "–")


def show(quiet=False, terminal=False, step=6.0):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=100, height=30, color_system=None)
    with Progress(console, quiet, FakeClock(step)) as progress:
        for event in (
            PhaseBegan("import"),
            BEGAN,
            slot(A, state("a", 3e-5)),
            slot(B, state("b", 4e-5, 2e-5, weight=3)),
            TuningEnded("the 60 s for trials are spent"),
            PhaseBegan("build"),
        ):
            progress(event)
    return stream.getvalue()


def test_a_pipe_gets_plain_lines():
    text = show()
    lines = text.splitlines()
    assert lines[:2] == ["importing the model", "tuning 2 tasks for 60 s"]
    assert "last fused_b: 20.0 µs, 100 GFLOPS, 50 % of the bound" in text
    assert "stopped: the 60 s for trials are spent" in text
    assert lines[-1] == "building, and verifying against the reference"
    assert "\x1b" not in text


def test_a_pipe_is_not_flooded():
    assert len(show(step=0.01).splitlines()) < len(show(step=6.0).splitlines())


def test_a_terminal_gets_the_table():
    text = show(terminal=True)
    for word in ("GFLOPS", "of bound", "best µs", "fused_a", "fused_b", "20.0"):
        assert word in text
    heads = next(line for line in text.splitlines() if "GFLOPS" in line)
    assert heads.rstrip().endswith("failed")


def test_quiet_says_nothing():
    assert show(quiet=True) == show(quiet=True, terminal=True) == ""


def test_the_display_is_taken_down_when_a_run_fails():
    progress = Progress(Console(file=io.StringIO(), force_terminal=True, width=100))

    def fail():
        with progress:
            progress(BEGAN)
            assert progress._live.is_started
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert progress._live is None


def steps(quiet=False, terminal=False):
    stream = io.StringIO()
    with Steps(Console(file=stream, force_terminal=terminal, width=100), quiet) as told:
        for done in range(3):
            told("starting engines", done, 2)
        for done in range(4):
            told("rounds", done, 3)
    return stream.getvalue()


def test_steps():
    assert steps().splitlines() == ["starting engines (2)", "rounds (3)"]
    assert "rounds: 3 of 3" in steps(terminal=True)
    assert steps(quiet=True) == ""
