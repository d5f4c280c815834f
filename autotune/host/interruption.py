"""Ctrl-C that is never lost while a run measures.

Python raises ``KeyboardInterrupt`` wherever it happens to be, and drops it inside a callback from native code or a
finaliser. So while a program is searched, Ctrl-C is also remembered, and looked for before each slot, each task's
finalists and each untuned program, and once more at the end. What was measured is logged and counted before Ctrl-C is
raised. Elsewhere ``KeyboardInterrupt`` alone ends the run.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Interruption:
    """Whether Ctrl-C was pressed.

    Attributes:
        holds: the first Ctrl-C is remembered only, as ``held`` says.
    """

    asked: bool = False
    holds: bool = False

    def check(self) -> None:
        """Raise what Python may have dropped.

        Raises:
            KeyboardInterrupt: if Ctrl-C was pressed.
        """
        if self.asked:
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let what is within end before the first Ctrl-C is raised; a second one ends it at once.

        Raises:
            KeyboardInterrupt: if Ctrl-C was pressed.
        """
        self.holds = True
        try:
            yield
        finally:
            self.holds = False
        self.check()


@contextmanager
def remembering(interruption: Interruption) -> Iterator[None]:
    """Remember Ctrl-C until the end. Where a program has a handler of its own, or runs this in a thread, do nothing."""
    ours = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if ours else None
    if before is not signal.default_int_handler:
        yield
        return

    def remember(number: int, frame: FrameType | None) -> None:
        waits = interruption.holds and not interruption.asked
        interruption.asked = True
        if not waits:
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
