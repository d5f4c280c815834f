"""Block-wise DequantizeLinear before products and gathers, against ONNX Runtime and NumPy."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.importer.load import load_model
from autotune.importer.low_bits.low_bit_graph import OPERATORS
from autotune.importer.program import simplify
from tests.autotune_tests.importer_tests.built import run_ours
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written

KINDS = {4: TensorProto.INT4, 8: TensorProto.INT8}
K, N, GROUP = 64, 24, 32


def quantised(bits, axis, zeros):
    """Integers (K, N), or (N, K) in blocks along axis 1, scales and zero points, as ONNX's tensors; and the numbers."""
    rng = np.random.default_rng(bits)
    shape = (K, N) if axis == 0 else (N, K)
    groups = tuple(size // GROUP if at == axis else size for at, size in enumerate(shape))
    half = 1 << (bits - 1)
    levels, points = (rng.integers(-half, half, size, dtype=np.int8) for size in (shape, groups))
    scale = rng.uniform(0.05, 0.15, groups).astype(np.float32)

    def tensor(array, name):
        if bits == 8:
            return numpy_helper.from_array(array, name)
        pairs = array.reshape(-1, 2).astype(np.uint8) & 15
        return helper.make_tensor(name, KINDS[bits], array.shape, (pairs[:, 0] | pairs[:, 1] << 4).tobytes(), raw=True)

    tensors = [tensor(levels, "w"), numpy_helper.from_array(scale, "s"), *([tensor(points, "z")] if zeros else [])]
    wide = [np.repeat(array, GROUP, axis).astype(np.float32) for array in (points if zeros else points * 0, scale)]
    return tensors, (levels - wide[0]) * wide[1]


def model(kind, bits, axis, zeros):
    tensors, numbers = quantised(bits, axis, zeros)
    names = [tensor.name for tensor in tensors]
    nodes = [helper.make_node("DequantizeLinear", names, ["d"], axis=axis, block_size=GROUP)]
    inputs = [value("x", (3, K))]
    if kind == "Gather":
        nodes.append(helper.make_node("Gather", ["d", "x"], ["y"]))
        inputs = [value("x", (2, 2), TensorProto.INT64)]
    elif kind == "Gemm":
        nodes.append(helper.make_node("Gemm", ["x", "d"], ["y"], transB=axis))
    elif axis:
        nodes += [
            helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]),
            helper.make_node("MatMul", ["x", "t"], ["y"]),
        ]
    else:
        nodes.append(helper.make_node("MatMul", ["x", "d"], ["y"]))
    proto = model_of(nodes, inputs, ["y"], opset=21)
    proto.graph.initializer.extend(tensors)
    return proto, numbers


CASES = [
    (kind, bits, axis, zeros)
    for kind, axis in (("MatMul", 0), ("MatMul", 1), ("Gemm", 0), ("Gemm", 1), ("Gather", 1))
    for bits, zeros in ((4, False), (4, True), (8, False), (8, True))
]


@pytest.mark.parametrize(("kind", "bits", "axis", "zeros"), CASES)
def test_it_computes_what_the_integers_stand_for(kind, bits, axis, zeros, tmp_path):
    proto, numbers = model(kind, bits, axis, zeros)
    rng = np.random.default_rng(0)
    if kind == "Gather":
        feed = np.array([[0, 5], [N - 1, 2]], np.int64)
        expected, error = numbers[feed], 1e-6
    else:
        feed = rng.standard_normal((3, K), np.float32)
        expected = feed @ (numbers if axis == 0 else numbers.T)
        error = 0.02 * np.abs(expected).max()  # activations are rounded to 127 levels
    (ours,) = run_ours(proto, tmp_path, {"x": feed})
    assert np.abs(ours - expected).max() <= error
    simple = simplify(load_model(written(proto, tmp_path, "again.onnx")))
    assert sum(node.op_type in OPERATORS for node in simple.graph.node) == 1
    assert all(node.op_type != "DequantizeLinear" for node in simple.graph.node)


def test_integers_that_others_read_are_left_to_them(tmp_path):
    proto, numbers = model("MatMul", 4, 0, False)
    proto.graph.node.append(helper.make_node("ReduceSum", ["d"], ["total"], keepdims=0))
    proto.graph.output.append(value("total", ()))
    feed = np.random.default_rng(0).standard_normal((3, K), np.float32)
    product, total = run_ours(proto, tmp_path, {"x": feed})
    assert np.abs(product - feed @ numbers).max() <= 0.02 * np.abs(feed @ numbers).max()
    assert total == pytest.approx(numbers.sum(), rel=1e-4)


def heads(bits, zeros, columns):
    """x by weights of ``columns`` each, each result with a bias and split into heads; and what they stand for."""
    rng = np.random.default_rng(bits)
    nodes, tensors, expected = [], [], []
    for index, (count, points) in enumerate(zip(columns, zeros, strict=True)):
        levels = rng.integers(0, 1 << bits, (count, K), np.uint8)
        scale = rng.uniform(0.05, 0.15, (count, K // GROUP)).astype(np.float32)
        zero = rng.integers(0, 1 << bits, scale.shape, np.uint8) if points else np.full_like(scale, 1 << (bits - 1))
        bias = rng.standard_normal(count, np.float32)
        stored = [
            array[:, ::2] | array[:, 1::2] << 4 if bits == 4 else array for array in (levels, zero.astype(np.uint8))
        ]
        arrays = {"w": stored[0].reshape(count, K // GROUP, -1), "s": scale.reshape(-1)}
        arrays.update({"z": stored[1].reshape(-1)} if points else {})
        names = [f"{name}{index}" for name in arrays]
        tensors += [numpy_helper.from_array(array, name) for name, array in zip(names, arrays.values(), strict=True)]
        tensors.append(numpy_helper.from_array(bias, f"b{index}"))
        numbers = {"K": K, "N": count, "bits": bits, "block_size": GROUP, "accuracy_level": 4}
        nodes += [
            helper.make_node("MatMulNBits", ["x", *names], [f"p{index}"], domain="com.microsoft", **numbers),
            helper.make_node("Add", [f"p{index}", f"b{index}"], [f"a{index}"]),
            helper.make_node("Reshape", [f"a{index}", "shape"], [f"y{index}"]),
        ]
        wide = [np.repeat(array, GROUP, 1).astype(np.float32) for array in (zero, scale)]
        expected.append(((levels - wide[0]) * wide[1], bias))
    proto = model_of(nodes, [value("x", (3, K))], [f"y{index}" for index in range(len(columns))], opset=21)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    proto.graph.initializer.extend([*tensors, numpy_helper.from_array(np.array([3, -1, 16], np.int64), "shape")])
    return proto, expected


@pytest.mark.parametrize(
    ("bits", "zeros", "columns", "products"),
    [
        (4, (0, 0, 0), (64, 32, 32), 1),
        (8, (0, 0, 0), (64, 32, 32), 1),
        (4, (1, 1, 1), (64, 32, 32), 1),
        (4, (1, 0, 1), (64, 32, 32), 2),  # with zero points and without are not joined
        (4, (0, 0, 0), (64, 16, 32), 2),  # no whole panels on every target
    ],
)
def test_products_that_are_split_into_heads_are_one(bits, zeros, columns, products, tmp_path):
    proto, expected = heads(bits, zeros, columns)
    feed = np.random.default_rng(0).standard_normal((3, K), np.float32)
    ours = run_ours(proto, tmp_path, {"x": feed})
    for one, (numbers, bias) in zip(ours, expected, strict=True):
        right = (feed @ numbers.T + bias).reshape(3, -1, 16)
        assert np.abs(one - right).max() <= 0.02 * np.abs(right).max()
    simple = simplify(load_model(written(proto, tmp_path, "again.onnx")))
    assert sum(node.op_type == "LowBitMatMul" for node in simple.graph.node) == products


def test_products_behind_a_computed_shape_stay_packed(tmp_path):
    """ONNX infers no shape behind a Range of a computed end, as masks have it; the importer knows it."""
    tensors, numbers = quantised(8, 0, False)
    nodes = [
        helper.make_node("Shape", ["x"], ["rows"], start=0, end=1),
        helper.make_node("Squeeze", ["rows"], ["end"]),
        helper.make_node("Range", ["zero", "end", "one"], ["places"]),
        helper.make_node("Cast", ["places"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["floats", "axis"], ["column"]),
        helper.make_node("Slice", ["x", "zeros", "ones"], ["first"]),
        helper.make_node("Mul", ["first", "column"], ["many"]),  # as many rows as the Range has numbers
        helper.make_node("DequantizeLinear", [tensor.name for tensor in tensors], ["d"], axis=0, block_size=GROUP),
        helper.make_node("MatMul", ["many", "d"], ["y"]),
    ]
    proto = model_of(nodes, [value("x", (3, K))], ["y"], opset=21)
    integers: dict[str, np.ndarray | np.int64] = {"zero": np.int64(0), "one": np.int64(1)}
    integers |= {"axis": np.array([1]), "zeros": np.array([0]), "ones": np.array([1])}
    proto.graph.initializer.extend(
        [*tensors, *(numpy_helper.from_array(np.asarray(v), n) for n, v in integers.items())]
    )
    small = simplify(load_model(written(proto, tmp_path), {}))
    assert "LowBitMatMul" in {node.op_type for node in small.graph.node}
