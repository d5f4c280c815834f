"""Ctrl-C that is never lost while a run measures.

Covered are the loop, the timing of its finalists and that of untuned programs (``pipeline._search``): Ctrl-C is looked
for before each slot, each task's finalists and each untuned program, and once more at the end. The import before and
the build after them are Python's own business: there ``KeyboardInterrupt`` ends the run.
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

    Python raises ``KeyboardInterrupt`` wherever it happens to be; inside of a callback from native code or of a
    finaliser, the exception is dropped. Then it is still remembered here.
    """

    asked: bool = False

    def check(self) -> None:
        """Raise what was dropped.

        Raises:
            KeyboardInterrupt: if Ctrl-C was pressed.
        """
        if self.asked:
            raise KeyboardInterrupt


@contextmanager
def remembering(interruption: Interruption) -> Iterator[None]:
    """Remember Ctrl-C until the end; never where a program has its own way with it, or runs this in a thread."""
    ours = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if ours else None
    if before is not signal.default_int_handler:
        yield
        return

    def remember(number: int, frame: FrameType | None) -> None:
        interruption.asked = True
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
