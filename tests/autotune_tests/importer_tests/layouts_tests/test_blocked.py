"""A dense layer over a tensor of any rank keeps its result as a matrix, so that what follows it is the same kernel."""

import numpy as np
import pytest
from onnx import helper

from autotune.importer.onnx_model.load import load_model
from autotune.importer.onnx_model.simplify import simplify
from autotune.importer.program import import_program
from tests.autotune_tests import tiny
from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written

RNG = np.random.default_rng(0)


def array(*shape):
    return (RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def check(folder, nodes, outputs, weights, shape=(2, 3, 16)):
    """The names of the model's kernels, after a check that it computes what ONNX Runtime does."""
    made = [helper.make_node(kind, inputs, [output]) for kind, inputs, output in nodes]
    model = model_of(made, [value("x", shape)], outputs, weights)
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
    made = [helper.make_node(kind, inputs, [output]) for kind, inputs, output in DENSE]
    made += [mean, helper.make_node("Sub", ["d", "m"], ["c"]), helper.make_node("Pow", ["c", "two"], ["sq"]), spread]
    made += [helper.make_node("Sqrt", ["v"], ["s"]), helper.make_node("Div", ["c", "s"], ["y"])]
    model = model_of(made, [value("x", (2, 3, 16))], ["y"], {**WEIGHTS, "two": np.float32(2)})
    assert close(*run(model, tmp_path, {"x": RNG.standard_normal((2, 3, 16)).astype(np.float32)}))


@pytest.mark.parametrize("axis", [-1, 2, 1])
def test_a_layer_norm_keeps_the_matrix(tmp_path, axis):
    norm = helper.make_node("LayerNormalization", ["d", "g", "h"], ["n"], axis=axis, epsilon=1e-3)
    made = [helper.make_node(kind, inputs, [output]) for kind, inputs, output in DENSE]
    made += [norm, helper.make_node("MatMul", ["n", "w"], ["q"]), helper.make_node("Add", ["q", "n"], ["y"])]
    size = (16,) if axis != 1 else (3, 16)
    model = model_of(made, [value("x", (2, 3, 16))], ["y"], {**WEIGHTS, "g": array(*size), "h": array(*size)})
    feed = {"x": RNG.standard_normal((2, 3, 16)).astype(np.float32)}
    assert close(*run(model, tmp_path, feed))
    program = import_program(simplify(load_model(written(model, tmp_path))), tiny.target())
    norms = [task for task in program.tasks if "norm" in task.name]
    assert [len(task.shapes[-1]) for task in norms] == [3 if axis == 1 else 2]


def test_a_mean_over_another_axis_is_served_the_tensor(tmp_path):
    made = [helper.make_node(kind, inputs, [output]) for kind, inputs, output in DENSE]
    made += [helper.make_node("ReduceMean", ["d"], ["m"], axes=[1]), helper.make_node("Sub", ["d", "m"], ["y"])]
    model = model_of(made, [value("x", (2, 3, 16))], ["y"], WEIGHTS)
    assert close(*run(model, tmp_path, {"x": RNG.standard_normal((2, 3, 16)).astype(np.float32)}))


def test_rows_split_and_joined_again(tmp_path):
    weights = {**WEIGHTS, "flat": np.array([6, 16], np.int64), "deep": np.array([3, 2, 16], np.int64)}
    nodes = [*DENSE, ("Reshape", ["d", "flat"], "f"), ("Relu", ["f"], "r"), ("Reshape", ["r", "deep"], "y")]
    kernels = check(tmp_path, nodes, ["y"], weights)
    assert [name for name in kernels if ("matmul" in name and "relu" in name) or "maximum" in name]
