"""Artifacts take their place whole or not at all, and never that of anything else."""

import os
import random
import signal
import stat
import time

import pytest

from autotune.artifact import replacement
from autotune.artifact.manifest import KERNELS, MANIFEST, read_manifest, write_manifest
from autotune.artifact.replacement import check_place, install, new_artifact, scratch_beside
from schedules.vocabulary.errors import ArtifactError


def artifact(path, note=""):
    path.mkdir(parents=True)
    write_manifest(path, KERNELS, {"note": note})
    return path


def names(path):
    return sorted(entry.name for entry in path.iterdir())


def test_a_scratch_folder_lies_beside_and_is_gone_at_the_end(tmp_path):
    out = tmp_path / "deep" / "out"
    with scratch_beside(out) as folder:
        assert folder.parent == out.parent
        (folder / "file").write_text("")
    assert names(out.parent) == []


def test_a_new_artifact_takes_the_place_of_the_old_one(tmp_path):
    out = artifact(tmp_path / "out", "old")
    with new_artifact(out) as folder:
        write_manifest(folder, KERNELS, {"note": "new"})
        assert '"old"' in (out / MANIFEST).read_text()
    assert '"new"' in (out / MANIFEST).read_text()
    assert names(tmp_path) == ["out"]
    assert stat.S_IMODE(out.stat().st_mode) == 0o755


def test_an_error_leaves_what_was_there(tmp_path):
    out = artifact(tmp_path / "out", "old")

    def fail(folder):
        write_manifest(folder, KERNELS, {"note": "new"})
        raise ValueError("dear me")

    with pytest.raises(ValueError, match="dear me"), new_artifact(out) as folder:
        fail(folder)
    assert '"old"' in (out / MANIFEST).read_text()
    assert names(tmp_path) == ["out"]


def test_a_full_disk_is_one_line(tmp_path):
    with pytest.raises(ArtifactError, match="free some space or name another --out"), new_artifact(tmp_path / "out"):
        raise OSError(28, "No space left on device")


def test_installing_moves(tmp_path):
    new, out = artifact(tmp_path / "made", "new"), artifact(tmp_path / "out", "old")
    install(out, out)
    install(new, out)
    assert '"new"' in (out / MANIFEST).read_text()
    assert names(tmp_path) == ["out"]


def test_only_artifacts_and_empty_folders_are_replaced(tmp_path):
    (tmp_path / "empty").mkdir()
    check_place(tmp_path / "empty")
    check_place(tmp_path / "nothing")
    check_place(artifact(tmp_path / "out"))
    (tmp_path / "thesis.tex").write_text("precious")
    for place in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(ArtifactError, match="is not an artifact; name another --out"):
            install(tmp_path / "out", place)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_place_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="name another --out"), scratch_beside(tmp_path / "file" / "out"):
        pass


def test_what_a_killed_process_left_is_removed_and_what_is_in_use_stays(tmp_path):
    out = tmp_path / "out"
    with scratch_beside(out) as used:
        (tmp_path / ".out-abcdefgh").mkdir()
        (tmp_path / ".out-old-abcdefgh").mkdir()
        (tmp_path / ".out-abcdefgh" / "model.so").write_text("half")
        kept = [".out-of-the-way", ".output", "out-abcdefgh"]
        for name in kept:
            (tmp_path / name).mkdir()
        with scratch_beside(out) as other:
            assert names(tmp_path) == sorted([used.name, other.name, *kept])
    assert names(tmp_path) == sorted(kept)


def test_an_old_artifact_whose_replacer_was_killed_halfway_is_put_back(tmp_path):
    out = tmp_path / "out"
    artifact(tmp_path / ".out-old-abcdefgh" / "old", "old")
    with scratch_beside(out):
        assert '"old"' in (out / MANIFEST).read_text()
    assert names(tmp_path) == ["out"]


def test_an_artifact_is_replaced_in_one_step(tmp_path, monkeypatch):
    new, out = artifact(tmp_path / "made", "new"), artifact(tmp_path / "out", "old")
    monkeypatch.setattr(replacement.os, "rename", lambda *paths: pytest.fail(f"a step of several: {paths}"))
    install(new, out)
    assert '"new"' in (out / MANIFEST).read_text()


def test_without_an_exchange_in_one_step_it_takes_two(tmp_path, monkeypatch):
    monkeypatch.setattr(replacement, "_exchange", lambda one, other: False)
    new, out = artifact(tmp_path / "made", "new"), artifact(tmp_path / "out", "old")
    install(new, out)
    assert '"new"' in (out / MANIFEST).read_text()
    assert names(tmp_path) == ["out"]


def test_of_a_link_to_an_artifact_only_the_link_is_replaced(tmp_path):
    target, new = artifact(tmp_path / "target", "old"), artifact(tmp_path / "made", "new")
    (tmp_path / "out").symlink_to(target)
    install(new, tmp_path / "out")
    assert '"new"' in (tmp_path / "out" / MANIFEST).read_text()
    assert '"old"' in (target / MANIFEST).read_text()
    assert names(tmp_path) == ["out", "target"]


def replace_for_ever(out):
    while True:
        with new_artifact(out) as folder:
            write_manifest(folder, KERNELS, {"note": "new"})


def test_at_whatever_moment_a_process_is_killed_there_is_a_whole_artifact(tmp_path):
    out, rng = artifact(tmp_path / "out", "old"), random.Random(0)
    for _ in range(100):
        child = os.fork()
        if child == 0:
            replace_for_ever(out)
        time.sleep(rng.uniform(0.0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        read_manifest(out)
    with scratch_beside(out):
        pass
    assert names(tmp_path) == ["out"]
