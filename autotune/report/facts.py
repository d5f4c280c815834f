"""The numbers of a report, read from an artifact alone: nothing is measured here, nothing drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.artifact.composite import Composite, model_of, read_composite
from autotune.artifact.directory import Artifact, read_artifact, read_tasks
from autotune.artifact.manifest import BENCH, SEGMENTS, SHAPES, attachment, damage_reported, kind_of, only_part
from autotune.artifact.precision_choice import PrecisionChoice, choice_of, precision_of
from autotune.host.roofline import Roofline
from autotune.measure.measurer import symbol_of
from autotune.tuning.run_history import Run, algorithm_of, read_history
from schedules.config import Config
from schedules.task import Task
from schedules.vocabulary.bounded import MOST_DEPTH, parsed_json
from schedules.vocabulary.errors import UsageError
from search.allocators.stopping import DISPROVED


@dataclass(frozen=True)
class Row:
    """One task of the artifact.

    Attributes:
        label: its name in short, see ``label_of``.
        latency_s: of the kernel that was built, as it was measured; None if it never was.
        share: of the time of all kernels, from 0 to 1.
        bound_s: roofline bound in seconds; None without a recorded roofline, and where a kernel was faster.
        memory_bound: whether moving its bytes takes longer than its operations; None without a recorded roofline.
        untuned_s: of its untuned program; None if not measured.
        trials, failed: over all runs.
        algorithm: of the kernel that was built; empty where there is no choice.
        tunable: whether it had knobs.
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
    def precision(self) -> str:
        """Work like ``precision_of``."""
        return precision_of(self.task)

    @property
    def bound_share(self) -> float | None:
        """Bound over latency: 1 is the roofline."""
        return self.bound_s / self.latency_s if self.latency_s and self.bound_s is not None else None


@dataclass(frozen=True)
class Facts:
    """Everything a report says.

    Attributes:
        rows: tasks, the largest share first.
        runs: oldest first; empty if the artifact was built from a log alone.
        roofline: the machine's, None without a run.
        bench: as ``tune bench --json``, or None.
        kernels_s: seconds of all kernels of one inference as they were measured alone.
        fallback_partitions: operators of every segment of the model that ONNX Runtime runs; all else is about one tuned
            segment.
        whole_model: name of the model that the segment is of; empty where the artifact is of a whole model.
    """

    artifact: Artifact
    rows: tuple[Row, ...]
    runs: tuple[Run, ...]
    roofline: Roofline | None
    bench: Mapping[str, Any] | None
    kernels_s: float
    fallback_partitions: tuple[tuple[str, ...], ...] = ()
    whole_model: str = ""

    @property
    def title(self) -> str:
        """The model's name, for people."""
        return self.whole_model or str(self.artifact.provenance.get("model", self.artifact.path.name))

    @property
    def precision(self) -> PrecisionChoice | None:
        """The decision of ``--precision auto``; None where the precision was given."""
        return choice_of(self.artifact.provenance)

    @property
    def place(self) -> str:
        """The artifact as a command names it: a part with the folder that it lies in."""
        path = self.artifact.path.absolute()
        return f"{path.parent.name}/{path.name}" if (path.parent / "manifest.json").is_file() else path.name

    @property
    def source(self) -> str:
        """The artifact's ONNX file as a command names it; a segment's lies beside it."""
        if self.whole_model:
            return model_of(Path(self.place)).as_posix()
        return str(self.artifact.provenance.get("model", "MODEL"))

    @property
    def template_shares(self) -> dict[str, float]:
        """Template → its share of the kernels' time, the largest first."""
        shares: dict[str, float] = {}
        for row in self.rows:
            shares[row.task.template] = shares.get(row.task.template, 0.0) + row.share
        return dict(sorted(shares.items(), key=lambda item: -item[1]))

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
    benched, path = path, only_part(path)
    if kind_of(path) == SHAPES:
        raise UsageError(f"{path} holds an artifact for every set of shapes; name one, such as {path / 'part-0'}")
    partitions: tuple[tuple[str, ...], ...] = ()
    whole_model = ""
    for folder in (path, path.absolute().parent):
        if kind_of(folder) == SEGMENTS:
            whole = read_composite(folder)
            partitions = tuple(part.operators for part in whole.fallbacks)
            whole_model = str(whole.provenance["model"])
            path = path if folder is not path else _heaviest(whole)
            break
    artifact, runs = read_artifact(path), read_history(path)
    tasks, _ = read_tasks(path)
    roofline = runs[-1].roofline if runs else None
    if bench is None and (kept := attachment(benched, BENCH) or attachment(path, BENCH)) is not None:
        with damage_reported(path / BENCH):
            bench = parsed_json(kept, MOST_DEPTH)
    seconds = {choice.task: choice.latency_s for choice in artifact.plan.choices}
    total = sum(task.weight * (seconds[task.key] or 0.0) for task in tasks)
    rows = [_row(artifact, task, runs, roofline, total) for task in tasks]
    rows.sort(key=lambda row: -row.share)
    bench = None if bench is None else _with_short_names(bench)
    return Facts(artifact, tuple(rows), runs, roofline, bench, total, partitions, whole_model)


def _with_short_names(bench: Mapping[str, Any]) -> Mapping[str, Any]:
    """``bench`` with artifacts called by their folders' names, where that tells all engines apart."""
    names = [str(engine["name"]) for engine in bench.get("engines", ())]
    short = {name: Path(name).name for name in names}
    if len(set(short.values())) < len(names):
        return bench
    by_name = ("speedup", "speedup_quartiles")
    renamed = {
        key: {short.get(name, name): value for name, value in bench[key].items()} for key in by_name if key in bench
    }
    engines = [{**engine, "name": short[str(engine["name"])]} for engine in bench.get("engines", ())]
    return {**bench, **renamed, **({"engines": engines} if engines else {})}


def _heaviest(whole: Composite) -> Path:
    """The tuned segment with most operations.

    Raises:
        UsageError: if there is none.
    """
    if not whole.tuned:
        raise UsageError(f"{whole.path}: ONNX Runtime runs the entire model, so there are no kernels to report")
    return max(
        (part.path for part in whole.tuned), key=lambda path: sum(t.flop * t.weight for t in read_tasks(path)[0])
    )


def label_of(task: Task) -> str:
    """``fused_conv2d3_add1_relu`` → ``conv2d3·add1·relu``."""
    return task.name.removeprefix("fused_").replace("_", "·")


def _row(artifact: Artifact, task: Task, runs: Sequence[Run], roofline: Roofline | None, total: float) -> Row:
    choice = next(choice for choice in artifact.plan.choices if choice.task == task.key)
    histories = [history for run in runs for history in run.tasks if history.task == task.key]
    trials = [latency for run in runs for slot in run.slots if slot.task == task.key for latency in slot.latencies_s]
    history = histories[-1] if histories else None
    bound_s = 0.0  # unknown
    if history is not None:
        bound_s = history.bound_s
    elif roofline is not None:
        bound_s = roofline.bound_s(task.flop, task.bytes, task.operands)
    latency_s = choice.latency_s
    disproved = latency_s is not None and latency_s < DISPROVED * bound_s
    return Row(
        task,
        choice.config,
        label_of(task),
        latency_s,
        task.weight * (latency_s or 0.0) / total if total else 0.0,
        None if not bound_s or disproved else bound_s,
        None if roofline is None else roofline.bound_s(0, task.bytes) >= task.flop / roofline.peak(task.operands) / 1e9,
        history.untuned_s if history else None,
        len(trials),
        trials.count(None),
        algorithm_of(choice.config),
        history is not None,
    )


def timeline(facts: Facts) -> list[tuple[Row | None, float, float]]:
    """(task, start, seconds) of every kernel call of one profiled inference; None for a call of no task."""
    rows = {symbol_of(row.task.key): row for row in facts.rows}
    spans, now = [], 0.0
    for symbol, seconds in facts.runs[-1].profile if facts.runs else ():
        spans.append((rows.get(symbol), now, seconds))
        now += seconds
    return spans
