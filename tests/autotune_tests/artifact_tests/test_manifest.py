"""Manifests: sealed, of one format and kind, and whatever is wrong with one is said in one line."""

import fcntl
import json
import multiprocessing
import os
import shutil

import numpy as np
import pytest

from autotune.artifact import replacement
from autotune.artifact.directory import read_artifact
from autotune.artifact.manifest import (
    FORMAT,
    KERNELS,
    MANIFEST,
    SEGMENTS,
    SHAPES,
    annotate,
    attach,
    attachment,
    check_files,
    digest_of,
    kind_of,
    only_part,
    part_path,
    read_manifest,
    sealed,
    sha256,
    write_manifest,
)
from schedules.vocabulary.errors import ArtifactError

FIELDS = {"sha256": {}, "identity": "i", "inputs": [], "outputs": [], "parts": [], "weights": [], "provenance": {}}


def refusal(path, kinds=(KERNELS,)):
    with pytest.raises(ArtifactError) as caught:
        read_manifest(path, kinds)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def folder_with(path, kind=KERNELS, **fields):
    path.mkdir()
    write_manifest(path, kind, {**FIELDS, **fields})
    return path


@pytest.mark.parametrize(
    "manifest",
    [
        {"format": 1, "sha256": {}, "identity": "", "inputs": [], "outputs": [], "weights": [], "provenance": {}},
        {"format": 2, "sha256": {"weights.bin": ""}, "interface": {}, "parts": [], "weights": [], "provenance": {}},
        {"format": 3, "inputs": [], "outputs": [], "links": [], "provenance": {}},
        {"format": 5, "kind": "kernels", "sha256": {}, "inputs": [], "outputs": [], "provenance": {}},
    ],
)
def test_what_an_earlier_version_wrote_is_refused_with_the_command_that_renews_it(tmp_path, manifest):
    (tmp_path / MANIFEST).write_text(sealed(manifest))
    told = refusal(tmp_path, (KERNELS, SHAPES, SEGMENTS))
    assert f"has format {manifest['format']} and this program reads {FORMAT}" in told
    assert f"'tune build MODEL --out {tmp_path}', which measures nothing" in told
    assert kind_of(tmp_path) == KERNELS  # whose reader says the same


def test_a_format_of_the_future_is_refused(tmp_path):
    (tmp_path / MANIFEST).write_text(sealed({**FIELDS, "format": 99}))
    assert "has format 99" in refusal(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", f'{{"format": {FORMAT}}}'])
def test_a_damaged_manifest_is_refused(tmp_path, text):
    (tmp_path / MANIFEST).write_text(text)
    assert "build the artifact again" in refusal(tmp_path)
    assert kind_of(tmp_path) == KERNELS


def test_a_changed_byte_anywhere_in_the_manifest_is_found(tiny):
    path = tiny.artifact / MANIFEST
    whole = path.read_bytes()
    for position in range(0, len(whole), 11):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        assert "build" in refusal(tiny.artifact), position
    path.write_bytes(whole.replace(b" ", b"  ", 1))
    assert "was changed" in refusal(tiny.artifact)
    path.write_bytes(whole)
    assert read_artifact(tiny.artifact)


def test_no_artifact_says_how_to_make_one(tmp_path):
    assert "tune run MODEL" in refusal(tmp_path)
    assert "tune run MODEL" in refusal(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("kind", "told"),
    [(SHAPES, "has parts for several sets of shapes or numbers of threads"), (SEGMENTS, "has fallback partitions")],
)
def test_an_artifact_in_parts_names_one_where_kernels_are_needed(tmp_path, kind, told):
    parts = [{"path": "fallback-0.onnx", "kind": "onnx"}, {"path": "part-1", "kind": KERNELS}]
    whole = folder_with(tmp_path / "whole", kind, parts=parts)
    assert kind_of(whole) == kind
    assert refusal(whole) == f"{whole} {told}; name one of its parts, such as {whole / 'part-1'}"
    assert read_manifest(whole, (kind,))["parts"] == parts


def test_an_artifact_of_kernels_is_refused_where_parts_are_needed(tmp_path):
    whole = folder_with(tmp_path / "whole")
    assert refusal(whole, (SHAPES,)) == f"{whole} holds kernels for one set of shapes; name another"


def test_files_of_parts_are_checked_and_shared_weights_are_not_asked_for(tmp_path):
    whole = folder_with(tmp_path / "whole")
    part = folder_with(whole / "part-0", sha256={"model.so": "?", "weights.bin": "?"})
    (part / "model.so").write_bytes(b"code")
    entry = {"path": "part-0", "kind": KERNELS, "identity": "i", "weights": []}
    manifest = {"sha256": {}, "parts": [entry]}
    with pytest.raises(ArtifactError, match=r"model\.so was changed"):
        check_files(whole, manifest)
    write_manifest(part, KERNELS, {**FIELDS, "sha256": {"model.so": sha256(part / "model.so"), "weights.bin": "?"}})
    check_files(whole, manifest)
    annotate(part, {"more": 1})  # which changes its manifest
    check_files(whole, manifest)
    del entry["weights"]
    with pytest.raises(ArtifactError, match=r"weights\.bin is missing"):
        check_files(whole, manifest)
    entry["identity"] = "other"
    with pytest.raises(ArtifactError, match="another artifact than the one that was built"):
        check_files(whole, manifest)


@pytest.mark.parametrize("name", ["../other", "/etc", "..", "", "a/b", ".hidden"])
def test_a_part_outside_of_the_artifact_is_refused(tmp_path, name):
    with pytest.raises(ArtifactError, match="outside of the artifact"):
        part_path(tmp_path, {"path": name})


def test_what_is_attached_is_read_back_and_not_needed(tiny):
    assert attachment(tiny.artifact, "bench.json") is None
    attach(tiny.artifact, "bench.json", b"{}")
    attach(tiny.artifact, "bench.json", b"[]")
    assert attachment(tiny.artifact, "bench.json") == b"[]"
    assert "bench.json" not in read_manifest(tiny.artifact)["sha256"]
    (tiny.artifact / "bench.json").write_bytes(b"{}")
    with pytest.raises(ArtifactError, match="was lost or changed"):
        attachment(tiny.artifact, "bench.json")
    assert read_artifact(tiny.artifact)


def test_a_file_that_was_built_may_be_replaced_by_one_that_is_checked_too(tiny):
    plan = (tiny.artifact / "plan.json").read_bytes()
    attach(tiny.artifact, "plan.json", plan + b"\n")
    assert read_manifest(tiny.artifact)["attached"] == {}
    assert read_artifact(tiny.artifact)
    (tiny.artifact / "plan.json").write_bytes(plan)
    with pytest.raises(ArtifactError, match=r"plan\.json was changed"):
        read_artifact(tiny.artifact)


def test_provenance_is_added_to(tiny):
    annotate(tiny.artifact, {"more": 1})
    annotate(tiny.artifact, {"more": 2, "model": "other.onnx"})
    provenance = read_artifact(tiny.artifact).provenance
    assert (provenance["more"], provenance["model"]) == (2, "other.onnx")
    assert set(json.loads((tiny.artifact / MANIFEST).read_text())["provenance"]) == {
        "more",
        "model",
        "precision",
        "products",
        "sha256",
    }


def test_what_cannot_be_written_is_one_line(tiny, tmp_path):
    (tiny.artifact / "bench.json" / "more").mkdir(parents=True)
    with pytest.raises(ArtifactError, match="cannot write into"):
        attach(tiny.artifact, "bench.json", b"{}")
    shutil.rmtree(tiny.artifact / "bench.json")
    assert not list(tiny.artifact.glob(".*"))  # nothing unfinished is left


def test_a_planted_link_is_replaced_and_not_followed(tiny, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("bench.json", "bench.json.new", "manifest.json.new"):
        (tiny.artifact / name).symlink_to(victim)
    attach(tiny.artifact, "bench.json", b"{}")
    assert victim.read_text() == "precious"
    assert attachment(tiny.artifact, "bench.json") == b"{}"
    assert not (tiny.artifact / "bench.json").is_symlink()


def attach_many(artifact, name):
    for count in range(20):
        attach(artifact, f"{name}-{count}", b"x")


def test_attachments_of_several_processes_are_all_kept(tiny):
    processes = [
        multiprocessing.get_context("fork").Process(target=attach_many, args=(tiny.artifact, n)) for n in "abc"
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(read_manifest(tiny.artifact)["attached"]) == 60


def test_an_artifact_that_another_process_keeps_locked_is_changed_after_a_while(tiny, monkeypatch, caplog):
    monkeypatch.setattr(replacement, "PATIENCE_S", 0.05)
    handle = os.open(tiny.artifact, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    attach(tiny.artifact, "bench.json", b"{}")
    os.close(handle)
    assert attachment(tiny.artifact, "bench.json") == b"{}"
    assert "another process has locked it for 0.05 s" in caplog.text


@pytest.mark.parametrize("size", [0, 7, 4096, 4096 * 3 + 5])
@pytest.mark.parametrize("name", ["weights.bin", "model.so"])
def test_the_digest_of_a_file_shows_every_changed_byte_and_every_lost_one(tmp_path, name, size):
    content = bytearray(np.random.default_rng(size).bytes(size))
    (tmp_path / name).write_bytes(content)
    whole = digest_of(tmp_path / name)
    for place in {0, size // 2, size - 1} if size else ():
        (tmp_path / name).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert digest_of(tmp_path / name) != whole
    (tmp_path / name).write_bytes(content + b"\0")
    assert digest_of(tmp_path / name) != whole


@pytest.mark.parametrize("unit", [1, 8, 512, 4096])
def test_the_digest_of_weights_shows_what_changed_places(tmp_path, unit):
    content = np.random.default_rng(0).bytes(5 * 4096)
    path = tmp_path / "weights.bin"

    def digest(data):
        path.write_bytes(data)
        return digest_of(path)

    rng, whole = np.random.default_rng(unit), digest(content)
    pieces = [content[at : at + unit] for at in range(0, len(content), unit)]
    for _ in range(50):
        one, other = rng.choice(len(pieces), 2, replace=False)
        swapped = list(pieces)
        swapped[one], swapped[other] = pieces[other], pieces[one]
        assert (digest(b"".join(swapped)) != whole) == (pieces[one] != pieces[other])
    assert digest(content[:-unit]) != whole
    assert digest(content[:-unit] + bytes(unit)) != whole
    assert digest(content + content[-unit:]) != whole


@pytest.mark.parametrize("change", ["words", "sectors", "bit", "truncated", "appended"])
def test_an_artifact_whose_weights_changed_is_refused(tiny, change):
    path = tiny.artifact / "weights.bin"
    data = path.read_bytes()
    changed = {
        "words": data[8:16] + data[:8] + data[16:],
        "sectors": data[512:1024] + data[:512] + data[1024:],
        "bit": data[:100] + bytes([data[100] ^ 64]) + data[101:],
        "truncated": data[:-4],
        "appended": data + bytes(4096),
    }[change]
    path.write_bytes(changed)
    with pytest.raises(ArtifactError, match=r"weights\.bin was changed after it was built"):
        read_artifact(tiny.artifact)


def test_the_only_part_lies_in_the_artifact(tmp_path):
    """What a stranger's manifest lists may be anything."""

    def listed(parts):
        write_manifest(tmp_path, SHAPES, {**FIELDS, "parts": parts})
        return only_part(tmp_path)

    part = {"path": "part-0", "kind": KERNELS}
    assert listed([part]) == tmp_path / "part-0"
    assert listed([part, {**part, "path": "part-1"}]) == tmp_path
    with pytest.raises(ArtifactError, match="outside of the artifact"):
        listed([{**part, "path": "../other"}])
    for damaged in (7, [{}], ["part-0"], None):
        with pytest.raises(ArtifactError, match="is damaged"):
            listed(damaged)
