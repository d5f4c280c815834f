"""Files that other processes use too or other users might write: bounded locks, and checks of who can write a file."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""Errors of the system where a disk, or a user's share of it, is full."""

PAUSE_S = 0.001
"""Seconds between the first two attempts to lock a file. Each pause is twice as long as the one before."""

MOST_PAUSE_S = 0.02
"""Seconds between two attempts, at most."""


def lock(handle: int, kind: int, patience_s: float) -> bool:
    """Lock an open file by ``flock``; the system frees the lock when its holder dies.

    Args:
        kind: ``fcntl.LOCK_SH`` or ``fcntl.LOCK_EX``.
        patience_s: seconds to wait for other holders.

    Returns:
        False if another process kept it locked for so long.

    Raises:
        OSError: if the file system has no locks.
    """
    deadline, pause_s = time.monotonic() + patience_s, PAUSE_S
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MOST_PAUSE_S)
        else:
            return True


def is_private(status: os.stat_result) -> bool:
    """Return whether only this user and root can change a file: one of them owns it, and others cannot write it."""
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022


def private_folder(path: Path) -> Path:
    """Make ``path`` a folder that only this user can change, and return it.

    Raises:
        OSError: if it cannot be made, or another user could change it.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not is_private(status):
            if status.st_uid != os.geteuid():
                raise _foreign(path)
            os.fchmod(handle, status.st_mode & 0o755)
    finally:
        os.close(handle)
    return path


def read_private(path: Path) -> bytes:
    """The bytes of a file that only this user can have written, in a folder of the same kind.

    Raises:
        OSError: if there is none, it is a link, or another user could have written it.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as stream:
        if not (is_private(os.fstat(handle)) and is_private(path.parent.stat())):
            raise _foreign(path)
        return stream.read()


def _foreign(path: Path) -> PermissionError:
    return PermissionError(errno.EPERM, "another user could write it", str(path))
