"""A disk that loses power: every state that a folder can be in afterwards, given what was synchronised until then.

The functions of ``os`` that change names are watched while they work on a real folder. Before each of them, and around
each ``fsync``, the folder is looked at. After a power cut a disk has, of every file, the bytes that were synchronised
last or newer ones, and of every folder the names that were synchronised last or newer ones.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

WATCHED = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "open"}

Names = dict[str, int]


@dataclass
class Moment:
    """What a folder holds at one moment.

    Attributes:
        names: of every folder by its number, the numbers of what lies in it.
        contents: of every file by its number.
    """

    names: dict[int, Names] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)


class Disk:
    """Records moments of ``root``, and says what a power cut could leave of each.

    Attributes:
        moments: in order, each with the names and the bytes that were synchronised by then.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._numbers: dict[int, int] = {}  # of what is alive; the system uses those of deleted files again
        self._count = 0
        first = self._look()
        self.number = self._numbers[root.stat().st_ino]
        self._names, self._contents = dict(first.names), dict(first.contents)
        self.moments: list[tuple[Moment, dict[int, Names], dict[int, bytes]]] = []
        self._add(first)

    def _look(self) -> Moment:
        """The moment that is now."""
        now, alive = Moment(), dict[int, int]()

        def number(path: Path) -> int:
            inode = path.lstat().st_ino
            if inode not in alive:
                self._count += inode not in self._numbers
                alive[inode] = self._numbers.get(inode, self._count)
            return alive[inode]

        for place, folders, files in os.walk(self.root):
            own = now.names.setdefault(number(Path(place)), {})
            for name in (*folders, *files):
                path = Path(place, name)
                own[name] = number(path)
                if stat.S_ISREG(path.lstat().st_mode):
                    now.contents[own[name]] = path.read_bytes()
        self._numbers = alive
        return now

    def _add(self, moment: Moment) -> None:
        self.moments.append((moment, dict(self._names), dict(self._contents)))

    @contextmanager
    def recording(self, patch: Callable[[Any, str, object], None]) -> Iterator[None]:
        """Watch this process; ``patch`` is ``MonkeyPatch.setattr``."""
        active, real = True, os.fsync

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal active
            creates = event != "open" or (isinstance(arguments[2], int) and arguments[2] & os.O_CREAT)
            if active and event in WATCHED and creates:
                active = False  # looking opens files itself
                self._add(self._look())
                active = True

        def fsync(handle: int) -> None:
            nonlocal active
            active = False
            now = self._look()
            self._add(now)
            real(handle)
            number = self._numbers.get(os.fstat(handle).st_ino, 0)
            if number in now.names:
                self._names[number] = now.names[number]
            if number in now.contents:
                self._contents[number] = now.contents[number]
            self._add(now)
            active = True

        patch(os, "fsync", fsync)
        sys.addaudithook(watch)
        try:
            yield
        finally:
            active = False
            patch(os, "fsync", real)
            self._add(self._look())

    def left_overs(self, ordered: bool, seed: int = 0) -> Iterator[tuple[str, dict[int, Names], dict[int, bytes]]]:
        """What is on the disk after power cuts at every moment, in several ways each, no state twice.

        Args:
            ordered: whether names reach the disk in the order of their changes, as in a journal; else each folder's
                names are independent of the others'.
        """
        rng, seen = np.random.default_rng(seed), set[int]()
        for number, (now, names, contents) in enumerate(self.moments):
            for how in ("all", "synchronised", "names", "zeros", "some", "some more"):
                disk_names = self._disk_names(how, number, names, ordered, rng)
                disk_contents = {
                    inode: _bytes(how, content, contents.get(inode, b""), rng)
                    for inode, content in now.contents.items()
                }
                # Files that an older folder's names speak of and that are deleted by now.
                for inode, content in contents.items():
                    disk_contents.setdefault(inode, content)
                state = hash((repr(sorted(disk_names.items())), tuple(sorted(disk_contents.items()))))
                if state not in seen:
                    seen.add(state)
                    yield f"moment {number}, {how}", disk_names, disk_contents

    def _disk_names(
        self, how: str, number: int, names: dict[int, Names], ordered: bool, rng: np.random.Generator
    ) -> dict[int, Names]:
        now = self.moments[number][0].names
        if how in ("all", "names", "zeros"):
            return {**names, **now}
        if how == "synchronised" and not ordered:
            return {inode: names.get(inode, {}) for inode in {**names, **now}}
        # The first moment since which no folder was synchronised, up to now.
        first = number
        while first and self.moments[first - 1][1] == names:
            first -= 1
        if ordered:
            chosen = first if how == "synchronised" else int(rng.integers(first, number + 1))
            return {**names, **self.moments[chosen][0].names}
        return {
            inode: self.moments[int(rng.integers(first, number + 1))][0].names.get(inode, names.get(inode, {}))
            if rng.random() < 0.5
            else names.get(inode, {})
            for inode in {**names, **now}
        }

    def restore(self, names: dict[int, Names], contents: dict[int, bytes], root: Path) -> None:
        """Make ``root`` what is on the disk."""
        root.mkdir()
        pending = [(self.number, root, 0)]
        while pending:
            number, place, depth = pending.pop()
            for name, entry in names.get(number, {}).items():
                if entry in names and depth < 8:
                    (place / name).mkdir()
                    pending.append((entry, place / name, depth + 1))
                elif entry in contents:
                    (place / name).write_bytes(contents[entry])


def _bytes(how: str, now: bytes, synchronised: bytes, rng: np.random.Generator) -> bytes:
    """What a disk has of a file's bytes."""
    if how == "all" or now == synchronised:
        return now
    if how in ("synchronised", "names"):
        return synchronised
    if how == "zeros":
        return bytes(len(now))
    return (now, synchronised, now[: len(now) // 2], bytes(len(now)))[int(rng.integers(4))]
