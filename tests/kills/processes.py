"""All processes of one run, wherever they are in the tree: each has inherited a variable that names the run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import psutil

VARIABLE = "TUNE_KILLS_RUN"
"""Environment variable that names the run."""

ORPHAN_S = 30.0
"""A process that is there so long after its run has ended is an orphan. Workers end with their fork server, and that
with the run, within milliseconds; but a server that is loading TVM (2 s, several times that on a busy machine) notices
the end only afterwards."""


def of_run(name: str) -> list[psutil.Process]:
    """Living processes of the run called ``name``."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(VARIABLE) == name and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return processes


def is_fork_server(process: psutil.Process) -> bool:
    """Whether workers are forked from ``process``."""
    try:
        return _is_named_so(process) and not _is_named_so(process.parent())
    except psutil.NoSuchProcess:
        return False


def is_worker(process: psutil.Process) -> bool:
    """Whether ``process`` was forked by a fork server."""
    try:
        return _is_named_so(process) and _is_named_so(process.parent())
    except psutil.NoSuchProcess:
        return False


def _is_named_so(process: psutil.Process | None) -> bool:
    return process is not None and "autotune.host.fork_server" in process.cmdline()


KINDS: dict[str, Callable[[psutil.Process], bool]] = {"worker": is_worker, "fork server": is_fork_server}
"""Kinds of process that a run starts."""


def pick(name: str, kind: str, rng: random.Random) -> psutil.Process | None:
    """A random process of ``kind`` of the run called ``name``; None if there is none now."""
    processes = sorted((process for process in of_run(name) if KINDS[kind](process)), key=lambda process: process.pid)
    return rng.choice(processes) if processes else None


def await_end(name: str) -> tuple[float, list[psutil.Process]]:
    """Wait until the run called ``name`` has no process left: the seconds that took, and those that are orphans."""
    began = time.monotonic()
    left = of_run(name)
    while left and time.monotonic() - began < ORPHAN_S:
        time.sleep(0.05)
        left = of_run(name)
    return time.monotonic() - began, left
