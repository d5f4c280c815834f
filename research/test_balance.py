"""The share of its time that a thread works, for a number of jobs."""

from __future__ import annotations

import pytest

from research import balance
from research.balance import BAR, THREADS, Balance, Jobs, balances, mean, parallel_jobs
from schedules.lower import claim, lower
from schedules.target import Target
from schedules.task import Task
from tests.models.catalog import cached
from tests.schedules_tests.cases import CASES

TASK = Task("key", "kernel", "matmul", "matmul", ((1,),), ("float32",), (), 1, 4)


@pytest.mark.parametrize(
    ("jobs", "threads", "share"),
    [((8,), 4, 1.0), ((5,), 4, 5 / 8), ((4, 5), 4, 9 / 12), ((), 4, 0.25), ((1,), 64, 1 / 64)],
)
def test_threads_wait_for_the_last_job(jobs, threads, share):
    loops = tuple(Jobs(count, count) for count in jobs)  # all jobs alike
    assert Balance(TASK, 1.0, loops).share(threads) == pytest.approx(share)


def test_kernels_count_by_their_time():
    kernels = [Balance(TASK, 3.0, (Jobs(4, 4),)), Balance(TASK, 1.0, (Jobs(5, 5),))]
    assert mean(kernels, 4) == pytest.approx((3 + 5 / 8) / 4)
    assert mean([], 4) == 1.0


def test_jobs_are_read_off_the_scheduled_kernel():
    target = Target(kind="llvm", isa="avx512", threads=2)
    func = next(case.func for case in CASES if case.name == "conv2d_3x3")
    jobs = parallel_jobs(lower(func, claim(func, target).space.initial[0], target).mod["main"])
    assert jobs
    assert all(loop.count >= 1 and loop.written >= 1 for loop in jobs)


def test_loops_count_by_what_they_write() -> None:
    """A phase of few jobs costs little beside one that does most of the work."""
    kernel = Balance(TASK, 1.0, (Jobs(1, 10), Jobs(8, 990)))
    assert kernel.share(8) == pytest.approx(1000 / (8 * 10 + 990))


def test_a_loop_that_is_launched_again_counts_each_launch_by_itself() -> None:
    target = Target(kind="llvm", isa="avx512", threads=4)
    func = next(case.func for case in CASES if case.template == "recurrent")
    config = claim(func, target).space.initial[0]
    loop, *_ = parallel_jobs(lower(func, config, target).mod["main"])
    assert loop.count == config.integer("groups")


@pytest.mark.parametrize(("name", "threads"), [("squeezenet", 16), ("siamese_cnn", 64), ("mlp", 64), ("tiny_cnn", 4)])
def test_kernels_divide_over_many_threads(name: str, threads: int) -> None:
    kernels = balances(cached(name), Target.cpu("sapphirerapids", threads))
    assert mean(kernels, threads) >= BAR


@pytest.mark.slow
@pytest.mark.parametrize("threads", THREADS)
def test_kernels_of_twenty_models_divide_over_many_threads(threads: int) -> None:
    """Both means are checked; on 64 threads small kernels have too few vectors of results for that of the models."""
    models = [balances(cached(name), Target.cpu("sapphirerapids", threads)) for name in balance.MODELS]
    assert mean([kernel for kernels in models for kernel in kernels], threads) >= BAR
    shares = [mean(kernels, threads) for kernels in models]
    assert sum(shares) / len(shares) >= (BAR if threads < 64 else 0.92)
