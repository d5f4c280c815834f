"""The lock of a machine on which several processes measure: builds may run together, a timing runs alone.

It is a file locked by ``flock``: shared for building, exclusive for timing. The system frees it when its holder dies.

A process that has just timed a kernel has threads that wait busily for their next one: TVM's pools spin some 300,000
yields, a tenth of a second and more, before they sleep. Small kernels timed beside them came out at 1.3 to 3 times
their latency. So a timing begins only after the CPUs have become idle.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.host.machine import read_file
from autotune.host.shared_files import lock

PATIENCE_S = 300.0
"""Seconds for which a worker waits for its turn. A batch of builds, or of timings, of another process takes less."""

log = logging.getLogger(__name__)


STAT = Path("/proc/stat")

TICKS = 8
"""Numbers of its first line that are looked at: user, nice, system, idle, iowait, irq, softirq, steal."""

SAMPLE_S = 0.03
"""Seconds between two looks at the CPUs, whose time the kernel counts in steps of 0.01 s."""

IDLE = 0.1
"""CPUs count as idle when they were busy for less than this share of a sample. Heuristic, not measured."""

MOST_S = 0.3
"""After so many seconds the CPUs are busy with something else than spinning threads, and waiting ends."""


def await_idle(read_stat: Callable[[], str]) -> None:
    """Wait until the CPUs are idle.

    Args:
        read_stat: the text of the kernel's ``/proc/stat``, now, its first line at least; empty where there is none.
    """
    deadline = time.monotonic() + MOST_S
    before = read_stat()
    while time.monotonic() < deadline:
        time.sleep(SAMPLE_S)
        after = read_stat()
        if busy_share(before, after) < IDLE:
            return
        before = after


def busy_share(before: str, after: str) -> float:
    """Share of the time between two readings of ``/proc/stat`` that the CPUs were not idle; 0 if one cannot be read."""
    first, second = (_ticks(text) for text in (before, after))
    spent = [now - then for then, now in zip(first, second, strict=False)]
    if len(spent) < TICKS:
        return 0.0
    idle = spent[3] + spent[4]  # idle, and waiting for a disk
    return 1.0 - idle / sum(spent) if sum(spent) > 0 else 0.0


def _ticks(text: str) -> list[int]:
    """The first numbers of ``/proc/stat``: time of all CPUs by what they did; nothing of another text."""
    words = text.partition("\n")[0].split()[1 : 1 + TICKS]
    return [int(word) for word in words] if all(word.isdecimal() for word in words) else []


def lock_file() -> Path:
    """The file that all workers of this user lock on this machine; ``device.cc`` locks it on a device.

    It belongs to one user, since a file that others can open can be locked by them for ever.
    """
    return Path(f"/tmp/tune-turn-{os.geteuid()}.lock")  # noqa: S108 - ``_open`` checks its owner; nothing is written


class MachineLock:
    """Lets several processes of one machine build together and time alone.

    Args:
        path: the lock file; None where no other process measures.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._alone = False

    @contextmanager
    def together(self) -> Iterator[None]:
        """The body runs while nothing is timed."""
        with self._locked(fcntl.LOCK_SH):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The body runs while no other process builds or times; may be nested."""
        if self._alone or self._path is None:
            yield
            return
        with self._locked(fcntl.LOCK_EX):
            await_idle(lambda: read_file(str(STAT)) or "")
            self._alone = True
            try:
                yield
            finally:
                self._alone = False

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        handle = self._open()
        try:
            if handle is not None and not lock(handle, kind, PATIENCE_S):
                log.warning(
                    "%s: another process has kept it locked for %g s; timings may disturb each other",
                    self._path,
                    PATIENCE_S,
                )
            yield
        finally:
            if handle is not None:
                os.close(handle)

    def _open(self) -> int | None:
        if self._path is None:
            return None
        try:
            flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            handle = os.open(self._path, flags, 0o600)
            if os.fstat(handle).st_uid == os.geteuid():
                return handle
            os.close(handle)
            raise PermissionError(errno.EPERM, "it belongs to another user")
        except OSError as error:
            log.warning("%s cannot be locked (%s): timings may disturb each other", self._path, error)
            return None
