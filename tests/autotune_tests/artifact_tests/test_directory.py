"""Artifacts: whole or not at all, and whatever is wrong with one is said in one line."""

import gzip
import json
import os
import shutil
import stat

import numpy as np
import pytest

from autotune.artifact.directory import read_artifact, read_tasks, write_artifact
from autotune.artifact.identity import identity
from autotune.artifact.make_plan import make_plan
from autotune.artifact.manifest import digest_of, read_manifest, sealed, sha256
from autotune.backends.cpu.cpu_build import build_artifact
from autotune.host.pages import ALIGNMENT
from schedules.vocabulary.errors import ArtifactError
from tests.autotune_tests.tiny import save_tiny, target, tiny_program
from tuning_logs.sql_store import memory_log

FILES = ("plan.json", "steps.json", "model.so", "weights.bin", "tasks.json.gz")


@pytest.fixture(scope="module")
def program(tiny_built):
    return tiny_program(tiny_built.model)


@pytest.fixture(scope="module")
def plan(program):
    return make_plan(program.tasks, program.spaces, target(), memory_log())


def rewrite_manifest(folder, **changes):
    path = folder / "manifest.json"
    path.write_text(sealed({**json.loads(path.read_text()), **changes}))


def refusal(path):
    with pytest.raises(ArtifactError) as caught:
        read_artifact(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_artifact_without_steps_is_of_an_older_version(tiny_built, tmp_path):
    """TVM's virtual machine ran such artifacts."""
    old = tmp_path / "old.tuned"
    shutil.copytree(tiny_built.artifact, old)
    (old / "steps.json").write_text("null")
    digests = json.loads((old / "manifest.json").read_text())["sha256"]
    rewrite_manifest(old, sha256={**digests, "steps.json": digest_of(old / "steps.json")})
    assert refusal(old) == f"{old} was built by an older version; renew it with 'tune build MODEL'"


def test_what_was_written_is_read(tiny_built, program, plan):
    artifact = read_artifact(tiny_built.artifact)
    assert artifact.plan == plan
    assert artifact.target == target()
    assert [spec.name for spec in artifact.inputs] == ["data"]
    assert [(spec.name, spec.shape) for spec in artifact.outputs] == [("scores", (1, 10)), ("features", (1, 32, 8, 8))]
    assert len(artifact.weights) == len(program.weights)
    assert all(np.array_equal(a, b) for a, b in zip(artifact.weights, program.weights, strict=True))
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in artifact.weights)
    assert artifact.identity == identity(program, plan)
    assert artifact.provenance == {
        "model": "tiny.onnx",
        "sha256": sha256(tiny_built.model),
        "precision": "fp32",
        "products": 2,
    }


def test_no_path_of_this_machine_is_in_it(tiny_built):
    here = str(tiny_built.model.parent)
    for name in ("manifest.json", "plan.json"):
        assert here not in (tiny_built.artifact / name).read_text()
    assert here not in gzip.decompress((tiny_built.artifact / "tasks.json.gz").read_bytes()).decode()
    for name in ("model.so", "weights.bin"):
        assert here.encode() not in (tiny_built.artifact / name).read_bytes()


def test_tasks_and_programs_come_back(tiny_built, program):
    tasks, programs = read_tasks(tiny_built.artifact)
    assert tasks == program.tasks
    assert programs == program.programs


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_is_found(tiny, name):
    path = tiny.artifact / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    assert f"{name} was changed" in refusal(tiny.artifact)


def test_every_file_of_an_artifact_is_covered(tiny):
    covered = {"manifest.json", *read_manifest(tiny.artifact)["sha256"]}
    assert {path.name for path in tiny.artifact.iterdir()} == covered


def test_nothing_in_an_artifact_is_a_pickle(tiny):
    for path in tiny.artifact.iterdir():
        data = path.read_bytes()
        assert not (data.startswith(b"\x80") and data.endswith(b".")), path.name


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_found(tiny, name):
    (tiny.artifact / name).unlink()
    assert f"{name} is missing" in refusal(tiny.artifact)


def test_a_truncated_file_is_found(tiny):
    path = tiny.artifact / "weights.bin"
    os.truncate(path, path.stat().st_size // 2)
    assert "weights.bin was changed" in refusal(tiny.artifact)


def test_weights_beyond_the_file_are_refused(tiny):
    manifest = json.loads((tiny.artifact / "manifest.json").read_text())
    manifest["weights"][0]["offset"] = 1 << 40
    rewrite_manifest(tiny.artifact, weights=manifest["weights"])
    assert "shorter than its manifest says" in refusal(tiny.artifact)


def test_somebody_s_folder_is_never_replaced(tmp_path, program, plan):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("precious")
    with pytest.raises(ArtifactError, match="is not an artifact; name another --out"):
        write_artifact(tmp_path / "out", program, plan, None, "", {}, lambda library: library.write_bytes(b""))
    assert (tmp_path / "out" / "thesis.tex").read_text() == "precious"


def test_a_failed_build_leaves_what_was_there_and_nothing_else(tiny, program, plan):
    def fail(library):
        raise ArtifactError("the build failed")

    before = sorted(path.name for path in tiny.artifact.parent.iterdir())
    stamp = sha256(tiny.artifact / "manifest.json")
    with pytest.raises(ArtifactError, match="the build failed"):
        write_artifact(tiny.artifact, program, plan, None, "", {}, fail)
    assert sorted(path.name for path in tiny.artifact.parent.iterdir()) == before
    assert sha256(tiny.artifact / "manifest.json") == stamp


def test_an_unwritable_place_is_one_line(tmp_path, program, plan):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="name another --out"):
        write_artifact(tmp_path / "file" / "out", program, plan, None, "", {}, lambda library: None)


def test_an_artifact_can_be_read_by_others(tiny_built):
    assert stat.S_IMODE(tiny_built.artifact.stat().st_mode) & 0o055 == 0o055


def test_the_same_artifact_is_not_built_again(tiny, program, plan, measurer):
    stamp = (tiny.artifact / "model.so").stat().st_mtime_ns
    assert build_artifact(tiny.artifact, program, plan, tiny.model, measurer) is False
    assert (tiny.artifact / "model.so").stat().st_mtime_ns == stamp


def test_a_damaged_artifact_is_built_again(tiny, program, plan, measurer):
    (tiny.artifact / "model.so").write_bytes(b"")
    assert build_artifact(tiny.artifact, program, plan, tiny.model, measurer) is True
    assert read_artifact(tiny.artifact).plan == plan


def test_other_weights_are_another_artifact(tiny, plan, tmp_path, measurer):
    other = save_tiny(tmp_path / "other.onnx", seed=1, two_outputs=True)
    program = tiny_program(other)
    assert make_plan(program.tasks, program.spaces, target(), memory_log()).digest == plan.digest
    assert build_artifact(tiny.artifact, program, plan, other, measurer) is True
    assert read_artifact(tiny.artifact).provenance["model"] == "other.onnx"


def test_equal_decisions_give_equal_files(tiny_built, tmp_path, program, plan, measurer):
    build_artifact(tmp_path / "again", program, plan, tiny_built.model, measurer)
    for name in FILES:
        assert sha256(tmp_path / "again" / name) == sha256(tiny_built.artifact / name), name


def test_an_artifact_of_version_0_1_0_is_renewed_in_its_place(tiny, program, plan, measurer):
    (tiny.artifact / "manifest.json").write_text(sealed({"format": 1, "sha256": {}, "provenance": {}}))
    assert "tune build MODEL --out" in refusal(tiny.artifact)
    assert build_artifact(tiny.artifact, program, plan, tiny.model, measurer) is True
    assert read_artifact(tiny.artifact).plan == plan
