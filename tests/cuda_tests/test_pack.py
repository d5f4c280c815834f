"""A job holds what its script needs, and the script does what ``tune`` understands."""

from __future__ import annotations

import subprocess
import tarfile

import onnx

from autotune.cuda.pack import pack
from tests.models.catalog import cached
from tuning_logs.memory_store import MemoryStore


def test_a_job_is_complete(tmp_path):
    packed = pack(cached("tiny_mlp"), MemoryStore(), tmp_path / "job.tar.gz", "90s")
    with tarfile.open(packed.path) as archive:
        names = set(archive.getnames())
        archive.extractall(tmp_path, filter="data")
    assert {"job/model.onnx", "job/records.jsonl", "job/constraints.txt", "job/run.sh"} <= names
    assert {f"job/sources/{room}/__init__.py" for room in ("autotune", "schedules", "search")} <= names
    assert not [name for name in names if "__pycache__" in name]
    onnx.checker.check_model(onnx.load(tmp_path / "job" / "model.onnx"))
    assert "apache-tvm-ffi==" in (tmp_path / "job" / "constraints.txt").read_text()
    assert "--target cuda" in (tmp_path / "job" / "run.sh").read_text()
    assert "--budget 90s" in (tmp_path / "job" / "run.sh").read_text()
    subprocess.run(["bash", "-n", str(tmp_path / "job" / "run.sh")], check=True)


def test_sources_run_where_they_are_unpacked(tmp_path):
    packed = pack(cached("tiny_mlp"), MemoryStore(), tmp_path / "job.tar.gz", "90s")
    with tarfile.open(packed.path) as archive:
        archive.extractall(tmp_path, filter="data")
    script = (tmp_path / "job" / "run.sh").read_text().splitlines()
    used = {line.split("-m autotune ")[1].split()[0] for line in script if "-m autotune " in line}
    assert used == {"log", "run"}
