"""A job holds what its script needs, and the script does what ``tune`` understands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm

from autotune.artifact.directory import read_artifact
from autotune.artifact.make_plan import record_key
from autotune.backends.cuda.driver import Driver
from autotune.cli.main import main
from autotune.contrib.exchange.pack import pack
from autotune.importer.guarded_import import import_model
from autotune.importer.load import load_model
from schedules.config import Config
from schedules.target import Target
from schedules.vocabulary.errors import UsageError
from tests.autotune_tests.backends_tests.cuda_tests.fake_driver import FakeBindings
from tests.models.catalog import cached
from tuning_logs.measurement import Measurement
from tuning_logs.record import TuningRecord
from tuning_logs.sql_store import memory_log, open_log


def test_a_job_is_complete(tmp_path):
    packed = pack(cached("tiny_mlp"), memory_log(), tmp_path / "job.tar.gz", "90s")
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


def test_a_job_for_a_cpu_needs_nothing_of_a_gpu(tmp_path):
    packed = pack(cached("tiny_mlp"), memory_log(), tmp_path / "job.tar.gz", "90s", target="host")
    with tarfile.open(packed.path) as archive:
        archive.extractall(tmp_path, filter="data")
    script, constraints = ((tmp_path / "job" / name).read_text() for name in ("run.sh", "constraints.txt"))
    assert "--target host" in script
    assert "cuda" not in script.lower() + constraints
    assert main(["pack", str(cached("tiny_mlp")), "--target", "neon"]) == 2


@pytest.fixture
def open_batch(tmp_path: Path) -> Path:
    """tiny_mlp with a batch that the file leaves open."""
    model = onnx.load(cached("tiny_mlp"))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, tmp_path / "open.onnx")
    return tmp_path / "open.onnx"


def test_a_shape_that_the_file_leaves_open_travels_along(open_batch, tmp_path):
    value = onnx.load(open_batch).graph.input[0]
    rest = [dim.dim_value for dim in value.type.tensor_type.shape.dim[1:]]
    text = f"{value.name}:{'x'.join(map(str, (3, *rest)))}"
    pack(open_batch, memory_log(), tmp_path / "job.tar.gz", "90s", (text,))
    with tarfile.open(tmp_path / "job.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    assert f"--input {text}" in (tmp_path / "job" / "run.sh").read_text()
    model = load_model(tmp_path / "job" / "model.onnx", {value.name: (3, *rest)})  # as the job's own run reads it
    assert [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim] == [3, *rest]


def test_a_job_for_several_sets_of_shapes_is_refused(open_batch, tmp_path):
    with pytest.raises(UsageError, match="serves one set of shapes, not 2; give every --input once"):
        pack(open_batch, memory_log(), tmp_path / "job.tar.gz", "90s", ("x:{1,8}x16",))
    assert not (tmp_path / "job.tar.gz").exists()


def test_sources_run_where_they_are_unpacked(tmp_path):
    packed = pack(cached("tiny_mlp"), memory_log(), tmp_path / "job.tar.gz", "90s")
    with tarfile.open(packed.path) as archive:
        archive.extractall(tmp_path, filter="data")
    script = (tmp_path / "job" / "run.sh").read_text().splitlines()
    used = {line.split("-m autotune ")[1].split()[0] for line in script if "-m autotune " in line}
    assert used == {"log", "run"}


def test_a_job_without_a_device_says_so(tmp_path):
    """The script's own commands, up to where a device is needed."""
    if tvm.cuda(0).exist:
        pytest.skip("this machine has a CUDA device")
    packed = pack(cached("tiny_mlp"), memory_log(), tmp_path / "job.tar.gz", "90s")
    with tarfile.open(packed.path) as archive:
        archive.extractall(tmp_path, filter="data")
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run([tmp_path / "job" / "run.sh"], env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "--target cuda takes the device of this machine, and there is none" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def tuned_there(model: Path, log: Path) -> dict[str, Config]:
    """What a search leaves in its log, with the stand-in's clock for the device's; task → its fastest config."""
    driver, fastest, records = Driver(FakeBindings()), {}, []
    target = Target.cuda(driver.arch, driver.attribute("MULTIPROCESSOR_COUNT"))
    _, program = import_model(model, {}, target)
    for task in program.tasks:
        space = program.spaces[task.key]
        configs = space.sample(3, np.random.default_rng(1))
        for rank, config in enumerate(configs):
            seconds: list[float] = []
            with driver.timed(driver.stream(), seconds):
                pass
            measured = Measurement((seconds[0] * (3 - rank),))
            records.append(TuningRecord(record_key(task, space, target), config, measured, host="there"))
        fastest[task.key] = configs[-1]
    store = open_log(log)
    store.append(records)
    store.close()
    return fastest


def tune(*words: str) -> int:
    return main([*words, "--quiet"])


def test_records_of_a_job_come_back(tmp_path, capsys):
    """Pack here, tune there with a stand-in for the driver, merge here, build here from those records alone."""
    pytest.importorskip("cuda.bindings", reason="needs NVRTC: pip install 'tune-compiler[cuda]'")
    model, here = cached("tiny_mlp"), tmp_path / "here.db"
    build = ["build", str(model), "--target", json.dumps({"kind": "cuda", "arch": "sm_90"}), "--no-device"]
    build += ["--log", str(here), "--out", str(tmp_path / "out.tuned")]
    open_log(here).close()
    assert tune(*build) != 0
    assert "run a job of 'tune pack' and merge its log" in capsys.readouterr().err
    packed = pack(model, memory_log(), tmp_path / "job.tar.gz", "90s")
    with tarfile.open(packed.path) as archive:
        archive.extractall(tmp_path, filter="data")
    job = tmp_path / "job"
    fastest = tuned_there(job / "model.onnx", job / "tuning.db")
    environment = {**os.environ, "PYTHONPATH": str(job / "sources")}
    export = [sys.executable, "-m", "autotune", "log", "export", "records.jsonl", "--log", "tuning.db"]
    subprocess.run(export, cwd=job, env=environment, check=True, capture_output=True)
    assert main(["log", "import", str(job / "records.jsonl"), "--log", str(here)]) == 0
    assert tune(*build) == 0
    plan = read_artifact(tmp_path / "out.tuned").plan
    assert {choice.task: choice.config for choice in plan.choices} == fastest
    assert {choice.latency_s for choice in plan.choices} == {0.25e-3}
