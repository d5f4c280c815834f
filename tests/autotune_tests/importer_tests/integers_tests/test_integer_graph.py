"""Products of quantised models are sums of integers, their tensors stay 8 bits, and results are ONNX Runtime's."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from tvm import relax

from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from autotune.importer.program import simplified as simplified_for
from autotune.validation.reference_runs import Reference
from autotune.validation.verify import compare
from schedules.lower import load_program
from schedules.target import Target
from schedules.templates.common.structure import find_anchor
from tests.autotune_tests import tiny
from tests.autotune_tests.importer_tests.built import multiply_bytes_as, run_ours
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written
from tests.models import quantised, transformer
from tests.models.builder import Builder

U8, S8 = TensorProto.UINT8, TensorProto.INT8
RNG = np.random.default_rng(1)


def cnn(size=8, width=16):
    """Convolutions with and without borders, strides and groups, a residual sum, pools, a concatenation, a product."""
    b, rng = Builder("cnn"), np.random.default_rng(0)

    def conv(x, outputs, inputs, kernel, group=1, stride=1):
        weight = rng.standard_normal((outputs, inputs // group, kernel, kernel)) / np.sqrt(inputs // group) / kernel
        bias = b.constant(rng.standard_normal(outputs).astype(np.float32) / 10)
        weights = (b.constant(weight.astype(np.float32)), bias)
        return b.op("Conv", x, *weights, pads=[kernel // 2] * 4, group=group, strides=[stride] * 2)

    x = b.relu(conv(b.input("image", (1, 3, size, size)), width, 3, 3, stride=2))
    y = b.relu(conv(conv(x, width, width, 3, group=width), width, width, 1))
    x = b.relu(b.op("Add", x, y))
    x = b.op("Concat", x, b.op("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4), axis=1)
    x = b.op("Flatten", b.op("MaxPool", conv(x, width, 2 * width, 3, group=2), kernel_shape=[4, 4]))
    weight = rng.standard_normal((width, 10)).astype(np.float32) / 4
    return b.model(0, scores=b.op("Gemm", x, b.constant(weight), b.constant(np.zeros(10, np.float32))))


def attention():
    """A block of attention, its sum with what it reads, and a product behind."""
    b = Builder("attention")
    x = b.input("tokens", (1, 8, 32))
    x = b.op("Add", x, transformer.attention(b, x, 1, 8, 32, 2))
    return b.model(0, result=b.linear(b.relu(x), (32, 16)))


MODELS = {"cnn": cnn, "attention": attention}
PRODUCTS = {"cnn": 5, "attention": 5}
"""Products of an activation and a weight."""


def kernels(program):
    """(Name, types of what it reads, type and size of what it makes) of every kernel."""
    calls = []
    for block in program.main.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if isinstance(call, relax.Call) and str(getattr(call.op, "name", "")) == "relax.call_tir":
                reads = [str(argument.ty.dtype) for argument in call.args[1].fields]
                size = int(np.prod([int(extent) for extent in call.ty.shape]))
                calls.append((str(call.args[0].name_hint), reads, str(call.ty.dtype), size))
    return calls


@pytest.fixture(scope="module")
def quantised_file(tmp_path_factory):
    folder, paths = tmp_path_factory.mktemp("quantised"), {}

    def get(name, kind):
        if (name, kind) not in paths:
            paths[name, kind] = quantised.quantise(MODELS[name](), kind, folder / f"{name}_{kind}.onnx")
        return paths[name, kind]

    return get


@pytest.mark.parametrize("kind", [*quantised.KINDS, "dynamic"])
@pytest.mark.parametrize("name", MODELS)
def test_every_product_with_a_weight_is_one_of_integers(name, kind, quantised_file):
    simple = simplify(load_model(quantised_file(name, kind)))
    counts = Counter(node.op_type for node in simple.graph.node)
    assert counts["ConvInteger"] + counts["MatMulInteger"] >= PRODUCTS[name]
    assert not counts["Conv"] + counts["Gemm"]
    assert counts["MatMul"] == (0 if name == "cnn" or kind == "qoperator" else 2)
    onnxruntime.InferenceSession(simple.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("activations", ["uint8", "int8"])
@pytest.mark.parametrize("kind", ["u8s8", "s8s8", "u8s8_per_tensor", "qoperator"])
def test_tensors_between_kernels_are_bytes(kind, activations, quantised_file, monkeypatch):
    multiply_bytes_as(activations, monkeypatch)
    program = import_program(simplify(load_model(quantised_file("cnn", kind)), activations=activations), tiny.target())
    *inner, last = kernels(program)
    assert last[2] == "float32"
    wide = [kernel for kernel in inner if kernel[2] != activations and kernel[3] > 16]
    assert not wide


@pytest.mark.parametrize(
    ("processor", "kind", "forms"),
    [
        ("neoverse-n1", "u8s8", {"s8s8"}),
        ("neoverse-n2", "s8s8", {"u8s8", "u8s8m"}),
        ("znver4", "s8s8", {"u8s8"}),
    ],
)
def test_products_are_what_the_processor_multiplies(processor, kind, forms, quantised_file):
    """Two rows at once where it can, but for few channels and steps of two columns."""
    target = Target.cpu(processor, 1)
    program = import_program(simplified_for(load_model(quantised_file("cnn", kind)), target), target)
    anchors = [
        anchor
        for text in program.programs.values()
        for op in ("conv2d", "matmul")
        if (anchor := find_anchor(load_program(text), op)) is not None
    ]
    assert {anchor.geometry.get("dot") for anchor in anchors} == forms


@pytest.mark.parametrize("activations", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [*(("cnn", kind) for kind in (*quantised.KINDS, "dynamic")), ("attention", "s8s8"), ("attention", "dynamic")],
)
def test_outputs_are_as_exact_as_those_of_onnxruntime(name, kind, activations, quantised_file, tmp_path, monkeypatch):
    multiply_bytes_as(activations, monkeypatch)
    path = quantised_file(name, kind)
    model = load_model(path)
    (info,) = model.graph.input
    feed = {info.name: RNG.standard_normal([d.dim_value for d in info.type.tensor_type.shape.dim]).astype(np.float32)}
    ours = run_ours(model, tmp_path, feed)
    reference = Reference(load_model(path))
    engine, theirs = reference.outputs(feed)
    allowance = reference.allowance(feed)
    assert compare(engine, ours, theirs, lambda: allowance).passed
    errors = [float(np.sqrt(np.mean((outputs - allowance.exact[0]) ** 2))) for outputs in (ours[0], theirs[0])]
    assert errors[0] <= 2 * errors[1] + 1e-6


def graph(nodes, inputs, outputs, **weights):
    model = model_of(nodes, inputs, [], weights)
    model.graph.output.extend(value(name, None, kind) for name, kind in outputs.items())
    return model


def node(kind, inputs, output, **attributes):
    return helper.make_node(kind, inputs.split(), [output], output, **attributes)


LEVELS = {"s": np.float32(0.1), "z": np.uint8(100), "t": np.float32(0.3), "i": np.int8(5)}


def simplified(model, folder):
    return simplify(load_model(written(model, folder)))


def check(model, folder, feed):
    """Ours are ONNX Runtime's; the operators of the simplified model."""
    path = written(model, folder)
    theirs = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)
    for mine, other in zip(run_ours(model, folder, feed), theirs, strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other)
    return Counter(proto.op_type for proto in simplified(model, folder).graph.node)


@pytest.mark.parametrize(
    "move",
    [
        node("Transpose", "d", "m", perm=[0, 2, 3, 1]),
        node("MaxPool", "d", "m", kernel_shape=[2, 2]),
        node("Reshape", "d shape", "m"),
        node("Slice", "d one three", "m"),
    ],
    ids=lambda move: move.op_type,
)
def test_what_moves_elements_moves_bytes(move, tmp_path):
    """Pairs of quantisers around it vanish, those of other parameters stay one step on single elements."""
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        move,
        node("QuantizeLinear", "m s z", "y"),
    ]
    constants = {"shape": np.array([1, -1]), "one": np.array([0, 1]), "three": np.array([1, 3])}
    model = graph(nodes, [value("x", (1, 4, 4, 4))], {"y": U8}, **LEVELS, **constants)
    counts = check(model, tmp_path, {"x": 20 * RNG.standard_normal((1, 4, 4, 4)).astype(np.float32)})
    assert counts == {"QuantizeLinear": 1, move.op_type: 1}


def test_a_quantiser_rises_above_what_moves_elements(tmp_path):
    nodes = [node("Transpose", "x", "m"), node("Reshape", "m shape", "r"), node("QuantizeLinear", "r s z", "y")]
    model = graph(nodes, [value("x", (3, 4))], {"y": U8}, **LEVELS, shape=np.array([2, 6]))
    plain = simplified(model, tmp_path)
    assert plain.graph.node[0].op_type == "QuantizeLinear"
    check(model, tmp_path, {"x": 9 * RNG.standard_normal((3, 4)).astype(np.float32)})


def test_parts_of_other_scales_are_joined_as_bytes(tmp_path):
    nodes = [
        node("DequantizeLinear", "a s z", "da"),
        node("DequantizeLinear", "b t z", "db"),
        node("Concat", "da db", "c", axis=1),
        node("QuantizeLinear", "c t z", "y"),
    ]
    model = graph(nodes, [value("a", (2, 3), U8), value("b", (2, 5), U8)], {"y": U8}, **LEVELS)
    feed = {"a": RNG.integers(0, 256, (2, 3)).astype(np.uint8), "b": RNG.integers(0, 256, (2, 5)).astype(np.uint8)}
    counts = check(model, tmp_path, feed)
    assert counts == {"DequantizeLinear": 1, "QuantizeLinear": 1, "Concat": 1}


@pytest.mark.parametrize(
    "between",
    [
        [],
        [("Relu", {})],
        [("DepthToSpace", {"blocksize": 2}), ("Transpose", {"perm": [0, 3, 2, 1]})],
        [("MaxPool", {"kernel_shape": [3, 3]}), ("Relu", {})],
        [("LeakyRelu", {"alpha": 0.1})],
        [("Neg", {}), ("Mul half", {})],
        [("Sub half", {}), ("Transpose", {"perm": [0, 3, 2, 1]}), ("Abs", {}), ("Div half", {})],
    ],
    ids=str,
)
@pytest.mark.parametrize(("before", "behind"), [(0.05, 0.06), (0.04, 0.1), (0.3, 0.07), (0.03, 0.02)])
def test_levels_halfway_between_two_others_go_where_onnx_runtime_puts_them(between, before, behind, tmp_path):
    nodes = [node("DequantizeLinear", "x s z", "v0")]
    for place, (kind, attributes) in enumerate(between):
        kind, *more = kind.split()
        nodes.append(node(kind, " ".join([f"v{place}", *more]), f"v{place + 1}", **attributes))
    nodes.append(node("QuantizeLinear", f"v{len(between)} t z", "y"))
    scales = {"s": np.float32(before), "t": np.float32(behind), "z": np.uint8(120), "half": np.float32(0.5)}
    model = graph(nodes, [value("x", (1, 4, 8, 8), U8)], {"y": U8}, **scales)
    check(model, tmp_path, {"x": np.arange(256).astype(np.uint8).reshape(1, 4, 8, 8)})


def test_int8_at_the_ends_stays_int8(tmp_path):
    """A model's own inputs and outputs keep their type; a tensor in between is shifted."""
    nodes = [
        node("DequantizeLinear", "x s i", "d"),
        node("Relu", "d", "r"),
        node("QuantizeLinear", "r t i", "q"),
        node("DequantizeLinear", "q t i", "e"),
        node("MatMul", "e dw", "p"),
        node("DequantizeLinear", "w s", "dw"),
        node("QuantizeLinear", "p t i", "y"),
    ]
    nodes[4], nodes[5] = nodes[5], nodes[4]
    w = RNG.integers(-128, 128, (6, 4)).astype(np.int8)
    model = graph(nodes, [value("x", (3, 6), S8)], {"y": S8}, **LEVELS, w=w)
    check(model, tmp_path, {"x": RNG.integers(-128, 128, (3, 6)).astype(np.int8)})
    plain = simplified(model, tmp_path)
    types = {info.name: info.type.tensor_type.elem_type for info in plain.graph.value_info}
    product = next(proto for proto in plain.graph.node if proto.op_type == "MatMulInteger")
    assert types[product.input[0]] == U8
    assert plain.graph.output[0].type.tensor_type.elem_type == S8


def test_a_relu_is_what_the_range_does(tmp_path):
    nodes = [node("Relu", "x", "r"), node("QuantizeLinear", "r s zero", "y")]
    model = graph(nodes, [value("x", (40,))], {"y": U8}, **LEVELS, zero=np.uint8(0))
    assert "Relu" not in check(model, tmp_path, {"x": RNG.standard_normal(40).astype(np.float32)})
    model = graph([nodes[0], node("QuantizeLinear", "r s z", "y")], [value("x", (40,))], {"y": U8}, **LEVELS)
    assert "Relu" in check(model, tmp_path, {"x": RNG.standard_normal(40).astype(np.float32)})


def test_a_model_for_other_targets_keeps_products_of_floats(quantised_file):
    simple = simplify(load_model(quantised_file("cnn", "u8s8")), activations="")
    assert "ConvInteger" not in {proto.op_type for proto in simple.graph.node}


def test_a_model_that_is_not_quantised_is_left_alone(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(cnn(), path)
    loaded = load_model(path)
    assert simplify(loaded) == simplify(loaded, activations="")
