"""What a run tells, as JSON lines in a file: for programs that watch, and for keeping."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from autotune.events import Event, to_data
from schedules.errors import UsageError


class EventFile:
    """An observer that writes every event at once, with its time ``t`` in seconds since the epoch.

    Args:
        path: a file, written anew, or a pipe.

    Raises:
        UsageError: if it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._stream = path.open("w", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write events to {path} ({error.strerror}); name another --events FILE") from error

    def __enter__(self) -> EventFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def __call__(self, event: Event) -> None:
        """Write ``event``."""
        self.write(to_data(event))

    def write(self, data: Mapping[str, Any]) -> None:
        """Write one line."""
        self._stream.write(json.dumps({"t": time.time(), **data}) + "\n")
        self._stream.flush()
