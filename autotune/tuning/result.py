"""The result of a run, as a value: the fields of ``tune run --json``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.artifact.known_runs import LogView
from autotune.artifact.plan import DeviceMemory, HandOver, LanePlan
from autotune.artifact.precision_choice import PrecisionChoice
from autotune.events import Observer, PhaseBegan
from autotune.validation.verdict import Verdict
from search.allocators.allocation import TaskState
from search.allocators.remaining import Remaining, together

PHASES = ("import", "search", "compile", "measure", "build", "verify")


@dataclass(frozen=True)
class PlacementSummary:
    """Expected and measured memory and latency of a placement on cores and devices.

    Attributes:
        predicted_ms, measured_ms: of the whole model; ``measured_ms`` is None without the device.
        devices: memory of each.
        hand_overs: ways between the memories, measured if ``measured_ms`` is, else guessed.
    """

    predicted_ms: float
    measured_ms: float | None
    devices: tuple[DeviceMemory, ...]
    hand_overs: tuple[HandOver, ...] = ()

    @staticmethod
    def of(plan: LanePlan) -> PlacementSummary:
        """Return the summary of a plan."""
        measured_ms = None if plan.measured_s is None else 1e3 * plan.measured_s
        return PlacementSummary(1e3 * plan.predicted_s, measured_ms, plan.devices, plan.hand_overs)

    def lines(self) -> list[str]:
        """Return the summary for people: the times, then a line for each device and each way between memories."""
        measured = "" if self.measured_ms is None else f", measured {self.measured_ms:.3f} ms"
        guessed = "" if measured else " (guessed)"
        times = f"placed: predicted {self.predicted_ms:.3f} ms{measured}"
        return [times, *map(_device_line, self.devices), *(f"{_way_line(way)}{guessed}" for way in self.hand_overs)]


def _device_line(memory: DeviceMemory) -> str:
    limit = f" of {_megabytes(memory.limit_bytes)}" if memory.limit_bytes else ""
    used = "" if memory.measured_bytes is None else f", measured {_megabytes(memory.measured_bytes)}"
    fetched = "all weights stay there"
    if memory.streamed_bytes:
        fetched = f"{_megabytes(memory.streamed_bytes)} of weights streamed in every run"
    return f"{memory.device}: expected {_megabytes(memory.bytes)}{limit}{used}; {fetched}"


def _way_line(way: HandOver) -> str:
    speed = f", {1e-9 / way.s_per_byte:.1f} GB/s" if way.s_per_byte else ""
    return f"{way.source} to {way.target}: {1e6 * way.latency_s:.1f} µs{speed}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        parts: results of what was tuned where that was more than one thing: the parts of one model, or several models.
        weights: of the models in ``parts``; empty where those are parts of one model.
        fallback_partitions: operators of every part that ONNX Runtime runs.
        views: of the log, with everything that the artifact is made of.
        precision: what ``--precision auto`` decided; None where the precision was given.
        placement: what a placement on cores and devices takes; None where nothing was placed on a device.
        any_batch: whether the artifact, built for one row of an open batch, answers any batch row by row.
    """

    model: str
    artifact: Path
    target: str
    threads: int
    tasks: int
    measured_trials: int = 0
    failed_trials: int = 0
    reused_records: int = 0
    elapsed_s: float = 0.0
    phase_s: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    latency_ms: Mapping[str, float | None] = field(default_factory=dict)
    verified: Verdict | None = None
    reason: str = ""
    remaining: Remaining | None = None
    interrupted: bool = False
    states: tuple[TaskState, ...] = ()
    parts: tuple[Result, ...] = ()
    weights: tuple[int, ...] = ()
    fallback_partitions: tuple[tuple[str, ...], ...] = ()
    views: tuple[LogView, ...] = ()
    precision: PrecisionChoice | None = None
    placement: PlacementSummary | None = None
    any_batch: bool = False

    def to_data(self) -> dict[str, Any]:
        """As in ``tune run --json``; a run of several parts or models has an entry for each."""
        several = "models" if self.weights else "segments" if self.fallback_partitions else "specialisations"
        parts: dict[str, Any] = {several: [part.to_data() for part in self.parts]} if self.parts else {}
        for data, weight in zip(parts.get("models", ()), self.weights, strict=True):
            data["weight"] = weight
        if self.fallback_partitions:
            parts["islands"] = [list(operators) for operators in self.fallback_partitions]
        return {
            **parts,
            "model": self.model,
            "artifact": str(self.artifact),
            "target": self.target,
            "threads": self.threads,
            "tasks": self.tasks,
            "measured_trials": self.measured_trials,
            "failed_trials": self.failed_trials,
            "reused_records": self.reused_records,
            "elapsed_s": self.elapsed_s,
            "phase_s": dict(self.phase_s),
            "latency_ms": {"untuned": None, "tuned": None, **self.latency_ms},
            "verified": None if self.verified is None else asdict(self.verified),
            "reason": self.reason,
            "remaining_gain": None if self.remaining is None else self.remaining.to_data(),
            "interrupted": self.interrupted,
            **({} if self.precision is None else {"precision": self.precision.to_data()}),
            **({} if self.placement is None else {"placement": asdict(self.placement)}),
            **({"any_batch": True} if self.any_batch else {}),
        }


def combined(parts: Sequence[Result]) -> Result:
    """One result of several parts: counts, times and what is left to gain added, the worst error, every reason.

    The latency and the model's name are the first part's; no part makes an empty result.
    """
    if not parts:
        return Result("", Path(), "", 0, 0)
    verdicts = [part.verified for part in parts if part.verified is not None]
    return replace(
        parts[0],
        tasks=sum(part.tasks for part in parts),
        measured_trials=sum(part.measured_trials for part in parts),
        failed_trials=sum(part.failed_trials for part in parts),
        reused_records=sum(part.reused_records for part in parts),
        elapsed_s=sum(part.elapsed_s for part in parts),
        phase_s={name: sum(part.phase_s[name] for part in parts) for name in PHASES},
        verified=max(verdicts, key=lambda verdict: (not verdict.passed, verdict.max_rel_err), default=None),
        reason="; ".join(dict.fromkeys(part.reason for part in parts if part.reason)),
        remaining=together([part.remaining for part in parts]),
        interrupted=any(part.interrupted for part in parts),
        states=tuple(state for part in parts for state in part.states),
        parts=tuple(parts),
        views=tuple(view for part in parts for view in part.views),
    )


class PhaseClock:
    """Wall-clock seconds of the phases of a run.

    Args:
        observe: told when a phase begins.
        spent_s: name → seconds of phases that are over.

    Attributes:
        phase_s: name → seconds so far.
    """

    def __init__(self, observe: Observer, spent_s: Mapping[str, float] | None = None) -> None:
        self.phase_s = {**dict.fromkeys(PHASES, 0.0), **(spent_s or {})}
        self.observe = observe

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the body to ``name``."""
        self.observe(PhaseBegan(name))
        began = time.perf_counter()
        try:
            yield
        finally:
            self.phase_s[name] += time.perf_counter() - began

    def move(self, seconds: float, source: str, target: str) -> None:
        """Charge ``seconds`` that were spent inside of phase ``source`` to ``target``."""
        self.phase_s[source] -= seconds
        self.phase_s[target] += seconds
