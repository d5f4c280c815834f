"""The history of an artifact: slots and their reasons, what every decision brought, and how long each kernel takes.

It is kept in the artifact as ``history.json.gz``, one entry per run that measured something. ``tune report`` draws it,
``tune kernels --explain`` puts it into words. ``Recorder`` observes a run's events as any other observer does.
"""

from __future__ import annotations

import gzip
import json
import logging
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.artifact.directory import read_artifact
from autotune.artifact.make_plan import UNTUNED, record_key
from autotune.artifact.manifest import attach, attachment, read_manifest, sha256
from autotune.artifact.plain_data import decode, encode
from autotune.events import Event, ReferenceTimed, SlotBegan, SlotDone, TuningBegan
from autotune.host.machine import read_host
from autotune.host.roofline import Roofline
from autotune.options import FP32, Options, Precision
from autotune.runtime.model_timing import kernel_times, median_timeline
from autotune.runtime.session import InferenceSession
from autotune.tuning.job import Job
from autotune.validation.arithmetic.reference_engines import Arrays
from autotune.validation.verify import random_inputs
from autotune.versions import DISTRIBUTION, SHOWN, installed
from schedules.config import Config
from schedules.target import Target
from schedules.task import Task
from schedules.vocabulary.bounded import DAMAGE, GZIP, parsed_json, unpacked
from schedules.vocabulary.errors import ArtifactError, UsageError, first_line
from tuning_logs.sql_store import TuningLog

FILE = "history.json.gz"
FORMAT = 2
MOST_BYTES = 256 << 20
"""Most bytes that a history may unpack to; one of a thousand runs takes some megabytes."""
PRIVATE = ("out", "log", "cluster", "rpc")
"""Options with paths and addresses of the user's: a report may be passed on."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Slot:
    """One slot.

    Attributes:
        task: key.
        began_s, ended_s: seconds since tuning began.
        latencies_s: of its trials in order; None for a failed one.
        failures: kinds of error of the failed ones.
        why: the allocator's reason.
    """

    task: str
    began_s: float
    ended_s: float
    latencies_s: tuple[float | None, ...]
    failures: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class TaskHistory:
    """The history of one task in one run.

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


@dataclass(frozen=True)
class Run:
    """One run of the loop.

    Attributes:
        began: seconds since the epoch.
        host: name of the machine.
        cpu: its processor's name.
        options: what was asked for, by option name.
        versions: package → version.
        roofline: of the machine; None where the run was interrupted before it began.
        budget_s: seconds that were left to spend.
        reference: the reference engine's latency, timed beforehand; None if it was not.
        reason: why it ended.
        elapsed_s, phase_s, latency_ms, verified: as in ``tune run --json``.
        profile: (symbol, seconds) of every kernel call of one inference of the artifact, in order.
        lanes: (lane, subgraph, begin, end in seconds) of one inference; empty where nothing runs side by side.
        one_lane_s: seconds of an inference on one lane, measured when the placement was chosen; None without one.
    """

    began: float = 0.0
    host: str = ""
    cpu: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    roofline: Roofline | None = None
    budget_s: float = 0.0
    reference: ReferenceTimed | None = None
    tasks: tuple[TaskHistory, ...] = ()
    slots: tuple[Slot, ...] = ()
    reason: str = ""
    elapsed_s: float = 0.0
    phase_s: Mapping[str, float] = field(default_factory=dict)
    latency_ms: Mapping[str, float | None] = field(default_factory=dict)
    verified: Mapping[str, Any] | None = None
    profile: tuple[tuple[str, float], ...] = ()
    lanes: tuple[tuple[str, str, float, float], ...] = ()
    one_lane_s: float | None = None


class Recorder:
    """An observer that keeps what the history needs of the events.

    Attributes:
        run: the run so far, without what no event reports.
    """

    def __init__(self) -> None:
        self.run = Run()
        self._why = ""
        self._ended_s = 0.0

    def __call__(self, event: Event) -> None:
        """Keep ``event``."""
        match event:
            case ReferenceTimed():
                self.run = replace(self.run, reference=event)
            case TuningBegan():
                self.run = replace(self.run, budget_s=event.budget_s)
            case SlotBegan():
                self._why = event.why
            case SlotDone():
                latencies = event.state.latencies_s[len(event.state.latencies_s) - event.measured :]
                slot = Slot(event.task.key, self._ended_s, event.elapsed_s, latencies, event.failures, self._why)
                self.run = replace(self.run, slots=(*self.run.slots, slot))
                self._ended_s = event.elapsed_s


def algorithm_of(config: Config) -> str:
    """Name of a config's algorithm; empty where there is no choice."""
    value = dict(config.items).get("algorithm", "")
    if isinstance(value, int):
        return "direct" if value == 0 else f"Winograd F({value}, 3)"
    return str(value)


def task_histories(
    tasks: Iterable[Task],
    jobs: Mapping[str, Job],
    known: Mapping[str, tuple[int, float | None]],
    log: TuningLog,
    target: Target,
) -> tuple[TaskHistory, ...]:
    """Return the history of a run for each of ``tasks`` that is tunable.

    Args:
        tasks: those of the model, with its own weights.
        known: task key → trials and best latency before the run.
    """
    histories = []
    for task in tasks:
        if task.key not in jobs:
            continue
        job = jobs[task.key]
        measured, state = job.measured, job.state
        algorithms: dict[str, float] = {}
        for config, latency_s in measured.items():
            name = algorithm_of(config)
            if name:
                algorithms[name] = min(latency_s, algorithms.get(name, latency_s))
        untuned = log.best(record_key(task, UNTUNED, target), UNTUNED)
        histories.append(
            TaskHistory(
                task.key,
                task.weight,
                state.bound_s,
                *known[task.key],
                None if untuned is None else untuned.measurement.latency_s,
                next(iter(measured.values()), None),
                min(measured.values(), default=None),
                algorithms,
            )
        )
    return tuple(histories)


def read_history(path: Path) -> tuple[Run, ...]:
    """The runs of the artifact at ``path``, oldest first; empty if it was built from a log alone.

    Raises:
        ArtifactError: if they cannot be read.
    """
    content = attachment(path, FILE)
    if content is None:
        return ()
    try:
        data = parsed_json(unpacked(content, GZIP, MOST_BYTES))
        return decode(tuple[Run, ...], data["runs"]) if data["format"] == FORMAT else ()
    except (*DAMAGE, UsageError) as error:
        raise ArtifactError(f"{path / FILE} is damaged ({first_line(error)}); run 'tune run' again") from error


def earlier_runs(out: Path, model: Path, target: Target, precision: Precision = FP32) -> tuple[Run, ...]:
    """The history of the artifact that a run is about to replace, if it is of the same model, target and precision."""
    try:
        manifest = read_manifest(out)
        origin = manifest["provenance"]
        same = (origin.get("sha256"), origin.get("precision", str(FP32))) == (sha256(model), str(precision))
        fingerprint = Target.from_json(json.dumps(manifest["target"])).fingerprint
        return read_history(out) if same and fingerprint == target.fingerprint else ()
    except (ArtifactError, KeyError) as error:
        logger.debug("no earlier history: %s", error)
        return ()


def write_history(path: Path, runs: tuple[Run, ...]) -> None:
    """Keep ``runs`` in the artifact at ``path``."""
    data = {"format": FORMAT, "runs": encode(runs)}
    attach(path, FILE, gzip.compress(json.dumps(data).encode(), mtime=0))


def known_reference(runs: Sequence[Run]) -> ReferenceTimed | None:
    """The reference engine's latency as the last of ``runs`` that timed it knows it."""
    return next((run.reference for run in reversed(runs) if run.reference is not None), None)


def remember(path: Path, run: Run, result: Mapping[str, Any], options: Options, earlier: tuple[Run, ...]) -> None:
    """Write ``run`` behind the ``earlier`` ones into the artifact at ``path``.

    A run that measured nothing is left out where a history is already kept. Another run may replace the artifact at any
    time, with a history of its own; then nothing is written.

    Args:
        run: what the events and the search say of it.
        result: the fields of ``tune run --json``.
    """
    try:
        if not run.slots and attachment(path, FILE) is not None:
            return
        if run.roofline is not None:
            earlier = (*earlier, _completed(path, run, result, options))
        if earlier:
            write_history(path, earlier)
    except ArtifactError as error:
        logger.warning("the history of this run is not kept: %s", error)


def _completed(path: Path, run: Run, result: Mapping[str, Any], options: Options) -> Run:
    """``run`` with its circumstances, its outcome, and timings of the finished artifact."""
    asked: dict[str, Any] = {
        name: value if isinstance(value, int | float | str | None) else str(value)
        for name, value in asdict(options).items()
        if name not in PRIVATE
    }
    asked["inputs"] = [f"{name}:{'x'.join(map(str, shape))}" for name, shape in options.inputs.items()]
    run = replace(
        run,
        began=time.time() - float(result["elapsed_s"]),
        host=platform.node(),
        cpu=read_host().model,
        versions={name: version for name in (DISTRIBUTION, *SHOWN) if (version := installed(name))},
        options=asked,
        **{name: result[name] for name in ("reason", "elapsed_s", "phase_s", "latency_ms", "verified")},
    )
    if run.latency_ms.get("tuned") is None:  # interrupted, or tuned for another machine
        return run
    artifact, session = read_artifact(path), InferenceSession(path)
    feed = random_inputs(artifact.frame.inputs if artifact.frame is not None else artifact.inputs, options.seed)
    run = replace(run, profile=kernel_times(lambda: session.profile(feed)))
    if artifact.plan.lanes is None:
        return run
    lanes = [lane.name for lane in artifact.steps.lanes]
    return replace(run, lanes=_lane_spans(session, feed, lanes), one_lane_s=artifact.plan.lanes.one_lane_s)


def _lane_spans(
    session: InferenceSession, feed: Arrays, lanes: Sequence[str]
) -> tuple[tuple[str, str, float, float], ...]:
    """(lane, subgraph, median begin, median end) of every subgraph of one inference; seconds since its start."""
    spans = median_timeline(lambda: session.timeline(feed))
    return tuple((lanes[span.group.lane], span.group.name, span.began_s, span.ended_s) for span in spans)
