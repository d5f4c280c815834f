"""The one adapter between a fleet and its machines: a ``LocalMeasurer`` behind calls that carry plain data.

A ``RemoteMachine`` is a transport of such calls. There are two: Ray, which runs the worker on the other machine
(``ray_machine.py``), and TVM's RPC, for which the worker runs here and sends only kernels (``rpc_machine.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autotune.host.roofline import Roofline
from autotune.measure.local_measurer import LocalMeasurer
from autotune.measure.measurer import Candidate, Origin
from schedules.target import Target
from tuning_logs.measurement import Measurement


class MachineLost(Exception):  # noqa: N818 - an event, not an error of this program
    """A machine that does not answer any more; the text says why."""


class RemoteMachine(Protocol):
    """One machine of a fleet."""

    @property
    def origin(self) -> Origin:
        """Its name, and the worker's."""
        ...

    @property
    def target(self) -> Target:
        """The target that it measures for."""
        ...

    def call(self, method: str, *arguments: Any) -> Any:
        """Return the result of that method of the machine's ``MeasuringWorker``; blocks.

        Raises:
            MachineLost: if the machine died, cannot be reached, or can measure no more.
            AutotuneError: whatever else the method raises.
        """
        ...

    def close(self) -> None:
        """End the worker at once; safe to call twice."""
        ...


@dataclass(frozen=True)
class Answer:
    """Measurements.

    Attributes:
        compile_s, measure_s: seconds that the worker has spent building, and checking and timing, so far.
        host: the machine that they were made on, where that is not the machine of the worker.
    """

    measurements: tuple[Measurement, ...]
    compile_s: float
    measure_s: float
    host: str = ""


class MeasuringWorker:
    """Does what a fleet asks of one machine.

    Args:
        measurer: closed with the worker.
        roofline: finds the roofline of the machine that the measurer runs candidates on.
    """

    def __init__(self, measurer: LocalMeasurer, roofline: Callable[[], Roofline]) -> None:
        self._measurer = measurer
        self._roofline = roofline

    def measure(
        self, candidates: Sequence[Candidate], cold_bytes: int, incumbent_s: float | None, incumbent: Candidate | None
    ) -> Answer:
        """One measurement per candidate; ``incumbent`` is the one that took ``incumbent_s``, on whichever machine."""
        self._measurer.cold_bytes = cold_bytes
        if incumbent is not None and incumbent_s is not None:
            self._measurer.lead(incumbent, incumbent_s)
        return self._answer(self._measurer.measure(candidates, incumbent_s))

    def rank(self, candidates: Sequence[Candidate], cold_bytes: int) -> Answer:
        """See ``Measurer.rank``."""
        self._measurer.cold_bytes = cold_bytes
        return self._answer(self._measurer.rank(candidates))

    def baseline_s(self, candidate: Candidate, cold_bytes: int) -> Answer:
        """See ``MeasurementBackend.baseline_s``."""
        self._measurer.cold_bytes = cold_bytes
        return self._answer([self._measurer.baseline_s(candidate)])

    def objects(self, candidates: Sequence[Candidate]) -> list[bytes]:
        """The contents of the object files."""
        return [path.read_bytes() for path in self._measurer.objects(candidates)]

    def roofline(self) -> Roofline:
        """The roofline of the machine that candidates run on."""
        return self._roofline()

    def close(self) -> None:
        """End the worker processes."""
        self._measurer.close()

    def _answer(self, measured: Sequence[Measurement]) -> Answer:
        measurer = self._measurer
        return Answer(tuple(measured), measurer.compile_s, measurer.measure_s, measurer.ran_on)
