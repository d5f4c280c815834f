"""Every fusion keeps what random graphs compute."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.host.dtypes import numpy_type
from autotune.importer.conversion import operator_catalog  # noqa: F401  # fills the registry
from autotune.importer.fusion import fusion_graph
from autotune.importer.fusion.fusion_graph import fuse
from autotune.importer.fusion.scales import split_batch_norms
from autotune.importer.onnx_model.shapes import infer_shapes
from autotune.importer.program import simplify
from autotune.importer.rewriting.registry import ENTRIES, Role
from autotune.validation.arithmetic.bfloat16_models import has_bfloat16, in_fp32
from tests.autotune_tests.importer_tests.fusion_tests.fusible import KINDS, Fusible
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

DIGITS = {TensorProto.FLOAT: 1e-4, TensorProto.FLOAT16: 2e-2, TensorProto.BFLOAT16: 2e-2, TensorProto.DOUBLE: 1e-9}
"""Graphs of bf16 run in fp32, so that only what a fusion rounds differs."""
RUN_AS = {TensorProto.BFLOAT16: TensorProto.FLOAT}
GRAPHS = 60
"""Graphs of each element type."""


def session(model):
    model = in_fp32(model, rounded=False) if has_bfloat16(model) else model
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def feeds(model, seed):
    rng = np.random.default_rng(seed)
    arrays = {}
    for info in model.graph.input:
        tensor = info.type.tensor_type
        kind = helper.tensor_dtype_to_np_dtype(RUN_AS.get(tensor.elem_type, tensor.elem_type))
        arrays[info.name] = rng.uniform(-1, 1, [dim.dim_value for dim in tensor.shape.dim]).astype(kind)
    return arrays


def agree(model, fused, seed, digits):
    """Both give the same outputs under the same names."""
    onnx.checker.check_model(fused, full_check=True)
    feed = feeds(model, seed)
    names = [info.name for info in model.graph.output]
    assert [info.name for info in fused.graph.output] == names
    for name, one, other in zip(names, session(fused).run(names, feed), session(model).run(names, feed), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype), name
        most = np.abs(other[np.isfinite(other)]).max(initial=1e-3)
        np.testing.assert_allclose(one, other, rtol=digits, atol=digits * most, err_msg=name)


def runs(model):
    """Whether ONNX Runtime has every operator of a model for its element type."""
    try:
        session(model)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return False
    return True


def grown(seed, kind):
    rng = np.random.default_rng([seed, kind])
    return Fusible(rng, kind).model(int(rng.integers(4, 24)))


def counted(fusion, counts):
    """``fusion``, which counts how often it applies."""

    def applied(node, e):
        results = fusion(node, e)
        counts[fusion] += results is not None
        return results

    return applied


def test_random_graphs_compute_the_same_and_try_every_fusion(monkeypatch):
    counts, tried = Counter(), Counter()
    fusions = {key: entries for key, entries in ENTRIES.items() if key[0] is Role.FUSE}
    everything = {fusion for entries in fusions.values() for fusion in entries}
    for key, entries in fusions.items():
        monkeypatch.setitem(ENTRIES, key, tuple(counted(fusion, counts) for fusion in entries))
    for kind, seed in ((kind, seed) for kind in KINDS for seed in range(GRAPHS)):
        model = grown(seed, kind)
        if not runs(model):
            continue
        tried[kind] += 1
        agree(model, fused_model(model), seed, DIGITS[kind])
    assert min(tried.values()) >= GRAPHS // 6, tried  # ONNX Runtime has no convolutions in fp64
    assert not [fusion.__name__ for fusion in everything if not counts[fusion]]


def fused_model(model):
    fused = onnx.ModelProto.FromString(model.SerializeToString())
    infer_shapes(fused, "fused")
    fuse(fused)
    split_batch_norms(fused)
    infer_shapes(fused, "fused")
    return fused


def weights(**arrays):
    return {name: np.asarray(array, np.float32) for name, array in arrays.items()}


def draw(*shape):
    return np.random.default_rng(shape).uniform(-1, 1, shape).astype(np.float32)


CONV = helper.make_node("Conv", ["x", "w"], ["c"], "conv")
TURNED = helper.make_node("ConvTranspose", ["x", "w"], ["c"], "conv")
GEMM = helper.make_node("Gemm", ["m", "w"], ["g"], "gemm")


@pytest.mark.parametrize("first", [CONV, TURNED])
@pytest.mark.parametrize(("shape", "left"), [((4, 1, 1), 1), ((4, 1), 2), ((1, 4), 2), ((1, 4, 1, 1), 1), ((), 1)])
def test_a_convolution_takes_in_a_scale_along_channels_only(first, shape, left):
    """Height, width and channels are all four: only the place tells along which axis a constant lies."""
    nodes = [first, helper.make_node("Mul", ["c", "k"], ["y"], "mul")]
    model = model_of(nodes, [value("x", (1, 4, 4, 4))], ["y"], {"w": draw(4, 4, 1, 1), "k": draw(*shape)})
    fused = fused_model(model)
    assert len(fused.graph.node) == left
    agree(model, fused, 0, 1e-4)


def test_two_clips_with_another_bound_left_out_are_two():
    nodes = [
        helper.make_node("Clip", ["x", "", "k"], ["a"]),
        helper.make_node("Clip", ["x", "k"], ["b"]),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]
    model = model_of(nodes, [value("x", (4, 4))], ["y"], weights(k=0.1))
    agree(model, fused_model(model), 0, 1e-6)


def test_a_product_with_another_reader_stays_as_it_is():
    nodes = [
        GEMM,
        helper.make_node("Mul", ["g", "k"], ["y"]),
        helper.make_node("Relu", ["g"], ["z"]),
    ]
    model = model_of(nodes, [value("m", (3, 4))], ["y", "z"], {"w": draw(4, 5), "k": draw(5)})
    fused = fused_model(model)
    assert Counter(node.op_type for node in fused.graph.node) == {"Gemm": 1, "Mul": 1, "Relu": 1}
    agree(model, fused, 0, 1e-5)


@pytest.mark.parametrize("first", ["Conv", "Gemm", "BatchNormalization"])
def test_shifts_that_round_are_added_one_after_the_other(first):
    """(x + 1.5 · 2^23) − 1.5 · 2^23 rounds x to an integer."""
    rng = np.random.default_rng(1)
    shape = (2, 4) if first == "Gemm" else (2, 4, 5)
    others = {"Conv": ("w", "b"), "Gemm": ("m", "b"), "BatchNormalization": ("s", "b", "b", "s")}
    nodes = [
        helper.make_node(first, ["x", *others[first]], ["p"]),
        helper.make_node("Add", ["p", "c"], ["q"]),
        helper.make_node("Sub", ["q", "c"], ["y"]),
    ]
    weights = {"w": rng.normal(size=(4, 4, 1)), "m": rng.normal(size=(4, 4)), "b": rng.normal(size=4), "s": np.ones(4)}
    weights = {name: array for name, array in weights.items() if name in others[first]} | {"c": np.array(1.5 * 2.0**23)}
    model = model_of(nodes, [value("x", shape)], ["y"], {k: v.astype(np.float32) for k, v in weights.items()})
    agree(model, simplify(model), 0, 1e-6)


def test_a_bias_that_stretches_a_product_is_none():
    nodes = [helper.make_node("MatMul", ["m", "w"], ["p"]), helper.make_node("Add", ["p", "k"], ["y"])]
    model = model_of(nodes, [value("m", (2, 3, 1))], ["y"], {"w": draw(1, 1), "k": draw(4)})
    agree(model, fused_model(model), 0, 1e-5)


def test_a_repeated_node_is_computed_once():
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Exp", ["x"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    fused = fused_model(model_of(nodes, [value("x", (4,))], ["y"]))
    assert [node.op_type for node in fused.graph.node] == ["Exp", "Add"]


def test_weights_are_scaled_once_for_a_chain(monkeypatch):
    """Conv, batch norm, Mul and Add: one product of weights, when all is known."""
    names_read = []
    scale = fusion_graph.FusionScope.weight
    monkeypatch.setattr(
        fusion_graph.FusionScope, "weight", lambda scope, name: names_read.append(name) or scale(scope, name)
    )
    statistics = {name: draw(4) + 2 for name in ("s", "b", "m", "v")}
    nodes = [
        CONV,
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Mul", ["n", "k"], ["t"]),
        helper.make_node("Add", ["t", "k"], ["y"]),
    ]
    constants = {"w": draw(4, 4, 1, 1), "k": draw(4, 1, 1), **statistics}
    model = model_of(nodes, [value("x", (1, 4, 4, 4))], ["y"], constants)
    fused = fused_model(model)
    assert [node.op_type for node in fused.graph.node] == ["Conv"]
    assert [name for name in names_read if name.startswith("w")] == [
        next(name for name in fused.graph.node[0].input[1:2])
    ]
    agree(model, fused, 0, 1e-4)


def test_a_chain_after_halves_with_fp32_statistics(tmp_path):
    nodes = [
        helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    statistics = {name: draw(4) + 2 for name in ("s", "b", "m", "v")}
    half = TensorProto.FLOAT16
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", (1, 4, 3, 3), half)],
        [value("y", (1, 4, 3, 3), half)],
        [numpy_helper.from_array(array, name) for name, array in statistics.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    agree(model, fused_model(model), 0, 1e-2)


def test_defaults_of_a_function_of_the_model_count():
    slope = onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    body = helper.make_node("LeakyRelu", ["v"], ["r"])
    body.attribute.append(slope)
    function = helper.make_function("local", "F", ["v"], ["r"], [body], [helper.make_opsetid("", 17)])
    function.attribute_proto.append(helper.make_attribute("slope", 0.5))
    nodes = [
        helper.make_node("F", ["x"], ["a"], domain="local"),
        helper.make_node("F", ["a"], ["y"], domain="local", slope=0.25),
    ]
    model = model_of(nodes, [value("x", (8,))], ["y"], functions=[function], domains=["local"])
    alphas = [onnx.helper.get_attribute_value(node.attribute[0]) for node in simplify(model).graph.node]
    assert alphas == [0.5, 0.25]


@pytest.mark.parametrize("bias", [draw(48), np.zeros(48, np.float32)], ids=["bias", "zeros"])
def test_queries_keys_and_values_are_taken_apart_behind_a_fused_product(bias):
    sizes = np.array([1, 20, 3, 2, 8], np.int64)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["b", "p"], ["a"]),
        helper.make_node("Reshape", ["a", "sizes"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[2, 0, 3, 1, 4]),
        *(helper.make_node("Gather", ["t", f"i{n}"], [f"y{n}"], axis=0) for n in range(3)),
    ]
    places = {f"i{n}": np.array(n, np.int64) for n in range(3)}
    constants = {"w": draw(16, 48), "b": bias, "sizes": sizes, **places}
    plain = simplify(model_of(nodes, [value("x", (1, 20, 16))], ["y0", "y1", "y2"], constants))
    assert sum(node.op_type in ("Gemm", "MatMul") for node in plain.graph.node) == 3


def test_a_batch_norm_takes_in_the_scale_and_shift_behind_it():
    rng = np.random.default_rng(0)
    weights = {name: rng.uniform(1, 2, 4).astype(np.float32) for name in ("scale", "bias", "mean", "var")}
    weights |= {"c": rng.standard_normal((1, 4, 1)).astype(np.float32), "d": np.float32(3)}
    nodes = [
        helper.make_node("BatchNormalization", ["x", "scale", "bias", "mean", "var"], ["n"], "norm"),
        helper.make_node("Mul", ["n", "c"], ["m"]),
        helper.make_node("Add", ["m", "d"], ["y"]),
    ]
    model = model_of(nodes, [value("x", (2, 4, 5))], ["y"], weights)
    infer_shapes(model, "norm")
    split_batch_norms(model)
    assert [node.op_type for node in model.graph.node] == ["Mul", "Add"]
    constants = {tensor.name: numpy_helper.to_array(tensor).reshape(-1) for tensor in model.graph.initializer}
    product, total = model.graph.node
    factor = weights["scale"] / np.sqrt(weights["var"] + 1e-5)
    np.testing.assert_allclose(constants[product.input[1]], factor * weights["c"].reshape(-1), rtol=1e-6)
    shift = (weights["bias"] - weights["mean"] * factor) * weights["c"].reshape(-1) + 3
    np.testing.assert_allclose(constants[total.input[1]], shift, rtol=1e-5)


def test_weights_of_bfloat16_take_in_no_batch_norm():
    """They would be rounded again; the norm becomes a product and a sum in fp32 behind the convolution."""
    kind = numpy_type("bfloat16")
    parameters = {name: np.linspace(1, 2, 4).astype(kind) for name in ("scale", "bias", "mean", "var")}
    nodes = [CONV, helper.make_node("BatchNormalization", ["c", *parameters], ["y"], "norm")]
    shape, short = (1, 4, 4, 4), TensorProto.BFLOAT16
    weights = {"w": draw(4, 4, 1, 1).astype(kind), **parameters}
    model = model_of(nodes, [value("x", shape, short)], [], weights, opset=22)
    model.graph.output.append(value("y", shape, short))
    fused = fused_model(model)
    assert [node.op_type for node in fused.graph.node] == ["Conv", "Cast", "Mul", "Add", "Cast"]
    types = {tensor.name: tensor.data_type for tensor in fused.graph.initializer}
    assert [types[fused.graph.node[at].input[1]] for at in (0, 2, 3)] == [short, TensorProto.FLOAT, TensorProto.FLOAT]
    agree(model, fused, 0, 2.0**-7)


def test_a_batch_norm_may_read_an_output_of_the_model():
    weights = {name: np.ones(4, np.float32) for name in ("scale", "bias", "mean", "var")}
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("BatchNormalization", ["r", "scale", "bias", "mean", "var"], ["n"], "norm"),
    ]
    model = model_of(nodes, [value("x", (2, 4, 5))], ["r", "n"], weights)
    infer_shapes(model, "norm")
    split_batch_norms(model)
    assert [node.op_type for node in model.graph.node] == ["Relu", "Mul", "Add"]
