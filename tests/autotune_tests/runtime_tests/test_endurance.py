"""A million requests from sixteen threads: right answers, none lost or doubled, and memory that does not grow."""

import gc
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest

from autotune.runtime.serve_options import ServeOptions
from autotune.runtime.session import InferenceSession

THREADS = 16

REQUESTS = int(os.environ.get("TUNE_ENDURANCE_REQUESTS", "1000000"))
"""Of all threads together."""

GROWTH_BYTES = 4 << 20
"""Memory by which a process may grow from half of the requests to all of them: 8 bytes a request."""


@pytest.mark.slow
def test_a_million_requests(tiny_built):
    session = InferenceSession(tiny_built.artifact, serve=ServeOptions(streams=2))
    feeds = [
        {"data": np.random.default_rng(seed).standard_normal((1, 16, 8, 8)).astype(np.float32)} for seed in range(32)
    ]
    wanted = [session.run(["scores"], feed)[0].tobytes() for feed in feeds]
    answered, wrong = [0] * THREADS, []

    def send(number, count):
        for step in range(count):
            index = (number + step) % len(feeds)
            if step % 16:
                scores = session.run(["scores"], feeds[index])[0]
            else:
                scores = session.run_async(["scores"], feeds[index]).result(60)[0]
            if scores.tobytes() != wanted[index]:
                wrong.append((number, step))
            answered[number] += 1

    def phase(pool, count):
        list(pool.map(send, range(THREADS), [count] * THREADS))
        gc.collect()
        return psutil.Process().memory_info().rss

    with ThreadPoolExecutor(THREADS) as pool:  # the same threads: each new one takes memory of its own
        first = phase(pool, REQUESTS // THREADS // 2)
        last = phase(pool, REQUESTS // THREADS - REQUESTS // THREADS // 2)
    assert wrong == []
    assert answered == [REQUESTS // THREADS] * THREADS
    assert last - first < GROWTH_BYTES
