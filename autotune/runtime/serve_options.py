"""How a session serves requests that come at the same time."""

from __future__ import annotations

from dataclasses import dataclass

from schedules.errors import UsageError


@dataclass(frozen=True)
class ServeOptions:
    """How a session serves requests that come at the same time.

    Attributes:
        streams: how many requests run side by side, each on its own cores; None for what the artifact was tuned for.
        max_queue: requests that wait for a stream before ``run_async`` blocks its caller.
        max_batch: most rows that are joined into one run; 1 joins none. Needs an artifact for several batch sizes.
        max_wait_s: seconds that a request waits for others to be joined with.
    """

    streams: int | None = None
    max_queue: int = 256
    max_batch: int = 1
    max_wait_s: float = 2e-3

    def __post_init__(self) -> None:
        for name in ("streams", "max_queue", "max_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; it must be at least 1")
        if self.max_wait_s < 0:
            raise UsageError(f"max_wait_s is {self.max_wait_s}; it must be zero or more seconds")
