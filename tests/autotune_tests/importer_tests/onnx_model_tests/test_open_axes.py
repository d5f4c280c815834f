"""What several static interfaces have in common."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from autotune.frame.noise import live_name, live_sizes
from autotune.importer.onnx_model.open_axes import (
    constant_extents,
    mixes_positions,
    open_interface,
    open_places,
    quantises_whole_tensors,
    sets_with_live,
    wider_shapes,
)
from autotune.interface import Growth
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def interface():
    """x (batch, 6), mask (batch) → (2 · batch, 6), a size that nothing known determines, and a fixed one."""
    model = model_of(
        [helper.make_node("Relu", ["x"], ["y"])], [value("x", ("batch", 6)), value("mask", (None,))], ["y"]
    )
    inputs = [[("x", (n, 6), "float32"), ("mask", (n,), "bool")] for n in (2, 8)]
    outputs = [[("y", (2 * n, 6), "float32"), ("z", (n * n,), "float32"), ("w", (5,), "float32")] for n in (2, 8)]
    return open_interface(model, inputs, outputs)


def test_outputs_follow_the_symbols_of_inputs():
    common = interface()
    assert [spec.shape for spec in common.inputs] == [("batch", 6), ("mask_0",)]
    assert [spec.shape for spec in common.outputs] == [("batch", 6), ("?",), (5,)]
    assert common.scale == {(0, 0): Growth().then(2)}
    assert common.cut_output(0, np.zeros((16, 6)), {"batch": 8}, {"batch": 3}).shape == (6, 6)
    assert common.symbols == ("batch", "mask_0")
    assert common.axes("batch") == {"x": [0]}
    assert not common.knows_outputs()


def test_sizes_without_a_name_are_independent():
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", ("?", 3, "?", "-1"))], ["y"])
    specs = [[("x", (n, 3, 4 * n, 9 * n), "float32")] for n in (1, 2)]
    common = open_interface(model, specs, [[("y", *own_specs[0][1:])] for own_specs in specs])
    assert common.inputs[0].shape == ("x_0", 3, "x_2", "x_3")
    assert common.sizes({"x": (1, 3, 48, 192)}) == {"x_0": 1, "x_2": 48, "x_3": 192}


def test_of_sizes_that_grow_alike_an_output_follows_the_equal_one():
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", ("batch", "length"))], ["y"])
    specs = [[("x", (n, 16 * n), "float32")] for n in (1, 2)]
    common = open_interface(model, specs, [[("y", (n, 16 * n), "float32")] for n in (1, 2)])
    assert common.outputs[0].shape == ("batch", "length")


def test_sizes_that_no_set_varies_are_told_apart_by_one_more_set():
    shape = ("batch", "length", 6)
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", shape), value("m", shape[:2])], ["y"])
    specs = [[("x", (1, 128, 6), "float32"), ("m", (1, 128), "int64")]]
    wider = wider_shapes(model, specs)
    assert wider == {"x": (2, 384, 6), "m": (2, 384)}
    more = [("x", wider["x"], "float32"), ("m", wider["m"], "int64")]
    common = open_interface(model, [*specs, more], [[("y", (1, 256), "float32")], [("y", (2, 768), "float32")]])
    assert common.outputs[0].shape == ("batch", "length")
    full, few = {"batch": 2, "length": 384}, {"batch": 1, "length": 100}
    assert common.cut_output(0, np.zeros((2, 768)), full, few).shape == (1, 200)


def test_there_is_no_wider_set_of_what_all_sets_vary_or_the_model_lacks():
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", ("batch", 6))], ["y"])
    assert wider_shapes(model, [[("x", (batch, 6), "float32")] for batch in (1, 8)]) is None
    noise = ("tune.noise/normal/x", (1, 6), "float32")
    assert wider_shapes(model, [[("x", (1, 6), "float32"), noise]]) is None
    fixed = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", (1, 6))], ["y"])
    assert wider_shapes(fixed, [[("x", (1, 6), "float32")]]) is None


def one_node(kind, outputs):
    return model_of([helper.make_node(kind, ["x"], outputs)], [value("x", ("batch", None, 4))], outputs[:1])


QUANTISED = one_node("DynamicQuantizeLinear", ["q", "s", "z"])
SETS = ({"x": (2, 3, 4)}, {"x": (1, 8, 4)})


def test_every_open_size_of_a_scale_of_all_numbers_has_an_input():
    first, second = sets_with_live(QUANTISED, SETS)
    assert live_sizes(first) == {"batch": 2, "x_1": 3}
    assert live_sizes(second) == {"batch": 1, "x_1": 8}
    assert open_places(QUANTISED) == {("x", 0): "batch", ("x", 1): "x_1"}


@pytest.mark.parametrize(
    ("kind", "shape", "told"),
    [("Conv", ("batch", 3, "h"), True), ("MaxPool", (1, 3, 8, "w"), True), ("Conv", ("batch", 3, 8), False)],
)
def test_images_of_open_sizes_are_told_which_positions_count(kind, shape, told):
    model = model_of([helper.make_node(kind, ["x"], ["y"])], [value("x", shape)], ["y"])
    sizes = tuple(8 if isinstance(size, str) else size for size in shape)
    (own,) = sets_with_live(model, ({"x": sizes},))
    assert bool(live_sizes(own)) == told


def test_other_models_and_incomplete_sets_have_no_such_inputs():
    assert not quantises_whole_tensors(None)
    for model in (one_node("Relu", ["y"]), None):
        assert sets_with_live(model, SETS) == SETS
    assert sets_with_live(QUANTISED, ({},)) == ({},)


@pytest.mark.parametrize(
    ("kind", "mixes"), [("Relu", False), ("Conv", True), ("FusedConv", True), ("Loop", True), ("MatMul", False)]
)
def test_operators_that_work_along_a_sequence(kind, mixes):
    assert mixes_positions(one_node(kind, ["y"])) == mixes
    assert not mixes_positions(None)


def test_extents_of_constants():
    """Initialisers count, and constants that nodes hold."""
    held = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.zeros((77, 4), np.float32)))
    model = model_of(
        [held, helper.make_node("Add", ["x", "w"], ["y"])],
        [value("x", (1, 6))],
        ["y"],
        {"w": np.ones((1, 6), np.float32)},
    )
    assert constant_extents(model) == {1, 4, 6, 77}
    assert constant_extents(None) == frozenset()


def test_such_inputs_follow_their_size():
    sets = sets_with_live(QUANTISED, ({"x": (2, 8, 4)}, {"x": (4, 8, 4)}))
    inputs = [[(name, shape, "float32") for name, shape in shapes.items()] for shapes in sets]
    opened = open_interface(QUANTISED, inputs, [[("q", own["x"], "uint8")] for own in sets])
    assert {spec.name: spec.shape for spec in opened.inputs}[live_name("batch")] == ("batch",)
    assert {spec.name: spec.shape for spec in opened.inputs}[live_name("x_1")] == (8,)
    wider = wider_shapes(QUANTISED, inputs)
    assert wider is not None
    assert wider["x"] == (4, 16, 4)
    assert live_sizes(wider) == {"batch": 4, "x_1": 16}
