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
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.contrib.exchange.trace_client import TraceClient
from schedules.config import Config
from schedules.target import Target
from schedules.vocabulary.bounded import MOST_DEPTH, parsed_json
from schedules.vocabulary.errors import AutotuneError, LogError, UsageError
from tuning_logs.compatibility import isa_of
from tuning_logs.exchange import BadLine, Entry, ExchangeReport, Workload, bounded_lines, take_in, write_lines
from tuning_logs.measurement import Measurement
from tuning_logs.record import RecordKey, TuningRecord
from tuning_logs.sql_store import TuningLog

WORKLOADS, RECORDS, TARGET = "database_workload.json", "database_tuning_record.json", "target.json"

PER_KEY = 64
"""Fastest configs per key that are exported: what ``gc`` keeps, too."""

MOST_TARGET_BYTES = 1 << 20
"""Most bytes of the file that describes the machine; it has some hundred."""

NEVER_S = 1e9
"""MetaSchedule writes a failure as a latency beyond this."""


@dataclass(frozen=True)
class DatabaseReport:
    """The result of an export.

    Attributes:
        databases: folder → records in it.
        skipped: why → how many records could not be expressed.
    """

    databases: dict[str, int]
    skipped: dict[str, int]


def export_databases(log: TuningLog, folder: Path) -> DatabaseReport:
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
                lost = sum(len(log.fastest(key, PER_KEY)) for key in keys)
                skipped[f"the log does not describe target {fingerprint}"] += lost
                continue
            files = _database(log, keys, targets[fingerprint], client, skipped)
            if files[RECORDS]:
                _save(folder / fingerprint, files)
                databases[str(folder / fingerprint)] = len(files[RECORDS])
    return DatabaseReport(databases, dict(skipped))


def _database(
    log: TuningLog, keys: list[RecordKey], target: Target, client: TraceClient, skipped: Counter[str]
) -> dict[str, list[str]]:
    """Name → lines of the files for the records of ``keys``, all of one target; ``skipped`` counts what is left out."""
    workloads: dict[str, str] = {}
    records: list[str] = []
    for key in keys:
        program = log.workload(key.task)
        fastest = log.fastest(key, PER_KEY)
        if program is None:
            skipped["the log does not hold its program"] += len(fastest)
            continue
        for record in fastest:
            latency_s = record.measurement.latency_s
            answer = client.request(write=[key.task, program, record.config.to_json(), target.to_json(), latency_s])
            if "error" in answer:
                skipped[answer["error"]] += 1
                continue
            workloads.setdefault(key.task, json.dumps(answer["workload"]))
            index = list(workloads).index(key.task)
            records.append(json.dumps([index, answer["record"]]))
    return {WORKLOADS: list(workloads.values()), RECORDS: records, TARGET: [target.to_json()]}


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
    folders = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())] if folder.is_dir() else []
    databases = [path for path in folders if (path / WORKLOADS).is_file() and (path / RECORDS).is_file()]
    if not databases:
        raise LogError(f"{folder} holds no {WORKLOADS} and {RECORDS}; give MetaSchedule's work_dir")
    with TraceClient() as client:
        reader = _Reader(client, when)
        report = take_in((entry for path in databases for entry in reader.entries(path)), log)
    return replace(report, lines=reader.lines, bad=reader.bad)


class _Reader:
    """Reads databases.

    Attributes:
        lines: records looked at so far.
        bad: those that were left out, by their line in the file of records.
    """

    def __init__(self, client: TraceClient, when: float) -> None:
        self.lines = 0
        self.bad: list[BadLine] = []
        self._client = client
        self._when = when
        self._known: set[str] = set()

    def entries(self, path: Path) -> Iterator[Entry]:
        """Yield the entries of the database in ``path``; programs and targets come once, before their first record.

        Raises:
            LogError: if its files cannot be read.
        """
        try:
            with (path / WORKLOADS).open("rb") as stream:
                workloads = list(bounded_lines(stream))
            described = path / TARGET
            exact = Target.from_json(_beginning(described)) if described.is_file() else None
            with (path / RECORDS).open("rb") as stream:
                for number, line in enumerate(bounded_lines(stream), start=1):
                    self.lines += 1
                    try:
                        entries = self._entries_of(_request_of(line, workloads), exact)
                    except AutotuneError as error:
                        self.bad.append(BadLine(number, str(error)))
                        continue
                    yield from entries
        except OSError as error:
            raise LogError(f"{path} cannot be imported ({error.strerror}); check its files") from error

    def _entries_of(self, request: list[object], exact: Target | None) -> list[Entry]:
        """The record of ``request``, after its program and its target where these are new."""
        answer = self._client.request(read=request)
        if "error" in answer:
            raise LogError(answer["error"])
        latencies = tuple(float(value) for value in answer["run_secs"])
        if not latencies or not all(0 < value < NEVER_S for value in latencies):
            raise LogError("it was never timed")
        target = exact or _target_of(answer["target"] or {})
        key = RecordKey(answer["task"], target.fingerprint, answer["space"], answer["tvm"])
        config = Config.from_json(answer["config"])
        record = TuningRecord(key, config, Measurement(latencies), "", self._when, "", 0, {"source": "metaschedule"})
        about: dict[str, Entry] = {key.task: Workload(key.task, answer["program"]), key.target: target}
        new = [entry for name, entry in about.items() if name not in self._known]
        self._known.update(about)
        return [*new, record]


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


def _beginning(path: Path) -> str:
    """The text of a small file; of a larger one, which cannot be what it should be, only its beginning."""
    with path.open("rb") as stream:
        return stream.read(MOST_TARGET_BYTES).decode(errors="replace")


def _json(line: bytes, name: str) -> object:
    try:
        value: object = parsed_json(line, MOST_DEPTH)
    except ValueError as error:
        raise LogError(f"{name} is not JSON: {str(error)[:100]}") from error
    return value
