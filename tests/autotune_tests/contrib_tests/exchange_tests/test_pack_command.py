"""``tune pack`` as a command."""

import json
import tarfile

from tests.autotune_tests.tiny import save_tiny
from tuning_logs.sql_store import open_log


def test_a_job_is_written_and_the_way_back_is_told(answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path / "tiny.onnx")
    open_log(tmp_path / "t.db").close()
    code, out, err = answer("pack", "tiny.onnx", "--log", "t.db", "--budget", "90s")
    assert (code, err) == (0, "")
    assert "tune log import out/records.jsonl" in out
    with tarfile.open(tmp_path / "tiny.job.tar.gz") as archive:
        assert "job/run.sh" in archive.getnames()


def test_a_job_is_told_as_json(answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path / "tiny.onnx")
    code, out, _ = answer("pack", "tiny.onnx", "--log", "t.db", "--out", "a.tar.gz", "--json")
    data = json.loads(out)
    assert (code, data["path"], data["records"] >= 0) == (0, "a.tar.gz", True)
    assert data["bytes"] == (tmp_path / "a.tar.gz").stat().st_size


def test_a_bad_budget_is_refused_before_anything_is_written(answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert answer("pack", "tiny.onnx", "--budget", "soon")[0] == 2
    assert list(tmp_path.iterdir()) == []
