"""An RPC device as a machine of a fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from autotune.host.machine import host_target, read_host
from autotune.host.roofline import Peak, measure_peak
from autotune.measure.measurer import Candidate, Origin
from autotune.measure.remote.fleet import MachineLost
from autotune.measure.remote.remote_host import peak_of
from autotune.measure.remote.rpc_measurer import RpcMeasurer
from schedules.errors import MeasureError
from schedules.target import Target
from tuning_logs.measurement import Measurement

Result = TypeVar("Result")


class RpcMachine:
    """One device.

    Args:
        measurer: what measures on it; closed with the machine.
    """

    def __init__(self, measurer: RpcMeasurer) -> None:
        self.cpu = measurer.host.cpu
        self._measurer = measurer

    @property
    def origin(self) -> Origin:
        """The device that answered last: behind one key there may be several."""
        return Origin(self._measurer.ran_on or self._measurer.host.name, f"rpc {self._measurer.address}")

    @property
    def target(self) -> Target:
        """What it measures for."""
        return self._measurer.host.target

    @property
    def compile_s(self) -> float:
        """Seconds spent building, on this machine."""
        return self._measurer.compile_s

    @property
    def measure_s(self) -> float:
        """Seconds spent checking and timing, on the device."""
        return self._measurer.measure_s

    @property
    def cold_bytes(self) -> int:
        """As of ``Workshop``."""
        return self._measurer.cold_bytes

    @cold_bytes.setter
    def cold_bytes(self, count: int) -> None:
        self._measurer.cold_bytes = count

    def measure(
        self, candidates: Sequence[Candidate], incumbent_s: float | None, leader: Candidate | None
    ) -> list[Measurement]:
        """One measurement per candidate."""

        def measure() -> list[Measurement]:
            if leader is not None:
                self._measurer.lead(leader)
            return self._measurer.measure(candidates, incumbent_s)

        return self._or_lost(measure)

    def rank(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """As of ``Ranker``."""
        return self._or_lost(lambda: self._measurer.rank(candidates))

    def baseline_s(self, candidate: Candidate) -> Measurement:
        """As of ``Workshop``."""
        return self._or_lost(lambda: self._measurer.baseline_s(candidate))

    def objects(self, candidates: Sequence[Candidate]) -> list[Path]:
        """As of ``Workshop``: built here, so no device is needed."""
        return self._measurer.objects(candidates)

    def peak(self) -> Peak:
        """The device's peak."""
        host = self._measurer.host
        if host.cpu == read_host().model and self.target == host_target(self.target.threads, self.target.isa):
            return measure_peak(self.target)
        return self._or_lost(lambda: peak_of(self._measurer.address, host))

    def close(self) -> None:
        """End the workers here; the device's session ends with them."""
        self._measurer.close()

    @staticmethod
    def _or_lost(action: Callable[[], Result]) -> Result:
        try:
            return action()
        except MeasureError as error:
            raise MachineLost(str(error)) from error
