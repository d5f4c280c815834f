"""Notes of runs: what their keys hold, and what happens to bad notes."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.artifact import known_runs
from autotune.artifact.known_runs import LogView, RunNote, is_unchanged, log_bytes, read_note, run_key, write_note
from autotune.options import Options
from schedules.target import Target

NOTE = RunNote({"model": "m.onnx"}, (), (), (LogView(("a",), ("t",), "[]"),), "abc")
CPU = Target("llvm", isa="avx2", threads=2)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(known_runs, "cache_folder", lambda: tmp_path)


@pytest.fixture
def model(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"weights")
    return tmp_path / "m.onnx"


def test_a_note_comes_back(tmp_path):
    write_note("key", NOTE)
    assert read_note("key") == NOTE
    assert read_note("other") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"views": 3}', '{"unknown": 1}'])
def test_a_damaged_note_is_none(tmp_path, text):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "key.json").write_text(text)
    assert read_note("key") is None


def test_only_the_newest_notes_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(known_runs, "MOST_NOTES", 2)
    for number in range(4):
        write_note(str(number), NOTE)
        os.utime(tmp_path / "runs" / f"{number}.json", (number, number))
    write_note("4", NOTE)
    assert sorted(path.stem for path in (tmp_path / "runs").iterdir()) == ["3", "4"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "runs").write_text("a file")
    write_note("key", NOTE)


def test_everything_that_decides_a_run_is_in_its_key(model, tmp_path, monkeypatch):
    options = Options(budget_s=3.0)
    key = run_key([model], options, CPU, "log")
    others = [
        run_key([model], replace(options, budget_s=4.0), CPU, "log"),
        run_key([model], replace(options, seed=1), CPU, "log"),
        run_key([model], replace(options, out=Path("elsewhere")), CPU, "log"),
        run_key([model], options, replace(CPU, threads=1), "log"),
        run_key([model], options, CPU, "another log"),
        run_key([model, model], options, CPU, "log"),
    ]
    model.write_bytes(b"other weights")
    others.append(run_key([model], options, CPU, "log"))
    monkeypatch.setattr(known_runs, "source_digest", lambda folder: f"changed {folder.name}")
    others.append(run_key([model], options, CPU, "log"))
    monkeypatch.setattr(known_runs, "installed", lambda name: "99")
    others.append(run_key([model], options, CPU, "log"))
    assert len({key, *others}) == 1 + len(others)
    assert run_key([tmp_path / "missing.onnx"], options, CPU, "log") is None
    assert run_key([tmp_path], options, CPU, "log") is None


def test_what_is_only_shown_is_not_in_the_key(model):
    assert run_key([model], Options(peer=True), CPU, "log") == run_key([model], Options(), CPU, "log")


def test_files_of_the_model_are_compared(tmp_path):
    data = tmp_path / "weights.data"
    data.write_bytes(b"1")
    note = replace(NOTE, files=((str(data), known_runs.sha256(data)),))
    assert is_unchanged(note)
    data.write_bytes(b"2")
    assert not is_unchanged(note)
    data.unlink()
    assert not is_unchanged(note)


def test_a_log_is_known_by_its_bytes_unless_it_is_large_or_being_written(tmp_path, monkeypatch):
    path = tmp_path / "t.db"
    assert log_bytes(path) == log_bytes("postgresql://host/db") == ""
    path.write_bytes(b"records")
    first = log_bytes(path)
    path.write_bytes(b"others")
    assert len({"", first, log_bytes(path)}) == 3
    (tmp_path / "t.db-wal").write_bytes(b"more")
    assert log_bytes(path) == ""
    (tmp_path / "t.db-wal").unlink()
    monkeypatch.setattr(known_runs, "MOST_LOG_BYTES", 3)
    assert log_bytes(path) == ""
