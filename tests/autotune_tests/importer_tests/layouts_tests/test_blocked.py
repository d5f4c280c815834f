"""A dense layer over a tensor of any rank keeps its result as a matrix, so that what follows it is the same kernel."""

import numpy as np
import pytest
from onnx import helper

from autotune.importer.layouts.blocked import MOST_PADDED
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from tests.autotune_tests import tiny
from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written

RNG = np.random.default_rng(0)


def array(*shape):
    return (RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def check(folder, nodes, outputs, weights, shape=(2, 3, 16)):
    """The names of the model's kernels, after a check that it computes what ONNX Runtime does."""
    protos = [helper.make_node(kind, inputs, [output]) for kind, inputs, output in nodes]
    model = model_of(protos, [value("x", shape)], outputs, weights)
    assert close(*run(model, folder, {"x": RNG.standard_normal(shape).astype(np.float32)}))
    program = import_program(simplify(load_model(written(model, folder))), tiny.target())
    return sorted(task.name for task in program.tasks)


DENSE = [("MatMul", ["x", "w"], "p"), ("Add", ["p", "b"], "d")]
WEIGHTS = {
    "w": array(16, 16),
    "b": array(16),
    "root": np.float32(2**0.5),
    "one": np.float32(1),
    "half": np.float32(0.5),
}
GELU = [
    ("Div", ["d", "root"], "scaled"),
    ("Erf", ["scaled"], "erf"),
    ("Add", ["erf", "one"], "gate"),
    ("Mul", ["d", "gate"], "gated"),
    ("Mul", ["gated", "half"], "y"),
]


def test_gelu_is_part_of_the_product(tmp_path):
    kernels = check(tmp_path, [*DENSE, *GELU], ["y"], WEIGHTS)
    assert len([name for name in kernels if "matmul" in name and "erf" in name]) == 1
    assert not [name for name in kernels if "matmul" not in name and "reshape" not in name]


def test_a_residual_is_part_of_the_product(tmp_path):
    kernels = check(tmp_path, [*DENSE, ("Add", ["d", "x"], "y")], ["y"], WEIGHTS)
    assert [name.count("add") for name in kernels if "matmul" in name] == [2]


@pytest.mark.parametrize("wide", [(1, 1, 16), (16,), (1,), (3, 1), (2, 3, 16), (1, 3, 16), (2, 1, 1)])
def test_whatever_constant_is_added(tmp_path, wide):
    check(tmp_path, [*DENSE, ("Add", ["d", "c"], "y")], ["y"], {**WEIGHTS, "c": array(*wide)})


@pytest.mark.parametrize("kind", ["Sub", "Div", "Max"])
def test_the_order_of_operands_stays(tmp_path, kind):
    check(tmp_path, [*DENSE, ("Exp", ["x"], "e"), (kind, ["e", "d"], "y")], ["y"], WEIGHTS)


def test_one_value_as_a_matrix_and_as_it_is(tmp_path):
    nodes = [*DENSE, ("Relu", ["d"], "r"), ("Transpose", ["d"], "t"), ("Add", ["d", "r"], "s"), ("Tanh", ["t"], "y")]
    check(tmp_path, nodes, ["y", "s", "d"], WEIGHTS)


def test_layer_norm_of_a_matrix(tmp_path):
    mean = helper.make_node("ReduceMean", ["d"], ["m"], axes=[-1])
    spread = helper.make_node("ReduceMean", ["sq"], ["v"], axes=[-1])
    protos = [helper.make_node(kind, inputs, [output]) for kind, inputs, output in DENSE]
    protos += [mean, helper.make_node("Sub", ["d", "m"], ["c"]), helper.make_node("Pow", ["c", "two"], ["sq"]), spread]
    protos += [helper.make_node("Sqrt", ["v"], ["s"]), helper.make_node("Div", ["c", "s"], ["y"])]
    model = model_of(protos, [value("x", (2, 3, 16))], ["y"], {**WEIGHTS, "two": np.float32(2)})
    assert close(*run(model, tmp_path, {"x": RNG.standard_normal((2, 3, 16)).astype(np.float32)}))


@pytest.mark.parametrize("axis", [-1, 2, 1])
def test_a_layer_norm_keeps_the_matrix(tmp_path, axis):
    norm = helper.make_node("LayerNormalization", ["d", "g", "h"], ["n"], axis=axis, epsilon=1e-3)
    protos = [helper.make_node(kind, inputs, [output]) for kind, inputs, output in DENSE]
    protos += [norm, helper.make_node("MatMul", ["n", "w"], ["q"]), helper.make_node("Add", ["q", "n"], ["y"])]
    size = (16,) if axis != 1 else (3, 16)
    model = model_of(protos, [value("x", (2, 3, 16))], ["y"], {**WEIGHTS, "g": array(*size), "h": array(*size)})
    feed = {"x": RNG.standard_normal((2, 3, 16)).astype(np.float32)}
    assert close(*run(model, tmp_path, feed))
    program = import_program(simplify(load_model(written(model, tmp_path))), tiny.target())
    norms = [task for task in program.tasks if "norm" in task.name]
    # Several axes are normalised as one, so that the norm's rows are a matrix too, of other columns.
    assert [task.shapes[-1] for task in norms] == [(2, 48) if axis == 1 else (6, 16)]
    assert not [task.name for task in program.tasks if "reshape" in task.name], "no kernel only copies"


def test_a_mean_over_another_axis_is_served_the_tensor(tmp_path):
    protos = [helper.make_node(kind, inputs, [output]) for kind, inputs, output in DENSE]
    protos += [helper.make_node("ReduceMean", ["d"], ["m"], axes=[1]), helper.make_node("Sub", ["d", "m"], ["y"])]
    model = model_of(protos, [value("x", (2, 3, 16))], ["y"], WEIGHTS)
    assert close(*run(model, tmp_path, {"x": RNG.standard_normal((2, 3, 16)).astype(np.float32)}))


def test_rows_split_and_joined_again(tmp_path):
    weights = {**WEIGHTS, "flat": np.array([6, 16], np.int64), "deep": np.array([3, 2, 16], np.int64)}
    nodes = [*DENSE, ("Reshape", ["d", "flat"], "f"), ("Relu", ["f"], "r"), ("Reshape", ["r", "deep"], "y")]
    kernels = check(tmp_path, nodes, ["y"], weights)
    assert [name for name in kernels if ("matmul" in name and "relu" in name) or "maximum" in name]


def quantised_when_it_runs(channels, size, zero):
    """Two convolutions of integers, each behind a quantiser whose scale is the image's, as ONNX Runtime writes them."""
    nodes, weights, channels_in, previous, pads = [], {}, 3, "x", [1, 1, 1, 1]
    for layer in ("a", "b"):
        weights |= {
            f"{layer}w": RNG.integers(0, 256, (channels, channels_in, 3, 3)).astype(np.uint8),
            f"{layer}z": np.array(zero, np.uint8),
            f"{layer}s": np.array(0.004, np.float32),
            f"{layer}b": (RNG.standard_normal((1, channels, 1, 1)) / 4).astype(np.float32),
        }
        image = [f"{layer}{name}" for name in ("q", "scale", "zero")]
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [previous], image),
            helper.make_node("ConvInteger", [image[0], f"{layer}w", image[2], f"{layer}z"], [f"{layer}c"], pads=pads),
            helper.make_node("Cast", [f"{layer}c"], [f"{layer}f"], to=1),
            helper.make_node("Mul", [image[1], f"{layer}s"], [f"{layer}m"]),
            helper.make_node("Mul", [f"{layer}f", f"{layer}m"], [f"{layer}y"]),
            helper.make_node("Add", [f"{layer}y", f"{layer}b"], [f"{layer}r"]),
            helper.make_node("Relu", [f"{layer}r"], [f"{layer}o"]),
        ]
        channels_in, previous = channels, f"{layer}o"
    return model_of(nodes, [value("x", (1, 3, size, size))], ["bo"], weights)


@pytest.mark.parametrize(("channels", "zero"), [(16, 128), (16, 90), (12, 90)])
def test_images_that_are_quantised_when_the_model_runs_stay_in_blocks(channels, zero, tmp_path):
    model = quantised_when_it_runs(channels, 12, zero)
    program = import_program(simplify(load_model(written(model, tmp_path))), tiny.target())
    names = [task.name for task in program.tasks for _ in range(task.weight)]
    convolutions = [name for name in names if "conv2d" in name and "multiply" in name]
    assert len(convolutions) == 2, "what follows a convolution is part of its kernel"
    assert all(("less_sums" in name) == (zero != 128) for name in convolutions)
    assert all("relu" in name for name in convolutions)
    quantisers = [name for name in names if "round" in name and "border" in name]
    assert len(quantisers) == 2, "a border is part of the kernel that quantises"
    assert not any("unblock" in name for name in quantisers)
    alone = [name.rstrip("0123456789") for name in names]
    assert alone.count("block") <= 2, "what the first convolutions read"
    # The output, the extremes of columns, and the sums of what a filter reads.
    assert alone.count("unblock") <= (3 if zero == 128 else 5)
    ours, theirs = run(model, tmp_path, {"x": RNG.standard_normal((1, 3, 12, 12)).astype(np.float32)})
    quantum = np.abs(theirs[0]).max() / 255
    assert np.abs(ours[0] - theirs[0]).max() <= quantum


@pytest.mark.parametrize("channels", [16, 12])
@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("size", [80, 9])
def test_extremes_of_an_image(channels, kind, size, tmp_path):
    """Channels that fill up a block are no extremes: all numbers lie on one side of 0."""
    shift = 9 if kind == "ReduceMin" else -9
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        helper.make_node(kind, ["c"], ["m"], keepdims=0),
        helper.make_node("Div", ["c", "m"], ["y"]),
    ]
    weights = {"w": array(channels, 8, 1, 1), "b": np.full(channels, shift, np.float32)}
    model = model_of(nodes, [value("x", (1, 8, size, size))], ["m", "y"], weights)
    x = RNG.uniform(-1, 1, (1, 8, size, size)).astype(np.float32)
    assert close(*run(model, tmp_path, {"x": x}))


@pytest.mark.parametrize("channels", [47, 65, 20])
@pytest.mark.parametrize("before", [[], ["Log"], ["Conv", "Log"], ["Conv", "Exp"], ["Conv", "Relu"]], ids="-".join)
def test_the_last_block_of_a_plain_image_is_read_with_its_zeros(channels, before, tmp_path):
    """Blocks of a convolution may end with what an operator makes of zeros; its channels are read without them."""
    nodes = [helper.make_node("Abs", ["x"], ["0"])]
    nodes += [
        helper.make_node(kind, [str(at), "v"][: 1 + (kind == "Conv")], [str(at + 1)]) for at, kind in enumerate(before)
    ]
    nodes.append(helper.make_node("Conv", [str(len(before)), "w"], ["y"], pads=[1, 1]))
    weights = {"w": array(24, channels, 3)}
    if "Conv" in before:
        weights["v"] = np.abs(array(channels, 8, 1))
    size = 8 if "Conv" in before else channels
    model = model_of(nodes, [value("x", (2, size, 13))], ["y"], weights)
    x = RNG.uniform(0.5, 1, (2, size, 13)).astype(np.float32)
    assert close(*run(model, tmp_path, {"x": x}))
    read = [weight.shape[1] * weight.shape[4] for weight in weights_of(model, tmp_path)]
    filled = -(-channels // tiny.target().lanes()) * tiny.target().lanes()
    if "Conv" not in before:
        assert read == [filled if filled <= MOST_PADDED * channels else channels]
    if before == ["Conv", "Relu"]:
        assert channels in read


def weights_of(model, folder):
    """The packed filters of a model's convolutions."""
    program = imported(model, folder)
    return [array for array in program.weights if array.ndim == 6]
