"""The best known kernel of every task: from a log to a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import tvm

from autotune.artifact.plan import Choice, Plan
from schedules.lower import BASELINE, MOST_LOSSY, loss
from schedules.space import Space
from schedules.target import Target
from schedules.task import Task
from schedules.vocabulary.errors import MissingRecordError
from tuning_logs.record import RecordKey, TuningRecord

if TYPE_CHECKING:  # loads SQLAlchemy, which not all need
    from tuning_logs.sql_store import TuningLog

UNTUNED = Space("baseline", 1, ())
"""The space of the untuned program, under whose key its measurement is kept."""

SHOWN = 3
"""Missing tasks of which an error also says why; the others it lists by name and key."""


def record_key(task: Task, space: Space, target: Target) -> RecordKey:
    """Return where measurements of ``task`` on ``target`` are kept."""
    return RecordKey(task.key, target.fingerprint, space.identity, tvm.__version__)


def _best(log: TuningLog, key: RecordKey, space: Space, most_loss: int) -> TuningRecord | None:
    """The fastest record of ``key`` that gives up no more accuracy than allowed, of a config that ``space`` has."""
    return next((record for record in log.ranked(key, space) if loss(record.config) <= most_loss), None)


def make_plan(
    tasks: Iterable[Task],
    spaces: Mapping[str, Space],
    target: Target,
    log: TuningLog,
    frozen: bool = False,
    most_loss: int = MOST_LOSSY,
) -> Plan:
    """The best known config of every task.

    Args:
        most_loss: choose among configs of no more ``loss`` than this.
        frozen: refuse tasks that have something to tune and no record, instead of building them untuned.

    Raises:
        MissingRecordError: if ``frozen`` and records are missing, listing them, and why for the first few.
    """
    choices: list[Choice] = []
    missing: list[Task] = []
    for task in tasks:
        space = spaces[task.key]
        records = [
            record
            for record in (_best(log, record_key(task, s, target), s, most_loss) for s in (space, UNTUNED))
            if record
        ]
        if records:
            record = min(records, key=lambda record: record.measurement.latency_s)
            choices.append(Choice(task.key, record.config, record.measurement.latency_s))
            continue
        if space.knobs:
            missing.append(task)
        choices.append(Choice(task.key, BASELINE, None))
    if frozen and missing:
        reasons = [log.explain_miss(record_key(task, spaces[task.key], target)) for task in missing[:SHOWN]]
        named = [f"{task.name} ({task.key})" for task in missing]
        described = [f"{name}: {why}" for name, why in zip(named, reasons, strict=False)] + named[SHOWN:]
        raise MissingRecordError(
            f"{len(missing)} of {len(choices)} tasks have no record; tune first or merge a log that has them. "
            f"Missing: {'; '.join(described)}"
        )
    return Plan(target, tuple(sorted(choices, key=lambda choice: choice.task)))
