"""``tune log …`` on a log of a few made-up records."""

import json

import pytest

from autotune.cli.main import main
from autotune.importer.foreign_programs import ForeignPrograms
from schedules.config import Config
from schedules.target import Target
from tuning_logs.measurement import Measurement
from tuning_logs.record import RecordKey, TuningRecord
from tuning_logs.sql_store import open_log

TARGET = Target("llvm", "avx2", threads=2)
NOW = 1.7e9


def record(task, x, latency=None, when=NOW):
    config = Config("toy/1", (("x", x),))
    measured = Measurement((latency,)) if latency else Measurement(error="timeout", message="too slow")
    return TuningRecord(RecordKey(task, TARGET.fingerprint, "toy/1", "0.27"), config, measured, "", when, "host-a", 0)


@pytest.fixture
def log(tmp_path):
    """Path of a log: task aa11 with two timed and one failed record, task bb22 with one timed."""
    path = tmp_path / "t.db"
    store = open_log(path)
    store.add_target(TARGET)
    store.add_workload("aa11", "program")
    store.append([record("aa11", 1, 2e-5), record("aa11", 2, 1e-5), record("aa11", 3), record("bb22", 1, 5e-5)])
    store.close()
    return path


@pytest.fixture
def answer(capsys):
    """``answer(arguments…)`` → (exit code, stdout, stderr)."""

    def call(*arguments):
        capsys.readouterr()
        code = main(["log", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def as_json(answer, *arguments):
    code, out, err = answer(*arguments, "--json")
    assert (code, err) == (0, ""), err
    return json.loads(out)


@pytest.fixture(autouse=True)
def any_program(monkeypatch):
    """The programs of these logs are words."""
    monkeypatch.setattr(ForeignPrograms, "refusal", lambda *_: "")


def test_stats(answer, log):
    data = as_json(answer, "stats", "--log", log)
    assert (data["records"], data["timed"], data["failed"], data["tasks"]) == (4, 3, {"timeout": 1}, 2)
    text = answer("stats", "--log", log)[1]
    assert "4 records of 2 tasks" in text
    assert "1 timeout" in text


def test_list(answer, log):
    keys = as_json(answer, "list", "--log", log)["keys"]
    assert [(key["task"], key["timed"], key["failed"], key["best_us"]) for key in keys] == [
        ("aa11", 2, {"timeout": 1}, pytest.approx(10.0)),
        ("bb22", 1, {}, pytest.approx(50.0)),
    ]
    lines = answer("list", "--log", log)[1].splitlines()
    assert len(lines) == 3
    assert "10.0" in lines[1]


def test_show_is_fastest_first_then_failed(answer, log):
    records = as_json(answer, "show", "aa", "--log", log)["records"]
    assert [(r["latencies_s"], r["error"]) for r in records] == [([1e-5], None), ([2e-5], None), ([], "timeout")]
    lines = answer("show", "aa11", "--log", log)[1].splitlines()
    assert "host-a" in lines[2]
    assert "timeout: too slow" in lines[-1]
    assert len(as_json(answer, "show", "aa11", "--count", "1", "--log", log)["records"]) == 1


@pytest.mark.parametrize(("task", "message"), [("zz", "the log has no task 'zz'"), ("", "several tasks begin with ''")])
def test_show_of_no_or_several_tasks_is_told(answer, log, task, message):
    code, _, err = answer("show", task, "--log", log)
    assert code == 2
    assert message in err
    assert "tune log list" in err


def test_export_and_import_bring_everything_once(answer, log, tmp_path):
    assert as_json(answer, "export", tmp_path / "t.jsonl", "--log", log)["lines"] == 7
    first = as_json(answer, "import", tmp_path / "t.jsonl", "--log", tmp_path / "new.db")
    again = as_json(answer, "import", tmp_path / "t.jsonl", "--log", tmp_path / "new.db")
    assert (first["new_records"], again["new_records"], again["records"]) == (4, 0, 4)
    assert as_json(answer, "stats", "--log", tmp_path / "new.db")["records"] == 4


def test_damaged_lines_are_told_and_the_rest_comes(answer, log, tmp_path):
    path = tmp_path / "t.jsonl"
    answer("export", path, "--log", log)
    path.write_text(path.read_text().replace("host-a", "host-b", 1) + "{half\n")
    code, out, err = answer("import", path, "--log", tmp_path / "new.db")
    assert code == 0
    assert "3 of 3 records are new" in out
    assert len(err.splitlines()) == 2
    assert "checksum" in err


def test_merge(answer, log, tmp_path):
    merged = as_json(answer, "merge", log, "--log", tmp_path / "team.db")
    assert (merged["new_records"], merged["workloads"], merged["targets"]) == (4, 1, 1)
    assert "0 of 4 records are new" in answer("merge", log, "--log", tmp_path / "team.db")[1]


def test_verify_finds_damage_and_gc_drops_it(answer, log):
    assert as_json(answer, "verify", "--log", log)["ok"] is True
    import sqlite3

    with sqlite3.connect(log) as connection:
        connection.execute("UPDATE records SET latency_s = 1e-9 WHERE id = 1")
    connection.close()
    code, out, err = answer("verify", "--log", log)
    assert code == 1
    assert "1 damaged" in out
    assert "record 1" in err
    assert "--drop damaged" in err
    assert as_json(answer, "gc", "--drop", "damaged", "--log", log)["dropped"] == {"damaged": 1}
    assert answer("verify", "--log", log)[0] == 0


def test_gc_on_a_dry_run_drops_nothing(answer, log):
    arguments = ("gc", "--drop", "failed,dominated", "--older-than", "1s", "--keep", "1", "--log", log)
    assert as_json(answer, *arguments, "--dry-run")["dropped"] == {"failed": 1, "dominated": 1}
    assert as_json(answer, "stats", "--log", log)["records"] == 4
    assert as_json(answer, *arguments)["dropped"] == {"failed": 1, "dominated": 1}
    assert as_json(answer, "stats", "--log", log)["records"] == 2


def test_young_records_are_kept(answer, log, monkeypatch):
    import time

    monkeypatch.setattr(time, "time", lambda: NOW + 60)
    assert as_json(answer, "gc", "--drop", "failed", "--log", log)["dropped"] == {"failed": 0}
    assert as_json(answer, "gc", "--drop", "failed", "--older-than", "30s", "--log", log)["dropped"] == {"failed": 1}


def test_explain_says_what_differs(answer, tmp_path, log):
    from tests.autotune_tests.tiny import save_tiny

    model = save_tiny(tmp_path / "tiny.onnx")
    data = as_json(answer, "explain", model, "--threads", "1", "--log", log)
    assert data["missing"] == len(data["tasks"]) > 0
    assert all("never measured" in task["why"] for task in data["tasks"])
    assert f"0 of {data['missing']} tasks" in answer("explain", model, "--threads", "1", "--log", log)[1]


def test_an_unknown_format_is_refused(answer, log, tmp_path):
    code, _, err = answer("export", tmp_path / "x", "--format", "metascheduel", "--log", log)
    assert code == 2
    assert "did you mean 'metaschedule'" in err
    assert answer("import", log, "--format", "optuna", "--log", log)[0] == 2


def test_metaschedule_s_form_goes_out_and_in(answer, tmp_path):
    from autotune.artifact.make_plan import record_key
    from tests.autotune_tests.tiny import save_tiny, target, tiny_program

    program = tiny_program(save_tiny(tmp_path / "tiny.onnx"))
    task = next(task for task in program.tasks if task.template == "matmul")
    store = open_log(tmp_path / "t.db")
    store.add_target(target())
    store.add_workload(task.key, program.programs[task.key])
    space = program.spaces[task.key]
    store.append([TuningRecord(record_key(task, space, target()), space.initial[0], Measurement((1e-5,)))])
    store.append([TuningRecord(record_key(task, space, target()), Config(space.identity, ()), Measurement((2e-5,)))])
    store.close()
    exported = ("export", tmp_path / "out", "--format", "metaschedule", "--log", tmp_path / "t.db")
    code, out, err = answer(*exported)
    assert (code, out) == (0, f"{tmp_path / 'out' / target().fingerprint}: 1 records\n")
    assert "1 records were left out: " in err
    data = as_json(answer, "import", tmp_path / "out", "--format", "metaschedule", "--log", tmp_path / "new.db")
    assert (data["records"], data["new_records"], data["bad"]) == (1, 1, [])
    code, _, err = answer("import", tmp_path / "none", "--format", "metaschedule", "--log", tmp_path / "new.db")
    assert code == 1
    assert "give MetaSchedule's work_dir" in err


def foreign(path):
    import sqlite3

    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE studies (id INTEGER)")
    connection.close()


def newer(path):
    import sqlite3

    open_log(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE tuning_log_version SET version_num = '9999'")
    connection.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.mkdir(), "is a directory; give a file"),
        (lambda path: path.write_text("hello " * 300), "some other file; give another --log"),
        (foreign, "not a tuning log (it has the tables studies); give another --log"),
        (newer, "has schema 9999, this version knows up to"),
        (lambda path: None, "there is no tuning log at"),
    ],
    ids=["directory", "text", "foreign", "newer", "missing"],
)
@pytest.mark.parametrize("command", [("stats",), ("verify",), ("export", "x.jsonl"), ("gc", "--drop", "failed")])
def test_a_place_that_is_no_log_is_told_in_one_line_and_left_alone(answer, tmp_path, monkeypatch, make, words, command):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "t.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    code, out, err = answer(*command, "--log", path)
    assert (code, out) == (1, "")
    assert words in err
    assert len(err.splitlines()) == 1
    assert (path.read_bytes() if path.is_file() else None) == before
    assert not (tmp_path / "x.jsonl").exists()
