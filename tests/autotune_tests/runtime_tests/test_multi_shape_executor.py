"""Calls of any sizes: to the part that fits, padded, in pieces, or refused with what to add."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from autotune.artifact.composite import one_part, read_composite
from autotune.runtime.multi_shape_executor import MultiShapeExecutor, cut
from schedules.vocabulary.errors import BusyError, RunError, UsageError
from tests.autotune_tests.composites import rows, two_batches


@pytest.fixture(scope="module")
def built(tmp_path_factory, measurer):
    return two_batches(tmp_path_factory.mktemp("batches"), measurer)


@pytest.fixture
def executor(built):
    return MultiShapeExecutor(read_composite(built.artifact), None)


@pytest.fixture
def spied(monkeypatch):
    """Make an executor note the rows of every run of kernels."""

    def spy_on(executor):
        seen, real = [], executor._executor
        monkeypatch.setattr(executor, "_executor", lambda part: Noting(real(part), part.shapes["rows"][0], seen))
        return seen

    return spy_on


class Noting:
    """An executor of one set of shapes that notes the rows of every run."""

    def __init__(self, executor, rows, seen):
        self._executor, self._rows, self._seen = executor, rows, seen

    def run(self, arrays):
        self._seen.append(self._rows)
        return self._executor.run(arrays)

    def run_live(self, arrays, live):
        self._seen.append(self._rows)
        return self._executor.run_live(arrays, live)

    def run_rows(self, arrays, count):
        self._seen += [self._rows] * count
        return self._executor.run_rows(arrays, count)


@pytest.mark.parametrize(
    ("count", "parts"), [(1, [1]), (8, [8]), (5, [8]), (9, [8, 1]), (20, [8, 8, 8]), (17, [8, 8, 1])]
)
def test_a_call_goes_to_the_parts_that_fit(built, executor, spied, count, parts):
    called = spied(executor)
    feed = rows(count)
    expected = onnxruntime.InferenceSession(str(built.model), providers=["CPUExecutionProvider"]).run(None, feed)
    (got,) = executor.run([feed["rows"]])
    assert got.shape == expected[0].shape
    np.testing.assert_allclose(got, expected[0], rtol=1e-3, atol=1e-5)
    assert called == parts


@pytest.mark.parametrize(
    ("latencies_ms", "count", "parts"),
    [
        ([1.0, 6.0], 5, [8]),  # about as long either way
        ([1.0, 2.0], 5, [8]),
        ([1.0, 6.0], 21, [8, 8, 8]),
        ([1.0, 20.0], 5, [1] * 5),
        ([1.0, 20.0], 10, [1] * 10),
        ([1.0, 20.0], 8, [8]),  # a part of its very shapes
        ([None, 20.0], 5, [8]),
        ([None, 20.0], 20, [8, 8, 8]),
    ],
)
def test_a_call_is_cut_where_latencies_promise_much_less_time(built, spied, latencies_ms, count, parts):
    composite = read_composite(built.artifact)
    timed = zip(composite.parts, latencies_ms, strict=True)
    composite = replace(composite, parts=tuple(replace(part, live=None, latency_ms=ms) for part, ms in timed))
    executor = MultiShapeExecutor(composite, None)
    seen = spied(executor)
    feed = rows(count)
    (expected,) = onnxruntime.InferenceSession(str(built.model), providers=["CPUExecutionProvider"]).run(None, feed)
    for _ in range(2):  # the second call goes the way that is remembered
        np.testing.assert_allclose(executor.run([feed["rows"]])[0], expected, rtol=1e-3, atol=1e-5)
    assert seen == 2 * parts


@pytest.mark.parametrize("latency_ms", [None, 1.0])
def test_the_way_of_a_call_is_found_in_few_steps(built, monkeypatch, latency_ms):
    executor = MultiShapeExecutor(read_composite(built.artifact), None)
    spec = executor._parts[0].inputs[0]
    sizes = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233)  # every rest can be cut in many ways
    executor._parts = [
        replace(executor._parts[0], inputs=(replace(spec, shape=(size, 24)),), live=None, latency_ms=latency_ms)
        for size in sizes
    ]
    executor._timed = latency_ms is not None
    asked, larger = [], executor._larger
    monkeypatch.setattr(executor, "_larger", lambda sizes: asked.append(sizes) or larger(sizes))
    way = executor._way({"batch": 609})
    assert way.symbol == "batch"
    assert len(asked) < 1000


@pytest.mark.parametrize("array", [np.zeros((3, 25), np.float32), np.zeros((24,), np.float32)])
def test_what_does_not_fit_the_model_is_refused(executor, array):
    with pytest.raises(UsageError, match=r"no set of shapes for rows .*; there are: rows 1x24; rows 8x24; add --input"):
        executor.run([array])


def test_only_exact_shapes_are_profiled(executor):
    assert executor.profile([rows(8)["rows"]])
    assert len(executor.timeline([rows(1)["rows"]])) == 1
    with pytest.raises(UsageError, match="add --input rows:5x24"):
        executor.profile([rows(5)["rows"]])


def test_parts_are_opened_when_they_are_needed(executor):
    assert [path.name for path in executor._opened] == ["part-0"]
    executor.run([rows(8)["rows"]])
    assert [path.name for path in executor._opened] == ["part-0", "part-1"]
    executor.cancel()


def test_arrays_are_cut_along_all_axes():
    array = np.arange(16).reshape(4, 4)
    assert cut(array, [0, 1], 1, 3).tolist() == [[5, 6], [9, 10]]
    assert cut(array, [1], 3, None).tolist() == [[3], [7], [11], [15]]
    assert np.array_equal(cut(array, [], 1, 2), array)


@pytest.fixture(scope="module")
def one_row(built):
    """The artifact for one row, which answers any number of them."""
    composite = read_composite(built.artifact)
    return replace(composite.open(composite.parts[0]), interface=composite.interface)


def joined_results(executor, arrays):
    """Results of the rows of ``arrays``, each run alone."""
    return np.concatenate([executor.run([array[None]])[0] for array in arrays])


@pytest.mark.parametrize("count", [0, 1, 2, 7, 64])
def test_one_part_answers_any_number_of_rows(one_row, count):
    executor = MultiShapeExecutor(one_part(one_row), None)
    array = rows(max(count, 1))["rows"]
    (got,) = executor.run([array[:count]])
    assert np.array_equal(got, joined_results(executor, array)[:count])


def test_streams_of_one_part_answer_any_number_of_rows(one_row):
    executors = [MultiShapeExecutor(one_part(one_row), 1) for _ in range(2)]
    streams = executors[0].streams(executors[1:])
    array = rows(7)["rows"]
    expected = joined_results(executors[0], array)
    for count in (0, 1, 2, 7):
        assert np.array_equal(streams.run([array[:count]], None)[0], expected[:count])
        assert np.array_equal(streams.call([array[:count]]).run(None)[0], expected[:count])
    with streams.stream(None), streams.stream(None), pytest.raises(BusyError):
        streams.run([array], 0.0)


def test_several_parts_have_no_streams_of_the_core(executor):
    assert executor.streams([]) is None


@pytest.mark.parametrize("begun", [False, True])
def test_a_cancelled_call_of_several_rows_ends_and_the_next_is_answered(one_row, monkeypatch, begun):
    executor = MultiShapeExecutor(one_part(one_row), 1)
    streams = executor.streams([])
    array = rows(7)["rows"]
    expected = joined_results(executor, array)
    call = streams.call([array])
    if begun:
        run = executor.run
        monkeypatch.setattr(executor, "run", lambda arrays: call.cancel() or run(arrays))
    else:
        call.cancel()
    with pytest.raises(RunError, match="cancelled"):
        call.run(None)
    monkeypatch.undo()
    call.cancel()  # one that has ended
    assert np.array_equal(streams.run([array], None)[0], expected)
