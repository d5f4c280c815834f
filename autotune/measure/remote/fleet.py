"""FleetMeasurer: one measurer out of several machines of one kind.

A batch is dealt out, so that every machine builds and times its share while the others do theirs. All machines have the
target's fingerprint; what still differs between two of them (their clocks) is levelled by racing every contender
against the incumbent on the machine that times the contender. Finalists of one task are ranked on one machine.

A machine that is lost costs the candidates that it was measuring; the others go on. What is no measurement (the untuned
build, finalists, objects) is asked of the next machine.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeVar

from autotune.host.roofline import Peak
from autotune.measure.measurer import Candidate, Origin
from schedules.config import Config
from schedules.errors import MeasureError
from schedules.target import Target
from tuning_logs.measurement import Measurement

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class MachineLost(Exception):  # noqa: N818 - what happened, not whose mistake it was
    """A machine that does not answer any more; the text says why."""


class Machine(Protocol):
    """One machine of a fleet. Calls block; each may raise ``MachineLost``.

    Attributes:
        cold_bytes: as of ``Workshop``.
    """

    cold_bytes: int

    @property
    def origin(self) -> Origin:
        """Its name, and the worker's."""
        ...

    @property
    def target(self) -> Target:
        """What it measures for."""
        ...

    @property
    def compile_s(self) -> float:
        """Wall-clock seconds spent building so far."""
        ...

    @property
    def measure_s(self) -> float:
        """Wall-clock seconds spent checking and timing so far."""
        ...

    def measure(
        self, candidates: Sequence[Candidate], incumbent_s: float | None, leader: Candidate | None
    ) -> list[Measurement]:
        """One measurement per candidate; ``leader`` is the one that took ``incumbent_s``, wherever it was measured."""
        ...

    def rank(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """As of ``Ranker``."""
        ...

    def baseline_s(self, candidate: Candidate) -> Measurement:
        """As of ``Workshop``."""
        ...

    def objects(self, candidates: Sequence[Candidate]) -> list[Path]:
        """As of ``Workshop``; files on this machine."""
        ...

    def peak(self) -> Peak:
        """The best it can do."""
        ...

    def close(self) -> None:
        """End it, whatever it is at; safe to call twice."""
        ...


@dataclass
class _Seat:
    """A machine and the one thread that talks to it: calls wait for those before."""

    machine: Machine
    thread: ThreadPoolExecutor
    lost: str = ""


class FleetMeasurer:
    """Measures on several machines.

    Args:
        machines: at least one, all of one target; closed with the measurer.

    Attributes:
        compile_s, measure_s: wall-clock seconds that this process waited, divided as the machines spent theirs.
        cold_bytes: as of ``Workshop``.
    """

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.compile_s = 0.0
        self.measure_s = 0.0
        self.cold_bytes = 0
        self._closed = False
        self._seats = [_Seat(machine, ThreadPoolExecutor(1, "fleet")) for machine in machines]
        self._origins: list[Origin] = []
        self._leaders: dict[str, tuple[float, Candidate]] = {}
        self._made: dict[tuple[str, Config], _Seat] = {}

    def __enter__(self) -> FleetMeasurer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every machine's workers; safe to call twice."""
        self._closed = True
        for seat in self._seats:
            seat.machine.close()
        for seat in self._seats:
            seat.thread.shutdown(cancel_futures=True)

    @property
    def target(self) -> Target:
        """What the machines measure for."""
        return self._seats[0].machine.target

    def origins(self) -> list[Origin]:
        """Who made each measurement of the last batch, ranking or untuned run, in order."""
        return list(self._origins)

    def peak(self) -> Peak:
        """The best that a machine of this fleet can do."""
        return self._ask(lambda machine: machine.peak())[0]

    def measure(self, candidates: Sequence[Candidate], incumbent_s: float | None = None) -> list[Measurement]:
        """One measurement per candidate, in order; see ``Measurer``.

        Raises:
            MeasureError: if no machine is left.
        """
        if not candidates:
            self._origins = []
            return []
        began, before = time.perf_counter(), self._spent()
        seats = self._present()
        unique = list(dict.fromkeys(candidates))
        leader = self._leader(candidates[0], incumbent_s)
        shares = [unique[index :: len(seats)] for index in range(len(seats))]
        calls = [
            (seat, share, seat.thread.submit(self._measure_on, seat, share, incumbent_s, leader))
            for seat, share in zip(seats, shares, strict=True)
            if share
        ]
        found: dict[Candidate, tuple[Measurement, Origin]] = {}
        for seat, share, call in calls:
            for candidate, measurement in zip(share, self._collected(seat, share, call), strict=True):
                found[candidate] = (measurement, seat.machine.origin)
                self._note(seat, candidate, measurement)
        self._charge(time.perf_counter() - began, before)
        if all(seat.lost for seat in seats):
            self._present()  # raises: what was in flight was nobody's fault and is not recorded
        self._origins = [found[candidate][1] for candidate in candidates]
        return [found[candidate][0] for candidate in candidates]

    def rank(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """Finalists of one task, all on one machine; see ``Ranker``."""
        if not candidates:
            return []
        began, before = time.perf_counter(), self._spent()
        ranked, origin = self._ask(lambda machine: machine.rank(candidates), self._made.get(_key(candidates[0])))
        self._charge(time.perf_counter() - began, before)
        self._origins = [origin] * len(ranked)
        return ranked

    def expect(self, candidates: Iterable[Candidate]) -> None:
        """Nothing is prepared: which machine will be asked is not known yet."""

    def baseline_s(self, candidate: Candidate) -> Measurement:
        """The untuned build's measurement of the candidate's task."""
        measured, origin = self._ask(lambda machine: machine.baseline_s(candidate))
        self._origins = [origin]
        return measured

    def objects(self, candidates: Sequence[Candidate]) -> list[Path]:
        """Object files, from the machine that measured each where it is still there: what was measured is what ships.

        Raises:
            MeasureError: if one does not compile, or no machine is left.
        """
        seats = self._present()
        groups: dict[int, list[int]] = {}
        for index, candidate in enumerate(candidates):
            seat = self._made.get(_key(candidate))
            place = seats.index(seat) if seat in seats else index % len(seats)
            groups.setdefault(place, []).append(index)
        paths: dict[int, Path] = {}
        for place, indices in groups.items():
            wanted = [candidates[index] for index in indices]
            files, _ = self._ask(lambda machine, wanted=wanted: machine.objects(wanted), seats[place])  # type: ignore[misc]
            paths.update(zip(indices, files, strict=True))
        return [paths[index] for index in range(len(candidates))]

    def _measure_on(
        self, seat: _Seat, share: Sequence[Candidate], incumbent_s: float | None, leader: Candidate | None
    ) -> list[Measurement]:
        seat.machine.cold_bytes = self.cold_bytes
        return seat.machine.measure(share, incumbent_s, leader)

    def _collected(self, seat: _Seat, share: Sequence[Candidate], call: Future[list[Measurement]]) -> list[Measurement]:
        try:
            return call.result()
        except MachineLost as error:
            self._lose(seat, error)
            message = f"{seat.machine.origin.host} was lost while it measured this: {error}"
            return [Measurement(error="worker_died", message=message)] * len(share)

    def _ask(self, question: Callable[[Machine], Result], first: _Seat | None = None) -> tuple[Result, Origin]:
        """The answer of one machine, ``first`` if it is there, and whose it is."""
        while True:
            seats = self._present()
            seat = first if first in seats and first is not None else seats[0]
            seat.machine.cold_bytes = self.cold_bytes
            try:
                return seat.thread.submit(question, seat.machine).result(), seat.machine.origin
            except MachineLost as error:
                self._lose(seat, error)

    def _present(self) -> list[_Seat]:
        if self._closed:
            raise MeasureError("this measurer is closed; open another one")
        seats = [seat for seat in self._seats if not seat.lost]
        if not seats:
            last = self._seats[-1]
            raise MeasureError(
                f"no machine is left to measure on; {last.machine.origin.host} was lost: {last.lost}; what was "
                "measured is in the log: run the same command again when it is back"
            )
        return seats

    def _lose(self, seat: _Seat, error: MachineLost) -> None:
        if not seat.lost:
            seat.lost = str(error) or "it does not say why"
            log.warning("%s %s is lost: %s", seat.machine.origin.host, seat.machine.origin.worker, seat.lost)
            seat.machine.close()

    def _leader(self, candidate: Candidate, incumbent_s: float | None) -> Candidate | None:
        """Whose latency ``incumbent_s`` is, if it was measured in this run."""
        known = self._leaders.get(candidate.task.key)
        return known[1] if known is not None and known[0] == incumbent_s else None

    def _note(self, seat: _Seat, candidate: Candidate, measurement: Measurement) -> None:
        self._made[_key(candidate)] = seat
        known = self._leaders.get(candidate.task.key)
        if measurement.ok and (known is None or measurement.latency_s < known[0]):
            self._leaders[candidate.task.key] = (measurement.latency_s, candidate)

    def _spent(self) -> tuple[float, float]:
        machines = [seat.machine for seat in self._seats]
        return sum(machine.compile_s for machine in machines), sum(machine.measure_s for machine in machines)

    def _charge(self, waited_s: float, before: tuple[float, float]) -> None:
        """Divide the time that was waited as the machines spent theirs."""
        compiled, measured = (now - then for now, then in zip(self._spent(), before, strict=True))
        share = compiled / (compiled + measured) if compiled + measured > 0 else 0.0
        self.compile_s += share * waited_s
        self.measure_s += (1.0 - share) * waited_s


def _key(candidate: Candidate) -> tuple[str, Config]:
    return candidate.task.key, candidate.config
