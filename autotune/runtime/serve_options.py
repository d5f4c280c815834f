"""How a session serves requests that come at the same time."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from schedules.vocabulary.bounded import is_number, is_whole
from schedules.vocabulary.errors import UsageError


@dataclass(frozen=True)
class ServeOptions:
    """How a session serves requests that come at the same time.

    Attributes:
        streams: how many requests run side by side, each on its own cores; None for what the artifact was tuned for.
        max_queue: requests that wait for a stream before ``run_async`` blocks its caller.
        max_batch: most rows that are joined into one run; 1 joins none. Needs an artifact for several batch sizes.
        max_wait_s: seconds that a request waits for others to be joined with.
        seed: seed of the random numbers that the model draws (docs/models.md); None for other ones in every session.
    """

    streams: int | None = None
    max_queue: int = 256
    max_batch: int = 1
    max_wait_s: float = 2e-3
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("streams", "max_queue", "max_batch"):
            value = getattr(self, name)
            if value is None and name == "streams":
                continue
            if not is_whole(value) or value < 1:
                raise UsageError(f"{name} is {value!r}; it must be at least 1, and a whole number")
        if not is_number(self.max_wait_s) or not 0 <= self.max_wait_s <= threading.TIMEOUT_MAX:
            raise UsageError(f"max_wait_s is {self.max_wait_s!r}; it must be zero or more seconds")


def time_limit(timeout_s: float | None) -> float | None:
    """Return ``timeout_s``, or None if it is so long that it is no limit: infinity, or centuries.

    Raises:
        UsageError: if it is negative or no number.
    """
    if timeout_s is None:
        return None
    if not is_number(timeout_s) or timeout_s < 0:
        raise UsageError(f"timeout_s is {timeout_s!r}; it must be zero or more seconds, or None for no limit")
    return None if timeout_s > threading.TIMEOUT_MAX else float(timeout_s)
