"""Plan: the decisions of a run. It needs only the log, and `build` needs only it and the model."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from autotune.artifact.plain_data import decode, encode
from schedules.config import Config
from schedules.target import Target
from schedules.vocabulary.bounded import DAMAGE, parsed_json
from schedules.vocabulary.errors import ArtifactError, UsageError, first_line


@dataclass(frozen=True)
class Choice:
    """One task's kernel: its config and what it was measured at.

    Attributes:
        task: key.
        config: the chosen config.
        latency_s: measured seconds, or None if it was never measured (the untuned program).
    """

    task: str
    config: Config
    latency_s: float | None


@dataclass(frozen=True)
class Placed:
    """A subgraph where it runs.

    Attributes:
        name: of the subgraph; see ``graph.partition``.
        lane: of the lane.
        calls: numbers of its kernel calls in the program.
        begin_s, end_s: when it should begin and end, seconds from the start of a run.
    """

    name: str
    lane: str
    calls: tuple[int, ...]
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class DeviceMemory:
    """A placement's use of a device's memory.

    Attributes:
        device: such as ``cuda:0``.
        limit_bytes: that the model may use; 0 if that is not known.
        bytes: for weights, buffers and activations, as planned.
        streamed_bytes: weights that every run fetches from the host's memory.
        measured_bytes: that the device said it used when the artifact was opened; None if it was not.
    """

    device: str
    limit_bytes: int
    bytes: int
    streamed_bytes: int
    measured_bytes: int | None = None


@dataclass(frozen=True)
class HandOver:
    """A way between two memories, as a placement was priced by.

    Attributes:
        source, target: ``host``, or a device such as ``cuda:0``.
        latency_s, s_per_byte: seconds of a copy, and those that each of its bytes adds.
    """

    source: str
    target: str
    latency_s: float
    s_per_byte: float


@dataclass(frozen=True)
class LanePlan:
    """The lanes of a placed model and the subgraphs that each runs.

    Attributes:
        lanes: as ``--lanes`` names them, or how ``auto`` was understood.
        choices: threads of a lane → kernels for so many threads, where that is not the plan's own number; each sorted
            by task key.
        subgraphs: in the order of their starts.
        one_lane_s: the model on one lane of all threads, measured beside this placement; None if it was not.
        measured_s: this placement.
        devices: what it takes of each device's memory.
        hand_overs: ways between memories.
    """

    lanes: str
    choices: tuple[tuple[int, tuple[Choice, ...]], ...]
    subgraphs: tuple[Placed, ...]
    one_lane_s: float | None = None
    measured_s: float | None = None
    devices: tuple[DeviceMemory, ...] = ()
    hand_overs: tuple[HandOver, ...] = ()

    @property
    def predicted_s(self) -> float:
        """Seconds that the placement should take."""
        return max((placed.end_s for placed in self.subgraphs), default=0.0)

    def decided(self) -> list[str]:
        """Return all that decides the built code, as text."""
        kernels = [f"{threads} {c.task} {c.config.to_json()}" for threads, choices in self.choices for c in choices]
        return [*kernels, *(f"{placed.lane} {placed.calls}" for placed in self.subgraphs)]


@dataclass(frozen=True)
class Plan:
    """Every decision of one model on one target; equal plans build equal artifacts.

    Attributes:
        target: what is built for.
        choices: one per task, sorted by task key.
        lanes: where subgraphs run; None for one lane of all threads.
    """

    target: Target
    choices: tuple[Choice, ...]
    lanes: LanePlan | None = None

    @property
    def digest(self) -> str:
        """Hash of what decides the built code: target, tasks and configs (not the measured times)."""
        decided = [self.target.to_json(), *(f"{choice.task} {choice.config.to_json()}" for choice in self.choices)]
        decided += [] if self.lanes is None else self.lanes.decided()
        return hashlib.sha256("\n".join(decided).encode()).hexdigest()

    def config(self, task: str) -> Config:
        """The config of ``task``."""
        return next(choice.config for choice in self.choices if choice.task == task)

    def to_json(self) -> str:
        """JSON text; ``from_json`` reads it back."""
        return json.dumps(encode(self), indent=1)

    @staticmethod
    def from_json(text: str) -> Plan:
        """Inverse of ``to_json``.

        Raises:
            ArtifactError: if the text is not a plan.
        """
        try:
            return decode(Plan, parsed_json(text))
        except (*DAMAGE, UsageError) as error:
            raise ArtifactError(f"plan.json is not a plan ({first_line(error)}); build the artifact again") from error
