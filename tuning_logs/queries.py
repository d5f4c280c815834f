"""Queries of a tuning log: keys, counts, and the newest successful record of every config."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Double,
    FromClause,
    ScalarSelect,
    Select,
    bindparam,
    case,
    exists,
    func,
    null,
    select,
    tuple_,
    union_all,
)

from tuning_logs.codec import CLOCKS_APART_S, LATEST_S
from tuning_logs.record import RecordKey
from tuning_logs.schema import KEYS, RECORDS, WORKLOADS

PROGRAMS = select(WORKLOADS).where(WORKLOADS.c.program.is_not(None))
"""The tasks whose program is kept."""

BY_SPEED = (RECORDS.c.latency_s, RECORDS.c.measured_at, RECORDS.c.id)
"""Columns by which ``current_records`` are ordered."""


def key_query(key: RecordKey) -> Select[Any]:
    """The row number of ``key``."""
    return select(KEYS.c.id).where(
        KEYS.c.task == key.task, KEYS.c.target == key.target, KEYS.c.space == key.space, KEYS.c.tvm == key.tvm
    )


def count_query(task: str | None) -> Select[Any]:
    """Number of records by key and error kind, NULL for the timed ones; each half is answered by an index alone."""
    timed = select(RECORDS.c.key_id, null().label("error"), func.count().label("number"))
    timed = timed.where(RECORDS.c.latency_s.is_not(None)).group_by(RECORDS.c.key_id)
    failed = select(RECORDS.c.key_id, RECORDS.c.error, func.count().label("number"))
    failed = failed.where(RECORDS.c.error.is_not(None)).group_by(RECORDS.c.key_id, RECORDS.c.error)
    if task is not None:
        numbers = select(KEYS.c.id).where(KEYS.c.task == task)
        timed, failed = timed.where(RECORDS.c.key_id.in_(numbers)), failed.where(RECORDS.c.key_id.in_(numbers))
    both = union_all(failed, timed).subquery()
    return select(KEYS.c.task, KEYS.c.target, KEYS.c.space, KEYS.c.tvm, both.c.error, both.c.number).join(
        both, both.c.key_id == KEYS.c.id
    )


def _latest_s() -> float:
    """Seconds since the epoch after which no record can have been measured yet."""
    return time.time() + CLOCKS_APART_S


def _age(record: FromClause) -> ColumnElement[Any]:
    """Return what orders measurements of a config; the greatest is the newest.

    Records from the future come before all others: one would otherwise count for ever. Somebody's clock was wrong, and
    perhaps this machine's is, so they are no less valid while a config has no others. An old clock thus brings back
    older measurements of configs that were measured again, and hides none.
    """
    now: BindParameter[float] = bindparam(None, callable_=_latest_s, type_=Double())  # asked when a statement runs
    return tuple_(case((record.c.measured_at <= now, 1), else_=0), record.c.measured_at, record.c.id)


def _all_current() -> Select[Any]:
    """The newest successful record of every config of every key, fastest first, ties by age."""
    newer = RECORDS.alias("newer")
    readable = RECORDS.c.measured_at <= LATEST_S
    measured_again = exists().where(
        newer.c.key_id == RECORDS.c.key_id,
        newer.c.config_hash == RECORDS.c.config_hash,
        newer.c.config == RECORDS.c.config,
        newer.c.latency_s.is_not(None),
        newer.c.measured_at <= LATEST_S,
        _age(newer) > _age(RECORDS),
    )
    return select(RECORDS).where(RECORDS.c.latency_s.is_not(None), readable, ~measured_again).order_by(*BY_SPEED)


_ALL_CURRENT = _all_current()
"""Made once: a statement takes as long to make as to run."""


def current_records(key_number: int | ScalarSelect[int]) -> Select[Any]:
    """The newest successful record of every config of a key, fastest first, ties by age.

    The index ``records_by_speed`` gives rows by speed and ``records_by_config`` tells whether a row's config was
    measured again, so the first row costs as many steps as its config and outdated luckier ones have measurements.
    """
    return _ALL_CURRENT.where(RECORDS.c.key_id == key_number)
