"""How an artifact came to be: slots and their reasons, what every decision brought, and where the time goes now.

Kept in the artifact as ``history.json.gz``, one entry per run that measured something; ``tune report`` draws it and
``tune kernels --explain`` tells it. ``Recorder`` is an observer like any other: the run does not know of it.
"""

from __future__ import annotations

import gzip
import json
import logging
import platform
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from autotune.artifact.directory import attach, attachment, read_artifact, read_manifest, sha256
from autotune.artifact.plan import UNTUNED, record_key
from autotune.events import Event, PeerTimed, SlotBegan, SlotDone, TuningBegan, TuningEnded
from autotune.host.machine import read_host
from autotune.options import Options
from autotune.report.inspect_lanes import report_lanes
from autotune.runtime.plain_session import InferenceSession
from autotune.tuning.job import Job
from autotune.validation.verify import random_inputs
from autotune.versions import DISTRIBUTION, SHOWN, installed
from schedules.config import Config
from schedules.errors import ArtifactError
from schedules.target import Target
from tuning_logs.store import LogStore

FILE = "history.json.gz"
FORMAT = 1
PASSES = 9
PRIVATE = ("out", "log", "cluster", "rpc")
"""Options that say where things are on the user's machine; a report is for others too."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Slot:
    """One slot.

    Attributes:
        task: key.
        began_s, ended_s: seconds since tuning began.
        latencies_s: of its trials in order; None for a failed one.
        failures: kinds of error of the failed ones.
        why: why the task got it.
    """

    task: str
    began_s: float
    ended_s: float
    latencies_s: tuple[float | None, ...]
    failures: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class TaskStory:
    """What a run made of one task.

    Attributes:
        task: key.
        weight: how often the model runs it.
        bound_s: roofline bound in seconds.
        known: trials that the log held before the run.
        before_s: best latency before the run; None if there was none.
        untuned_s: latency of the untuned program; None if it was never measured.
        first_s: the first valid config tried: the template's first guess.
        best_s: the best config known after the run.
        algorithms: algorithm → best latency with it, of those tried; empty where there is no choice.
    """

    task: str
    weight: int
    bound_s: float
    known: int
    before_s: float | None
    untuned_s: float | None
    first_s: float | None
    best_s: float | None
    algorithms: Mapping[str, float]


@dataclass
class Run:
    """One run of the loop.

    Attributes:
        began: seconds since the epoch.
        host: name of the machine.
        cpu: its processor's name.
        options: what was asked for, by option name.
        versions: package → version.
        peak: fields of ``autotune.host.roofline.Peak``.
        budget_s: seconds that were left to spend.
        peer: name, version and latency_s of the engine that was timed beforehand; None if none was.
        reason: why it ended.
        elapsed_s, phase_s, latency_ms, verified: as in ``tune run --json``.
        profile: (symbol, seconds) of every kernel call of one inference of the artifact, in order.
        lanes: (lane, subgraph, begin, end in seconds) of one inference; empty where nothing runs side by side.
        one_lane_s: seconds of an inference on one lane, measured when the placement was chosen; None without one.
    """

    began: float = 0.0
    host: str = ""
    cpu: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    peak: dict[str, float] = field(default_factory=dict)
    budget_s: float = 0.0
    peer: dict[str, Any] | None = None
    tasks: tuple[TaskStory, ...] = ()
    slots: tuple[Slot, ...] = ()
    reason: str = ""
    elapsed_s: float = 0.0
    phase_s: dict[str, float] = field(default_factory=dict)
    latency_ms: dict[str, float | None] = field(default_factory=dict)
    verified: dict[str, Any] | None = None
    profile: tuple[tuple[str, float], ...] = ()
    lanes: tuple[tuple[str, str, float, float], ...] = ()
    one_lane_s: float | None = None


class Recorder:
    """Puts a ``Run`` together from events.

    Attributes:
        run: so far; the pipeline fills in what no event tells.
    """

    def __init__(self) -> None:
        self.run = Run()
        self._why = ""
        self._ended_s = 0.0

    def __call__(self, event: Event) -> None:
        """Learn from ``event``."""
        match event:
            case PeerTimed():
                self.run.peer = asdict(event)
            case TuningBegan():
                self.run.budget_s = event.budget_s
            case SlotBegan():
                self._why = event.why
            case SlotDone():
                latencies = event.state.latencies_s[len(event.state.latencies_s) - event.measured :]
                slot = Slot(event.task.key, self._ended_s, event.elapsed_s, latencies, event.failures, self._why)
                self.run.slots += (slot,)
                self._ended_s = event.elapsed_s
            case TuningEnded(reason):
                self.run.reason = reason


def algorithm_of(config: Config) -> str:
    """Name of a config's algorithm; empty where there is no choice."""
    value = dict(config.items).get("algorithm", "")
    if isinstance(value, int):
        return "direct" if value == 0 else f"Winograd F({value}, 3)"
    return str(value)


def stories(
    jobs: Mapping[str, Job], known: Mapping[str, tuple[int, float | None]], log: LogStore, target: Target
) -> tuple[TaskStory, ...]:
    """What became of every tunable task.

    Args:
        known: task key → trials and best latency before the run.
    """
    told = []
    for key, job in jobs.items():
        measured, state = job.measured, job.state
        algorithms: dict[str, float] = {}
        for config, latency_s in measured.items():
            name = algorithm_of(config)
            if name:
                algorithms[name] = min(latency_s, algorithms.get(name, latency_s))
        untuned = log.best(record_key(job.task, UNTUNED, target))
        told.append(
            TaskStory(
                key,
                job.task.weight,
                state.bound_s,
                *known[key],
                None if untuned is None else untuned.measurement.latency_s,
                next(iter(measured.values()), None),
                min(measured.values(), default=None),
                algorithms,
            )
        )
    return tuple(told)


def read_history(path: Path) -> tuple[Run, ...]:
    """The runs that made the artifact at ``path``, oldest first; empty if it was built from a log alone.

    Raises:
        ArtifactError: if they cannot be read.
    """
    content = attachment(path, FILE)
    if content is None:
        return ()
    try:
        data = json.loads(gzip.decompress(content))
        return tuple(_run(item) for item in data["runs"]) if data["format"] == FORMAT else ()
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path / FILE} is damaged ({error}); run 'tune run' again") from error


def earlier_runs(out: Path, model: Path, target: Target) -> tuple[Run, ...]:
    """The history of the artifact that a run is about to replace, if it is of the same model and target."""
    try:
        manifest = read_manifest(out)
        same = manifest["provenance"].get("sha256") == sha256(model)
        fingerprint = Target.from_json(json.dumps(manifest["target"])).fingerprint
        return read_history(out) if same and fingerprint == target.fingerprint else ()
    except (ArtifactError, KeyError) as error:
        logger.debug("no earlier history: %s", error)
        return ()


def write_history(path: Path, runs: tuple[Run, ...]) -> None:
    """Keep ``runs`` in the artifact at ``path``."""
    data = {"format": FORMAT, "runs": [asdict(run) for run in runs]}
    attach(path, FILE, gzip.compress(json.dumps(data).encode(), mtime=0))


def _run(data: dict[str, Any]) -> Run:
    tasks = tuple(TaskStory(**story) for story in data["tasks"])
    slots = tuple(
        Slot(**{**slot, "latencies_s": tuple(slot["latencies_s"]), "failures": tuple(slot["failures"])})
        for slot in data["slots"]
    )
    known = {item.name: data[item.name] for item in fields(Run) if item.name in data}
    profile = tuple((str(symbol), float(seconds)) for symbol, seconds in data["profile"])
    lanes = tuple((str(lane), str(name), float(begin), float(end)) for lane, name, begin, end in data.get("lanes", ()))
    return Run(**{**known, "tasks": tasks, "slots": slots, "profile": profile, "lanes": lanes})


def remember(path: Path, run: Run, told: Mapping[str, Any], options: Options, earlier: tuple[Run, ...]) -> None:
    """Write ``run`` behind the ``earlier`` ones into the artifact at ``path``.

    A run that measured nothing is no news where a history is already kept.

    Args:
        told: the fields of ``tune run --json``.
    """
    if not run.slots and attachment(path, FILE) is not None:
        return
    if not run.peak:  # interrupted before it began
        if earlier:
            write_history(path, earlier)
        return
    run.began, run.host, run.cpu = time.time() - float(told["elapsed_s"]), platform.node(), read_host().model
    run.versions = {name: version for name in (DISTRIBUTION, *SHOWN) if (version := installed(name))}
    run.options = {
        name: value if isinstance(value, int | float | str | None) else str(value)
        for name, value in asdict(options).items()
        if name not in PRIVATE
    }
    run.options["inputs"] = [f"{name}:{'x'.join(map(str, shape))}" for name, shape in options.inputs.items()]
    run.reason, run.elapsed_s, run.phase_s = told["reason"], told["elapsed_s"], told["phase_s"]
    run.latency_ms, run.verified = told["latency_ms"], told["verified"]
    if run.latency_ms.get("tuned") is not None:  # not where it was interrupted, or tuned for another machine
        run.profile = tuple(_profile(path, options.seed))
        if read_artifact(path).plan.lanes is not None:
            placed = report_lanes(path)
            run.one_lane_s = placed.one_lane_s
            run.lanes = tuple(
                (row.lane, row.name, begin, end)
                for row in placed.rows
                for begin, end in (row.measured,)
                if begin is not None and end is not None
            )
    write_history(path, (*earlier, run))


def _profile(path: Path, seed: int) -> list[tuple[str, float]]:
    """Symbols and median seconds of every kernel call of one inference on random inputs."""
    session = InferenceSession(path)
    feed = random_inputs(read_artifact(path).inputs, seed)
    passes = [session.profile(feed) for _ in range(PASSES)]
    return [(calls[0][0], statistics.median(seconds for _, seconds in calls)) for calls in zip(*passes, strict=True)]
