"""Artifacts in parts: sets of shapes and segments, weights kept once, and parts that are what was built."""

import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.external_data_helper import set_external_data

from autotune.artifact.composite import extract_part, model_of, part_name, read_composite
from autotune.artifact.directory import read_artifact
from autotune.artifact.manifest import (
    KERNELS,
    MANIFEST,
    ONNX,
    SEGMENTS,
    SHAPES,
    attach,
    digest_of,
    kind_of,
    read_manifest,
    sealed,
    sha256,
)
from autotune.graph.steps import CallJobs, LiveRows, LiveSizes
from schedules.vocabulary.errors import ArtifactError
from tests.autotune_tests.composites import three_segments, two_batches


@pytest.fixture(scope="module")
def batches_built(tmp_path_factory, measurer):
    return two_batches(tmp_path_factory.mktemp("batches"), measurer).artifact


@pytest.fixture(scope="module")
def segments_built(tmp_path_factory, measurer):
    return three_segments(tmp_path_factory.mktemp("segments"), measurer).artifact


@pytest.fixture
def batches(batches_built, tmp_path):
    return shutil.copytree(batches_built, tmp_path / "batches.tuned")


@pytest.fixture
def segments(segments_built, tmp_path):
    return shutil.copytree(segments_built, tmp_path / "segments.tuned")


def names(path):
    return sorted(entry.name for entry in path.iterdir())


def names_of(specs):
    return [spec.name for spec in specs]


def changed(path, change):
    """The manifest as somebody who can seal would change it."""
    manifest = json.loads((path / MANIFEST).read_text())
    del manifest["seal"]
    change(manifest)
    (path / MANIFEST).write_text(sealed(manifest))


def test_sets_of_shapes_are_read_back(batches_built):
    assert kind_of(batches_built) == SHAPES
    composite = read_composite(batches_built)
    assert [part.shapes for part in composite.parts] == [{"rows": (1, 24)}, {"rows": (8, 24)}]
    assert composite.interface.inputs[0].shape == ("batch", 24)
    assert (composite.interface.padded, composite.interface.split) == ({"batch"}, {"batch"})
    assert composite.provenance == {"model": "tiny_open_batch.onnx"}
    assert composite.tuned == composite.parts
    assert names(batches_built) == ["manifest.json", "part-0", "part-1", "weights.bin"]


def test_segments_are_read_back(segments_built):
    assert kind_of(segments_built) == SEGMENTS
    composite = read_composite(segments_built)
    assert [part.kind for part in composite.parts] == [KERNELS, ONNX, KERNELS]
    assert [names_of(part.inputs) for part in composite.parts] == [["data"], ["features", "scores"], ["root"]]
    assert [names_of(part.outputs) for part in composite.parts] == [
        ["scores", "features"],
        ["root", "where"],
        ["means"],
    ]
    assert [part.operators for part in composite.fallbacks] == [("Sqrt", "NonZero")]
    assert [part.path for part in composite.tuned] == [segments_built / "part-0", segments_built / "part-2"]
    assert model_of(segments_built / "part-0").is_file()
    assert [spec.shape for spec in composite.interface.outputs] == [(1, 32, 1, 1), (2, "?"), (1, 10)]


def test_the_manifest_shows_inputs_and_outputs(segments_built):
    data = read_manifest(segments_built)
    assert data["inputs"] == [{"name": "data", "shape": [1, 16, 8, 8], "dtype": "float32"}]
    assert [spec["name"] for spec in data["outputs"]] == ["means", "where", "scores"]


def test_weights_are_kept_once(batches_built):
    composite = read_composite(batches_built)
    used = [number for part in composite.parts for number in part.weights]
    assert len(set(used)) < len(used)
    assert len(composite.entries) == len(set(used))
    first, second = (composite.open(part).weights for part in composite.parts)
    assert any(ours is theirs for ours in first for theirs in second)


def test_a_part_is_opened_alone_and_in_the_whole(batches_built):
    composite = read_composite(batches_built)
    for part in composite.parts:
        alone, within = read_artifact(part.path), composite.open(part)
        assert alone.identity == within.identity
        for ours, theirs in zip(alone.weights, within.weights, strict=True):
            assert np.array_equal(ours, theirs)


def test_a_part_is_extracted_as_it_was(batches_built, segments_built, tmp_path):
    for number, part in enumerate((batches_built / "part-1", segments_built / "part-0")):
        out = tmp_path / str(number)
        extract_part(part, out)
        assert (out / MANIFEST).read_bytes() == (part / MANIFEST).read_bytes()
        assert digest_of(out / "weights.bin") == read_manifest(out)["sha256"]["weights.bin"]
        assert read_artifact(out)


def test_a_part_may_be_annotated_but_not_exchanged(batches):
    attach(batches / "part-1", "bench.json", b"{}")
    assert read_composite(batches)
    shutil.rmtree(batches / "part-1")
    shutil.copytree(batches / "part-0", batches / "part-1")
    with pytest.raises(ArtifactError, match="another artifact than the one that was built"):
        read_composite(batches)


@pytest.mark.parametrize("name", ["weights.bin", "part-1/model.so", "part-0/plan.json", "manifest.json"])
def test_a_changed_byte_is_found(batches, name):
    content = bytearray((batches / name).read_bytes())
    content[len(content) // 2] ^= 1
    (batches / name).write_bytes(content)
    with pytest.raises(ArtifactError):
        read_composite(batches)


def test_a_part_without_its_whole_has_no_weights(batches, tmp_path):
    (tmp_path / "else").mkdir()
    alone = shutil.copytree(batches / "part-0", tmp_path / "else" / "part-0")
    with pytest.raises(ArtifactError, match=r"weights\.bin is missing"):
        read_artifact(alone)


def test_weights_that_are_not_there_are_found(batches):
    changed(batches, lambda data: data["parts"][0]["weights"].append(99))
    composite = read_composite(batches)
    with pytest.raises(ArtifactError, match="is damaged"):
        composite.open(composite.parts[0])


def test_parts_are_named_by_number_and_kind():
    assert part_name(2, KERNELS) == "part-2"
    assert part_name(1, ONNX) == "fallback-1.onnx"


def test_a_segment_outside_of_the_artifact_is_refused(segments):
    def outside(data):
        data["parts"][1]["path"] = "../other.onnx"
        data["parts"][1]["identity"] = sha256(segments / "fallback-1.onnx")

    shutil.copy(segments / "fallback-1.onnx", segments.parent / "other.onnx")
    changed(segments, outside)
    with pytest.raises(ArtifactError, match="outside of the artifact"):
        read_composite(segments)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: data["parts"].pop(0), "reads 'features', which nothing before it makes"),
        (lambda data: data["parts"].reverse(), "reads 'root', which nothing before it makes"),
        (lambda data: data["parts"].pop(), "nothing in .* makes its output 'means'"),
    ],
)
def test_values_that_nothing_makes_are_refused(segments, change, told):
    changed(segments, change)
    with pytest.raises(ArtifactError, match=told):
        read_composite(segments)


def test_a_fallback_partition_with_data_in_other_files_is_refused(segments):
    path = segments / "fallback-1.onnx"
    model = onnx.load(path)
    secret = numpy_helper.from_array(np.zeros(4, np.float32), "secret")
    set_external_data(secret, "/etc/hostname")
    secret.ClearField("raw_data")
    model.graph.initializer.append(secret)
    path.write_bytes(model.SerializeToString())
    changed(segments, lambda data: data["parts"][1].update(identity=sha256(path)))
    with pytest.raises(ArtifactError, match="data in another file"):
        read_composite(segments)


def test_a_fallback_partition_that_is_no_model_is_refused(segments):
    path = segments / "fallback-1.onnx"
    path.write_bytes(b"\xff" * 64)
    changed(segments, lambda data: data["parts"][1].update(identity=sha256(path)))
    with pytest.raises(ArtifactError, match="is no ONNX file"):
        read_composite(segments)


def test_what_older_versions_said_of_one_open_size_is_read(batches):
    """0.4.0 wrote it without a list of sizes."""
    live = {"symbol": "batch", "rows": 8, "calls": [{"count": 8, "inner": 1, "groups": 8, "rows": 1}], "seconds": [0.5]}

    def older(manifest):
        manifest["parts"][1]["live"] = live

    changed(batches, older)
    one = LiveRows("batch", 8, (CallJobs(8, 1, 8, 1),))
    read = read_composite(batches).parts[1].live
    assert (read, read.seconds) == (LiveSizes((one,)), (0.5,))


def test_more_open_sizes_than_a_core_knows_are_refused(batches):
    """The core has room for two; a newer version may write three."""
    size = {"symbol": "batch", "rows": 8, "calls": [{}]}

    def newer(manifest):
        manifest["parts"][1]["live"] = {"sizes": [size] * 3, "seconds": []}

    changed(batches, newer)
    with pytest.raises(ArtifactError, match="rows of 3 open sizes, and this version 2 at most; upgrade"):
        read_composite(batches)
