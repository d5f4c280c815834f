"""How fast two CPUs are when both compute, and how far apart they are; ``core_speed.c`` looks."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

Made = TypeVar("Made")

CALM = 1.12
"""Time of a fixed piece of work on both CPUs over its least, up to which the machine counts as calm. Ice Lake, two
virtual CPUs: within 1.05 while each has a core, 1.3 beside a busy neighbour, 1.95 while both are on one core, for
0.3 to 6 s."""


@dataclass
class CoreSpeed:
    """How fast two CPUs are when both compute, from ``core_speed.c``. To be used as a context.

    Attributes:
        seen: milliseconds of every look.
        apart_ns: what a cache line took from one CPU to the other.
    """

    seen: list[float] = field(default_factory=list)
    apart_ns: list[float] = field(default_factory=list)

    def __enter__(self) -> CoreSpeed:
        """Compile and start it."""
        self._folder = tempfile.TemporaryDirectory(prefix="tune-speed-")
        program = Path(self._folder.name) / "core_speed"
        source = Path(__file__).with_name("core_speed.c")
        subprocess.run(["gcc", "-O3", "-march=native", "-pthread", source, "-o", program], check=True)
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._process.communicate()
        self._folder.cleanup()

    def look(self) -> float:
        """Milliseconds of the piece of work now."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        took_ms, apart_ns = map(float, self._process.stdout.readline().split())
        self.seen.append(took_ms)
        self.apart_ns.append(apart_ns)
        return took_ms

    def segments(self, seconds: float, work: Callable[[], Made]) -> list[tuple[float, Made]]:
        """What ``work`` made each time, for so many seconds, and the slower look of those before and after it."""
        timed = []
        end, before = time.perf_counter() + seconds, self.look()
        while time.perf_counter() < end:
            result = work()
            after = self.look()
            timed.append((max(before, after), result))
            before = after
        return timed

    def calm(self, segments: Sequence[tuple[float, Made]]) -> list[Made]:
        """Those between two calm looks."""
        return [result for slower, result in segments if slower <= CALM * min(self.seen)]
