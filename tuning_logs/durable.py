"""Files that are whole after a power cut: written under another name, synchronised, then renamed.

A file system may keep a rename and lose the bytes of what was renamed. So the bytes reach the disk first, then the
name. New files have names that nobody can guess and are never opened through a link.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

UNFINISHED = ".unfinished"
"""End of the names of files that are being written."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def sync(path: Path) -> None:
    """Bring a file's bytes, or a folder's names, to the disk.

    Raises:
        OSError: if the disk refuses them.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that keeps no order of its own
            raise
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Bring everything below ``folder``, and its own names, to the disk.

    Raises:
        OSError: if the disk refuses them.
    """
    for place, _, files in os.walk(folder, topdown=False):
        for name in files:
            path = Path(place, name)
            if stat.S_ISREG(path.lstat().st_mode):
                sync(path)
        sync(Path(place))


@contextmanager
def replacing(path: Path, durable: bool = True, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a stream whose bytes become ``path`` in one step, if the block ends without an error.

    A link at ``path`` is replaced, not followed. A device or a pipe, such as ``/dev/stdout``, is written directly.

    Args:
        durable: whether the bytes must survive a power cut. Pass False for content that its reader checks and that is
            quickly made again.
        mode: permissions of the file, less the process's umask.

    Raises:
        OSError: if it cannot be written; ``path`` is as it was.
    """
    with suppress(FileNotFoundError):
        kind = path.stat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            with path.open("wb") as stream:
                yield stream
            return
    fresh = path.with_name(f".{path.name[:64]}.{os.urandom(8).hex()}{UNFINISHED}")
    try:
        with os.fdopen(os.open(fresh, _NEW, mode), "wb") as stream:
            yield stream
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        os.replace(fresh, path)
    except BaseException:  # Ctrl-C, too, leaves no unfinished file
        fresh.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def write_file(path: Path, content: bytes, durable: bool = True, mode: int = 0o666) -> None:
    """Write ``content`` to ``path`` in one step; see ``replacing``.

    Raises:
        OSError: if it cannot be written; ``path`` is as it was.
    """
    with replacing(path, durable, mode) as stream:
        stream.write(content)
