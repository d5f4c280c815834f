"""``tune run`` over and over on one log and one artifact, killed at random moments, and what is checked afterwards."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

import numpy as np
import onnxruntime
import psutil
from numpy.typing import NDArray

from autotune.options import Options
from autotune.runtime.session import InferenceSession
from schedules.lower import BASELINE
from schedules.vocabulary.errors import AutotuneError
from tests.kills.moments import PHASES, Course, Place, course, phase_now, read_events
from tests.kills.processes import VARIABLE, await_end, pick
from tests.models.catalog import save
from tests.tuning_logs_tests.postgres_server import PostgresServer
from tests.tuning_logs_tests.samples import any_program
from tuning_logs.maintenance import verify
from tuning_logs.sql_store import open_log

MODEL = "tiny_odd"
"""Four kernels, which are imported, built and measured in some seconds."""

COMMAND = (sys.executable, "-m", "autotune")

FEW, MANY = 6, 60
"""Trials of a run that is to come to its end soon, and of one that is killed before."""

VICTIMS = ("run", "run", "run", "run", "worker", "fork server")
"""What is killed, as often as it is named."""

LOG_SERVER = "log server"
"""The PostgreSQL server that holds the log, where one does. It is started again once the run has ended."""

MAY_FAIL = ("fork server", LOG_SERVER, "interruption", "full disk")
"""What may end a run early; it then says so in a line."""

SPEECHLESS = ("run", "less memory")
"""What a run may not be able to tell of: it is gone, or Python itself has no memory for the message."""

WORKING = ("slots", "settle", "build")
"""Phases in which workers are busy, and are killed."""

RUN_S = 600.0
"""A run that takes longer hangs: without a disturbance it takes seconds."""

LOOK_S = 0.002
"""Between two looks at a run that is waited for."""

TYPICAL_S = {"import": 4.0, "slots": 8.0}
"""About how long phases take; a second if not named. What the runs show replaces it."""

SWAP_S = 0.05
"""The swap phase takes about so long."""

Key = tuple[str, str]
"""(task key, config as text) of a trial's record. Untuned kernels are none: every run may time them anew."""


@dataclass(frozen=True)
class Run:
    """A run on its way.

    Attributes:
        process: of the command.
        name: of the run, which all its processes know.
        trials: after which it ends, those in the log included.
        place: of its artifact, as it was before.
        events: where it tells of its course.
        said: where it writes what is for people.
    """

    process: subprocess.Popen[bytes]
    name: str
    trials: int
    place: Place
    events: Path
    said: Path

    @property
    def phase(self) -> str:
        """Where in its course it is now."""
        return phase_now(self.events, self.trials, self.place)


@dataclass(frozen=True)
class Killed:
    """A run, and how it was killed.

    Attributes:
        victim: ``run``, ``worker``, ``fork server``; empty if the run ended before it could be killed.
        phase: where it was then.
        code: the run's exit status, negative for a signal.
        stderr: what it wrote there.
        events: its course, as far as its events tell.
        orphans: its processes that did not end.
        ended_s: seconds until the last of the others had ended.
    """

    victim: str
    phase: str
    code: int
    stderr: str
    events: Course
    orphans: int
    ended_s: float


@dataclass(frozen=True)
class Outcome:
    """What was found after a kill.

    Attributes:
        records: new ones in the log.
        lost: acknowledged trials that are not in the log, and records that were there before and are gone.
        repeated: trials that had begun and have no record; the next run makes them again.
        problems: what must not be, a sentence each.
    """

    killed: Killed
    records: int
    lost: int
    repeated: int
    problems: tuple[str, ...]


@dataclass
class Campaign:
    """One log, one artifact, and the runs that write them.

    Args:
        folder: empty; for the model, the log, the artifact and temporary files.
        seed: of all that is random here. How fast the machine is decides too.
        name: of the model, which has to take floats.
        server: where the log is, in place of a file; it is killed too.
    """

    folder: Path
    seed: int
    name: str = MODEL
    server: PostgresServer | None = None
    phase_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.model = self.folder / "m.onnx"
        self.log = self.server.new_database() if self.server else str(self.folder / "log.db")
        self.out = self.folder / "at" / "m.tuned"
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.number = 0
        save(self.name, self.model, 0)
        reference = onnxruntime.InferenceSession(str(self.model))
        draws = np.random.default_rng(self.seed)
        self.feed = {arg.name: draws.normal(size=arg.shape).astype(np.float32) for arg in reference.get_inputs()}
        self.expected = reference.run(None, self.feed)
        self.stored: set[Key] = set()
        self.twice = False

    def run(self, count: int) -> Iterator[Outcome]:
        """A run that ends, ``count`` kills, and a run that ends."""
        yield self.examined("", "")
        done = 0
        while done < count:
            victim = self.rng.choice([*VICTIMS, *([LOG_SERVER] * 2 if self.server else [])])
            outcome = self.examined(victim, self.rng.choice(PHASES if victim == "run" else WORKING))
            done += bool(outcome.killed.victim)
            yield outcome
            if not outcome.killed.victim and not outcome.records:
                self.begin_log()
        yield self.examined("", "")

    def measured_twice(self) -> None:
        """From now on configs may have two trials in the log: two runs wrote it at once, and a run counts trials."""
        self.twice = True

    def begin_log(self) -> None:
        """Go on with an empty log: the spaces of small models end."""
        if self.server:
            self.log = self.server.new_database()
        for path in self.folder.glob("log.db*"):
            path.unlink()
        self.stored, self.twice = set(), False

    def examined(self, victim: str, phase: str) -> Outcome:
        """Start a run, kill ``victim`` in ``phase`` (nothing if empty), and look at what is left."""
        return self.judged(lambda: self.killed_run(victim, phase))

    def judged(self, work: Callable[[], Killed]) -> Outcome:
        """Do ``work``, which starts runs and awaits their ends, and look at what is left."""
        had_artifact = self.out.exists()
        before = self.stored
        killed = work()
        if self.server and killed.victim == LOG_SERVER:
            self.server.start()
        shutil.rmtree(self.temporary)  # what a killed run left in the system's temporary folder is not looked at
        self.temporary.mkdir()
        problems = [f"{killed.orphans} processes outlive the run"] if killed.orphans else []
        problems += self.wrong_records(killed)
        problems += self.wrong_artifact(killed, had_artifact)
        problems += wrong_end(killed)
        lost = len(before - self.stored)
        fresh = self.stored - before
        for task, count in killed.events.acknowledged.items():
            lost += max(0, count - sum(key == task for key, _ in fresh))
        if lost:
            problems.append(f"{lost} records are lost")
        begun = sum(killed.events.acknowledged.values()) + killed.events.pending
        repeated = max(0, begun - len(fresh))
        if repeated > Options().batch:
            problems.append(f"{repeated} trials will be repeated, more than a batch")
        return Outcome(killed, len(fresh), lost, repeated, tuple(problems))

    def killed_run(self, victim: str, phase: str) -> Killed:
        """One run from its start to its end, by itself or by a kill."""
        few = phase not in ("start", "import", "slots") or victim != "run"
        run = self.started(len(self.stored) + (FEW if few else MANY))
        victim_kind = self.kill(run, victim, phase) if victim else ""
        return self.ended(run, victim if victim_kind else "", victim_kind)

    def started(self, trials: int, environment: Mapping[str, str] = MappingProxyType({})) -> Run:
        """A run that ends after ``trials``, those in the log included; with more in its environment."""
        self.number += 1
        events, said = (self.folder / f"{kind}-{self.number}" for kind in ("events", "stderr"))
        name, place = uuid4().hex, Place.of(self.out)
        inherited = {**os.environ, VARIABLE: name, "TMPDIR": str(self.temporary), **environment}
        with said.open("wb") as stderr:
            process = subprocess.Popen(
                [*COMMAND, "run", str(self.model), *self.options(trials), "--events", str(events)],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=inherited,
                start_new_session=True,
            )
        return Run(process, name, trials, place, events, said)

    def ended(self, run: Run, victim: str, phase: str) -> Killed:
        """Await the end of a run and of all its processes."""
        code = run.process.wait(RUN_S)
        ended_s, orphans = await_end(run.name)
        for orphan in orphans:
            orphan.kill()
        told = course(read_events(run.events), run.trials)
        said = run.said.read_text()
        for path in (run.events, run.said):
            path.unlink(missing_ok=True)
        return Killed(victim, phase, code, said, told, len(orphans), ended_s)

    def options(self, trials: int) -> list[str]:
        """Of the command: the run ends after ``trials``, and not by time."""
        few = ["--trials", str(trials), "--budget", "600m", "--until", "never"]
        few += ["--quiet", "--json", "--seed", str(self.rng.randrange(99))]
        return ["--out", str(self.out), "--log", self.log, *few]

    def kill(self, run: Run, victim: str, phase: str) -> str:
        """Kill ``victim`` at a random moment of ``phase``; the phase in which it was, empty if the run had ended."""
        if not (entered := self.reached(run, phase)):
            return ""
        target = self.victim(run, victim)
        if run.process.poll() is not None or target is None:
            # The phase is shorter than was thought.
            self.phase_s[phase] = max(0.05, 0.7 * self.phase_s[phase])
            return ""
        now = run.phase
        target.send_signal(signal.SIGKILL)
        passed_s = time.monotonic() - entered
        self.phase_s[phase] = max(self.phase_s[phase], 1.3 * passed_s) if now == phase else 0.7 * self.phase_s[phase]
        return now

    def victim(self, run: Run, kind: str) -> psutil.Process | None:
        """The process to kill; None if there is none of this kind now."""
        if kind == LOG_SERVER:
            assert self.server is not None
            return self.server.process
        return psutil.Process(run.process.pid) if kind == "run" else pick(run.name, kind, self.rng)

    def reached(self, run: Run, phase: str) -> float:
        """Wait for a random moment of ``phase``: when it began, 0 if the run ended before."""
        began = time.monotonic()
        while (now := run.phase) != phase and PHASES.index(now) < PHASES.index(phase):
            if run.process.poll() is not None:
                return 0.0
            if phase != "swap":
                time.sleep(LOOK_S)
            if time.monotonic() - began > RUN_S:
                raise TimeoutError(f"a run does not come to its phase {phase!r} within {RUN_S:.0f} s; it is at {now!r}")
        entered = time.monotonic()
        self.phase_s.setdefault(phase, TYPICAL_S.get(phase, 1.0))
        time.sleep(self.rng.uniform(0.0, SWAP_S if phase == "swap" else self.phase_s[phase]))
        return entered

    def wrong_records(self, killed: Killed) -> list[str]:
        """What is wrong with the log; ``stored`` is as the log is now."""
        if self.server is None and not Path(self.log).exists():
            return []
        log = open_log(self.log)
        try:
            report = verify(log, any_program)
            records = [(record.key.task, record.config) for record in log.records()]
        finally:
            log.close()
        resumed, known = killed.events.known, self.stored
        wrong = [f"the log is damaged: {problem}" for problem in report.problems]
        for task, trials in resumed.items():
            in_log = sum(key == task for key, _ in known)
            if trials < in_log or (trials > in_log and not self.twice):
                wrong.append(f"a run took {trials} records of task {task} from a log that had {in_log}")
        self.stored = {(task, repr(config)) for task, config in records if config != BASELINE}
        return wrong

    def wrong_artifact(self, killed: Killed, was_there: bool) -> list[str]:
        """What is wrong at and beside the artifact."""
        wrong = []
        if self.out.exists():
            try:
                computed = InferenceSession(self.out).run(None, self.feed)
                if not all(map(close, computed, self.expected)):
                    wrong.append("the artifact computes something else than the reference")
            except AutotuneError as error:
                wrong.append(f"the artifact is damaged: {error}")
        elif was_there:
            wrong.append("the artifact is gone")
        if killed.events.finished:
            left = sorted(path for path in self.out.parent.iterdir() if path != self.out)
            wrong += [f"{path.name} is left with {contents(path)}" for path in left if killed.victim != "run"]
        return wrong


def contents(folder: Path) -> str:
    """The files below ``folder``, for a message."""
    return ", ".join(sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))) or "nothing"


def close(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> bool:
    """Whether an output is the reference's but for rounding."""
    return bool(np.abs(ours - theirs).max() <= 1e-2 * np.abs(theirs).max())


def wrong_end(killed: Killed) -> list[str]:
    """What is wrong with how a run ended and what it said."""
    if killed.victim in SPEECHLESS:
        return []
    # Ctrl-C while Python itself starts gives a traceback without a line of this program.
    is_pythons = killed.victim == "interruption" and "autotune" not in killed.stderr
    has_traceback = "Traceback" in killed.stderr and not is_pythons
    wrong = ["it ends with a traceback: " + killed.stderr[-500:]] if has_traceback else []
    if killed.victim not in MAY_FAIL and killed.code != 0:
        wrong.append(f"it ends with status {killed.code}: {killed.stderr[-500:]}")
    return wrong
