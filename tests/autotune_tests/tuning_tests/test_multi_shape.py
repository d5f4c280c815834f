"""One artifact for several sets of shapes: which calls it serves, rightly, and what it says of the others."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.artifact.composite import MODEL, read_composite
from autotune.artifact.manifest import BENCH, KERNELS, SHAPES, attach, kind_of, sealed, sha256
from autotune.cli.model_request import ModelRequest
from autotune.exchange.export import export
from autotune.importer.assumed_sets import assumed_sets
from autotune.options import Options
from autotune.report.facts import read_facts
from autotune.report.inspect_kernels import report_kernels, report_memory
from autotune.report.inspect_lanes import report_lanes
from autotune.runtime.one_shape_executor import OneShapeExecutor
from autotune.tuning import tune as tuning
from autotune.tuning.multi_shape import ShapeSets
from autotune.tuning.run_plan import PartJob, part_options
from autotune.validation.independence import live_sizes
from schedules.vocabulary.errors import ArtifactError, UsageError
from tests.autotune_tests.fakes import fake_device, interrupt_the_first_part
from tests.autotune_tests.importer_tests.onnx_cases import conv_model, model_of, value, written
from tests.models import save

BATCHES = ({"rows": (1, 24)}, {"rows": (8, 24)})
LENGTHS = tuple({"ids": shape, "mask": shape} for shape in ((1, 4), (2, 16)))
LONG = tuple({"ids": shape, "mask": shape} for shape in ((1, 64), (4, 16)))
RANGE = ((4, 32), (2, 64), (1, 128))
SIZES = ({"image": (1, 3, 16, 16)}, {"image": (1, 3, 24, 20)})


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Name and sets → model and artifact; measured by a measurer that makes its numbers up."""
    folder = tmp_path_factory.mktemp("several")

    def build(name, sets, **changes):
        model = folder / f"{name}.onnx"
        if not model.exists():
            save(name, model)
        chosen = {"out": folder / f"{name}.tuned", "log": folder / "t.db", "threads": 1, "searcher": "random"}
        return model, tuning.tune(model, Options(**{**chosen, "trials": 8, "batch": 2, "shapes": sets, **changes}))

    with pytest.MonkeyPatch.context() as patch:
        fake_device(patch)
        yield build


@pytest.fixture(scope="module")
def batches(built):
    return built("tiny_open_batch", BATCHES)


@pytest.fixture(scope="module")
def sizes(built):
    return built("tiny_open_size", SIZES)


def agrees(model, session, feed):
    expected = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, feed)
    got = session.run(None, feed)
    return len(got) == len(expected) and all(
        a.shape == b.shape and np.allclose(a, b, 1e-3, 1e-5) for a, b in zip(got, expected, strict=True)
    )


def rows(count, seed=0):
    return {"rows": np.random.default_rng(seed).standard_normal((count, 24)).astype(np.float32)}


def image(height, width):
    return {"image": np.random.default_rng(0).standard_normal((1, 3, height, width)).astype(np.float32)}


def test_open_sizes_are_shown_by_name(batches, sizes):
    session = autotune.InferenceSession(batches[1].artifact)
    assert [(arg.name, arg.shape, arg.type) for arg in session.get_inputs()] == [
        ("rows", ["batch", 24], "tensor(float)")
    ]
    assert session.get_outputs()[0].shape == ["batch", 10]
    session = autotune.load(sizes[1].artifact)
    assert session.get_inputs()[0].shape == [1, 3, "height", "width"]
    assert session.get_outputs()[0].shape == [1, 10]


@pytest.mark.parametrize("count", [1, 8, 5, 9, 20, 64])
def test_any_batch_is_served(batches, count):
    model, result = batches
    assert agrees(model, autotune.InferenceSession(result.artifact), rows(count))


@pytest.mark.parametrize(("height", "width"), [(16, 16), (24, 20)])
def test_named_resolutions_are_served(sizes, height, width):
    model, result = sizes
    assert agrees(model, autotune.InferenceSession(result.artifact), image(height, width))


@pytest.mark.parametrize(("height", "width"), [(17, 20), (23, 19), (1, 1), (16, 17), (5, 20)])
def test_other_resolutions_are_padded(sizes, height, width, caplog):
    model, result = sizes
    assert agrees(model, autotune.InferenceSession(result.artifact), image(height, width))
    assert "ONNX Runtime" not in caplog.text


@pytest.mark.parametrize(("count", "length"), [(1, 4), (2, 16), (1, 1), (2, 3), (1, 9), (5, 15)])
def test_a_masked_length_is_padded(built, count, length):
    model, result = built("tiny_open_length", LENGTHS)
    rng = np.random.default_rng(length)
    mask = (np.arange(length)[None] < rng.integers(1, length + 1, (count, 1))).astype(np.int64)
    feed = {"ids": rng.integers(0, 4, (count, length)), "mask": mask}
    assert agrees(model, autotune.InferenceSession(result.artifact), feed)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_left_out_shows_nothing_of_earlier_calls(batches, bad):
    model, result = batches
    session = autotune.InferenceSession(result.artifact)
    for count in range(1, 9):
        session.run(None, {"rows": np.full((8, 24), bad, np.float32)})
        assert agrees(model, session, rows(count, seed=count))


@pytest.fixture(scope="module")
def long(built, tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")  # first guesses, whose products have jobs of a part of the rows
    return built("tiny_open_length", LONG, out=folder / "m.tuned", log=folder / "t.db", trials=0)


def test_jobs_of_a_length_and_of_a_batch_are_left_out(long):
    one, four = (part.live for part in read_composite(long[1].artifact).parts)
    assert [[size.symbol for size in live.sizes] for live in (one, four)] == [["length"], ["batch", "length"]]
    for live in (one, four):
        assert {len(size.calls) for size in live.sizes} == {len(live.seconds)}
        whole = {size.symbol: size.rows for size in live.sizes}
        assert live.share(whole, 1) == pytest.approx(1.0)
        for symbol in whole:
            assert 0 < live.share({**whole, symbol: 1}, 1) < 1


def test_what_changes_results_is_not_left_out(long, monkeypatch):
    composite = read_composite(long[1].artifact)
    part = composite.parts[1]
    artifact, shapes = replace(composite.open(part), live=None), part.shapes
    assert live_sizes(artifact, composite.interface, shapes, 0, {}) == part.live
    real = OneShapeExecutor.live_rows

    def wrong(self, *arguments):
        rows = real(self, *arguments)
        return rows and replace(rows, calls=tuple(replace(jobs, rows=2 * jobs.rows) for jobs in rows.calls))

    monkeypatch.setattr(OneShapeExecutor, "live_rows", wrong)  # each group is said to make twice the rows that it does
    assert live_sizes(artifact, composite.interface, shapes, 0, {}) is None


def test_what_is_left_out_of_a_length_shows_nothing(long):
    model, result = long
    session, rng = autotune.InferenceSession(result.artifact), np.random.default_rng(0)
    sizes = [(1, length) for length in (64, 1, 63, 17, 32, 33)] + [
        (count, length) for count in (4, 1, 3, 2) for length in (16, 5, 9, 8)
    ]
    for count, size in sizes:
        mask = (np.arange(size)[None] < rng.integers(1, size + 1, (count, 1))).astype(np.int64)
        assert agrees(model, session, {"ids": rng.integers(0, 32, (count, size)), "mask": mask})


def test_recorded_sizes_choose_sets_and_shares(batches, built, tmp_path):
    session = autotune.InferenceSession(batches[1].artifact)
    for count in [1] * 6 + [20, 5, 5]:
        session.run(None, rows(count))
    recorded = session.sizes()
    assert [(item["shapes"]["rows"][0], item["count"]) for item in recorded] == [(1, 6), (5, 2), (20, 1)]
    path = tmp_path / "sizes.json"
    path.write_text(json.dumps(recorded))
    options = ModelRequest(model=batches[0], sizes=path).options()
    assert [shapes["rows"] for shapes in options.shapes] == [(1, 24), (5, 24), (20, 24)]
    assert options.shares == pytest.approx((6 / 36, 10 / 36, 20 / 36))
    job = PartJob(batches[0], replace(options, budget_s=360.0, out=tmp_path / "m.tuned"))
    assert [round(part.options.seconds) for part in ShapeSets(job).parts(tmp_path)] == [60, 100, 200]


def test_sizes_are_counted_where_they_are_open(sizes, batches):
    session = autotune.InferenceSession(sizes[1].artifact)
    session.run(None, image(17, 17))
    assert session.sizes() == [{"shapes": {"image": [1, 3, 17, 17]}, "count": 1}]


def test_open_lengths_without_shapes_are_a_range(built, caplog, tmp_path):
    model, result = built("tiny_open_length", (), out=tmp_path / "ranged.tuned", log=tmp_path / "t.db")
    said = [text for text in caplog.messages if "open sizes are taken as" in text]
    assert len(said) == 1
    flags = " ".join(f"--input ids:{count}x{size}" for count, size in RANGE)
    described = "('ids' is batch x length, 'mask' is batch x length)"
    assert said[0] == f"tiny_open_length.onnx: open sizes are taken as {flags} {described}; for others give --input"
    assert tuple(part.shapes["ids"] for part in read_composite(result.artifact).parts) == RANGE
    session = autotune.InferenceSession(result.artifact)
    rng = np.random.default_rng(0)
    for count, length in ((1, 1), (1, 16), (4, 17), (3, 9), (9, 63), (1, 100), (2, 128)):
        mask = (np.arange(length)[None] < rng.integers(1, length + 1, (count, 1))).astype(np.int64)
        assert agrees(model, session, {"ids": rng.integers(0, 4, (count, length)), "mask": mask})
    options = Options(out=result.artifact, log=tmp_path / "t.db", threads=1, shapes=assumed_sets(model)[0])
    again = tuning.build(model, options)  # what is assumed is what the options that are named ask for
    assert again.artifact == result.artifact


def test_lengths_beyond_a_range_run_on_onnxruntime(built, tmp_path, caplog):
    model, result = built("tiny_open_length", (), out=tmp_path / "ranged.tuned", fallback="onnxruntime", trials=4)
    assert kind_of(result.artifact) == SHAPES
    session = autotune.InferenceSession(result.artifact)
    longest = RANGE[-1][1]
    for length in (longest, longest + 1, 300):
        ids = np.random.default_rng(length).integers(0, 9, (2, length))
        assert agrees(model, session, {"ids": ids, "mask": np.ones_like(ids)})
        assert ("ONNX Runtime runs calls of other sizes" in caplog.text) == (length > longest)


def test_batches_that_no_set_has_are_calls_of_one(built, tmp_path, caplog):
    model, result = built("tiny_open_length", (), out=tmp_path / "any.tuned", fallback="none", trials=4)
    session = autotune.InferenceSession(result.artifact)
    assert [spec.shape for spec in session.get_inputs()] == [["batch", "length"]] * 2
    assert {part.shapes["ids"][0] for part in read_composite(result.artifact).parts} == {1, 2, 4}
    joined = autotune.InferenceSession(result.artifact, serve=autotune.ServeOptions(max_batch=4))
    for batch, length in ((1, 16), (2, 16), (5, 100), (9, 20)):
        ids = np.random.default_rng(length).integers(0, 9, (batch, length))
        for served in (session, joined):
            assert agrees(model, served, {"ids": ids, "mask": np.ones_like(ids)})


def test_a_graph_that_was_exported_for_one_row_gets_sets_of_one(tmp_path, monkeypatch, caplog):
    """Its batch is open by name, and a Reshape has room for one row."""
    fake_device(monkeypatch)
    nodes = [
        helper.make_node("Reshape", ["x", "one"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["made"]),
        helper.make_node("Mul", ["made", "m"], ["y"]),
    ]
    inputs = [value("x", ("batch", "length", 24)), value("m", ("batch", "length", 1))]
    constants = {"one": np.array([1, -1, 24]), "w": rows(24)["rows"]}
    model = written(model_of(nodes, inputs, ["y"], constants), tmp_path)
    result = tuning.tune(model, Options(out=tmp_path / "m.tuned", log=tmp_path / "t.db", threads=1, trials=2))
    assert "sets of one row are tried" in caplog.text
    served = [part.shapes["x"] for part in read_composite(result.artifact).parts]
    assert served == [(1, length, 24) for length in (16, 32, 64, 128)]


def words_without_a_mask():
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["words"]),
        helper.make_node("ReduceMean", ["words"], ["y"], axes=[1], keepdims=0),
    ]
    ids = value("ids", ("batch", "sequence"), TensorProto.INT64)
    return model_of(nodes, [ids], ["y"], {"table": rows(32)["rows"]})


def two_lengths():
    nodes = [helper.make_node("MatMul", ["x", "z"], ["y"])]
    return model_of(nodes, [value("x", ("batch", "tokens", 8)), value("z", ("batch", 8, "others"))], ["y"])


def signal():
    nodes = [
        helper.make_node("Conv", ["audio", "filters"], ["c"], strides=[160]),
        helper.make_node("GlobalAveragePool", ["c"], ["y"]),
    ]
    filters = np.random.default_rng(0).standard_normal((4, 1, 400)).astype(np.float32)
    return model_of(nodes, [value("audio", ("batch", 1, "samples"))], ["y"], {"filters": filters})


@pytest.mark.parametrize(
    ("make", "served"),
    [
        (words_without_a_mask, [{"ids": shape} for shape in RANGE]),
        (two_lengths, [{"x": (count, size, 8), "z": (count, 8, size)} for count, size in RANGE]),
        (lambda: conv_model(("n", 3, "height", "width")), [{"x": (1, 3, 224, 224)}]),
        (signal, [{"audio": (1, 1, 16_000)}]),
        (lambda: conv_model(("n", 3, 8, 8)), [{"x": (1, 3, 8, 8)}]),
    ],
)
def test_every_kind_of_open_size_has_a_default(make, served, tmp_path, monkeypatch):
    fake_device(monkeypatch)
    model = written(make(), tmp_path)
    options = Options(out=tmp_path / "m.tuned", log=tmp_path / "t.db", threads=1, effort="instant")
    session = autotune.InferenceSession(tuning.tune(model, options).artifact)
    rng = np.random.default_rng(0)
    for shapes in served:
        types = {arg.name: arg.dtype for arg in session.get_inputs()}
        feed = {name: rng.integers(0, 9, shape).astype(types[name]) for name, shape in shapes.items()}
        assert agrees(model, session, feed)


@pytest.mark.parametrize(
    ("make", "own", "other"),
    [
        (lambda: conv_model(("n", 3, "height", "width")), (1, 3, 224, 224), (1, 3, 20, 36)),
        (lambda: conv_model((1, 3, 32, "width")), (1, 3, 32, 224), (1, 3, 32, 40)),
        (signal, (1, 1, 16_000), (1, 1, 1_200)),
    ],
)
def test_sizes_beside_a_single_set_that_was_assumed_run_on_onnxruntime(make, own, other, tmp_path, monkeypatch, caplog):
    fake_device(monkeypatch)
    model = written(make(), tmp_path)
    options = Options(out=tmp_path / "m.tuned", log=tmp_path / "t.db", threads=1, effort="instant")
    session = autotune.InferenceSession(tuning.tune(model, options).artifact)
    (name,) = [spec.name for spec in session.get_inputs()]
    for shape, is_other in ((own, False), ((3, *own[1:]), False), (other, True)):
        if shape[0] == 1 or isinstance(session.get_inputs()[0].shape[0], str):
            assert agrees(model, session, {name: np.random.default_rng(0).random(shape, np.float32)})
            assert ("ONNX Runtime runs calls of other sizes" in caplog.text) == is_other
    alone = tuning.tune(model, replace(options, out=tmp_path / "alone.tuned", fallback="none")).artifact
    with pytest.raises(UsageError, match="no set of shapes"):
        autotune.InferenceSession(alone).run(None, {name: np.zeros(other, np.float32)})


def test_commands_show_the_only_part_of_an_artifact(sizes, tmp_path, monkeypatch):
    fake_device(monkeypatch)
    model = written(conv_model(("n", 3, "height", "width")), tmp_path)
    options = Options(out=tmp_path / "m.tuned", log=tmp_path / "t.db", threads=1, effort="instant")
    one = tuning.tune(model, options).artifact
    part = one / "part-0"
    assert report_kernels(one) == report_kernels(part) != []
    assert report_memory(one) == report_memory(part)
    assert len(report_lanes(one).rows) == len(report_lanes(part).rows) == 1
    attach(one, BENCH, b"{}")  # as tune bench does, where it was told to look
    facts = read_facts(one)
    assert facts.rows == read_facts(part).rows
    assert facts.bench == {}
    assert (export(one, tmp_path / "exported") / "model.so").is_file()
    for several in (report_kernels, report_lanes, read_facts):
        with pytest.raises((ArtifactError, UsageError), match="part-0"):
            several(sizes[1].artifact)


def test_another_resolution_runs_on_onnxruntime_and_says_what_to_add(sizes, caplog):
    session = autotune.InferenceSession(sizes[1].artifact)
    assert agrees(sizes[0], session, image(16, 16))
    assert not caplog.text
    assert agrees(sizes[0], session, image(28, 20))
    assert "ONNX Runtime runs calls of other sizes: no set of shapes for image 1x3x28x20" in caplog.text
    assert "add --input image:1x3x28x20" in caplog.text
    caplog.clear()
    assert agrees(sizes[0], session, image(40, 24))
    assert not caplog.text  # said once


@pytest.mark.parametrize(
    ("damage", "told"), [("changed", "changed"), ("gone", "missing"), ("data elsewhere", "another file")]
)
def test_the_model_for_other_sizes_is_checked_when_it_is_needed(sizes, tmp_path, damage, told):
    copy = Path(shutil.copytree(sizes[1].artifact, tmp_path / "copy"))
    file = copy / MODEL
    if damage == "gone":
        file.unlink()
    elif damage == "changed":
        file.write_bytes(file.read_bytes() + b"\0")
    else:
        onnx.save(onnx.load(file), file, save_as_external_data=True, size_threshold=0, location="weights.data")
        manifest = json.loads((copy / "manifest.json").read_text())
        (copy / "manifest.json").write_text(sealed({**manifest, "other_sizes": sha256(file)}))
    session = autotune.InferenceSession(copy)
    assert agrees(sizes[0], session, image(16, 16))
    with pytest.raises(ArtifactError, match=told):
        session.run(None, image(28, 20))


def test_weights_beside_the_model_are_in_the_model_for_other_sizes(built, sizes, tmp_path):
    outside = tmp_path / "outside.onnx"
    onnx.save(onnx.load(sizes[0]), outside, save_as_external_data=True, size_threshold=0, location="outside.data")
    options = Options(out=tmp_path / "o.tuned", log=tmp_path / "t.db", threads=1, trials=4, shapes=SIZES)
    with pytest.MonkeyPatch.context() as patch:
        fake_device(patch)
        result = tuning.tune(outside, options)
    (tmp_path / "outside.data").unlink()
    assert agrees(sizes[0], autotune.InferenceSession(result.artifact), image(28, 20))


def test_without_a_fallback_another_resolution_is_refused(built, sizes, tmp_path):
    _, result = built("tiny_open_size", SIZES, fallback="none", out=tmp_path / "s.tuned")
    assert not (result.artifact / MODEL).exists()
    session = autotune.InferenceSession(result.artifact)
    with pytest.raises(UsageError, match=r"there are: image 1x3x16x16; image 1x3x24x20; add --input image:1x3x28x20"):
        session.run(None, image(28, 20))


def test_what_does_not_fit_the_model_is_refused(batches):
    session = autotune.InferenceSession(batches[1].artifact)
    with pytest.raises(UsageError, match=r"has shape \(3, 25\), the artifact was built for batchx24$"):
        session.run(None, {"rows": np.zeros((3, 25), np.float32)})
    with pytest.raises(UsageError, match="input 'rows' is missing; give an array of shape batchx24"):
        session.run(None, {})
    with pytest.raises(UsageError, match="has no input 'row'; did you mean 'rows'"):
        session.run(None, {"row": np.zeros((1, 24), np.float32)})


def test_padding_and_splitting_are_found_out(batches, sizes):
    interface = read_composite(batches[1].artifact).interface
    assert (interface.padded, interface.split) == ({"batch"}, {"batch"})
    interface = read_composite(sizes[1].artifact).interface
    assert (interface.padded, interface.split) == ({"height", "width"}, frozenset())


def test_weights_are_kept_once(batches):
    whole = read_composite(batches[1].artifact)
    used = [index for part in whole.parts for index in part.weights]
    assert len(set(used)) < len(used)


def test_a_run_reports_every_set(batches):
    data = batches[1].to_data()
    places = [Path(part["artifact"]) for part in data["specialisations"]]
    assert places == [batches[1].artifact / "part-0", batches[1].artifact / "part-1"]
    assert all(place.is_dir() for place in places)
    gains = [part.remaining.high_s for part in batches[1].parts]
    assert batches[1].remaining.high_s == pytest.approx(sum(gains))
    assert data["reason"] == "4 trials were measured"  # of both alike, so said once
    assert data["verified"]["passed"]
    assert data["measured_trials"] == sum(part["measured_trials"] for part in data["specialisations"])


def test_a_second_run_measures_nothing_and_keeps_the_artifact(built, batches):
    manifest = batches[1].artifact / "manifest.json"
    stamp = manifest.stat().st_mtime_ns
    _, again = built("tiny_open_batch", BATCHES)
    assert again.measured_trials == 0
    assert manifest.stat().st_mtime_ns == stamp


def test_a_changed_byte_is_refused(batches, tmp_path):
    copy = Path(shutil.copytree(batches[1].artifact, tmp_path / "copy"))
    for name in ("weights.bin", "part-1/model.so", "part-0/plan.json", "manifest.json"):
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)
        assert name == "manifest.json" or kind_of(copy) == SHAPES
        with pytest.raises(ArtifactError):
            autotune.InferenceSession(copy)
        shutil.rmtree(copy)
        shutil.copytree(batches[1].artifact, copy)


def test_a_part_is_an_artifact_and_may_be_annotated(batches, tmp_path):
    copy = Path(shutil.copytree(batches[1].artifact, tmp_path / "copy"))
    attach(copy / "part-1", "bench.json", b"{}")
    assert autotune.InferenceSession(copy / "part-1").get_inputs()[0].shape == [8, 24]
    assert agrees(batches[0], autotune.InferenceSession(copy), rows(8))
    shutil.rmtree(copy / "part-1")
    shutil.copytree(copy / "part-0", copy / "part-1")
    with pytest.raises(ArtifactError, match="another artifact"):
        autotune.InferenceSession(copy)


def test_one_set_stays_a_plain_artifact(built, tmp_path):
    model, result = built("tiny_open_batch", (), inputs={"rows": (2, 24)}, out=tmp_path / "plain.tuned")
    assert kind_of(result.artifact) == KERNELS
    assert agrees(model, autotune.InferenceSession(result.artifact), rows(2))


def test_after_ctrl_c_nothing_more_is_measured(batches, tmp_path, monkeypatch):
    started = interrupt_the_first_part(monkeypatch)
    result = tuning.tune(
        batches[0],
        Options(out=tmp_path / "b.tuned", log=tmp_path / "b.db", threads=1, trials=8, shapes=BATCHES, peer=True),
    )
    assert [part.interrupted for part in result.parts] == [True, True]
    assert result.verified.passed
    assert [measurer.asked for measurer in started] == [1]  # one for both parts


@pytest.mark.parametrize(
    ("share", "trials", "told"),
    [(0.02, 8, 1), (1 / 3, 3, 1), (1 / 49, 49, 1), (0.5, 9, 5), (0.5, 0, 0), (0.5, None, None)],
)
def test_no_part_is_left_without_a_trial(share, trials, told):
    options = Options(trials=trials, budget_s=60, shapes=BATCHES)
    own = part_options(options, share, Path("part"), BATCHES[0])
    assert (own.trials, own.shapes, own.inputs) == (told, (), BATCHES[0])
    assert own.budget_s == pytest.approx(60 * share)
