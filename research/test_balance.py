"""The share of its time that a thread works, for a number of jobs."""

from __future__ import annotations

import pytest

from research.balance import Balance, mean, parallel_jobs
from schedules.lower import claim, lower
from schedules.target import Target
from schedules.task import Task
from tests.schedules_tests.cases import CASES

TASK = Task("key", "kernel", "matmul", "matmul", ((1,),), ("float32",), (), 1, 4)


@pytest.mark.parametrize(
    ("jobs", "threads", "share"),
    [((8,), 4, 1.0), ((5,), 4, 5 / 8), ((4, 5), 4, 9 / 12), ((), 4, 0.25), ((1,), 64, 1 / 64)],
)
def test_threads_wait_for_the_last_job(jobs, threads, share):
    assert Balance(TASK, 1.0, jobs).share(threads) == pytest.approx(share)


def test_kernels_count_by_their_time():
    found = [Balance(TASK, 3.0, (4,)), Balance(TASK, 1.0, (5,))]
    assert mean(found, 4) == pytest.approx((3 + 5 / 8) / 4)
    assert mean([], 4) == 1.0


def test_jobs_are_read_off_the_scheduled_kernel():
    target = Target(kind="llvm", isa="avx512", threads=2)
    func = next(case.func for case in CASES if case.name == "conv2d_3x3")
    jobs = parallel_jobs(lower(func, claim(func, target).space.initial[0], target).mod["main"])
    assert jobs
    assert all(count >= 1 for count in jobs)
