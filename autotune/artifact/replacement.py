"""Putting an artifact in its place: whole or not at all, and never over anything else.

That holds for a process that is killed too. The old and the new artifact change places in one step, where the file
system can do that. What a dead process left beside an artifact is removed by the next run: whoever uses a scratch
folder has it locked (``flock``), and the system frees the lock of a process that dies.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.artifact.manifest import MANIFEST
from schedules.errors import ArtifactError

log = logging.getLogger(__name__)

ASIDE = "old-"
"""Part of the name of a folder in which the old artifact lies for a moment, where two folders cannot change places."""

AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Of ``renameat2``: paths are relative to the working directory; the two change places."""


@contextmanager
def scratch_beside(out: Path) -> Iterator[Path]:
    """An empty folder beside ``out``, on the same file system; it is removed at the end.

    Those of processes that were killed are removed at the start.

    Raises:
        ArtifactError: if it cannot be made, or ``out`` exists and is not an artifact.
    """
    check_place(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(out)
        folder, handle = _own_folder(out)
    except OSError as error:
        raise ArtifactError(f"cannot write beside {out} ({error.strerror}); name another --out") from error
    try:
        yield folder
    finally:
        _release(folder, handle)


@contextmanager
def new_artifact(out: Path) -> Iterator[Path]:
    """An empty folder that takes the place of ``out`` if the block ends without an error.

    Raises:
        ArtifactError: if something cannot be written, or ``out`` exists and is not an artifact.
    """
    with scratch_beside(out) as folder, _writing(out):
        yield folder
        folder.chmod(0o755)
        _swap(folder, out)


def install(path: Path, out: Path) -> None:
    """Move the artifact at ``path`` to ``out``, in place of what is there.

    Raises:
        ArtifactError: if ``out`` cannot be written, or exists and is not an artifact.
    """
    if path == out:
        return
    check_place(out)
    with _writing(out):
        _swap(path, out)


def check_place(out: Path) -> None:
    """Refuse to write over anything but an artifact or an empty folder.

    Raises:
        ArtifactError: if ``out`` is something else.
    """
    if out.exists() and not (out / MANIFEST).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise ArtifactError(f"{out} exists and is not an artifact; name another --out")


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArtifactError(f"cannot write {out} ({error.strerror}); free some space or name another --out") from error


def _swap(folder: Path, out: Path) -> None:
    if not out.exists():
        os.rename(folder, out)
    elif _exchange(folder, out):
        _remove(folder)
    else:  # for a moment nothing is at out; the next process puts the old one back if this one dies then
        aside, handle = _own_folder(out, ASIDE)
        os.rename(out, aside / "old")
        os.rename(folder, out)
        _release(aside, handle)


def _exchange(one: Path, other: Path) -> bool:
    """Let two paths change places in one step; False where the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code))


def _own_folder(out: Path, kind: str = "") -> tuple[Path, int | None]:
    """A new folder beside ``out``, and a handle that has it locked; None where the file system has no locks."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-{kind}", dir=out.absolute().parent))
        try:
            handle = _lock(folder)
        except (BlockingIOError, FileNotFoundError):
            continue  # before it was locked, another process took it for abandoned
        except OSError:
            return folder, None
        if folder.exists():
            return folder, handle
        os.close(handle)


def _lock(folder: Path) -> int:
    """A handle that has ``folder`` locked until it is closed.

    Raises:
        OSError: if another process has it locked, it is gone, or it cannot be locked.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _release(folder: Path, handle: int | None) -> None:
    """Remove a folder that is locked, and its lock."""
    shutil.rmtree(folder, ignore_errors=True)
    if handle is not None:
        os.close(handle)


def remove_abandoned(out: Path) -> None:
    """Remove the folders that killed processes left beside ``out``; an old artifact in one is put back."""
    pattern = re.compile(rf"\.{re.escape(out.name)}-({ASIDE})?[a-z0-9_]{{8}}")
    for folder in out.absolute().parent.iterdir():
        found = pattern.fullmatch(folder.name)
        if found is None:
            continue
        try:
            handle = _lock(folder)
        except OSError as error:
            log.debug("%s is left as it is: %s", folder, error)
            continue
        if found[1] and (folder / "old").exists() and not out.exists():
            os.rename(folder / "old", out)
        _release(folder, handle)


def _remove(path: Path) -> None:
    """Remove what was replaced; where ``out`` was a link, that alone."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
