"""What every executor promises, over all of them."""

import numpy as np
import pytest

from autotune.artifact.composite import read_composite
from autotune.artifact.directory import read_artifact
from autotune.runtime.artifact_executor import owned
from autotune.runtime.multi_shape_executor import MultiShapeExecutor
from autotune.runtime.one_shape_executor import OneShapeExecutor
from autotune.runtime.segmented_executor import SegmentedExecutor
from tests.autotune_tests.composites import data, rows, three_segments, two_batches


@pytest.fixture(scope="module", params=["one shape", "several shapes", "segments"])
def case(request, tmp_path_factory, tiny_built, measurer):
    """An executor and arrays for it."""
    folder = tmp_path_factory.mktemp("case")
    if request.param == "one shape":
        return OneShapeExecutor(read_artifact(tiny_built.artifact), None), list(data().values())
    if request.param == "segments":
        return SegmentedExecutor(read_composite(three_segments(folder, measurer).artifact), None), list(data().values())
    return MultiShapeExecutor(read_composite(two_batches(folder, measurer).artifact), None), list(rows(8).values())


def test_it_says_what_it_runs(case):
    executor, arrays = case
    assert len(executor.inputs) == len(arrays)
    assert all(spec.dtype == str(array.dtype) for spec, array in zip(executor.inputs, arrays, strict=True))
    assert executor.provenance["model"].endswith(".onnx")
    assert executor.threads == 1
    assert isinstance(executor.lanes, tuple)


def test_every_output_is_made_in_order_and_is_the_caller_s(case):
    executor, arrays = case
    outputs = executor.run(arrays)
    assert len(outputs) == len(executor.outputs)
    for spec, array in zip(executor.outputs, outputs, strict=True):
        assert str(array.dtype) == spec.dtype
        assert len(array.shape) == len(spec.shape)
    copies = [array.copy() for array in outputs]
    executor.run([np.zeros_like(array) for array in arrays])
    assert all(np.array_equal(array, copy) for array, copy in zip(outputs, copies, strict=True))


def test_outputs_that_are_inputs_or_parts_of_each_other_are_copied():
    array, base = np.ones(4), np.zeros((2, 3))
    outputs = owned([array, array[1:], base, base[0], [base, np.full(2, 7.0)]], [array])
    for number, output in enumerate((*outputs[:4], *outputs[4])):
        output[...] = number
    assert [output.flat[0] for output in (*outputs[:4], *outputs[4])] == [0, 1, 2, 3, 4, 5]
    assert array.tolist() == [1] * 4


def test_an_input_that_is_an_output_of_segments_is_copied(tmp_path, measurer):
    executor = SegmentedExecutor(read_composite(three_segments(tmp_path, measurer).artifact), None)
    executor.outputs = (*executor.outputs, *executor.inputs)
    array = data()["data"]
    *_, copy = executor.run([array])
    assert np.array_equal(copy, array)
    assert not np.may_share_memory(copy, array)


def test_inputs_are_left_as_they_were(case):
    executor, arrays = case
    before = [array.copy() for array in arrays]
    executor.run(arrays)
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, before, strict=True))


def test_a_profile_names_what_took_its_time(case):
    executor, arrays = case
    spent = executor.profile(arrays)
    assert spent
    assert all(symbol and seconds >= 0 for symbol, seconds in spent)


def test_cancelling_what_does_not_run_changes_nothing(case):
    executor, arrays = case
    executor.cancel()
    assert len(executor.run(arrays)) == len(executor.outputs)
