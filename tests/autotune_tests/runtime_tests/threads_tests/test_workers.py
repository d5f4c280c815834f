"""Threads of a session: as many as are needed, ended with it, and waited for when the interpreter ends."""

import _thread
import gc
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial
from queue import SimpleQueue

from autotune.runtime.threads.workers import Workers

PATIENCE_S = 20.0


def ours(name):
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def wait_until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < end:
        time.sleep(1e-3)
    assert condition()


def test_work_is_done_side_by_side_by_as_many_threads_as_there_may_be():
    workers, done, meet = Workers(3, "side"), SimpleQueue(), threading.Barrier(3)

    def work(number):
        meet.wait(PATIENCE_S)
        done.put(number)

    for number in range(6):
        workers.put(partial(work, number))
    assert sorted(done.get(timeout=PATIENCE_S) for _ in range(6)) == list(range(6))
    assert len(ours("side")) == 3


def test_one_after_the_other_needs_no_more_than_one_that_is_ready():
    workers, done = Workers(8, "few"), SimpleQueue()
    for number in range(50):
        workers.put(partial(done.put, number))
        assert done.get(timeout=PATIENCE_S) == number
        time.sleep(1e-3)
    assert len(ours("few")) <= 3


def test_an_error_ends_no_thread():
    workers, done = Workers(1, "errs"), SimpleQueue()
    for error in (ValueError, KeyboardInterrupt, SystemExit):
        workers.put(lambda error=error: (_ for _ in ()).throw(error()))
    workers.put(partial(done.put, 1))
    assert done.get(timeout=PATIENCE_S) == 1
    assert len(ours("errs")) == 1


def test_threads_end_with_their_owner_when_all_is_done():
    workers, done, go = Workers(2, "ends"), SimpleQueue(), threading.Event()
    for number in range(5):
        workers.put(lambda number=number: (go.wait(PATIENCE_S), done.put(number)))
    del workers
    gc.collect()
    go.set()
    assert sorted(done.get(timeout=PATIENCE_S) for _ in range(5)) == list(range(5))
    wait_until(lambda: not ours("ends"))


def test_work_is_done_though_no_thread_can_be_started_for_it(monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    workers, done = Workers(2, "none"), SimpleQueue()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    workers.put(partial(done.put, 1))
    assert done.get(timeout=PATIENCE_S) == 1
    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    workers.put(partial(done.put, 2))
    assert done.empty()
    workers.run_left()
    assert done.get_nowait() == 2
    assert not workers.left


def test_the_interpreter_ends_when_all_is_done_and_later_handlers_are_served():
    script = """
        import atexit, os, time
        from queue import SimpleQueue
        answers = SimpleQueue()

        def late():
            workers.put(lambda: answers.put("late"))
            workers.run_left()
            print(answers.get_nowait())

        atexit.register(late)
        from autotune.runtime.threads.workers import Workers
        workers, idle = Workers(2, "a"), Workers(2, "idle")
        for number in range(6):
            workers.put(lambda number=number: (time.sleep(0.05), os.write(1, b"%d\\n" % number)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, sorted(done.stdout.split()), done.stderr) == (0, [*"012345", "late"], "")


def test_a_child_of_a_fork_does_not_wait_for_threads_of_its_parent():
    script = """
        import os, sys, time
        from autotune.runtime.threads.workers import Workers
        workers = Workers(2, "a")
        workers.put(lambda: time.sleep(0.3))
        time.sleep(0.1)
        if not (child := os.fork()):
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("3\n", "")
