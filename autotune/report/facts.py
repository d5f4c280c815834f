"""What a report says, as numbers: put together from an artifact alone. Nothing is measured, nothing drawn.

Notation: w = weight, b = best latency known, t = seconds of tuning, all runs of the artifact end to end.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.artifact.bundle import is_bundle
from autotune.artifact.chain import Chain, is_chain, model_of, read_chain
from autotune.artifact.directory import Artifact, attachment, read_artifact, read_tasks
from autotune.host.roofline import Peak
from autotune.measure.measurer import symbol_of
from autotune.tuning.job import DISPROVED
from autotune.tuning.run_history import Run, TaskStory, algorithm_of, read_history
from autotune.validation.bench import BENCH
from schedules.config import Config
from schedules.errors import UsageError
from schedules.task import Task

FIRST_SLOT, SLOT = 2, 8
"""Trials of a task's first slot and of the others, where slots are dealt in turn."""

Curve = list[tuple[float, float]]
"""(t, seconds of all kernels of one inference), at every change."""


@dataclass(frozen=True)
class Row:
    """One task of the artifact.

    Attributes:
        label: its name without what every name has.
        latency_s: of the kernel that was built, as it was measured; None if it never was.
        share: of the time of all kernels, from 0 to 1.
        bound_s: roofline bound in seconds; None without a recorded peak, and where a kernel was faster.
        memory_bound: whether moving its bytes takes longer than its operations; None without a recorded peak.
        untuned_s: of its untuned program; None if not measured.
        trials, failed: over all runs.
        algorithm: of the kernel that was built; empty where there is no choice.
        tunable: whether there was anything to choose.
    """

    task: Task
    config: Config
    label: str
    latency_s: float | None
    share: float
    bound_s: float | None
    memory_bound: bool | None
    untuned_s: float | None
    trials: int
    failed: int
    algorithm: str
    tunable: bool

    @property
    def gflops(self) -> float | None:
        """Operations per second by the task's nominal count, 1e9/s."""
        return self.task.flop / self.latency_s / 1e9 if self.latency_s else None

    @property
    def bound_share(self) -> float | None:
        """Bound over latency: 1 is as fast as the machine allows."""
        return self.bound_s / self.latency_s if self.latency_s and self.bound_s is not None else None


@dataclass(frozen=True)
class Decision:
    """What the kernels of one inference would take if one decision had been left out.

    Attributes:
        name: the decision.
        without: in words, what would be there instead.
        with_s, without_s: seconds of all kernels with the decision and without it.
    """

    name: str
    without: str
    with_s: float
    without_s: float


@dataclass(frozen=True)
class Facts:
    """Everything a report says.

    Attributes:
        rows: tasks, the largest share first.
        runs: oldest first; empty if the artifact was built from a log alone.
        peak: the machine's, None without a run.
        bench: as ``tune bench --json``, or None.
        kernels_s: seconds of all kernels of one inference as they were measured alone.
        islands: operators of every segment of the model that ONNX Runtime runs; the rest is about the tuned segment.
        whole: name of the model that the segment is of; empty where the artifact is of a whole model.
    """

    artifact: Artifact
    rows: tuple[Row, ...]
    runs: tuple[Run, ...]
    peak: Peak | None
    bench: Mapping[str, Any] | None
    kernels_s: float
    islands: tuple[tuple[str, ...], ...] = ()
    whole: str = ""

    @property
    def title(self) -> str:
        """The model's name, for people."""
        return self.whole or str(self.artifact.provenance.get("model", self.artifact.path.name))

    @property
    def place(self) -> str:
        """The artifact as a command names it: a part with the folder that it lies in."""
        path = self.artifact.path.absolute()
        return f"{path.parent.name}/{path.name}" if (path.parent / "manifest.json").is_file() else path.name

    @property
    def source(self) -> str:
        """The artifact's ONNX file as a command names it; a segment's lies beside it."""
        if self.whole:
            return model_of(Path(self.place)).as_posix()
        return str(self.artifact.provenance.get("model", "MODEL"))

    @property
    def failures(self) -> Counter[str]:
        """Kind of error → trials that ended so."""
        return Counter(kind for run in self.runs for slot in run.slots for kind in slot.failures)

    @property
    def trials(self) -> int:
        """Measured trials of all runs."""
        return sum(len(slot.latencies_s) for run in self.runs for slot in run.slots)


def read_facts(path: Path, bench: Mapping[str, Any] | None = None) -> Facts:
    """The facts of the artifact at ``path``.

    Args:
        bench: as ``tune bench --json``; None takes what ``tune bench`` left in the artifact.

    Raises:
        ArtifactError: if the artifact is damaged or not for this machine.
        UsageError: if it holds several artifacts: their kernels differ, so one has to be named.
    """
    if is_bundle(path):
        raise UsageError(f"{path} holds an artifact for every set of shapes; name one, such as {path / 'part-0'}")
    islands: tuple[tuple[str, ...], ...] = ()
    whole = ""
    for folder in (path, path.absolute().parent):
        if is_chain(folder):
            chain = read_chain(folder)
            islands, whole = tuple(link.operators for link in chain.islands), str(chain.provenance["model"])
            path = path if folder is not path else _heaviest(chain)
            break
    artifact, runs = read_artifact(path), read_history(path)
    tasks, _ = read_tasks(path)
    peak = Peak(**runs[-1].peak) if runs and runs[-1].peak else None  # type: ignore[arg-type]
    if bench is None and (kept := attachment(path, BENCH)) is not None:
        bench = json.loads(kept)
    seconds = {choice.task: choice.latency_s for choice in artifact.plan.choices}
    total = sum(task.weight * (seconds[task.key] or 0.0) for task in tasks)
    rows = [_row(artifact, task, runs, peak, total) for task in tasks]
    rows.sort(key=lambda row: -row.share)
    return Facts(artifact, tuple(rows), runs, peak, bench, total, islands, whole)


def _heaviest(chain: Chain) -> Path:
    """The tuned segment that most work was found for."""
    return max(
        (link.path for link in chain.tuned), key=lambda path: sum(t.flop * t.weight for t in read_tasks(path)[0])
    )


def label_of(task: Task) -> str:
    """``fused_conv2d3_add1_relu`` → ``conv2d3·add1·relu``."""
    return task.name.removeprefix("fused_").replace("_", "·")


def _row(artifact: Artifact, task: Task, runs: Sequence[Run], peak: Peak | None, total: float) -> Row:
    choice = next(choice for choice in artifact.plan.choices if choice.task == task.key)
    stories = [story for run in runs for story in run.tasks if story.task == task.key]
    trials = [latency for run in runs for slot in run.slots if slot.task == task.key for latency in slot.latencies_s]
    story = stories[-1] if stories else None
    bound_s = story.bound_s if story else peak.bound_s(task.flop, task.bytes) if peak is not None else None
    return Row(
        task,
        choice.config,
        label_of(task),
        choice.latency_s,
        task.weight * (choice.latency_s or 0.0) / total if total else 0.0,
        None if not bound_s or (choice.latency_s or bound_s) < DISPROVED * bound_s else bound_s,  # 0: disproved
        None if peak is None else peak.bound_s(0, task.bytes) >= task.flop / peak.gflops / 1e9,
        story.untuned_s if story else None,
        len(trials),
        trials.count(None),
        algorithm_of(choice.config),
        story is not None,
    )


def curve(facts: Facts) -> Curve:
    """The kernels of one inference over the time of tuning; what has no valid config yet counts untuned."""
    best, constant = _start(facts)
    weights = _weights(facts)
    points: Curve = [(0.0, constant + _sum(best, weights))]
    for ended_s, task, latencies in _slots(facts):
        best[task] = min([best[task], *latencies]) if task in best else min(latencies, default=0.0)
        points.append((ended_s, constant + _sum(best, weights)))
    return points


def curve_in_turn(facts: Facts) -> Curve:
    """The same trials at the same cost, but with slots dealt to the tasks in turn: an estimate.

    A task's trials come in the order in which they were really tried. Where none are left it is passed over, which
    flatters the order: nobody knows what more trials would have brought.
    """
    best, constant = _start(facts)
    weights = _weights(facts)
    waiting: dict[str, list[tuple[float, float | None]]] = {task: [] for task in weights}
    for run in facts.runs:
        for slot in run.slots:
            cost_s = (slot.ended_s - slot.began_s) / max(1, len(slot.latencies_s))
            waiting.setdefault(slot.task, []).extend((cost_s, latency) for latency in slot.latencies_s)
    points: Curve = [(0.0, constant + _sum(best, weights))]
    now, size = 0.0, FIRST_SLOT
    while any(waiting.values()):
        for task, trials in waiting.items():
            dealt, waiting[task] = trials[:size], trials[size:]
            now += sum(cost_s for cost_s, _ in dealt)
            valid = [latency for _, latency in dealt if latency is not None]
            if valid:
                best[task] = min([*valid, best.get(task, valid[0])])
                points.append((now, constant + _sum(best, weights)))
        size = SLOT
    return points


def _weights(facts: Facts) -> dict[str, int]:
    return {row.task.key: row.task.weight for row in facts.rows if row.tunable}


def _start(facts: Facts) -> tuple[dict[str, float], float]:
    """Latency of every tunable task before the first slot, where known, and the seconds of all that is not tunable."""
    best: dict[str, float] = {}
    for run in facts.runs[:1]:
        for story in run.tasks:
            known = story.before_s if story.before_s is not None else story.untuned_s
            if known is not None:
                best[story.task] = known
    constant = sum(row.task.weight * (row.latency_s or 0.0) for row in facts.rows if not row.tunable)
    return best, constant


def _slots(facts: Facts) -> Iterator[tuple[float, str, list[float]]]:
    """(t, task, valid latencies) of every slot, runs end to end."""
    offset = 0.0
    for run in facts.runs:
        for slot in run.slots:
            yield offset + slot.ended_s, slot.task, [latency for latency in slot.latencies_s if latency is not None]
        offset += run.slots[-1].ended_s if run.slots else 0.0


def _sum(best: Mapping[str, float], weights: Mapping[str, int]) -> float:
    return sum(weights.get(task, 1) * latency for task, latency in best.items())


def decisions(facts: Facts) -> list[Decision]:
    """What every recorded decision gained: the kernels' time without it, most first."""
    if not facts.runs or facts.kernels_s <= 0:
        return []
    stories = {story.task: story for run in facts.runs for story in run.tasks}
    first = {story.task: story.first_s for story in facts.runs[0].tasks}

    def total(instead: Mapping[str, float | None]) -> float:
        return sum(row.task.weight * (instead.get(row.task.key) or row.latency_s or 0.0) for row in facts.rows)

    now_s = facts.kernels_s
    found = [
        Decision("Templates, layouts and search", "untuned kernels", now_s, total(_each(stories, "untuned_s"))),
        Decision("Search", "the first guess of every template", now_s, total(first)),
    ]
    if any(len(story.algorithms) > 1 for story in stories.values()):
        direct = {task: story.algorithms.get("direct") for task, story in stories.items()}
        found.append(Decision("Algorithm", "direct convolution everywhere", now_s, total(direct)))
    real, in_turn = curve(facts), curve_in_turn(facts)
    if len(real) > 1:
        half_s = real[-1][0] / 2
        without = f"slots dealt in turn, after {half_s:.0f} s (estimate)"
        found.append(Decision("Allocation", without, value_at(real, half_s), value_at(in_turn, half_s)))
    last = facts.runs[-1]
    if last.lanes and last.one_lane_s is not None:
        found.append(Decision("Placement", "one lane for all", max(end for *_, end in last.lanes), last.one_lane_s))
    return found


def _each(stories: Mapping[str, TaskStory], field: str) -> dict[str, float | None]:
    return {task: getattr(story, field) for task, story in stories.items()}


def value_at(points: Curve, at_s: float) -> float:
    """A step curve's value."""
    return next((value for t, value in reversed(points) if t <= at_s), points[0][1])


def timeline(facts: Facts) -> list[tuple[Row | None, float, float]]:
    """(task, start, seconds) of every kernel call of one profiled inference; None for what is no task's."""
    rows = {symbol_of(row.task.key): row for row in facts.rows}
    spans, now = [], 0.0
    for symbol, seconds in facts.runs[-1].profile if facts.runs else ():
        spans.append((rows.get(symbol), now, seconds))
        now += seconds
    return spans
