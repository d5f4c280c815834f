"""Weights of a CUDA program that stay in the host's memory: fetched on a stream of their own, ahead of their kernels.

``graph/streaming.py`` says which weights these are and when a buffer may be written. Here its waits are events. What is
put on the two streams can be captured into one graph: the copies' stream waits for the program's at the begin, and
the program's last fetched kernel waits for the last copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.backends.cuda.driver import Driver
from autotune.graph.streaming import BUFFERS

NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


@dataclass(frozen=True)
class Fetch:
    """One weight on its way into a buffer.

    Attributes:
        source: address in page-locked memory of the host.
        target: address in the device's memory.
    """

    source: int
    target: int
    bytes: int


@dataclass(frozen=True)
class StreamedCall:
    """A kernel call.

    Attributes:
        launch: puts the kernel on the program's stream.
        fetches: what has to be in a buffer before.
    """

    launch: Callable[[], None]
    fetches: tuple[Fetch, ...] = ()


class WeightStream:
    """Launches calls on ``stream`` and fetches their weights on another one.

    Args:
        calls: in order; of those with fetches, every second one uses the same buffer.
    """

    def __init__(self, driver: Driver, stream: Any, calls: Sequence[StreamedCall]) -> None:
        self._driver, self._stream, self._calls = driver, stream, calls
        readers = sum(bool(call.fetches) for call in calls)
        self._copies = driver.stream() if readers else None
        self._begun, *events = [driver.call("cuEventCreate", NO_TIMING) for _ in range(1 + 2 * readers)]
        self._fetched, self._read = events[:readers], events[readers:]

    def launch(self) -> None:
        """Put all calls and copies on the streams."""
        if self._copies is not None:
            self._record(self._begun, self._stream)
            self._wait(self._copies, self._begun)
        number = 0
        for call in self._calls:
            if not call.fetches:
                call.launch()
                continue
            if number >= BUFFERS:
                self._wait(self._copies, self._read[number - BUFFERS])
            for fetch in call.fetches:
                arguments = fetch.target, fetch.source, fetch.bytes, self._copies
                self._driver.call("cuMemcpyHtoDAsync", *arguments)
            self._record(self._fetched[number], self._copies)
            self._wait(self._stream, self._fetched[number])
            call.launch()
            self._record(self._read[number], self._stream)
            number += 1

    def _record(self, event: Any, stream: Any) -> None:
        self._driver.call("cuEventRecord", event, stream)

    def _wait(self, stream: Any, event: Any) -> None:
        self._driver.call("cuStreamWaitEvent", stream, event, 0)
