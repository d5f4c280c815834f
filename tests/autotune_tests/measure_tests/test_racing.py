"""Kernels are timed in turn, warmed up first, and brought to one speed of the machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotune.measure.evaluator import Adaptive, FixedCount
from autotune.measure.racing import LEAST_TO_LEAD, WARM_RUNS, duel, in_turn, race, warm_up


def counted(name: str, seconds: float, order: list[str]) -> Callable[[], float]:
    def run() -> float:
        order.append(name)
        return seconds

    return run


def test_kernels_take_turns_forwards_and_backwards():
    order: list[str] = []
    series = race([counted("a", 1e-3, order), counted("b", 2e-3, order)], FixedCount(4), None)
    assert series == [[1e-3] * 4, [2e-3] * 4]
    assert "".join(order) == "ab" + "abbaabba"  # one warm-up run each: they take longer than needs warming


def test_quick_kernels_are_warmed_up_longer():
    order: list[str] = []
    warm_up(counted("a", 1e-6, order))
    assert len(order) == WARM_RUNS


def test_a_slow_machine_is_no_slow_kernel():
    order: list[str] = []
    # The incumbent took 1 ms before and takes 1.25 ms now, so the contender's 1.2 ms are 0.96 ms.
    runs = duel(counted("k", 1.2e-3, order), counted("c", 1.25e-3, order), Adaptive(), 1e-3)
    assert runs[-1] == pytest.approx(0.96e-3)
    assert "c" in order


def test_who_is_hopeless_is_not_timed_for_long():
    order: list[str] = []
    runs = duel(counted("k", 50e-3, order), counted("c", 1e-3, order), Adaptive(), 1e-3)
    assert len(runs) < 5
    assert min(runs) > 10e-3


def test_a_finalist_that_falls_behind_sits_out_the_rest():
    order: list[str] = []
    rule = Adaptive(least_runs=15, most_runs=100)
    fast, slow = in_turn([counted("a", 1e-3, order), counted("b", 1.3e-3, order)], rule, None)
    assert len(fast) == rule.least_runs
    assert len(slow) == LEAST_TO_LEAD


def test_finalists_that_are_close_get_as_much_as_each_other():
    order: list[str] = []
    rule = Adaptive(least_runs=15, most_runs=100)
    first, second = in_turn([counted("a", 1e-3, order), counted("b", 1.02e-3, order)], rule, None)
    assert len(first) == rule.least_runs
    assert len(second) == len(first)
