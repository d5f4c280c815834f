"""After a power cut at any moment there is a whole artifact: the old one or the new one."""

import shutil
from functools import partial

import pytest

from autotune.artifact import manifest, replacement
from autotune.artifact.directory import read_artifact
from autotune.artifact.manifest import ABSENT, annotate, attach, attachment
from autotune.artifact.replacement import install, new_artifact, scratch_beside
from schedules.vocabulary.errors import ArtifactError
from tests.autotune_tests.artifact_tests.power_cut import Disk
from tests.autotune_tests.tiny import build_untuned, save_tiny
from tuning_logs.durable import write_file


@pytest.fixture(scope="module")
def two(tmp_path_factory, measurer):
    """Two artifacts of two models; their identities."""
    folder = tmp_path_factory.mktemp("two")
    by_name = {}
    for seed, name in enumerate(("old", "new")):
        path = build_untuned(save_tiny(folder / f"{name}.onnx", seed), folder / name, measurer)
        for extra in ("model.o", "model.so"):  # the states are many, and what is in the files does not matter
            if (path / extra).stat().st_size > 4096:
                attach(path, extra, (path / extra).read_bytes()[:64])
        by_name[name] = path, read_artifact(path).identity
    assert by_name["old"][1] != by_name["new"][1]
    return by_name


@pytest.fixture
def root(tmp_path, two):
    folder = tmp_path / "disk"
    shutil.copytree(two["old"][0], folder / "out")
    return folder


def states(disk, tmp_path, ordered=False):
    """Every folder that a power cut could leave, one after the other."""
    for count, (how, names, contents) in enumerate(disk.left_overs(ordered)):
        place = tmp_path / f"state-{count}"
        disk.restore(names, contents, place)
        yield how, place
        shutil.rmtree(place)


def replace_by(two, out):
    with new_artifact(out) as folder:
        shutil.copytree(two["new"][0], folder, dirs_exist_ok=True)


def build_and_install(two, out):
    """As builders do it: candidates in a scratch folder, one of which is noted upon and moved."""
    with scratch_beside(out) as folder:
        replace_by(two, folder / "candidate")
        annotate(folder / "candidate", {"latency_ms": 1})
        install(folder / "candidate", out)


def check(disk, two, tmp_path, ordered=False):
    """How many states there are; each is the old or the new artifact, and the last one is the new one."""
    known, last, count = {identity for _, identity in two.values()}, "", 0
    for how, place in states(disk, tmp_path, ordered):
        count += 1
        try:
            last = read_artifact(place / "out").identity
        except ArtifactError as error:
            raise AssertionError(f"{how}: {error}") from error
        assert last in known, how
    assert last == two["new"][1]
    return count


@pytest.mark.parametrize("change", [replace_by, build_and_install])
def test_every_state_of_a_replacement_opens(root, two, tmp_path, monkeypatch, change):
    disk = Disk(root)
    with disk.recording(monkeypatch.setattr):
        change(two, root / "out")
    assert check(disk, two, tmp_path) > 20


def test_every_state_opens_where_two_folders_cannot_change_places(root, two, tmp_path, monkeypatch):
    monkeypatch.setattr(replacement, "_exchange", lambda one, other: False)
    disk = Disk(root)
    with disk.recording(monkeypatch.setattr):
        replace_by(two, root / "out")
    assert check(disk, two, tmp_path, ordered=True) > 20


@pytest.mark.parametrize("forgotten", ["sync_tree", "sync"])
def test_the_simulation_notices_a_synchronisation_that_is_left_out(root, two, tmp_path, monkeypatch, forgotten):
    monkeypatch.setattr(replacement, forgotten, lambda path: None)
    disk = Disk(root)
    with disk.recording(monkeypatch.setattr):
        replace_by(two, root / "out")
    with pytest.raises(AssertionError):
        check(disk, two, tmp_path)


def attach_twice(out):
    attach(out, "bench.json", b"one")
    attach(out, "bench.json", b"two")
    attach(out, "plan.json", (out / "plan.json").read_bytes() + b"\n")


def test_every_state_of_an_attachment_opens(root, tmp_path, monkeypatch):
    disk = Disk(root)
    with disk.recording(monkeypatch.setattr):
        attach_twice(root / "out")
    attachments = []
    for how, place in states(disk, tmp_path):
        try:
            read_artifact(place / "out")
            attachments.append(attachment(place / "out", "bench.json"))
        except ArtifactError as error:
            raise AssertionError(f"{how}: {error}") from error
    assert set(attachments) == {None, b"one", b"two"}
    assert attachments[-1] == b"two"


def test_an_attachment_without_synchronisation_would_be_noticed(root, tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "write_file", partial(write_file, durable=False))
    disk = Disk(root)
    with disk.recording(monkeypatch.setattr):
        attach_twice(root / "out")

    def opens(place):
        try:
            read_artifact(place / "out")
            attachment(place / "out", "bench.json")
        except ArtifactError:
            return False
        return True

    assert not all(opens(place) for _, place in states(disk, tmp_path))


def test_an_attachment_that_was_interrupted_is_made_again(root):
    out = root / "out"
    attach(out, "bench.json", b"one")
    assert ABSENT not in (out / "manifest.json").read_text()
    (out / "bench.json").unlink()
    with pytest.raises(ArtifactError, match="was lost or changed"):
        attachment(out, "bench.json")
    attach(out, "bench.json", b"two")
    assert attachment(out, "bench.json") == b"two"
