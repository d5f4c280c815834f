"""Where in its course a ``tune run`` is: read from its events, and from what lies at and beside the artifact."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PHASES = ("start", "import", "slots", "settle", "build", "verify", "swap")
"""What a run does, in order.

    start    Python and its imports, until the first event
    import   the model becomes kernels, workers start, the log is opened
    slots    candidates are built and measured
    settle   the finalists of every task are timed once more
    build    the artifact is compiled and written into a scratch folder
    verify   it is compared with the reference and timed
    swap     from its arrival in its place to the end: the old one is removed, the history is written
"""


@dataclass(frozen=True)
class Course:
    """What the events of a run say.

    Attributes:
        acknowledged: task key → trials whose slots are done, so that their records are in the log.
        known: task key → trials that the run found in the log.
        pending: trials of the slot in progress; 0 if there is none.
        phase: the last that an event tells of, ``start`` to ``build``.
        finished: whether the run reported its result.
    """

    acknowledged: dict[str, int]
    known: dict[str, int]
    pending: int
    phase: str
    finished: bool


def read_events(path: Path) -> list[dict[str, Any]]:
    """The whole lines of an events file; none if it is not there yet."""
    if not path.exists():
        return []
    *lines, _ = path.read_text().split("\n")  # the last is empty, or a line that is being written
    return [json.loads(line) for line in lines]


def course(events: list[dict[str, Any]], trials: int) -> Course:
    """The course of a run that was told to end after ``trials`` trials, those in the log included."""
    acknowledged: dict[str, int] = {}
    known: dict[str, int] = {}
    pending, phase, finished = 0, "start", False
    for event in events:
        match event["event"]:
            case "phase":
                phase = event["name"]
            case "tuning_began":
                known = {task["key"]: task["trials"] for task in event["tasks"]}
                phase = "slots"
            case "slot_began":
                pending = event["count"]
            case "slot_done":
                acknowledged[event["key"]] = acknowledged.get(event["key"], 0) + event["measured"]
                pending = 0
            case "result":
                finished = True
    if phase == "slots" and known and sum(known.values()) + sum(acknowledged.values()) >= trials:
        phase = "settle"
    return Course(acknowledged, known, pending, phase, finished)


@dataclass(frozen=True)
class Place:
    """Where the artifact of a run goes, and what was there before the run.

    Attributes:
        inode: of the folder that was there; 0 if there was none.
    """

    out: Path
    inode: int

    @classmethod
    def of(cls, out: Path) -> Place:
        """As it is now."""
        return cls(out, inode(out))

    @property
    def is_replaced(self) -> bool:
        """Whether a new artifact has arrived."""
        return inode(self.out) not in (0, self.inode)

    @property
    def is_written(self) -> bool:
        """Whether a new artifact lies complete in a scratch folder."""
        try:
            return any(True for _ in self.out.parent.glob(f".{self.out.name}-*/*/manifest.json"))
        except FileNotFoundError:  # a folder was removed while it was looked into
            return False


def inode(path: Path) -> int:
    """Number of the folder at ``path``; 0 if there is none."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def phase_now(events: Path, trials: int, place: Place) -> str:
    """The phase of a run at this moment."""
    if place.is_replaced:
        return "swap"
    phase = course(read_events(events), trials).phase
    return "verify" if phase == "build" and place.is_written else phase
