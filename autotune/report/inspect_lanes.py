"""Lanes and times of an artifact's subgraphs: as planned, and as they are now."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.artifact.directory import Artifact, read_artifact
from autotune.artifact.manifest import only_part
from autotune.backends.executor import Span
from autotune.builder.lane_budget import bounds_of, cut_program
from autotune.graph.lanes import cpu_lane
from autotune.importer.program import Program
from autotune.runtime.model_timing import median_timeline
from autotune.runtime.session import InferenceSession
from autotune.validation.verify import random_inputs
from schedules.target import Target
from schedules.vocabulary.errors import ArtifactError

logger = logging.getLogger(__name__)

Times = tuple[float | None, float | None]


@dataclass(frozen=True)
class BranchRow:
    """One branch of a model before it is placed.

    Attributes:
        phase: number of its phase; several branches of one phase can run side by side.
        kernels: calls in it.
        bound_s: least seconds on all threads, by the roofline.
    """

    phase: int
    name: str
    kernels: int
    bound_s: float


def report_branches(program: Program, target: Target) -> tuple[BranchRow, ...]:
    """Return how the model is cut."""
    flat, cut = cut_program(program, target)
    bounds = bounds_of(program, target)
    rows = []
    for number, phase in enumerate(cut.phases):
        for branch in phase.branches:
            calls = [call for part in branch for call in part.nodes if call not in flat.removed]
            seconds = sum(bounds[flat.calls[call].symbol] for call in calls)
            rows.append(BranchRow(number, branch[0].name, len(calls), seconds))
    return tuple(rows)


@dataclass(frozen=True)
class LaneRow:
    """One subgraph, or a copy between memories.

    Attributes:
        phase: number of its phase; empty for a copy.
        name: phase and branch; of a copy the value and where it goes.
        kernels: calls in it.
        predicted, measured: seconds from the start of a run to its begin and end; the median run.
        is_copy: whether it is one.
    """

    phase: str
    name: str
    lane: str
    kernels: int
    predicted: Times
    measured: Times
    is_copy: bool = False


@dataclass(frozen=True)
class LaneReport:
    """All subgraphs in the order of their starts.

    Attributes:
        predicted_s: None where nothing was placed: the model runs on one lane.
        measured_s: until the last subgraph ends; None if a device that it was built for is not in this machine.
        one_lane_s: the model on one lane, measured when the placement was chosen.
    """

    artifact: str
    rows: tuple[LaneRow, ...]
    predicted_s: float | None
    measured_s: float | None
    one_lane_s: float | None

    def to_data(self) -> dict[str, Any]:
        """As in ``tune lanes --json``."""
        return asdict(self)


def report_lanes(path: Path) -> LaneReport:
    """Run the artifact at ``path`` some times on random inputs, and report what ran where and when.

    Raises:
        ArtifactError: if it is damaged or not for this machine.
    """
    path = only_part(path)
    artifact = read_artifact(path)
    plan = artifact.plan.lanes
    placed = {subgraph.name: subgraph for subgraph in plan.subgraphs} if plan is not None else {}
    lanes = artifact.steps.lanes or (cpu_lane(0, artifact.target.threads),)
    spans = _timeline(path, artifact)
    rows = []
    for number, group in enumerate([span.group for span in spans] or artifact.steps.groups):
        known, is_copy = placed.get(group.name), lanes[group.lane].copies
        rows.append(
            LaneRow(
                "" if is_copy else group.name.partition(".")[0],
                group.name,
                lanes[group.lane].name,
                group.calls,
                (known.begin_s, known.end_s) if known else (None, None),
                (spans[number].began_s, spans[number].ended_s) if spans else (None, None),
                is_copy,
            )
        )
    return LaneReport(
        str(path),
        tuple(rows),
        plan.predicted_s if plan is not None else None,
        max((span.ended_s for span in spans), default=None),
        plan.one_lane_s if plan is not None else None,
    )


def _timeline(path: Path, artifact: Artifact) -> list[Span]:
    """Return when every subgraph ran; none where a device that runs a part of the model is not in this machine."""
    try:
        session = InferenceSession(path)
    except ArtifactError as error:
        if not artifact.device_parts:
            raise
        logger.debug("%s is not run: %s", path, error)
        return []
    feed = random_inputs(artifact.inputs, 0)
    return median_timeline(lambda: session.timeline(feed))
