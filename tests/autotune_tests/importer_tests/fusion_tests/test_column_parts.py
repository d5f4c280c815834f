"""Products whose columns go different ways."""

import numpy as np
import pytest
from onnx import helper

from autotune.importer.load import load_model
from autotune.importer.program import simplify
from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written

ROWS, WIDTH, HEADS, SIZE = 20, 12, 2, 4
RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((WIDTH, 3 * HEADS * SIZE)).astype(np.float32)
BIAS = RNG.standard_normal(3 * HEADS * SIZE).astype(np.float32)
NUMBERS = {
    "w": WEIGHT,
    "b": BIAS,
    "shape": np.array([1, ROWS, 3, HEADS, SIZE]),
    "zero": np.array(0),
    "one": np.array([1]),
    "two": np.array(-1),
    "half": np.array(0.5, np.float32),
    "s": np.array([2]),
    "e": np.array([3]),
}


def attention(gathers=("zero", "one", "two"), bias=True, scale=False):
    """Queries, keys and values of one product, taken apart as timm's models do; an output each."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"])]
    if bias:
        nodes.append(helper.make_node("Add", ["b", "p"], ["q"]))
    nodes += [
        helper.make_node("Reshape", ["q" if bias else "p", "shape"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[2, 0, 3, 1, 4]),
        *(helper.make_node("Gather", ["t", name], [f"y{name}"], axis=0) for name in gathers),
    ]
    outputs = [f"y{name}" for name in gathers]
    if scale:
        nodes.append(helper.make_node("Transpose", [outputs[0]], ["turned"], perm=[0, 1, 3, 2]))
        nodes.append(helper.make_node("Mul", ["half", "turned"], ["scaled"]))
        outputs[0] = "scaled"
    return model_of(nodes, [value("x", (1, ROWS, WIDTH))], outputs, NUMBERS)


def operators(model, folder):
    kinds = [node.op_type for node in simplify(load_model(written(model, folder))).graph.node]
    kinds = ["MatMul" if kind == "Gemm" else kind for kind in kinds]  # a product and its bias become one
    return {kind: kinds.count(kind) for kind in kinds}


def feed():
    return {"x": np.random.default_rng(1).standard_normal((1, ROWS, WIDTH)).astype(np.float32)}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_a_product_for_each_part(bias, scale, tmp_path):
    model = attention(bias=bias, scale=scale)
    counts = operators(model, tmp_path)
    assert counts["MatMul"] == 3
    assert "Gather" not in counts
    assert "Mul" not in counts
    assert close(*run(model, tmp_path, feed()))


def test_parts_may_be_few(tmp_path):
    model = attention(gathers=("zero", "two"))
    assert operators(model, tmp_path)["MatMul"] == 2
    assert close(*run(model, tmp_path, feed()))


def test_a_part_that_is_taken_twice_is_computed_once(tmp_path):
    model = attention()
    model.graph.node.append(helper.make_node("Gather", ["t", "one"], ["again"], axis=0))
    model.graph.node.append(helper.make_node("Neg", ["again"], ["y"]))
    model.graph.output.append(value("y", None))
    assert operators(model, tmp_path)["MatMul"] == 3
    assert close(*run(model, tmp_path, feed()))


def test_a_product_that_is_read_whole_too_stays_one(tmp_path):
    model = attention()
    model.graph.output.append(value("t", None))
    assert operators(model, tmp_path)["MatMul"] == 1
    assert close(*run(model, tmp_path, feed()))


@pytest.mark.parametrize("turned", [0, 1])
def test_columns_of_a_gemm_that_are_split(turned, tmp_path):
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["p"], transB=turned),
        helper.make_node("Split", ["p", "sizes"], ["a", "c"], axis=-1),
        helper.make_node("Sigmoid", ["a"], ["g"]),
        helper.make_node("Mul", ["g", "c"], ["y"]),
    ]
    weight = np.ascontiguousarray(WEIGHT.T) if turned else WEIGHT
    model = model_of(
        nodes, [value("x", (ROWS, WIDTH))], ["y"], {"w": weight, "b": BIAS, "sizes": np.array([HEADS * SIZE + 4] * 2)}
    )
    x = np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)
    assert sum("matmul" in task.name for task in imported(model, tmp_path).tasks) == 2
    assert close(*run(model, tmp_path, {"x": x}))


def test_few_rows_stay_together(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Split", ["p", "sizes"], ["y", "z"], axis=-1),
    ]
    model = model_of(nodes, [value("x", (2, WIDTH))], ["y", "z"], {"w": WEIGHT, "sizes": np.array([8, 16])})
    assert operators(model, tmp_path)["MatMul"] == 1


def test_rows_that_are_dealt_out_stay_together(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Reshape", ["p", "rows"], ["r"]),
        helper.make_node("Split", ["r"], ["y", "z"], axis=0),
    ]
    weights = {"w": WEIGHT, "rows": np.array([2, ROWS // 2, 24])}
    model = model_of(nodes, [value("x", (ROWS, WIDTH))], ["y", "z"], weights)
    assert operators(model, tmp_path)["MatMul"] == 1


def test_a_factor_that_is_as_large_as_the_image_is_not_taken_for_one_number(tmp_path):
    nodes = [
        *attention().graph.node[:4],
        helper.make_node("Slice", ["t", "s", "e", "zero1"], ["l"]),
        helper.make_node("Mul", ["l", "gains"], ["y"]),
        helper.make_node("Gather", ["t", "zero"], ["z"], axis=0),
    ]
    numbers = {**NUMBERS, "zero1": np.array([0]), "gains": RNG.standard_normal((1, 1, HEADS, 1, 1)).astype(np.float32)}
    model = model_of(nodes, [value("x", (1, ROWS, WIDTH))], ["y", "z"], numbers)
    assert operators(model, tmp_path)["Mul"] == 1
    assert close(*run(model, tmp_path, feed()))
