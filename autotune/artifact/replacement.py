"""Putting an artifact in its place: whole or not at all, and never over anything else.

That holds for a process that is killed and for a power cut. All bytes of the new artifact reach the disk before it gets
its name; the old and the new artifact change places in one step, where the file system can do that; the old one is
deleted once the new name is on the disk. The next run removes what a dead process left next to an artifact: a process
locks its scratch folder (``flock``), and the system frees the lock of a process that dies.
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
from contextlib import contextmanager, suppress
from pathlib import Path

from autotune.host.shared_files import lock
from schedules.vocabulary.errors import ArtifactError
from tuning_logs.durable import sync, sync_tree

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
"""The file that makes a folder an artifact, see ``manifest.py``."""

PATIENCE_S = 10.0
"""Seconds for which a process waits for others that change the same artifact, which takes them milliseconds. Then it
goes on: any user who can read an artifact can lock it."""

ASIDE = "old-"
"""Part of the name of a folder in which the old artifact lies for a moment, where two folders cannot change places."""

AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Values for ``renameat2``: paths are relative to the working directory; the two change places."""


_scratch: set[Path] = set()
"""Scratch folders that this process has open: what is built in them is moved elsewhere or lost, so it needs no sync."""


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
    _scratch.add(folder)
    try:
        yield folder
    finally:
        _scratch.discard(folder)
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


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes ``out``, which is new or empty, if the block ends without an error.

    Raises:
        ArtifactError: if something cannot be written, or ``out`` exists and is not an empty folder.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ArtifactError(f"{out} exists and is not an empty folder; name another --out")
    with new_artifact(out) as folder:
        yield folder


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


@contextmanager
def changing(path: Path) -> Iterator[Path]:
    """Hold the artifact at ``path`` for a change in place: no other process changes or replaces it meanwhile.

    Raises:
        ArtifactError: if something cannot be written.
    """
    try:
        with _held(path):
            yield path
    except OSError as error:
        raise ArtifactError(f"cannot write into {path} ({error.strerror}); check its permissions and space") from error


def put_back(out: Path) -> bool:
    """Put the old artifact back if a process died between the two renames that replace one.

    Returns:
        Whether an artifact is at ``out`` now.
    """
    with suppress(OSError):  # a folder that cannot be read or written
        for folder in _abandoned(out):
            if (folder / "old").exists() and not out.exists():
                _restore(folder, out)
    return (out / MANIFEST).is_file()


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
    with _held(out):
        lasting = not any(parent in _scratch for parent in out.absolute().parents)
        if lasting:
            sync_tree(folder)
        if not out.exists():
            os.rename(folder, out)
            replaced, handle = None, None
        elif _exchange(folder, out):
            replaced, handle = folder, None
        else:  # for a moment nothing is at out; the next process puts the old one back if this one dies then
            replaced, handle = _own_folder(out, ASIDE)
            os.rename(out, replaced / "old")
            if lasting:
                sync(replaced)
            os.rename(folder, out)
        if lasting:
            sync(out.absolute().parent)
            sync(folder.absolute().parent)
    if replaced is not None:
        _remove(replaced)
    if handle is not None:
        os.close(handle)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Have the folder that is at ``path`` locked; without a lock where there is none, or no folder."""
    while True:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            yield
            return
        try:
            if not lock(handle, fcntl.LOCK_EX, PATIENCE_S):
                log.warning("%s: another process has locked it for %g s; it is changed all the same", path, PATIENCE_S)
        except OSError as error:
            log.debug("%s cannot be locked: %s", path, error)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                break
        os.close(handle)  # another process has replaced it since
    try:
        yield
    finally:
        os.close(handle)


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


def _abandoned(out: Path) -> Iterator[Path]:
    """Folders next to ``out`` with names that this module gives them; some are in use."""
    pattern = re.compile(rf"\.{re.escape(out.name)}-({ASIDE})?[a-z0-9_]{{8}}")
    return (folder for folder in out.absolute().parent.iterdir() if pattern.fullmatch(folder.name))


def remove_abandoned(out: Path) -> None:
    """Remove the folders that killed processes left next to ``out``; an old artifact in one is put back."""
    for folder in _abandoned(out):
        try:
            handle = _lock(folder)
        except OSError as error:
            log.debug("%s is left as it is: %s", folder, error)
            continue
        _rename_back(folder, out)
        _release(folder, handle)


def _restore(folder: Path, out: Path) -> None:
    """Move the old artifact from ``folder`` to ``out``, unless another process is about to put a new one there."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if lock(handle, fcntl.LOCK_EX, PATIENCE_S):
            _rename_back(folder, out)
    finally:
        os.close(handle)


def _rename_back(folder: Path, out: Path) -> None:
    if folder.name.startswith(f".{out.name}-{ASIDE}") and (folder / "old").exists() and not out.exists():
        os.rename(folder / "old", out)
        sync(out.absolute().parent)


def _remove(path: Path) -> None:
    """Remove what was replaced; where ``out`` was a link, that alone."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
