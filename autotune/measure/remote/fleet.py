"""FleetMeasurer: one measurer out of several machines of one kind.

A batch is dealt out, so that every machine builds and times its share while the others do theirs. All machines have the
target's fingerprint. What still differs between two of them (their clocks) is levelled by racing every contender
against the incumbent on the machine that times the contender. Finalists of one task are ranked on one machine.

A machine that is lost costs the candidates that it was measuring; the others go on. Everything else (the untuned build,
finalists, objects) is then done by the next machine.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from autotune.host.roofline import Roofline
from autotune.measure.measurer import Candidate, Origin
from autotune.measure.remote.measuring_worker import Answer, MachineLost, RemoteMachine
from schedules.config import Config
from schedules.target import Target
from schedules.vocabulary.errors import MeasureError
from tuning_logs.measurement import Measurement

log = logging.getLogger(__name__)


class Member:
    """A machine of a fleet, and the one thread that calls it: a call waits for those before.

    Attributes:
        lost: why the machine is lost; empty while it is not.
        compile_s, measure_s: seconds that its worker has spent so far.
    """

    def __init__(self, machine: RemoteMachine) -> None:
        self.machine = machine
        self.thread = ThreadPoolExecutor(1, "fleet")
        self.lost = ""
        self.compile_s = 0.0
        self.measure_s = 0.0

    def submit(self, method: str, *arguments: Any) -> Future[Any]:
        """Call the machine's worker."""
        return self.thread.submit(self.machine.call, method, *arguments)

    def origin(self, answer: Answer) -> Origin:
        """Return who made the measurements of an answer."""
        known = self.machine.origin
        return Origin(answer.host or known.host, known.worker)

    def close(self, error: MachineLost) -> None:
        """Give the machine up."""
        if not self.lost:
            self.lost = str(error) or "it does not say why"
            origin = self.machine.origin
            log.warning("%s %s is lost: %s", origin.host, origin.worker, self.lost)
            self.machine.close()


class FleetMeasurer(AbstractContextManager["FleetMeasurer"]):
    """Measures on several machines.

    Args:
        machines: at least one, all of one target; closed with the measurer.

    Attributes:
        compile_s, measure_s: wall-clock seconds that this process waited, divided as the machines spent theirs.
        at_once, cold_bytes, origins: see ``MeasurementBackend``.
    """

    def __init__(self, machines: Sequence[RemoteMachine]) -> None:
        self.compile_s = 0.0
        self.measure_s = 0.0
        self.at_once = len(machines)
        self.cold_bytes = 0
        self.origins: Sequence[Origin] = ()
        self._closed = False
        self._members = [Member(machine) for machine in machines]
        self._incumbents: dict[str, tuple[float, Candidate]] = {}
        self._made: dict[tuple[str, Config], Member] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="tune-fleet-")
        self._count = 0

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End every machine's workers; safe to call twice."""
        self._closed = True
        for member in self._members:
            member.machine.close()
        for member in self._members:
            member.thread.shutdown(cancel_futures=True)
        self._folder.cleanup()

    @property
    def target(self) -> Target:
        """The target that the machines measure for."""
        return self._members[0].machine.target

    def roofline(self) -> Roofline:
        """The roofline of the first machine that is there."""
        roofline: Roofline = self._call("roofline")[0]
        return roofline

    def measure(self, candidates: Sequence[Candidate], incumbent_s: float | None = None) -> list[Measurement]:
        """One measurement per candidate, in order; see ``Measurer``.

        Raises:
            MeasureError: if no machine is left.
        """
        if not candidates:
            self.origins = ()
            return []
        began, before = time.perf_counter(), self._spent()
        members = self._present()
        unique = list(dict.fromkeys(candidates))
        incumbent = self._incumbent(candidates[0], incumbent_s)
        shares = [(member, unique[index :: len(members)]) for index, member in enumerate(members)]
        calls = [
            (member, share, member.submit("measure", share, self.cold_bytes, incumbent_s, incumbent))
            for member, share in shares
            if share
        ]
        measured: dict[Candidate, tuple[Measurement, Origin]] = {}
        for member, share, call in calls:
            answer = self._collected(member, share, call)
            for candidate, measurement in zip(share, answer.measurements, strict=True):
                measured[candidate] = (measurement, member.origin(answer))
                self._note(member, candidate, measurement)
        self._charge(time.perf_counter() - began, before)
        if all(member.lost for member in members):
            self._present()  # raises: these candidates did not fail, so nothing is recorded
        self.origins = [measured[candidate][1] for candidate in candidates]
        return [measured[candidate][0] for candidate in candidates]

    def lead(self, incumbent: Candidate, latency_s: float) -> None:
        """See ``Measurer``."""
        self._incumbents[incumbent.task.key] = (latency_s, incumbent)

    def rank(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """Finalists of one task, all on one machine; see ``Measurer``."""
        if not candidates:
            return []
        return self._measured("rank", candidates, self._made.get(_key(candidates[0])))

    def expect(self, candidates: Iterable[Candidate]) -> None:
        """Nothing is prepared: which machine will measure a candidate is not known yet."""

    def baseline_s(self, candidate: Candidate) -> Measurement:
        """The untuned build's measurement of the candidate's task."""
        return self._measured("baseline_s", candidate)[0]

    def objects(self, candidates: Sequence[Candidate]) -> list[Path]:
        """Object files, from the machine that measured each where it is still there: what was measured is what ships.

        Raises:
            MeasureError: if one does not compile, or no machine is left.
        """
        members = self._present()
        groups: dict[int, list[int]] = {}
        for index, candidate in enumerate(candidates):
            member = self._made.get(_key(candidate))
            place = members.index(member) if member in members else index % len(members)
            groups.setdefault(place, []).append(index)
        paths: dict[int, Path] = {}
        for place, indices in groups.items():
            contents, _ = self._call("objects", [candidates[index] for index in indices], first=members[place])
            for index, content in zip(indices, contents, strict=True):
                self._count += 1
                paths[index] = Path(self._folder.name) / f"{self._count}.o"
                paths[index].write_bytes(content)
        return [paths[index] for index in range(len(candidates))]

    def _collected(self, member: Member, share: Sequence[Candidate], call: Future[Any]) -> Answer:
        """The answer; if the machine was lost, one in which every candidate has failed."""
        try:
            return self._taken(member, call.result())
        except MachineLost as error:
            member.close(error)
            message = f"{member.machine.origin.host} was lost while it measured this: {error}"
            failed = Measurement(error="worker_died", message=message)
            return Answer((failed,) * len(share), member.compile_s, member.measure_s)

    def _measured(self, method: str, content: Any, first: Member | None = None) -> list[Measurement]:
        """Return the measurements of one machine."""
        began, before = time.perf_counter(), self._spent()
        answer, member = self._call(method, content, self.cold_bytes, first=first)
        self._taken(member, answer)
        self._charge(time.perf_counter() - began, before)
        self.origins = [member.origin(answer)] * len(answer.measurements)
        return list(answer.measurements)

    def _call(self, method: str, *arguments: Any, first: Member | None = None) -> tuple[Any, Member]:
        """The answer of one machine, ``first`` if it is there, and which it was."""
        while True:
            members = self._present()
            member = first if first is not None and first in members else members[0]
            try:
                return member.submit(method, *arguments).result(), member
            except MachineLost as error:
                member.close(error)

    def _present(self) -> list[Member]:
        if self._closed:
            raise MeasureError("this measurer is closed; open another one")
        members = [member for member in self._members if not member.lost]
        if not members:
            last = self._members[-1]
            raise MeasureError(
                f"no machine is left to measure on; {last.machine.origin.host} was lost: {last.lost}; what was "
                "measured is in the log: run the same command again when it is back"
            )
        return members

    def _incumbent(self, candidate: Candidate, incumbent_s: float | None) -> Candidate | None:
        """Whose latency ``incumbent_s`` is, if it is known."""
        known = self._incumbents.get(candidate.task.key)
        return known[1] if known is not None and known[0] == incumbent_s else None

    def _note(self, member: Member, candidate: Candidate, measurement: Measurement) -> None:
        self._made[_key(candidate)] = member
        known = self._incumbents.get(candidate.task.key)
        if measurement.ok and (known is None or measurement.latency_s < known[0]):
            self._incumbents[candidate.task.key] = (measurement.latency_s, candidate)

    @staticmethod
    def _taken(member: Member, answer: Answer) -> Answer:
        member.compile_s, member.measure_s = answer.compile_s, answer.measure_s
        return answer

    def _spent(self) -> tuple[float, float]:
        return sum(member.compile_s for member in self._members), sum(member.measure_s for member in self._members)

    def _charge(self, waited_s: float, before: tuple[float, float]) -> None:
        """Divide the time that was waited as the machines spent theirs."""
        compiled, measured = (now - then for now, then in zip(self._spent(), before, strict=True))
        share = compiled / (compiled + measured) if compiled + measured > 0 else 0.0
        self.compile_s += share * waited_s
        self.measure_s += (1.0 - share) * waited_s


def _key(candidate: Candidate) -> tuple[str, Config]:
    return candidate.task.key, candidate.config
