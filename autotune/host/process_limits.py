"""First steps of every child process of this program, limits of its memory, and descriptions of its death.

Used by the workers of ``worker_pool.py`` and of replays, and by the import of a model, which forks the calling process
itself.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import resource
import signal
from pathlib import Path

logger = logging.getLogger(__name__)

YOUNG, MIDDLE, OLD = 50_000, 20, 50
"""Python's thresholds: new objects, then collections of the younger generation, before one is collected.

Python's own are 700, 10, 10, chosen for smaller programs. Loading TVM makes some 10^5 objects that stay,
and importing a model another 10^5. Collecting took 0.27 s of DenseNet-121's import (3.5 s) with Python's thresholds,
and 0.03 s with these.
"""

PR_SET_PDEATHSIG = 1
"""``prctl``'s option that makes the kernel send a signal to this process when its parent ends."""

OUT_OF_MEMORY = (
    "bad_alloc",
    "out of memory",
    "Cannot allocate memory",
    "Unable to allocate",
    "std::length_error",
    "Arena alloc failed",
)
"""Texts of errors after an allocation has failed."""


def end_with_parent(parent: int) -> None:
    """Let this process end with the thread of its ``parent`` that made it, however the parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(1)


def isolate(output: Path | None = None) -> None:
    """Prepare a forked child: it ends with its parent, leaves Ctrl-C to it, and writes to ``output`` or nowhere."""
    end_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    silence = os.open(os.devnull, os.O_RDONLY)
    written = os.open(output or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream, handle in ((0, silence), (1, written), (2, written)):
        os.dup2(handle, stream)
    os.close(silence)
    os.close(written)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def cap_memory(grow_bytes: int) -> None:
    """Let this process's address space grow by no more than ``grow_bytes`` from here on."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError) as error:
        logger.debug("the memory of this process is not limited, as its size is unknown: %s", error)
        return
    limit = pages * resource.getpagesize() + grow_bytes
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def is_out_of_memory(text: str) -> bool:
    """Return whether an error's text, or the end of a dead process's log, says that memory could not be allocated."""
    return any(sign in text for sign in OUT_OF_MEMORY)


def signal_of(status: int) -> int:
    """The signal that ended a process, from its ``waitpid`` status; 0 if none did."""
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def cause_of_death(status: int) -> str:
    """Return the cause of a process's end: ``SIGSEGV`` or ``exit status 1``.

    Args:
        status: as ``waitpid`` returned it.
    """
    number = signal_of(status)
    return signal.Signals(number).name if number else f"exit status {os.waitstatus_to_exitcode(status)}"


def log_tail(path: Path, limit: int = 300) -> str:
    """The last lines of a process's log, without the frames of a stack; empty if it wrote nothing."""
    if not path.exists():
        return ""
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    said = [line.strip("! ") for line in lines if not line.startswith("File ")]
    return " ".join(said[-3:])[-limit:]


def collect_rarely() -> None:
    """For a process of this program's own, before it loads what is large."""
    gc.set_threshold(YOUNG, MIDDLE, OLD)


def keep_what_is_loaded() -> None:
    """For a fork, and for what forks: what is loaded is never garbage. Looking at it would copy shared pages."""
    gc.freeze()
