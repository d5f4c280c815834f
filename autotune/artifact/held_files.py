"""Reading an artifact that another process may replace meanwhile: all of it comes from one artifact.

A session opens some parts long after the first. So what they are opened from is held since their files were checked:
small files are in memory, libraries are open files. Both stay readable when the artifact's folder has gone.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from schedules.vocabulary.errors import ArtifactError, ModelError

T = TypeVar("T")

PATIENCE_S = 60.0
"""Seconds until an opening is given up that one replacement after another disturbs."""

PAUSE_S = 0.01
"""Seconds between tries: where a file system cannot exchange folders, a path is missing for a moment."""


class HeldFile:
    """A file that stays readable when its path has gone.

    As long as it is open, no other file or folder can have its inode's number.

    Args:
        path: of a file or a folder.

    Raises:
        OSError: if it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._handle).atexit = False

    @property
    def place(self) -> Path:
        """A path to the file that was opened, valid as long as this object lives; its own where /proc is missing."""
        held = Path(f"/proc/self/fd/{self._handle}")
        return held if held.exists() else self._path

    def is_there(self) -> bool:
        """Return whether the path still leads to it."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._handle))
        except FileNotFoundError:
            return False


def read_whole(path: Path, read: Callable[[Path], T]) -> T:
    """Return what ``read`` makes of the artifact at ``path``, from one artifact alone.

    If the artifact was replaced while it was read, the new one is read.

    Raises:
        ArtifactError: as ``read``, or if the artifact is replaced again and again.
    """
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            folder = HeldFile(path)
        except OSError:
            return read(path)  # which says what is wrong with it
        try:
            result = read(path)
        except (ArtifactError, ModelError, OSError):  # files of two artifacts, or some that have gone
            if folder.is_there():
                raise
        else:
            if folder.is_there():
                return result
        time.sleep(PAUSE_S)
    raise ArtifactError(f"{path} is replaced all the time, for {PATIENCE_S:g} s by now; open it when that has ended")
