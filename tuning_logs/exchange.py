"""Move records between logs: JSONL with a checksum per line, and a direct merge. Both may be repeated at will.

A line is ``{"kind": K, "body": B, "digest": D}``: D names B (``codec.content_hash``, hex), K is one of

    header     {"format": 1}, the first line
    target     Target's fields
    workload   {"task", "program"}
    record     a record's fields (``codec.to_data``)

Lines stand for themselves: any of them may be missing, repeated or damaged without harm to the others.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from schedules.target import Target
from schedules.vocabulary.bounded import MOST_DEPTH, parsed_json
from schedules.vocabulary.errors import LogError, UsageError, first_line
from tuning_logs.codec import content_hash, digest, from_data, to_data
from tuning_logs.durable import replacing
from tuning_logs.record import TuningRecord
from tuning_logs.sql_store import TuningLog

FORMAT = 1
BATCH = 1000
"""Records stored in one transaction."""
LONGEST_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is damage: programs hold no weights and take kilobytes."""


@dataclass(frozen=True)
class BadLine:
    """Something that was left out: the number of its line, from 1, or 0 where there are no lines; and why."""

    number: int
    reason: str


@dataclass
class ExchangeReport:
    """The result of an import or a merge.

    Attributes:
        lines: lines read (0 for a merge).
        targets, workloads, records: how many came along, known or not.
        new_records: those that the log did not hold before.
        bad: lines that were left out.
    """

    lines: int = 0
    targets: int = 0
    workloads: int = 0
    records: int = 0
    new_records: int = 0
    bad: list[BadLine] = field(default_factory=list)


class Workload(NamedTuple):
    """A task's key and its program."""

    task: str
    program: str


class _Header(NamedTuple):
    format: int


ProgramCheck = Callable[[str, str], str]
"""(task, program) → why the program is not that task's; empty if it is. Only TVM can tell, which this package lacks."""


Entry = TuningRecord | Target | Workload | _Header
"""The content of one line."""


def _entries(log: TuningLog) -> Iterator[Entry]:
    """Every target, workload and record of ``log``."""
    yield from log.targets().values()
    yield from itertools.starmap(Workload, log.workloads())
    yield from log.records()


def export_lines(log: TuningLog) -> Iterator[str]:
    """Every target, workload and record of ``log``, each a line that ends in a newline."""
    for entry in itertools.chain([_Header(FORMAT)], _entries(log)):
        match entry:
            case TuningRecord():
                kind, body = "record", to_data(entry)
            case Target():
                kind, body = "target", json.loads(entry.to_json())
            case Workload():
                kind, body = "workload", entry._asdict()
            case _Header():
                kind, body = "header", entry._asdict()
        digest = content_hash(body).hex()
        yield json.dumps({"kind": kind, "body": body, "digest": digest}, separators=(",", ":")) + "\n"


def export_log(log: TuningLog, path: Path) -> int:
    """Write ``log`` to ``path``, which appears complete or not at all; how many lines it has.

    Raises:
        LogError: if it cannot be written.
    """
    try:
        return write_lines(path, export_lines(log))
    except OSError as error:
        raise LogError(f"the log cannot be exported to {path} ({error.strerror}); give another file") from error


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write ``lines``, each with its newline, to ``path``, which appears complete or not at all; how many there are."""
    count = 0
    with replacing(path) as stream:
        for line in lines:
            stream.write(line.encode())
            count += 1
    return count


def import_log(path: Path, log: TuningLog, refusal: ProgramCheck) -> ExchangeReport:
    """Read the JSONL file ``path`` into ``log``; bad lines are reported and left out.

    Args:
        refusal: asked about every program.

    Raises:
        LogError: if the file cannot be read or is of a newer format.
    """
    try:
        with path.open("rb") as stream:
            return import_lines(bounded_lines(stream), log, refusal)
    except OSError as error:
        raise LogError(
            f"{path} cannot be imported ({error.strerror}); give a file made by 'tune log export'"
        ) from error


def bounded_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines of ``stream``; of one that is too long only its beginning, one byte over the limit."""
    while line := stream.readline(LONGEST_LINE_BYTES + 1):
        yield line
        rest = line
        while len(rest) > LONGEST_LINE_BYTES and not rest.endswith(b"\n"):
            rest = stream.readline(LONGEST_LINE_BYTES + 1)


def import_lines(lines: Iterable[bytes], log: TuningLog, refusal: ProgramCheck) -> ExchangeReport:
    """Bring JSONL ``lines`` into ``log``; bad lines are reported and left out.

    Args:
        refusal: asked about every program.

    Raises:
        LogError: if ``log`` cannot be written or the lines are of a newer format.
    """
    bad: list[BadLine] = []
    number = 0

    def entries() -> Iterator[Entry]:
        nonlocal number
        for number, line in enumerate(lines, start=1):
            try:
                entry = _parsed(line) if line.strip() else None
                _check_program(entry, refusal)
            except LogError as error:
                bad.append(BadLine(number, first_line(error)))
                continue
            if isinstance(entry, _Header) and entry.format > FORMAT:
                raise LogError(
                    f"line {number} says that the file is of format {entry.format}, this version reads up to {FORMAT}; "
                    "upgrade with 'pip install --upgrade tune-compiler'"
                )
            if entry is not None:
                yield entry

    report = take_in(entries(), log)
    return replace(report, lines=number, bad=bad)


def merge(source: TuningLog, destination: TuningLog, refusal: ProgramCheck) -> ExchangeReport:
    """Bring everything of ``source`` into ``destination``; ``source`` is left as it is.

    Args:
        refusal: asked about every program.

    Raises:
        LogError: if a log cannot be used, or ``source`` was written to meanwhile.
    """
    bad: list[BadLine] = []

    def entries() -> Iterator[Entry]:
        for entry in _entries(source):
            try:
                _check_program(entry, refusal)
            except LogError as error:
                bad.append(BadLine(0, str(error)))
                continue
            yield entry

    report = take_in(entries(), destination)
    source.database.check_unchanged()
    return replace(report, bad=bad)


def _check_program(entry: Entry | None, refusal: ProgramCheck) -> None:
    """Refuse a program that is not its task's.

    Raises:
        LogError: saying why.
    """
    if isinstance(entry, Workload) and (why := refusal(entry.task, entry.program)):
        raise LogError(f"the program of task {ascii(entry.task)[1:-1][:40]} is refused: {why}")


def take_in(entries: Iterable[Entry], log: TuningLog) -> ExchangeReport:
    """Bring ``entries`` into ``log``, records in batches; how many of each kind there were.

    Raises:
        LogError: if ``log`` cannot be written.
    """
    counts: Counter[type] = Counter()
    batch: list[TuningRecord] = []
    new = 0
    for entry in entries:
        counts[type(entry)] += 1
        match entry:
            case TuningRecord():
                batch.append(entry)
            case Target():
                log.add_target(entry)
            case Workload(task, program):
                log.add_workload(task, program)
        if len(batch) >= BATCH:
            new += log.append(batch)
            batch = []
    new += log.append(batch)
    return ExchangeReport(0, counts[Target], counts[Workload], counts[TuningRecord], new)


def _parsed(line: bytes) -> Entry:
    """Return the content of ``line``.

    Raises:
        LogError: in a few words, if it is damaged.
    """
    if len(line) > LONGEST_LINE_BYTES:
        raise LogError(f"longer than {LONGEST_LINE_BYTES} bytes")
    try:
        data = parsed_json(line, MOST_DEPTH)
    except ValueError as error:  # also UnicodeDecodeError
        raise LogError(f"not JSON: {str(error)[:100]}") from error
    if not isinstance(data, dict) or not {"kind", "body", "digest"} <= set(data):
        raise LogError("not an object with kind, body and digest")
    body = data["body"]
    try:
        computed = content_hash(body).hex()
    except ValueError as error:
        raise LogError(f"body cannot be hashed: {error}") from error
    if computed != data["digest"]:
        raise LogError("checksum does not match: the line was changed")
    return _entry(data["kind"], body)


def _entry(kind: object, body: Any) -> Entry:
    match kind, body:
        case "record", _:
            record = from_data(body)
            if digest(record) != content_hash(body):
                raise LogError("has fields that this version does not know")
            return record
        case "target", dict():
            try:
                return Target.from_json(json.dumps(body))
            except UsageError as error:
                raise LogError(str(error)) from error
        case "workload", {"task": str(task), "program": str(program)}:
            return Workload(task, program)
        case "header", {"format": int(version)}:
            return _Header(version)
        case _:
            raise LogError(f"unknown kind {ascii(kind)[:40]}, or not what this kind holds")
