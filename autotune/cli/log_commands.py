"""``tune log …``: look into a tuning log, move records between logs, look after it."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import arguments as opt
from autotune.cli.model_request import LOOK_UP, ModelRequest
from autotune.cli.parsing import parse_seconds, split_names
from autotune.cli.reply import DONE, FAILED, Reply, table
from autotune.contributions import contribution
from autotune.report.plain_text import day
from schedules.vocabulary.choices import choose
from schedules.vocabulary.errors import LogError, UsageError

if TYPE_CHECKING:  # these load SQLAlchemy and NumPy, which a mere --help does not need
    from tuning_logs.exchange import ExchangeReport
    from tuning_logs.record import TuningRecord
    from tuning_logs.sql_store import TuningLog

SHOWN_PROBLEMS = 20

log_app = typer.Typer(no_args_is_help=True, help="Inspect, share and maintain the log.")


def _opened(address: str | None) -> closing[TuningLog]:
    """The log at ``address``, which must exist; it is closed after the ``with`` block."""
    from autotune.tuning.existing_log import existing_log

    return closing(existing_log(address))


@log_app.command(epilog="Example: tune log stats --log team.db")
def stats(log: opt.Log = None, as_json: opt.Json = False) -> Reply:
    """Show what a log holds."""
    from tuning_logs.maintenance import stats as log_stats

    with _opened(log) as store:
        summary = log_stats(store)
    failed = ", ".join(f"{count} {kind}" for kind, count in summary.failed.items()) or "none"
    ages = (
        "" if summary.oldest is None or summary.newest is None else f", {day(summary.oldest)} to {day(summary.newest)}"
    )
    lines = [
        f"{summary.where}: {summary.bytes / 1e6:.1f} MB, schema {summary.schema}",
        f"{summary.records} records of {summary.tasks} tasks on {summary.targets} targets{ages}",
        f"{summary.timed} timed, failed: {failed}",
        f"{summary.spent_s:.0f} s of compiling and running",
    ]
    return Reply(lines, asdict(summary), as_json)


@log_app.command("list", epilog="Example: tune log list --log team.db")
def list_keys(log: opt.Log = None, as_json: opt.Json = False) -> Reply:
    """List measurements, one line per task. Tasks count per target, space and TVM version."""
    rows: list[dict[str, Any]] = []
    with _opened(log) as store:
        for key, count in store.counts().items():
            best = store.best(key)
            best_us = None if best is None else 1e6 * best.measurement.latency_s
            rows.append({**asdict(key), "timed": count.timed, "failed": dict(count.failed), "best_us": best_us})
    shown = [
        [
            *(row[name] for name in ("task", "space", "target", "tvm", "timed")),
            sum(row["failed"].values()),
            "–" if row["best_us"] is None else f"{row['best_us']:.1f}",
        ]
        for row in rows
    ]
    lines = table(["task", "space", "target", "tvm", "timed", "failed", "best µs"], shown)
    return Reply(lines, {"keys": rows}, as_json)


@log_app.command(epilog="Example: tune log show 0390168230dcdec4 --count 5")
def show(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Key of a task, or its beginning.", show_default=False)],
    count: Annotated[int, typer.Option(metavar="N", min=0, help="Most records shown.")] = 20,
    log: opt.Log = None,
    as_json: opt.Json = False,
) -> Reply:
    """Show a task's records, fastest first, then the failed ones."""
    from tuning_logs.codec import to_data

    with _opened(log) as store:
        keys = [key for key in store.counts() if key.task.startswith(task)]
        if len({key.task for key in keys}) != 1:
            what = "several tasks begin with" if keys else "the log has no task"
            raise UsageError(f"{what} {task!r}; 'tune log list' shows their keys")
        records = [record for key in keys for record in store.records(key)]
    records.sort(key=lambda record: (not record.measurement.ok, record.measurement.ok and record.measurement.latency_s))
    rows = [_record_row(record) for record in records[:count]]
    heads = ["µs", "runs", "compile s", "when", "host", "config", "failure"]
    lines = [f"{len(records)} records of task {keys[0].task}", *table(heads, rows)]
    return Reply(lines, {"task": keys[0].task, "records": [to_data(record) for record in records[:count]]}, as_json)


def _record_row(record: TuningRecord) -> list[str]:
    done = record.measurement
    time_us = f"{1e6 * done.latency_s:.1f}" if done.ok else "–"
    failure = "" if done.ok else f"{done.error}: {done.message[:80]}"
    runs = str(len(done.latencies_s))
    return [time_us, runs, f"{done.compile_s:.2f}", day(record.when), record.host, record.config.to_json(), failure]


@log_app.command(epilog="Example: tune log explain model.onnx --threads 4")
@opt.taking(ModelRequest, *LOOK_UP)
def explain(request: ModelRequest) -> Reply:
    """Explain which records a model would use.

    For a task without one, the field that differs is named, and what is near.
    """
    from autotune.report.inspect_tasks import report_tasks

    report = report_tasks(request.model, request.options())
    rows = [
        {"key": entry.task.key, "name": entry.task.name, "found": entry.best is not None, "why": entry.why}
        for entry in report.tasks
        if entry.tunable
    ]
    missing = sum(not row["found"] for row in rows)
    lines = [f"{row['key']} {row['name']}: {row['why']}" for row in rows]
    lines.append(f"{len(rows) - missing} of {len(rows)} tasks have a record for {report.target.fingerprint}")
    data = {"target": report.target.fingerprint, "missing": missing, "tasks": rows}
    return Reply(lines, data, request.as_json)


JSONL, METASCHEDULE = "jsonl", "metaschedule"


@log_app.command(epilog="Example: tune log export records.jsonl")
def export(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="File or folder to write.", show_default=False)],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="jsonl: every record, for other logs. metaschedule: the fastest ones, for plain TVM, a folder per "
            "target.",
        ),
    ] = JSONL,
    log: opt.Log = None,
    as_json: opt.Json = False,
) -> Reply:
    """Write records to a file. JSONL has a checksum in every line; MetaSchedule reads the other format."""
    write = choose("--format", form, {JSONL: _write_jsonl, METASCHEDULE: _write_metaschedule})
    with _opened(log) as store:
        lines, data, complaints = write(store, path)
    return Reply(lines, data, as_json, complaints)


def _databases() -> Any:
    """Classes that read and write MetaSchedule's databases."""
    return contribution("metaschedule", f"--format {METASCHEDULE}")


Written = tuple[list[str], dict[str, Any], list[str]]
"""The lines, data and complaints of an export's ``Reply``."""


def _write_jsonl(store: TuningLog, path: Path) -> Written:
    from tuning_logs.exchange import export_log

    written = export_log(store, path)
    return [f"{path}: {written} lines"], {"path": str(path), "lines": written}, []


def _write_metaschedule(store: TuningLog, path: Path) -> Written:
    exported = _databases().export_databases(store, path)
    lines = [f"{folder}: {count} records" for folder, count in exported.databases.items()] or ["no records"]
    return lines, asdict(exported), [f"{count} records were left out: {why}" for why, count in exported.skipped.items()]


@log_app.command("import", epilog="Example: tune log import records.jsonl")
def import_records(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="File or folder to read.", show_default=False)],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="jsonl: made by 'tune log export'. metaschedule: a folder with MetaSchedule's JSON database.",
        ),
    ] = JSONL,
    log: opt.Log = None,
    as_json: opt.Json = False,
) -> Reply:
    """Read records from a file. Damaged lines are left out and named. A missing log is created."""
    from autotune.importer.foreign_programs import ForeignPrograms
    from autotune.tuning.existing_log import made_log
    from tuning_logs.exchange import import_log

    choose("--format", form, dict.fromkeys((JSONL, METASCHEDULE)))
    if not (path.is_file() if form == JSONL else path.is_dir()):  # checked before a log is made
        wanted = "a file made by 'tune log export'" if form == JSONL else "MetaSchedule's work_dir"
        what = f"is not a {'file' if form == JSONL else 'folder'}" if path.exists() else "does not exist"
        raise LogError(f"{path} {what}; give {wanted}")
    with closing(made_log(log)) as store:
        if form == METASCHEDULE:
            return _exchange_reply(_databases().import_databases(path, store, time.time()), as_json)
        with ForeignPrograms() as programs:
            return _exchange_reply(import_log(path, store, programs.refusal), as_json)


@log_app.command(epilog="Example: tune log merge machine-a.db --log team.db")
def merge(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Log to take from: file or URL.", show_default=False)],
    log: opt.Log = None,
    as_json: opt.Json = False,
) -> Reply:
    """Add every record of another log. The other log is only read. A missing log is created."""
    from autotune.importer.foreign_programs import ForeignPrograms
    from autotune.tuning.existing_log import existing_log, made_log
    from tuning_logs.exchange import merge as merge_logs

    taken = existing_log(source, only_read=True)
    with closing(taken), closing(made_log(log)) as store, ForeignPrograms() as programs:
        report = merge_logs(taken, store, programs.refusal)
    return _exchange_reply(report, as_json)


def _exchange_reply(report: ExchangeReport, as_json: bool) -> Reply:
    new, taken = report.new_records, report.records
    lines = [f"{new} of {taken} records are new, with {report.workloads} programs and {report.targets} targets"]
    complaints = [
        f"line {bad.number} was left out: {bad.reason}" if bad.number else bad.reason
        for bad in report.bad[:SHOWN_PROBLEMS]
    ]
    if len(report.bad) > SHOWN_PROBLEMS:
        complaints.append(f"{len(report.bad) - SHOWN_PROBLEMS} more were left out")
    if not report.bad or taken:
        return Reply(lines, asdict(report), as_json, complaints)
    complaints.append("nothing in it is a record; give what 'tune log export' wrote, or name its --format")
    return Reply(lines, asdict(report), as_json, complaints, FAILED)


@log_app.command(epilog="Example: tune log verify --log team.db")
def verify(log: opt.Log = None, as_json: opt.Json = False) -> Reply:
    """Check a log and its records. The exit code is 1 if anything is damaged."""
    from autotune.importer.foreign_programs import ForeignPrograms
    from tuning_logs.maintenance import verify as verify_log

    with _opened(log) as store, ForeignPrograms() as programs:
        report = verify_log(store, programs.refusal)
    lines = [
        f"{report.records} records, {report.workloads} programs, {report.targets} targets: "
        + (f"{len(report.problems)} damaged" if report.problems else "all as written")
    ]
    complaints = list(report.problems[:SHOWN_PROBLEMS])
    if report.problems:
        complaints.append("'tune log gc --drop damaged' removes damaged records")
    return Reply(lines, {**asdict(report), "ok": report.ok}, as_json, complaints, DONE if report.ok else FAILED)


@log_app.command(epilog="Example: tune log gc --drop failed,dominated --older-than 720h --dry-run")
def gc(
    drop: Annotated[
        str, typer.Option(metavar="KINDS", help="What to drop: failed, dominated (slow ones), damaged; comma between.")
    ],
    older_than: Annotated[str, typer.Option(metavar="720h", help="Only records measured longer ago.")] = "720h",
    keep: Annotated[int, typer.Option(metavar="N", help="Fastest configs per task that are never dominated.")] = 64,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    log: opt.Log = None,
    as_json: opt.Json = False,
) -> Reply:
    """Drop records that no build uses. Their space is freed."""
    from tuning_logs.maintenance import gc as collect

    before = time.time() - parse_seconds(older_than, "--older-than")
    with _opened(log) as store:
        report = collect(store, split_names(drop), before, keep, dry_run)  # type: ignore[arg-type]
    verb = "would be dropped" if dry_run else "dropped"
    lines = [f"{kind}: {count} {verb}" for kind, count in report.dropped.items()]
    lines.append(f"{report.bytes_before / 1e6:.1f} MB before, {report.bytes_after / 1e6:.1f} MB after")
    return Reply(lines, asdict(report), as_json)
