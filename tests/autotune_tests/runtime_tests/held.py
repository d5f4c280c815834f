"""Keeping a stream of a serving busy."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from autotune.runtime.artifact_executor import ArtifactExecutor
from autotune.runtime.serving import Serving


@contextmanager
def held(serving: Serving) -> Iterator[ArtifactExecutor]:
    """Yield the executor of a stream that another thread keeps until the end of the body."""
    taken, done = SimpleQueue(), threading.Event()

    def keep(executor, _):
        taken.put(executor)
        done.wait()

    thread = threading.Thread(target=serving.on_stream, args=(keep, []))
    thread.start()
    try:
        yield taken.get()
    finally:
        done.set()
        thread.join()
