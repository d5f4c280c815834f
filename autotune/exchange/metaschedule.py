"""MetaSchedule's JSON databases: records out to plain TVM, records in from it.

A database is two files, ``database_workload.json`` and ``database_tuning_record.json``, one JSON text per line. Only
TVM can read and write these texts, and a bad one can crash it. So every record goes through a worker process
(``trace_worker``), which is killed when it hangs and replaced when it dies. A line that kills it is reported like any
other bad line.

TVM does not look at the machine when it looks records up, so an export has a folder per target. ``target.json`` beside
the two files is ours: it describes the machine more exactly than TVM does.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.exchange.trace_client import TraceClient
from schedules.config import Config
from schedules.errors import AutotuneError, LogError, UsageError
from schedules.target import Target
from tuning_logs.compatibility import isa_of
from tuning_logs.exchange import BATCH, BadLine, ExchangeReport, bounded_lines, write_lines
from tuning_logs.measurement import Measurement
from tuning_logs.record import RecordKey, TuningRecord
from tuning_logs.sql_store import TuningLog

WORKLOADS, RECORDS, TARGET = "database_workload.json", "database_tuning_record.json", "target.json"

PER_KEY = 64
"""Fastest configs per key that are exported: what ``gc`` keeps, too."""

NEVER_S = 1e9
"""MetaSchedule writes a failure as a latency beyond this."""


@dataclass(frozen=True)
class DatabaseReport:
    """What an export wrote.

    Attributes:
        databases: folder → records in it.
        skipped: why → how many records could not be expressed.
    """

    databases: dict[str, int]
    skipped: dict[str, int]


def export_databases(log: TuningLog, folder: Path, per_key: int = PER_KEY) -> DatabaseReport:
    """Write the fastest records of ``log`` below ``folder``, one database per target.

    Failed measurements are left out: the format has no place for them. A record's one latency is the median.

    Raises:
        LogError: if the files cannot be written.
    """
    databases: dict[str, int] = {}
    skipped: Counter[str] = Counter()
    targets = log.targets()
    by_target: dict[str, list[RecordKey]] = {}
    for key, count in log.counts().items():
        if count.timed:
            by_target.setdefault(key.target, []).append(key)
    with TraceClient() as client:
        for fingerprint, keys in sorted(by_target.items()):
            if fingerprint not in targets:
                lost = sum(len(log.fastest(key, per_key)) for key in keys)
                skipped[f"the log does not describe target {fingerprint}"] += lost
                continue
            found = _read_database(log, keys, targets[fingerprint], per_key, client)
            skipped += found.skipped
            if found.records:
                described = [targets[fingerprint].to_json()]
                _save(folder / fingerprint, {WORKLOADS: found.workloads, RECORDS: found.records, TARGET: described})
                databases[str(folder / fingerprint)] = len(found.records)
    return DatabaseReport(databases, dict(skipped))


@dataclass(frozen=True)
class _Database:
    """Lines of both files, and why → how many records could not be expressed."""

    workloads: list[str]
    records: list[str]
    skipped: Counter[str]


def _read_database(
    log: TuningLog, keys: list[RecordKey], target: Target, per_key: int, client: TraceClient
) -> _Database:
    """The records of ``keys``, all of one target, as a database."""
    workloads: dict[str, str] = {}
    records: list[str] = []
    skipped: Counter[str] = Counter()
    for key in keys:
        program = log.workload(key.task)
        found = log.fastest(key, per_key)
        if program is None:
            skipped["the log does not hold its program"] += len(found)
            continue
        for record in found:
            latency_s = record.measurement.latency_s
            answer = client.request(write=[program, record.config.to_json(), target.to_json(), latency_s])
            if "error" in answer:
                skipped[answer["error"]] += 1
                continue
            workloads.setdefault(key.task, json.dumps(answer["workload"]))
            index = list(workloads).index(key.task)
            records.append(json.dumps([index, answer["record"]]))
    return _Database(list(workloads.values()), records, skipped)


def _save(folder: Path, files: Mapping[str, list[str]]) -> None:
    """Write ``files`` (name → lines) into ``folder``, each complete or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, lines in files.items():
            write_lines(folder / name, (f"{line}\n" for line in lines))
    except OSError as error:
        raise LogError(f"the log cannot be exported to {folder} ({error.strerror}); give another folder") from error


def import_databases(folder: Path, log: TuningLog, when: float) -> ExchangeReport:
    """Read the database in ``folder``, or those in its subfolders, into ``log``.

    Imported records are kept under a space of their own (``SPACE`` in ``schedules/templates/common/traced.py``), whose
    configs are traces. 'tune log' shows them and exports them again. No searcher draws from that space, so no artifact
    is built from them: MetaSchedule does not check what its kernels compute.

    Args:
        when: seconds since the epoch; a database does not say when it was made.

    Raises:
        LogError: if there is no database or it cannot be read.
    """
    found = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())] if folder.is_dir() else []
    databases = [path for path in found if (path / WORKLOADS).is_file() and (path / RECORDS).is_file()]
    if not databases:
        raise LogError(f"{folder} holds no {WORKLOADS} and {RECORDS}; give MetaSchedule's work_dir")
    with TraceClient() as client:
        importer = _Importer(log, client, when)
        for path in databases:
            try:
                importer.read(path)
            except OSError as error:
                raise LogError(f"{path} cannot be imported ({error.strerror}); check its files") from error
    return importer.report


class _Importer:
    """Reads databases into a log.

    Attributes:
        report: what was read so far.
    """

    def __init__(self, log: TuningLog, client: TraceClient, when: float) -> None:
        self.report = ExchangeReport()
        self._log = log
        self._client = client
        self._when = when
        self._batch: list[TuningRecord] = []
        self._kept: set[str] = set()

    def read(self, path: Path) -> None:
        """Store every record that can be read; the others are reported by their line in the file of records."""
        with (path / WORKLOADS).open("rb") as stream:
            workloads = list(bounded_lines(stream))
        described = path / TARGET
        exact = Target.from_json(described.read_text(encoding="utf-8")) if described.is_file() else None
        with (path / RECORDS).open("rb") as stream:
            for number, line in enumerate(bounded_lines(stream), start=1):
                self.report.lines += 1
                try:
                    self._take(_request_of(line, workloads), exact)
                except AutotuneError as error:
                    self.report.bad.append(BadLine(number, str(error)))
        self._store()

    def _take(self, request: list[object], exact: Target | None) -> None:
        answer = self._client.request(read=request)
        if "error" in answer:
            raise LogError(answer["error"])
        latencies = tuple(float(value) for value in answer["run_secs"])
        if not latencies or not all(0 < value < NEVER_S for value in latencies) or not math.isfinite(sum(latencies)):
            raise LogError("it was never timed")
        target = exact or _target_of(answer["target"] or {})
        self._describe(answer, target)
        key = RecordKey(answer["task"], target.fingerprint, answer["space"], answer["tvm"])
        config = Config.from_json(answer["config"])
        provenance = {"source": "metaschedule"}
        self._batch.append(TuningRecord(key, config, Measurement(latencies), "", self._when, "", 0, provenance))
        if len(self._batch) >= BATCH:
            self._store()

    def _describe(self, answer: Mapping[str, Any], target: Target) -> None:
        """Store the program and the target of a record, each once."""
        if answer["task"] not in self._kept:
            self._log.add_workload(answer["task"], answer["program"])
            self._kept.add(answer["task"])
            self.report.workloads += 1
        if target.fingerprint not in self._kept:
            self._log.add_target(target)
            self._kept.add(target.fingerprint)
            self.report.targets += 1

    def _store(self) -> None:
        self.report.new_records += self._log.append(self._batch)
        self.report.records += len(self._batch)
        self._batch.clear()


def _target_of(described: Mapping[str, Any]) -> Target:
    """Our description of TVM's target. What TVM does not describe (caches) keeps its default.

    Raises:
        LogError: if it is of a kind that we do not know.
    """
    try:
        if described.get("kind") == "cuda":
            return Target("cuda", arch=str(described.get("arch", "")))
        mcpu = str(described.get("mcpu", ""))
        features = tuple(map(str, described.get("mattr") or ()))
        threads = max(1, int(described.get("num-cores", 1)))
        return Target(str(described.get("kind")), isa_of(mcpu), mcpu, features, threads)
    except (UsageError, TypeError, ValueError) as error:
        raise LogError(f"its target is unknown: {error}") from error


def _request_of(line: bytes, workloads: list[bytes]) -> list[object]:
    """[workload, record] of a line of records, as ``trace_worker`` reads them.

    Raises:
        LogError: if the line is damaged or names no workload.
    """
    data = _json(line, "the line")
    if not isinstance(data, list) or len(data) != 2 or not isinstance(data[0], int):
        raise LogError("not a pair of a workload's number and a record")
    if not 0 <= data[0] < len(workloads):
        raise LogError(f"it names workload {data[0]} of {len(workloads)}")
    return [_json(workloads[data[0]], f"workload {data[0]}"), data[1]]


def _json(line: bytes, name: str) -> object:
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LogError(f"{name} is not JSON: {str(error)[:100]}") from error
    return found
