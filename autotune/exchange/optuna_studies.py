"""Optuna studies made from a tuning log: one study per task, machine and space, one trial per measurement.

``optuna-dashboard sqlite:///x.db`` then shows how a run went. Optuna is the extra ``optuna``.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from schedules.errors import InstallError, LogError
from tuning_logs.record import RecordKey, TuningRecord
from tuning_logs.sql_store import TuningLog

if TYPE_CHECKING:
    from optuna.distributions import CategoricalDistribution
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial

Distributions = dict[str, "CategoricalDistribution"]


@dataclass(frozen=True)
class StudiesReport:
    """How many studies and trials were written, and how many studies the storage held already."""

    studies: int
    trials: int
    present: int


def export_studies(log: TuningLog, address: str) -> StudiesReport:
    """Write every key of ``log`` as a study into Optuna's storage at ``address``, such as ``sqlite:///x.db``.

    Raises:
        InstallError: if Optuna is not installed.
        LogError: if the storage cannot be used.
    """
    try:
        import optuna
        from optuna.exceptions import OptunaError
        from optuna.storages import RDBStorage
    except ImportError as error:
        raise InstallError(
            f"exporting to Optuna needs Optuna ({error}); install it with: pip install 'tune-compiler[optuna]'"
        ) from error
    try:
        with _quiet(optuna):
            storage = RDBStorage(address)
            known = set(optuna.get_all_study_names(storage))
            return _export(log, storage, known)
    # Optuna passes on what SQLAlchemy, a driver or the file system raise. All of it is about the address.
    except (OptunaError, SQLAlchemyError, ImportError, OSError, RuntimeError, ValueError) as error:
        first = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise LogError(
            f"Optuna cannot use the storage {_without_password(address)} ({first[:200]}); give sqlite:///FILE"
        ) from error


@contextlib.contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Without a line per study on standard error."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)


def _without_password(address: str) -> str:
    scheme, separator, rest = address.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _export(log: TuningLog, storage: RDBStorage, known: set[str]) -> StudiesReport:
    import optuna

    studies, trials, present = 0, 0, 0
    for key in log.counts():
        name = study_name(key)
        if name in known:
            present += 1
            continue
        records = list(log.records(key))
        study = optuna.create_study(storage=storage, study_name=name, direction="minimize")
        for field in ("task", "target", "space", "tvm"):
            study.set_user_attr(field, getattr(key, field))
        distributions = _distributions(records)
        study.add_trials([_trial(record, distributions) for record in records])
        studies += 1
        trials += len(records)
    return StudiesReport(studies, trials, present)


def study_name(key: RecordKey) -> str:
    """The name under which the measurements of ``key`` are a study."""
    return f"{key.task} {key.space} {key.target} tvm {key.tvm}"


def _choice(value: object) -> int | str:
    """A knob's value as Optuna can store it: a number or text."""
    return value if isinstance(value, int | str) else "×".join(map(str, value))  # type: ignore[call-overload]


def _distributions(records: list[TuningRecord]) -> Distributions:
    """Per knob the values that were tried: all trials of a study must agree on what could be chosen."""
    from optuna.distributions import CategoricalDistribution

    seen: dict[str, dict[int | str, None]] = {}
    for record in records:
        for knob, value in record.config.items:
            seen.setdefault(knob, {})[_choice(value)] = None
    return {
        knob: CategoricalDistribution(sorted(values, key=lambda v: (isinstance(v, str), v)))
        for knob, values in seen.items()
    }


def _trial(record: TuningRecord, distributions: Distributions) -> FrozenTrial:
    from optuna.trial import TrialState, create_trial

    measured = record.measurement
    chosen = {knob: _choice(value) for knob, value in record.config.items}
    notes: dict[str, Any] = {"host": record.host, "seed": str(record.seed), "compile_s": measured.compile_s}
    if not measured.ok:
        notes |= {"error": str(measured.error), "message": measured.message[:500]}
    trial = create_trial(
        state=TrialState.COMPLETE if measured.ok else TrialState.FAIL,
        value=measured.latency_s if measured.ok else None,
        params=chosen,
        distributions={knob: distributions[knob] for knob in chosen},
        user_attrs=notes,
    )
    # A log says when a measurement was recorded; it began that many seconds of compiling and running before.
    ended = datetime.datetime.fromtimestamp(max(0.0, record.when))
    trial.datetime_complete = ended
    trial.datetime_start = ended - datetime.timedelta(seconds=max(0.0, measured.compile_s + measured.run_s))
    return trial
