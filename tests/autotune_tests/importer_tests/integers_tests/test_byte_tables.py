"""Functions of one quantised tensor are tables, whose bytes are ONNX Runtime's to one level."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from tests.autotune_tests import tiny
from tests.autotune_tests.importer_tests.built import run_ours
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written
from tests.models import quantised
from tests.models.builder import Builder


def node(kind, inputs, output, **attributes):
    return helper.make_node(kind, inputs.split(), [output], output, **attributes)


def quantisers(x, name, scale, zero):
    """Nodes that round ``x`` to bytes q‑name and make numbers d‑name of them."""
    return [
        node("QuantizeLinear", f"{x} {scale} {zero}", f"q{name}"),
        node("DequantizeLinear", f"q{name} {scale} {zero}", f"d{name}"),
    ]


FUNCTIONS = {
    "sigmoid": [node("Sigmoid", "dx", "f")],
    "silu": [node("Sigmoid", "dx", "g"), *quantisers("g", "s", "u", "v"), node("Mul", "dx ds", "f")],
    "hard_swish": [node("HardSigmoid", "dx", "g"), *quantisers("g", "s", "u", "v"), node("Mul", "dx ds", "f")],
    "gelu": [
        node("Div", "dx root", "r"),
        node("Erf", "r", "e"),
        *quantisers("e", "e", "u", "v"),
        node("DequantizeLinear", "level s z", "one"),
        node("Add", "de one", "a"),
        node("Mul", "dx a", "m"),
        node("Mul", "m half", "f"),
    ],
    "tanh": [node("Tanh", "dx", "f"), node("Identity", "f", "unused")],
}
NUMBERS = {"root": np.float32(np.sqrt(2)), "half": np.float32(0.5)}


def model(function, dtype, extra=()):
    low = np.iinfo(dtype).min
    weights = {
        "s": np.float32(0.05),
        "z": np.array(low + 90, dtype),
        "u": np.float32(1 / 200),
        "v": np.array(low + 20, dtype),
    }
    weights["level"] = weights["z"] + np.array(20, dtype)  # stands for 1
    weights |= {"t": np.float32(0.03), "w": np.array(low + 40, dtype), **NUMBERS}
    nodes = [*quantisers("x", "x", "s", "z"), *FUNCTIONS[function], *quantisers("f", "f", "t", "w"), *extra]
    proto = model_of(nodes, [value("x", (4, 300), TensorProto.FLOAT)], [], weights)
    proto.graph.output.append(value("df", None, TensorProto.FLOAT))
    return proto


def kinds(model, folder):
    return Counter(proto.op_type for proto in simplify(load_model(written(model, folder))).graph.node)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_of_one_byte_is_a_table(function, dtype, tmp_path):
    proto = model(function, dtype)
    counts = kinds(proto, tmp_path)
    assert counts["ByteTable"] == 1
    assert not counts.keys() & {"Sigmoid", "Tanh", "Erf", "HardSigmoid", "Mul", "Div", "Add"}
    feed = {"x": np.linspace(-9, 9, 1200, dtype=np.float32).reshape(4, 300)}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (theirs,) = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(["df"], feed)
    (ours,) = run_ours(proto, tmp_path, feed)
    levels = np.abs(np.round((ours - theirs) / 0.03))
    assert levels.max() <= 1
    assert np.mean(levels) < 0.01
    assert len(np.unique(ours)) > 20


def test_what_is_cheap_or_of_two_tensors_is_computed(tmp_path):
    nodes = [*quantisers("x", "x", "s", "z"), node("Relu", "dx", "f"), *quantisers("f", "f", "t", "w")]
    weights = {"s": np.float32(0.05), "z": np.uint8(9), "t": np.float32(0.03), "w": np.uint8(3)}
    cheap = model_of(nodes, [value("x", (4, 30), TensorProto.FLOAT)], [], weights)
    cheap.graph.output.append(value("df", None, TensorProto.FLOAT))
    assert "ByteTable" not in kinds(cheap, tmp_path)
    nodes = [*quantisers("x", "x", "s", "z"), *quantisers("y", "y", "s", "z"), node("Sigmoid", "dx", "g")]
    nodes += [node("Mul", "g dy", "f"), *quantisers("f", "f", "t", "w")]
    both = model_of(nodes, [value(name, (4, 30), TensorProto.FLOAT) for name in "xy"], [], weights)
    both.graph.output.append(value("df", None, TensorProto.FLOAT))
    assert "ByteTable" not in kinds(both, tmp_path)


def silu_cnn():
    b, rng = Builder("silu"), np.random.default_rng(0)

    def conv(x, outputs, inputs, kernel, group=1):
        weight = rng.standard_normal((outputs, inputs // group, kernel, kernel)) / np.sqrt(inputs // group) / kernel
        bias = b.constant(rng.standard_normal(outputs).astype(np.float32) / 10)
        y = b.op("Conv", x, b.constant(weight.astype(np.float32)), bias, pads=[kernel // 2] * 4, group=group)
        return b.op("Mul", y, b.op("Sigmoid", y))

    x = conv(b.input("image", (1, 3, 8, 8)), 16, 3, 3)
    return b.model(0, result=conv(conv(x, 16, 16, 5, 16), 24, 16, 1))


@pytest.mark.parametrize("kind", ["u8s8", "s8s8"])
def test_tables_are_part_of_the_products_before_them(kind, tmp_path):
    path = quantised.quantise(silu_cnn(), kind, tmp_path / "silu.onnx")
    program = import_program(simplify(load_model(path)), tiny.target())
    products = [task for task in program.tasks if task.template in ("conv2d", "depthwise")]
    assert len(products) == 3
    assert all("table" in task.name for task in products)
    assert all({task.dtypes[0], task.dtypes[-1]} <= {"uint8", "float32"} for task in products)
    assert not any(task.name.startswith("table") for task in program.tasks)
    assert onnx.load(path).graph.node
