"""Taking turns on one machine: builds may run together, a timing runs alone.

A file that is locked by ``flock``: shared for building, exclusive for timing. The system frees it when its holder dies.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MACHINE_TURN = Path("/tmp/tune-turn.lock")  # noqa: S108 - one place that every user of a machine knows; nothing is written
"""The lock of every worker of a fleet on a machine; ``device.cc`` takes the same."""

log = logging.getLogger(__name__)


class Turn:
    """Waits until it is ours.

    Args:
        path: the file; None for nobody to wait for.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    @contextmanager
    def together(self) -> Iterator[None]:
        """The body runs while nothing is timed."""
        with self._locked(fcntl.LOCK_SH):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The body runs while nobody else does anything."""
        with self._locked(fcntl.LOCK_EX):
            yield

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        handle = self._open()
        try:
            if handle is not None:
                fcntl.flock(handle, kind)
            yield
        finally:
            if handle is not None:
                os.close(handle)

    def _open(self) -> int | None:
        if self._path is None:
            return None
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            try:
                return os.open(self._path, flags)  # not with O_CREAT: a sticky folder refuses that on others' files
            except FileNotFoundError:
                return os.open(self._path, flags | os.O_CREAT, 0o644)
        except OSError as error:
            log.warning("%s cannot be locked (%s): timings may disturb each other", self._path, error)
            return None
