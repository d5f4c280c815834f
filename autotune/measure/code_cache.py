"""Machine code that was compiled before, by what decides it: shared by tasks, models, runs and processes of one user.

One file per entry, named by its key. A key is the hash of everything that changes the code: the lowered program or
what it is lowered from, the target, the names in the code, this program's templates and TVM. So an entry is never
stale; it can only be unknown. A file is written elsewhere and renamed, so that no process sees half an entry, and it
begins with the hash of what follows, so that a damaged one is noticed, removed and compiled again. Entries become
native code of this process: those that another user owns or can write are not read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autotune.host.shared_files import private_folder, read_private
from autotune.options import cache_folder
from tuning_logs.durable import write_file

logger = logging.getLogger(__name__)

MOST_BYTES = 256 << 20
"""Bytes of all entries together; a kernel of a convolution takes about 9 KB. Heuristic, not measured."""

KEPT_SHARE = 0.75
"""Share of them that is kept when there are more: the most recently used. Heuristic, not measured."""

PARTS = 256
"""Folders of a cache with many entries, by the first two digits of their keys."""

LOOKED_AT = 16
"""Folders, of so many, that are looked at first."""

SURELY_LESS = 0.8
"""Share of the bytes allowed, by what these folders hold, below which there is nothing to remove. Heuristic."""

DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Code:
    """The result of a build.

    Attributes:
        objects: the object file's bytes.
        trace: as in ``Measurement``.
    """

    objects: bytes
    trace: str = ""


def user_cache() -> Path:
    """The folder of the user's own cache."""
    return cache_folder() / "code"


def key_of(parts: Iterable[str]) -> str:
    """The key of what ``parts`` decide together; other parts, or others in another order, have another key."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()


def source_digest(folder: Path) -> str:
    """Hash of the Python sources below ``folder``: code that templates make changes with them, without a version."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@dataclass(frozen=True)
class CodeCache:
    """Entries below ``folder``, which is made when the first is kept. What cannot be read or written is not there.

    Attributes:
        most_bytes: bytes of all entries that ``prune`` leaves at most.
    """

    folder: Path
    most_bytes: int = MOST_BYTES

    def get(self, key: str) -> Code | None:
        """The entry of ``key``, or None; it now is the most recently used."""
        path = self._path(key)
        try:
            data = read_private(path)
            digest, content = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
            if hashlib.sha256(content).digest() != digest:
                logger.warning("%s is damaged; it is removed and compiled again", path)
                path.unlink(missing_ok=True)
                return None
            os.utime(path)
        except OSError as error:
            logger.debug("%s is not in the code cache: %s", key, error)
            return None
        size = int.from_bytes(content[:8], "little")
        return Code(content[8 + size :], content[8 : 8 + size].decode())

    def put(self, key: str, code: Code) -> None:
        """Keep ``code``."""
        trace = code.trace.encode()
        content = len(trace).to_bytes(8, "little") + trace + code.objects
        path = self._path(key)
        try:
            private_folder(self.folder)
            private_folder(path.parent)
            # Torn entries are noticed, and a synchronisation takes as long as a compilation.
            write_file(path, hashlib.sha256(content).digest() + content, durable=False, mode=0o600)
        except OSError as error:
            logger.debug("%s cannot be kept: %s", path, error)

    def prune(self) -> None:
        """Remove the least recently used entries if all together take more than ``most_bytes``.

        Keys are hashes, so a few folders tell how full the others are: of 30,000 entries, all take 0.2 s to look at.
        """
        parts = _parts(self.folder)
        some = parts[:: len(parts) // LOOKED_AT] if len(parts) >= PARTS else parts
        if sum(size for _, size, _ in _entries(some)) * len(parts) < SURELY_LESS * self.most_bytes * len(some):
            return
        entries = list(_entries(parts))
        total = sum(size for _, size, _ in entries)
        if total <= self.most_bytes:
            return
        for _, size, path in sorted(entries):
            if total <= KEPT_SHARE * self.most_bytes:
                return
            try:
                Path(path).unlink(missing_ok=True)
            except OSError as error:
                logger.debug("%s cannot be removed: %s", path, error)
            total -= size

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key


def _parts(folder: Path) -> list[str]:
    """The folders of entries below ``folder``."""
    with suppress(OSError):  # another process removed it
        return sorted(part.path for part in os.scandir(folder) if part.is_dir())
    return []


def _entries(parts: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    """Yield when each entry in ``parts`` was used last, its bytes and its path; ``Path.glob`` takes twice as long."""
    for part in parts:
        with suppress(OSError):  # another process removed it
            for entry in os.scandir(part):
                with suppress(OSError):
                    status = entry.stat()
                    yield status.st_mtime_ns, status.st_size, entry.path
