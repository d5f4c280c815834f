"""A program whose children end, or begin, while sixteen threads are inside of sessions; what went wrong is printed.

    python -m tests.autotune_tests.runtime_tests.lifetimes exits|forks COUNT ARTIFACT…
    python -m tests.autotune_tests.runtime_tests.lifetimes replacements COUNT ONE OTHER PLACE

The parent imports everything once and forks; a child of ``exits`` then ends as an interpreter does, with all that
Python and the C library do at the end. It must leave nothing on stderr and no process behind.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import autotune
from autotune.artifact.replacement import install
from autotune.runtime.serve_options import ServeOptions
from autotune.runtime.session import InferenceSession
from schedules.vocabulary.errors import RunError

THREADS = 16
PATIENCE_S = 60
PR_SET_CHILD_SUBREAPER = 36
KEPT: list[object] = []
"""What lives as long as the interpreter."""


def feed_of(session: InferenceSession, rows: int = 1) -> dict[str, np.ndarray]:
    """Inputs of whole numbers; ``rows`` along the first axis where it is open."""
    return {
        arg.name: (np.arange(int(np.prod(shape := [rows if isinstance(s, str) else s for s in arg.shape]))) % 7)
        .astype(arg.dtype)
        .reshape(shape)
        for arg in session.get_inputs()
    }


def open_busy(artifact: str, daemon: bool, seconds: float = 1e9) -> InferenceSession:
    """A session that sixteen threads use in all ways."""
    batched = {"max_batch": 8} if "batches" in artifact else {}
    session = InferenceSession(artifact, serve=ServeOptions(streams=2, **batched))
    feed = feed_of(session)
    end = time.monotonic() + seconds

    def work(number: int) -> None:
        while time.monotonic() < end:
            if number % 4 == 0:
                session.run_async(None, feed).result()
            elif number % 4 == 1:
                session.run(None, feed, timeout_s=PATIENCE_S)
            else:
                session.run(None, feed)

    for number in range(THREADS):
        threading.Thread(target=work, args=(number,), daemon=daemon).start()
    session.run(None, feed)
    return session


class RunsWhenDeleted:
    """Runs its session when it is collected, which may be at the very end."""

    def __init__(self, session: InferenceSession) -> None:
        self.session, self.feed = session, feed_of(session)

    def __del__(self) -> None:
        self.session.run(None, self.feed)


def leave_threads(artifact: str) -> None:
    """The main thread ends; daemon threads are inside of runs."""
    KEPT.append(open_busy(artifact, daemon=True))


def drop_session(artifact: str) -> None:
    """Only the threads have it."""
    open_busy(artifact, daemon=True)


def leave_requests(artifact: str) -> None:
    """Requests that nobody waits for."""
    session = open_busy(artifact, daemon=True)
    for _ in range(50):
        session.run_async(None, feed_of(session))


def go_on(artifact: str) -> None:
    """Threads that are no daemons go on when the main thread has ended, and get their answers."""
    KEPT.append(open_busy(artifact, daemon=False, seconds=0.05))


def leave_by_a_thread(artifact: str) -> None:
    """``sys.exit`` in another thread ends that thread alone."""
    KEPT.append(open_busy(artifact, daemon=True))
    thread = threading.Thread(target=sys.exit)
    thread.start()
    thread.join()


def run_at_exit(artifact: str) -> None:
    """A request by a handler at exit, and by a finalizer."""
    session = open_busy(artifact, daemon=True)
    atexit.register(session.run, None, feed_of(session))
    KEPT.append(RunsWhenDeleted(session))


def leave_by_signal(artifact: str) -> None:
    """SIGTERM, whose handler leaves in the middle of a run of the main thread."""
    session = open_busy(artifact, daemon=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    feed = feed_of(session)
    threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGTERM)).start()
    while True:
        session.run(None, feed)


def die_by_signal(artifact: str) -> None:
    """SIGTERM without a handler."""
    session = open_busy(artifact, daemon=True)
    threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGTERM)).start()
    while True:
        session.run(None, feed_of(session))


WAYS = (
    *(leave_threads, drop_session, leave_requests, go_on, leave_by_a_thread, run_at_exit, leave_by_signal),
    die_by_signal,
)


def exits(count: int, artifacts: list[str]) -> bool:
    """Whether the caller is a child, which has to end now; else what went wrong is printed."""
    for number in range(count):
        way, artifact = WAYS[number % len(WAYS)], artifacts[number // len(WAYS) % len(artifacts)]
        child = os.fork()
        if child == 0:
            signal.alarm(PATIENCE_S)
            way(artifact)
            return True
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != (-signal.SIGTERM if way is die_by_signal else 0):
            print(f"exit {number}, {way.__name__} of {artifact}: {status}")
    return False


def forks(count: int, artifacts: list[str]) -> None:
    """Fork while sessions are busy; children use them, or are told in one line that they cannot."""
    sessions = {artifact: open_busy(artifact, daemon=True) for artifact in artifacts}
    feeds = {artifact: feed_of(session) for artifact, session in sessions.items()}
    wanted = {artifact: session.run(None, feeds[artifact]) for artifact, session in sessions.items()}
    pending = {artifact: session.run_async(None, feeds[artifact]) for artifact, session in sessions.items()}
    for number in range(count):
        artifact = artifacts[number % len(artifacts)]
        child = os.fork()
        if child == 0:
            signal.alarm(PATIENCE_S)
            os._exit(use_in_child(sessions[artifact], feeds[artifact], wanted[artifact], pending[artifact]))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != ("segments" in artifact):
            print(f"fork {number} of {artifact}: {status}")
    for artifact, session in sessions.items():
        if not same(session.run(None, feeds[artifact], timeout_s=PATIENCE_S), wanted[artifact]):
            print(f"{artifact}: wrong answer of the parent")


def use_in_child(session: InferenceSession, feed: dict, wanted: list, pending: object) -> int:
    """0 if every answer is right, 1 if the session says that it does not survive a fork, 2 otherwise."""
    threads, results = [], []

    def ask(way: int) -> None:
        try:
            if way == 0:
                outputs = session.run(None, feed)
            elif way == 1:
                outputs = session.run_async(None, feed).result()
            else:
                outputs = session.run(None, feed, timeout_s=PATIENCE_S)
            results.append(0 if same(outputs, wanted) else 2)
        except RunError as error:
            results.append(1 if "open another session in the child" in str(error) else 2)

    for way in range(6):
        threads.append(threading.Thread(target=ask, args=(way % 3,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    with contextlib.suppress(RunError):
        pending.result()
    ask(0)
    session.cancel()
    ask(1)
    return max(results) if len(set(results)) == 1 else 2


def replacements(count: int, one: Path, other: Path, place: Path) -> None:
    """Put two artifacts of ``composites.pairs`` at ``place`` in turn, while sessions are opened, run and reloaded."""
    shutil.copytree(one, place)
    shared = InferenceSession(place, serve=ServeOptions(streams=2))
    answers = [
        {rows: (session := InferenceSession(path)).run(None, feed_of(session, rows)) for rows in (1, 3, 8, 9)}
        for path in (one, other)
    ]
    stop, counts = threading.Event(), [0, 0]

    def open_and_run() -> None:
        session = InferenceSession(place)
        outputs = session.run(None, feed_of(session, 1))
        which = next((number for number, answer in enumerate(answers) if same(outputs, answer[1])), None)
        if which is None:
            print("a new session gives what neither artifact does")
            return
        counts[which] += 1
        time.sleep(0.02)  # another may have come
        for rows in (9, 8, 3):
            if not same(session.run(None, feed_of(session, rows)), answers[which][rows]):
                print(f"{rows} rows are answered by another artifact than 1 row")

    def run_shared() -> None:
        for rows in (1, 3, 8, 9):
            outputs = shared.run(None, feed_of(shared, rows))
            if not any(same(outputs, answer[rows]) for answer in answers):
                print(f"{rows} rows are answered as neither artifact does")

    def repeat(work: Callable[[], object]) -> None:
        while not stop.is_set():
            try:
                work()
            except Exception as error:
                print(f"{type(error).__name__}: {error}")

    works = [open_and_run] * 5 + [shared.reload] + [run_shared] * (THREADS - 6)
    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for number in range(count):
        fresh = place.with_name(f"fresh-{number}")
        shutil.copytree((other, one)[number % 2], fresh)
        install(fresh, place)
        before = sum(counts)
        while sum(counts) == before and not stop.wait(0.01):  # a session was opened meanwhile
            pass
    stop.set()
    for thread in threads:
        thread.join()
    if min(counts) == 0:
        print(f"{counts} sessions of the two artifacts were opened")


def same(outputs: list, wanted: list) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(outputs, wanted, strict=True))


def main() -> None:
    kind, count, *artifacts = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become children of this process
    assert autotune.InferenceSession is InferenceSession
    if kind == "exits":
        if exits(int(count), artifacts):
            return
    elif kind == "replacements":
        replacements(int(count), *map(Path, artifacts))
    else:
        forks(int(count), artifacts)
    try:
        print(f"process {os.waitpid(-1, os.WNOHANG)} was left behind")
    except ChildProcessError:
        print("done")


if __name__ == "__main__":
    main()
