"""Whole models become artifacts for a GPU that is not here: right device, no local memory, and they load again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings", reason="needs NVRTC: pip install 'tune-compiler[cuda]'")

from autotune.artifact.directory import read_artifact
from autotune.cli.main import main
from research.gpu.cubins import ARCHS, MODELS, Row, load, machine_code, row
from tests.models.catalog import cached

TARGET = json.dumps({"kind": "cuda", "arch": "sm_90"})


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model for sm_90."""
    folder = tmp_path_factory.mktemp("cuda")
    options = ["--target", TARGET, "--no-device", "--out", str(folder / "out.tuned"), "--log", str(folder / "log.db")]
    assert main(["run", str(cached("tiny_cnn")), *options, "--quiet"]) == 0
    return folder / "out.tuned"


def test_a_small_model_is_built_for_the_device_that_was_named(built):
    artifact = read_artifact(built)
    code = list(machine_code(artifact.library))
    told = [kernel for group in artifact.provenance["kernels"].values() for kernel in group]
    assert artifact.target.arch == "sm_90"
    assert {kernel.arch for kernel in code} == {"sm_90"}
    assert [kernel for kernel in code if kernel.local_bytes] == []
    assert sorted(kernel["registers"] for kernel in told) == sorted(kernel.registers for kernel in code)


def test_its_library_loads_in_another_process(built):
    assert load(built) == len(read_artifact(built).plan.choices)


@pytest.mark.parametrize(("form", "sign"), [("tir", "threadIdx.x"), ("cuda", "__global__"), ("ptx", ".target sm_90")])
def test_its_kernels_are_shown_in_every_form(built, form, sign, capsys):
    task = read_artifact(built).plan.choices[0].task
    assert main(["kernels", str(built), "--task", task, "--emit", form]) == 0
    assert sign in capsys.readouterr().out


def test_nobody_takes_it_for_verified(tmp_path, capsys):
    out, log = tmp_path / "out.tuned", tmp_path / "log.db"
    model = str(cached("tiny_mlp"))
    assert main(["run", model, "--target", TARGET, "--no-device", "--out", str(out), "--log", str(log)]) == 0
    assert "outputs NOT VERIFIED: built without a device" in capsys.readouterr().out
    assert "none of its kernels has ever run" in read_artifact(out).provenance["unverified"]
    command = ["run", model, "--target", TARGET, "--no-device", "--out", str(out), "--log", str(log), "--json"]
    assert main([*command, "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verified"] is None
    assert "neither its outputs nor its speed are known" in told["reason"]


def test_lanes_are_refused(tmp_path, capsys):
    command = ["run", str(cached("tiny_mlp")), "--target", TARGET, "--no-device", "--lanes", "cpu:2x1"]
    assert main([*command, "--out", str(tmp_path / "out.tuned"), "--log", str(tmp_path / "log.db")]) == 2
    assert "a CUDA artifact runs on its device alone" in capsys.readouterr().err


def test_a_model_of_bfloat16_multiplies_on_tensor_cores(tmp_path):
    inspected = row("islands", "sm_90", tmp_path)
    assert inspected.passed, str(inspected)
    assert inspected.tensor >= 0.3


def test_wrong_rows_do_not_pass():
    good = Row("m", "sm_90", 3, 0, 4, ("sm_90",), 0, 32, 3)
    assert good.passed
    for bad in (
        Row("m", "sm_90", 3, 0, 4, ("sm_80",), 0, 32, 3),
        Row("m", "sm_90", 3, 0, 4, ("sm_80", "sm_90"), 0, 32, 3),
        Row("m", "sm_90", 3, 0, 4, ("sm_90",), 1, 32, 3),
        Row("m", "sm_90", 3, 0, 4, ("sm_90",), 0, 32, 2),
        Row("m", "sm_90", error="died"),
    ):
        assert not bad.passed


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", MODELS)
def test_models(name, arch, tmp_path):
    inspected = row(name, arch, tmp_path)
    assert inspected.passed, str(inspected)
