"""Input shapes: read from ``--input``, bound by name, assumed where there are none."""

import shlex
from pathlib import Path

import pytest
from onnx import helper

from autotune.importer.load import load_model
from autotune.importer.onnx_model.input_shapes import bind_inputs, input_flag, parse_input
from schedules.vocabulary.errors import ModelError, UsageError
from tests.autotune_tests.importer_tests.onnx_cases import conv_model, model_of, value, written

HERE = Path("m.onnx")


def dims(value_info):
    return [dim.dim_value for dim in value_info.type.tensor_type.shape.dim]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x:1x3x224x224", ("x", (1, 3, 224, 224))),
        ("scope/x:0:7", ("scope/x:0", (7,))),
        ("my data:2x3", ("my data", (2, 3))),
        ("x:", ("x", ())),
    ],
)
def test_parse_input(text, expected):
    assert parse_input(text) == expected
    assert parse_input(shlex.split(input_flag(*expected))[1]) == expected


@pytest.mark.parametrize("text", ["x", ":1x2", "x:1xa", "x:1x", "x:0x2", "x:-1x2", "x:1x2,3", ""])
def test_parse_input_refuses(text):
    with pytest.raises(UsageError, match="NAME:DIMS"):
        parse_input(text)


def test_symbols_are_bound_everywhere():
    model = model_of([helper.make_node("Add", ["x", "z"], ["y"])], [value("x", ("n", 3)), value("z", ("n", 3))], ["y"])
    bind_inputs(model, dict([parse_input("x:4x3")]), HERE)
    assert [dims(info) for info in model.graph.input] == [[4, 3], [4, 3]]
    with pytest.raises(UsageError, match=r"names no input of m\.onnx"):
        bind_inputs(model, {"nope": (1,)}, HERE)


@pytest.mark.parametrize("nameless", ["?", "-1", " ", "None", None])
def test_sizes_without_a_name_need_not_be_the_same(nameless, tmp_path):
    model = conv_model((nameless, 3, nameless, nameless))
    model.graph.output[0].CopyFrom(value("y", (nameless, 4, nameless, nameless)))
    path = written(model, tmp_path)
    assert dims(load_model(path, {"x": (2, 3, 48, 192)}).graph.output[0]) == [2, 4, 48, 192]


def complaint(model, inputs=None):
    with pytest.raises(ModelError, match="Try: tune run ") as caught:
        bind_inputs(model, inputs or {}, Path("my models/m.onnx"))
    return str(caught.value)


def test_the_message_has_the_whole_command():
    model = model_of(
        [helper.make_node("Add", ["input ids", "x:0"], ["y"])],
        [value("input ids", ("batch", "sequence")), value("x:0", ("?", "?")), value("fixed", (2,))],
        ["y"],
    )
    assert complaint(model, {"fixed": (2,)}).endswith(
        "tune run 'my models/m.onnx' --input fixed:2 --input 'input ids:1x128' --input x:0:1x128 (guessed sizes)"
    )
    command = complaint(model, {"x:0": (3, 4)}).partition("Try: ")[2].removesuffix(" (guessed sizes)")
    assert shlex.split(command)[3:] == ["--input", "x:0:3x4", "--input", "input ids:1x128"]


def bound(model, inputs=None):
    """The shapes of the inputs, and what is noted of them."""
    bind_inputs(model, inputs or {}, Path("m.onnx"))
    shapes = [[dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in model.graph.input]
    return shapes, [entry.value for entry in model.metadata_props]


@pytest.mark.parametrize("batch", ["batch", "N", "s0", "unk__12", None, "?", "batch_size"])
def test_an_open_batch_is_one_and_is_said(batch):
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", (batch, 3, 8))], ["y"])
    shapes, notes = bound(model)
    assert shapes == [[1, 3, 8]]
    shown = batch if batch not in (None, "?") else "?"
    text = f"m.onnx: the open batch is taken as 1 ('x' is {shown} x 3 x 8); for another size say, for example,"
    assert notes == [f"{text} --input x:8x3x8"]


@pytest.mark.parametrize("length", ["sequence", "num_points", "T_frames", "height"])
def test_a_first_size_that_counts_something_else_is_no_batch(length):
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", (length, 8))], ["y"])
    shapes, notes = bound(model)
    assert shapes == [[224 if length == "height" else 128, 8]]
    assert notes == [
        f"m.onnx: open sizes are taken as --input x:{shapes[0][0]}x8 ('x' is {length} x 8); for others give --input"
    ]


def test_a_first_size_that_is_another_axis_too_is_no_batch():
    nodes = [helper.make_node("MatMul", ["x", "mask"], ["y"])]
    model = model_of(nodes, [value("x", ("T", 8)), value("mask", (8, "T"))], ["y"])
    shapes, notes = bound(model)
    assert shapes == [[128, 8], [8, 128]]
    assert "--input x:128x8 ('x' is T x 8, 'mask' is 8 x T)" in notes[0]


def test_open_batches_follow_the_shape_that_one_input_is_given():
    nodes = [helper.make_node("Concat", ["a", "b"], ["y"], axis=1)]
    model = model_of(nodes, [value("a", (None, 3)), value("b", (None, 4))], ["y"])
    assert bound(model, {"a": (8, 3)}) == ([[8, 3], [8, 4]], [])


def test_the_note_is_not_kept_when_shapes_are_given_later():
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", ("batch", 3))], ["y"])
    assert len(bound(model)[1]) == 1
    assert bound(model, {"x": (1, 3)}) == ([[1, 3]], [])


def test_an_unknown_rank_is_not_assumed():
    nodes = [helper.make_node("Concat", ["a", "b"], ["y"], axis=1)]
    model = model_of(nodes, [value("a", ("n", 3)), value("b", None)], ["y"])
    assert "'a' has dynamic dimensions (n x 3), input 'b' has an unknown shape" in complaint(model)


def test_what_is_said_asks_for_what_is_assumed():
    values = [value("my ids", ("b", "t")), value("mask", ("b", "t")), value("x", ("?", "?")), value("z", ("b", 3))]
    nodes = [helper.make_node("Identity", [info.name], [f"y{number}"]) for number, info in enumerate(values)]
    shapes, notes = bound(model_of(nodes, values, ["y0"]))
    words = shlex.split(notes[0].partition("taken as ")[2].partition(" (")[0])
    shapes_asked = dict(map(parse_input, words[1::2]))
    assert set(shapes_asked) == {"my ids", "x"}  # the others follow
    assert bound(model_of(nodes, values, ["y0"]), shapes_asked)[0] == shapes == [[1, 128], [1, 128], [1, 128], [1, 3]]
