"""Requests that are joined: every answer, and every error, is the one that the request gets alone."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from autotune.runtime.serve_options import ServeOptions
from autotune.runtime.session import InferenceSession
from schedules.vocabulary.errors import RunError, UsageError
from tests.autotune_tests.composites import pairs

THREADS = 16
KINDS = 400
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def artifact(tmp_path_factory, measurer):
    return pairs(tmp_path_factory.mktemp("pairs"), measurer).artifact


@pytest.fixture
def alone(artifact):
    return InferenceSession(artifact)


@pytest.fixture
def joined(artifact):
    return InferenceSession(artifact, serve=ServeOptions(streams=2, max_batch=8, max_wait_s=1e-3))


def numbers(rng, *shape, dtype=np.float32):
    return rng.integers(-50, 50, shape).astype(dtype)


def feed_of(rng):
    """What a caller sends: right in two cases of three, else wrong in one of many ways."""
    rows = int(rng.choice([0, 1, 1, 1, 2, 3, 5, 8, 9, 20]))
    feed = {"left": numbers(rng, rows, 6), "right": numbers(rng, rows, 6)}
    name = str(rng.choice(["left", "right"]))
    wrong = {
        "rows": lambda: numbers(rng, rows + int(rng.integers(1, 3)), 6),
        "one row": lambda: numbers(rng, 1 if rows != 1 else 2, 6),
        "columns": lambda: numbers(rng, rows, int(rng.choice([0, 1, 5, 7]))),
        "scalar": lambda: np.float32(1),
        "number": lambda: 3.0,
        "rank": lambda: numbers(rng, *[rows, 6, 1][: int(rng.choice([1, 3]))]),
        "swapped": lambda: numbers(rng, 6, rows),
        "type": lambda: numbers(rng, rows, 6, dtype=rng.choice([np.float64, np.int32, np.float16])),
        "order": lambda: numbers(rng, rows, 6).astype(">f4"),
        "ragged": lambda: [[1.0, 2.0], [3.0]],
        "nothing": lambda: None,
        "text": lambda: np.array([["a"] * 6] * rows),
    }
    if rng.random() < 2 / 3:
        return feed
    way = str(rng.choice([*wrong, "missing", "unknown"]))
    if way == "missing":
        del feed[name]
    elif way == "unknown":
        feed[name + "s"] = feed["left"]
    else:
        feed[name] = wrong[way]()
    return feed


def outcome(work):
    """Outputs, or the text of the error."""
    try:
        return work()
    except UsageError as error:
        return str(error)


def equal(one, other):
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return all(
        a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_every_answer_is_the_answer_alone(alone, joined, count):
    rng = np.random.default_rng(count)
    feeds = [feed_of(rng) for _ in range(KINDS)]
    wanted = [outcome(lambda feed=feed: alone.run(None, feed)) for feed in feeds]
    assert not any("\n" in answer for answer in wanted if isinstance(answer, str))
    assert 0.1 < sum(isinstance(answer, str) for answer in wanted) / KINDS < 0.5

    def send(seed):
        own, wrong = np.random.default_rng(seed), []
        ways = (
            lambda feed: joined.run(None, feed),
            lambda feed: joined.run(None, feed, timeout_s=PATIENCE_S),
            lambda feed: joined.run_async(None, feed).result(PATIENCE_S),
        )
        for _ in range(count // THREADS):
            number, way = int(own.integers(KINDS)), ways[int(own.integers(len(ways)))]
            if not equal(outcome(lambda way=way, number=number: way(feeds[number])), wanted[number]):
                wrong.append(number)
        return wrong

    with ThreadPoolExecutor(THREADS) as pool:
        assert [wrong for wrong_ones in pool.map(send, range(THREADS)) for wrong in wrong_ones] == []


def test_rows_that_differ_between_inputs_change_no_other_answer(alone, joined):
    """Two rows and one, and one and two, which together are as many of one input as of the other."""
    rng = np.random.default_rng(1)
    innocent = {"left": numbers(rng, 1, 6), "right": numbers(rng, 1, 6)}
    wanted = alone.run(None, innocent)
    for _ in range(20):
        for rows in ((2, 1), (1, 2)):
            with pytest.raises(UsageError, match="both are 'batch', so give equal ones"):
                joined.run_async(None, {"left": numbers(rng, rows[0], 6), "right": numbers(rng, rows[1], 6)})
            assert equal(joined.run_async(None, innocent).result(PATIENCE_S), wanted)


def test_a_run_that_fails_joined_is_made_one_by_one(joined, alone):
    rng = np.random.default_rng(2)
    executor = joined._serving._executors[0]
    real = executor.run
    runs = []

    def fails(arrays):
        runs.append(len(arrays[0]))
        if len(arrays[0]) > 1:
            raise RunError("there is no memory for so many")
        return real(arrays)

    joined._serving._executors = dict.fromkeys(joined._serving._executors, executor)
    executor.run = fails
    feeds = [{"left": numbers(rng, 1, 6), "right": numbers(rng, 1, 6)} for _ in range(8)]
    pending = [joined.run_async(None, feed) for feed in feeds]
    for feed, future in zip(feeds, pending, strict=True):
        assert equal(future.result(PATIENCE_S), alone.run(None, feed))
    assert max(runs) > 1
