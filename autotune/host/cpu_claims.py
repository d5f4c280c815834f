"""Which CPUs the sessions of other processes of this user run on, so that several servers do not share the first ones.

Each process with sessions has a file with the numbers of its CPUs in a folder of its user, and keeps it locked. The
system frees the lock of a process that ends; the next process removes the file.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from autotune.host.machine import Host, core_groups, read_host, thread_cpus
from autotune.host.shared_files import lock, private_folder

logger = logging.getLogger(__name__)

LONGEST = 1 << 16
"""Bytes of a file that are read."""


class CpuClaims:
    """The claims of this user's processes.

    Args:
        folder: where the files lie; None takes the user's own, and is as if no other process had sessions where that
            cannot be used.

    Attributes:
        enabled: whether others are looked at. Engines of a comparison run in turn, and on the same CPUs.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.enabled = True
        self._folder = folder or Path(f"/tmp/tune-cpus-{os.geteuid()}")  # noqa: S108 - its owner is checked
        self._own: tuple[int, int, set[int]] | None = None

    def least_used(self, cpus: Sequence[int], count: int) -> tuple[int, ...]:
        """Those of ``cpus`` that the fewest other processes use, in order: ``count`` at least, or all."""
        used = self._others() if self.enabled else Counter[int]()
        if not used or count >= len(cpus):
            return tuple(cpus)
        limit = sorted(used[cpu] for cpu in cpus)[max(count, 1) - 1]
        return tuple(cpu for cpu in cpus if used[cpu] <= limit)

    def note(self, cpus: Iterable[int]) -> None:
        """Let other processes know that sessions of this one run on ``cpus``, until it ends."""
        if not self.enabled:
            return
        try:
            if self._own is None or self._own[0] != os.getpid():  # a fork shares the file of its parent
                path = private_folder(self._folder) / f"{os.getpid()}-{os.urandom(4).hex()}"
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._own = os.getpid(), handle, set()
            self._own[2].update(cpus)
            os.pwrite(self._own[1], " ".join(map(str, sorted(self._own[2]))).encode(), 0)
        except OSError as error:
            logger.debug("other processes cannot know this one's CPUs: %s", error)

    def _others(self) -> Counter[int]:
        """CPU → how many other processes run sessions on it."""
        used = Counter[int]()
        try:
            own = None if self._own is None else os.fstat(self._own[1]).st_ino
            entries = [entry for entry in os.scandir(private_folder(self._folder)) if entry.inode() != own]
        except OSError as error:
            logger.debug("other processes' CPUs are not known: %s", error)
            return used
        for entry in entries:
            used.update(_claimed(entry.path))
        return used


def _claimed(path: str) -> list[int]:
    """The CPUs of the process that has the file locked; the file of one that has ended is removed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        text = os.read(handle, LONGEST).decode(errors="replace")
        if text and lock(handle, fcntl.LOCK_SH, 0.0):  # an empty one is being made
            os.unlink(path)
            return []
        return [int(word) for word in text.split() if word.isdecimal() and len(word) < len(str(LONGEST))]
    except OSError:
        return []
    finally:
        os.close(handle)


CLAIMS = CpuClaims()
"""Those of this process."""


def session_cpus(threads: int) -> tuple[int, ...]:
    """Work like ``thread_cpus``, for a session: choose the cores that the fewest other processes use, and note them."""
    cpus = thread_cpus(threads, _least_used(threads))
    CLAIMS.note(cpus)
    return cpus


def _least_used(threads: int) -> Host:
    """This machine with the cores alone that the fewest other processes use, as many as threads at least."""
    host = read_host()
    cores = CLAIMS.least_used(host.cores, threads)
    return host if cores == host.cores else replace(host, cores=cores, allowed=cores)


def session_groups(count: int, threads: int) -> list[list[int]]:
    """Work like ``core_groups``, for a session: choose the cores that the fewest other processes use, and note them."""
    groups = core_groups(count, threads, _least_used(count * threads))
    CLAIMS.note(cpu for group in groups for cpu in group)
    return groups
