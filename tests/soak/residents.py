"""Processes that live as long as the soak: what they hold must not grow.

``python -m tests.soak.residents server|tuner FOLDER MODEL STATE`` writes a line of JSON to ``STATE`` now and then, and
ends on SIGTERM.

    server   one session in two threads with hundreds of requests a second, that takes newer artifacts as they come
    tuner    ``autotune.tune`` over and over in one process
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import psutil

import autotune

TELL_S = 5.0
"""Seconds between two lines."""

PAUSE_S = 0.002
"""Seconds between two requests of one thread: the runs need the cores too."""

RELOAD_S = 0.5
"""Seconds between two looks for a newer artifact."""

MORE = 4
"""Trials that every run of the tuner has more than the one before."""

ENOUGH = 200
"""Trials after which the tuner begins a new log: the spaces of small models end."""


@dataclass(frozen=True)
class Held:
    """What a process holds at some moment.

    Attributes:
        count: answers, or runs, so far.
        wrong: how many of them were wrong, or raised.
        rss_mib: resident memory that is its own.
        files: open file descriptors.
        threads: of the process.
    """

    count: int
    wrong: int
    rss_mib: float
    files: int
    threads: int

    @classmethod
    def now(cls, count: int = 0, wrong: int = 0) -> Held:
        """Of this process."""
        me = psutil.Process()
        memory = me.memory_full_info()
        return cls(count, wrong, memory.uss / 2**20, me.num_fds(), me.num_threads())


def close(ours: list[np.ndarray], theirs: list[np.ndarray]) -> bool:
    """Whether outputs are the reference's but for rounding."""
    return all(np.abs(a - b).max() <= 1e-2 * np.abs(b).max() for a, b in zip(ours, theirs, strict=True))


class Counter:
    """Answers of several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = self.wrong = 0

    def add(self, right: bool, why: str = "") -> None:
        """One more; what is wrong goes to standard error."""
        with self._lock:
            self.count += 1
            self.wrong += not right
        if not right:
            print(why, file=sys.stderr, flush=True)


def serve(folder: Path, model: Path, counter: Counter, stopped: threading.Event) -> None:
    """Answer with the artifact in ``folder`` until told to stop."""
    reference = onnxruntime.InferenceSession(str(model))
    rng = np.random.default_rng(0)
    feed = {arg.name: rng.normal(size=arg.shape).astype(np.float32) for arg in reference.get_inputs()}
    expected = reference.run(None, feed)
    session = autotune.InferenceSession(folder / "at" / "m.tuned")

    def answer() -> None:
        while not stopped.is_set():
            try:
                counter.add(close(session.run(None, feed), expected), "another answer")
            except Exception as error:  # whatever it is, it is not an answer
                counter.add(False, repr(error))
            time.sleep(PAUSE_S)

    threads = [threading.Thread(target=answer) for _ in range(2)]
    for thread in threads:
        thread.start()
    while not stopped.wait(RELOAD_S):
        try:
            session.reload()
        except Exception as error:  # an artifact is swapped whole, so there is always one
            counter.add(False, repr(error))
    for thread in threads:
        thread.join()


def tune(folder: Path, model: Path, counter: Counter, stopped: threading.Event) -> None:
    """Tune ``model`` in ``folder``, a few trials more each time, until told to stop."""
    folder.mkdir(parents=True, exist_ok=True)
    trials, logs = 0, 0
    while not stopped.is_set():
        trials += MORE
        if trials > ENOUGH:
            (folder / f"{logs}.db").unlink(missing_ok=True)
            trials, logs = MORE, logs + 1
        options = autotune.Options(
            trials=trials, budget_s=600.0, until=0.0, out=folder / "m.tuned", log=str(folder / f"{logs}.db")
        )
        try:
            autotune.tune(str(model), options)
            counter.add(True)
        except Exception as error:  # the soak's disturbances are not this process's
            counter.add(False, repr(error))


RESIDENTS: dict[str, Callable[[Path, Path, Counter, threading.Event], None]] = {"server": serve, "tuner": tune}


def main() -> None:
    """Live, and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.residents")
    parser.add_argument("kind", choices=RESIDENTS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("state", type=Path)
    arguments = parser.parse_args()
    stopped, counter = threading.Event(), Counter()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())

    def tell() -> None:
        with arguments.state.open("a") as state:
            while True:
                ended = stopped.wait(TELL_S)
                held = Held.now(counter.count, counter.wrong)
                state.write(json.dumps(vars(held)) + "\n")
                state.flush()
                if ended:
                    return

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    RESIDENTS[arguments.kind](arguments.folder, arguments.model, counter, stopped)
    teller.join()


if __name__ == "__main__":
    main()
