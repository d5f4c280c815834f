"""Running kernels: inputs in whatever memory they come, outputs that are the caller's, calls from several threads."""

import numpy as np
import pytest

from autotune.artifact.directory import read_artifact
from autotune.runtime.one_shape_executor import OneShapeExecutor


@pytest.fixture(scope="module")
def executor(tiny_built):
    return OneShapeExecutor(read_artifact(tiny_built.artifact), None)


def data(seed=0):
    return np.random.default_rng(seed).standard_normal((1, 16, 8, 8)).astype(np.float32)


def awkward(array):
    """The same values, laid out in ways that a kernel cannot take."""
    unaligned = np.empty(array.nbytes + 4, np.uint8)[4:].view(np.float32).reshape(array.shape)
    unaligned[...] = array
    strided = np.empty((1, 16, 8, 16), np.float32)[..., ::2]
    strided[...] = array
    frozen = array.copy()
    frozen.flags.writeable = False
    return {"unaligned": unaligned, "strided": strided, "read-only": frozen, "transposed": array.copy().T.copy().T}


@pytest.mark.parametrize("kind", ["unaligned", "strided", "read-only", "transposed"])
def test_any_layout_of_the_input_gives_the_same(executor, kind):
    array = data()
    expected = executor.run([array])
    got = executor.run([awkward(array)[kind]])
    assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


def test_the_threads_are_those_that_it_was_tuned_for_unless_told(tiny_built, executor):
    artifact = read_artifact(tiny_built.artifact)
    assert executor.threads == artifact.target.threads
    assert OneShapeExecutor(artifact, 2).threads == 2


def test_every_kernel_call_is_in_the_profile(tiny_built, executor):
    steps = read_artifact(tiny_built.artifact).steps
    spent = executor.profile([data()])
    assert [symbol for symbol, _ in spent] == [call.symbol for call in steps.calls]
    assert all(seconds >= 0 for _, seconds in spent)


def test_the_timeline_has_every_group_on_its_lane(executor):
    (span,) = executor.timeline([data()])
    assert executor.lanes[span.group.lane].threads == 1
    assert span.seconds >= 0


def test_cancelling_what_does_not_run_changes_nothing(executor):
    executor.cancel()
    assert len(executor.run([data()])) == 2


def test_runs_of_one_call_are_those_of_many(executor):
    rows = [data(seed) for seed in range(5)]
    expected = [np.concatenate(parts) for parts in zip(*(executor.run([row]) for row in rows), strict=True)]
    joined = np.concatenate(rows)
    strided = np.empty((5, 16, 8, 16), np.float32)[..., ::2]
    strided[...] = joined
    for array in (joined, strided):
        got = executor.run_rows([array], 5)
        assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))
