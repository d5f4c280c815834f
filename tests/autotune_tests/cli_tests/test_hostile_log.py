"""A log from strangers: nothing in it runs, nothing in it ends a command with a traceback, each refusal is a line."""

from __future__ import annotations

import json
import sqlite3
import time

import pytest

from autotune.artifact.make_plan import UNTUNED, make_plan, record_key
from autotune.cli.main import main
from schedules.config import Config
from schedules.lower import BASELINE, load_program, lower
from schedules.vocabulary.errors import LogError, ScheduleError
from tests.autotune_tests.cli_tests.hostile_lines import Mutations
from tests.autotune_tests.cli_tests.hostile_records import annotated, canary, chain, line_of, record_data
from tests.autotune_tests.tiny import save_tiny, target, tiny_program
from tests.tuning_logs_tests.samples import KEY, timed
from tuning_logs.codec import text_hash, to_row
from tuning_logs.measurement import Measurement
from tuning_logs.record import TuningRecord
from tuning_logs.schema import RECORDS
from tuning_logs.sql_store import open_log

THOUSANDS = 10_000
SOME = 300


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("hostile") / "tiny.onnx")


@pytest.fixture(scope="module")
def program(model):
    return tiny_program(model)


def sound(program):
    """A record of the first guess of every task that has a choice, and one of every untuned program."""
    records = [
        TuningRecord(record_key(task, UNTUNED, target()), BASELINE, Measurement((1e-3,)), when=1.7e9)
        for task in program.tasks
    ]
    for task in program.tasks:
        space = program.spaces[task.key]
        if space.knobs:
            key, config = record_key(task, space, target()), space.initial[0]
            records.append(TuningRecord(key, config, Measurement((1e-4,)), when=1.7e9))
    return records


def answered(capsys, *arguments):
    """(exit code, stdout lines, stderr lines) of a command, whose every line is printable."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    out, err = captured.out.splitlines(), captured.err.splitlines()
    assert all(line.replace("\t", " ").isprintable() for line in (*out, *err))
    assert not any("Traceback" in line for line in err)
    return code, out, err


def test_the_chain_from_a_record_to_native_code_is_broken(model, program, tmp_path, capsys, monkeypatch):
    """A record under ``baseline/1`` of an imported trace links code that runs when the kernel is loaded."""
    monkeypatch.chdir(tmp_path)
    planted = tmp_path / "canary"
    lines = [line_of("record", data) for data in chain(program, target(), planted)]
    lines += [
        line_of("record", record_data(record_key(task, UNTUNED, target()), BASELINE.space, {}, 1e-3))
        for task in program.tasks
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    code, out, err = answered(capsys, "log", "import", "log.jsonl", "--log", "t.db")
    assert (code, out[0].split(",")[0]) == (0, f"{len(program.tasks)} of {len(program.tasks)} records are new")
    assert [line for line in err if "has a config of 'metaschedule/1'" in line] == err
    assert len(err) == 2
    common = ("--log", "t.db", "--threads", "1")
    assert answered(capsys, "build", model, "--out", "built.tuned", *common)[0] == 0
    assert answered(capsys, "run", model, "--out", "run.tuned", "--trials", "1", *common)[0] == 0
    assert not planted.exists()


def test_a_row_written_past_the_import_is_left_out(program, tmp_path, caplog):
    planted, path = tmp_path / "canary", tmp_path / "t.db"
    log = open_log(path)
    log.append(sound(program))
    task = next(task for task in program.tasks if task.template == "conv2d")
    key = record_key(task, UNTUNED, target())
    (number,) = {row.key_id for row in log._ranked_rows(key, 1)}
    row = to_row(TuningRecord(key, BASELINE, Measurement((1e-9,)), when=1.7e9), number)
    config = str(chain(program, target(), planted)[0]["config"])
    log.database.write(lambda connection: connection.execute(RECORDS.insert(), {**row, "config": config}))
    digest = {"digest": b"7" * 16, "config_hash": text_hash(config)}
    log.database.write(lambda connection: connection.execute(RECORDS.insert(), {**row, "config": config, **digest}))
    plan = make_plan(program.tasks, program.spaces, target(), log)
    assert plan.config(task.key).space != "metaschedule/1"
    assert "records were left out; the first: record" in caplog.text
    log.close()


def test_nothing_is_lowered_from_a_trace(program, tmp_path):
    task = next(task for task in program.tasks if task.template == "conv2d")
    text = annotated("conv2d", "pragma_import_llvm", canary(tmp_path / "canary"))
    for space in ("metaschedule/1", "baseline/1"):
        with pytest.raises(ScheduleError):
            lower(load_program(program.programs[task.key]), Config(space, (("trace", text),)), target())


def test_a_record_from_the_future_does_not_win(program, tmp_path):
    task = next(task for task in program.tasks if program.spaces[task.key].knobs)
    space = program.spaces[task.key]
    key, config = record_key(task, space, target()), space.initial[0]
    log = open_log(tmp_path / "t.db")
    log.append([TuningRecord(key, config, Measurement((1e-3,)), when=1.7e9)])
    log.append([TuningRecord(key, config, Measurement((1e-9,)), when=1e300)])  # as an older version stored it
    log.append([TuningRecord(key, config, Measurement((1e-9,)), when=time.time() + 1e8)])
    assert log.best(key, space).measurement.latency_s == 1e-3
    assert [record.when for record in log.records(key, space)][:-1] == [1.7e9]
    log.close()


@pytest.mark.parametrize(("hours", "of_first"), [(-1e5, 3.0), (-4e4, 4.0), (0.0, 3.0), (1e5, 3.0)])
def test_no_clock_hides_a_record(monkeypatch, tmp_path, hours, of_first):
    """A clock between two measurements of a config takes the older one for the newest."""
    log = open_log(tmp_path / "t.db")
    now = time.time()
    log.append([timed(1, 4.0, when=now - 2e8), timed(1, 3.0, when=now - 1e8), timed(2, 2.0, when=now - 3e8)])
    log.append([timed(2, 1.0, when=1e300)])  # cannot be read, and is no newer measurement of anything
    monkeypatch.setattr(time, "time", lambda: now + 3600 * hours)
    assert [record.measurement.latency_s for record in log.ranked(KEY)] == [2.0, of_first]
    assert len(list(log.records(KEY))) == 3
    log.close()


def test_a_file_with_code_in_its_schema_is_no_log(program, tmp_path):
    for statement in (
        "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END",
        "CREATE VIEW v AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x FROM c) SELECT x FROM c",
    ):
        path = tmp_path / f"{len(statement)}.db"
        open_log(path).close()
        with sqlite3.connect(path) as connection:
            connection.execute(statement)
        connection.close()
        with pytest.raises(LogError, match="is not a plain tuning log"):
            open_log(path)


def test_merge_leaves_its_source_as_it_is(program, tmp_path, capsys):
    source = tmp_path / "there" / "s.db"
    log = open_log(source)
    log.append(sound(program))
    log.close()
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in source.parent.iterdir()}
    code, out, _ = answered(capsys, "log", "merge", source, "--log", tmp_path / "own.db")
    assert (code, out[0].split(" records")[0]) == (0, f"{len(sound(program))} of {len(sound(program))}")
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in source.parent.iterdir()} == before


def test_a_swapped_program_is_refused_and_found(program, tmp_path, capsys):
    one, other = list(program.programs)[:2]
    (tmp_path / "log.jsonl").write_text(
        line_of("workload", {"task": one, "program": program.programs[other]})
        + "\n"
        + line_of("workload", {"task": other, "program": program.programs[other]})
    )
    path = tmp_path / "t.db"
    _, out, err = answered(capsys, "log", "import", tmp_path / "log.jsonl", "--log", path)
    assert "with 1 programs" in out[0]
    assert f"line 1 was left out: the program of task {one} is refused: its hash is {other}" in err[0]
    assert answered(capsys, "log", "verify", "--log", path)[0] == 0
    log = open_log(path)
    log.add_workload(one, program.programs[other])
    log.close()
    code, _, err = answered(capsys, "log", "verify", "--log", path)
    assert code == 1
    assert f"workload {one}: its hash is {other}" in err[0]


@pytest.mark.parametrize("count", [SOME, pytest.param(THOUSANDS, marks=pytest.mark.slow)])
def test_mutated_lines(program, tmp_path, capsys, count):
    planted, path = tmp_path / "canary", tmp_path / "t.db"
    mutations = Mutations(program, target(), sound(program), planted, count)
    lines = [mutations.line() for _ in range(count)]
    (tmp_path / "log.jsonl").write_bytes(b"\n".join(lines))
    code, out, _ = answered(capsys, "log", "import", tmp_path / "log.jsonl", "--log", path, "--json")
    report = json.loads(out[0])
    blank = sum(not line.strip() for line in lines)
    taken = report["targets"] + report["workloads"] + report["records"]
    assert (code, report["lines"]) == (0, count)
    assert taken + len(report["bad"]) + blank == count  # one line of reasons for each that was refused
    assert len(report["bad"]) > count // 2
    assert not any("crashed" in bad["reason"] for bad in report["bad"])
    _look_at(program, path, capsys)
    assert not planted.exists()


@pytest.mark.parametrize("count", [SOME, pytest.param(THOUSANDS, marks=pytest.mark.slow)])
def test_mutated_rows(program, tmp_path, capsys, count):
    planted, path = tmp_path / "canary", tmp_path / "t.db"
    log = open_log(path)
    log.append(sound(program))
    log.close()
    Mutations(program, target(), sound(program), planted, count).deface(path, count)
    _look_at(program, path, capsys)
    log = open_log(path)
    plan = make_plan(program.tasks, program.spaces, target(), log)
    assert all(program.spaces[c.task].contains(c.config) or c.config == BASELINE for c in plan.choices)
    log.close()
    code, _, err = answered(capsys, "log", "verify", "--log", path)
    assert (code, bool(err)) == (1, True)
    assert answered(capsys, "log", "gc", "--drop", "damaged", "--log", path)[0] == 0
    assert not planted.exists()


def _look_at(program, path, capsys):
    """Every command that reads the log without measuring."""
    for task in program.tasks:
        code, _, err = answered(capsys, "log", "show", task.key, "--log", path)
        assert code in (0, 2)
        assert len(err) <= 2
    for command in ("stats", "list"):
        assert answered(capsys, "log", command, "--log", path)[0] == 0
    exported = path.with_suffix(".jsonl")
    assert answered(capsys, "log", "export", exported, "--log", path)[0] == 0
    assert answered(capsys, "log", "import", exported, "--log", path.with_suffix(".copy"))[0] in (0, 1)
