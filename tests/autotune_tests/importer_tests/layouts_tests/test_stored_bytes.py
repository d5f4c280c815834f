"""Between kernels, quantised tensors are bytes."""

import numpy as np
import onnx
import pytest

from autotune.importer.load import load_model
from tests.autotune_tests.importer_tests.built import imported, run_ours
from tests.autotune_tests.importer_tests.integers_tests.test_integer_graph import kernels
from tests.models.builder import Builder
from tests.models.quantised import _levels, _weight, quantise
from tests.models.reference import reference_session


def projected():
    """A residual block whose short cut is a convolution."""
    b, rng = Builder("projected"), np.random.default_rng(0)

    def conv(x, outputs, inputs):
        return b.op("Conv", x, _weight(b, rng, outputs, inputs, 1, 1), kernel_shape=[1, 1])

    x = _levels(b, b.input("image", (1, 16, 6, 6)), 8 / 255)
    short = _levels(b, conv(x, 32, 16), 5 / 255)
    y = _levels(b, conv(_levels(b, b.relu(conv(x, 32, 16)), 5 / 255, 0), 32, 32), 5 / 255)
    levels = _levels(b, b.relu(b.op("Add", y, short)), 12 / 255, 0)
    return b.model(0, result=_levels(b, conv(levels, 16, 32), 5 / 255))


def test_a_short_cut_lies_in_memory_as_bytes(tmp_path):
    model = projected()
    stored = [dtype for name, _, dtype, _ in kernels(imported(model, tmp_path)) if "conv2d" in name]
    assert stored == ["uint8"] * 3 + ["float32"], "what is computed last is the model's output"


def test_results_are_the_references(tmp_path):
    model = projected()
    feed = {"image": np.random.default_rng(1).standard_normal((1, 16, 6, 6)).astype(np.float32)}
    expected = reference_session(model).run(None, feed)[0]
    quantum = 5 / 255
    assert np.abs(run_ours(model, tmp_path, feed)[0] - expected).max() <= quantum * 1.001


def read_twice():
    """Bytes that two sums add, each in a kernel of its own, with a norm between."""
    b, rng = Builder("twice"), np.random.default_rng(0)

    def dense(x):
        weight = b.constant(rng.standard_normal((16, 16)).astype(np.float32) / 4)
        return b.op("MatMul", x, weight)

    def product(x):
        levels = rng.integers(-127, 128, (16, 16)).astype(np.int8)
        weight = b.op("DequantizeLinear", b.constant(levels), b.constant(np.float32(0.01)))
        return b.op("MatMul", x, weight)

    x = _levels(b, dense(b.input("tokens", (2, 3, 16))), 8 / 255)
    one, two = (b.op("Add", _levels(b, product(x), 8 / 255), x) for _ in range(2))
    return b.model(0, one=_levels(b, one, 12 / 255), two=_levels(b, two, 12 / 255))


def test_whoever_reads_bytes_makes_numbers_of_them(tmp_path):
    model = read_twice()
    all_kernels = kernels(imported(model, tmp_path))
    products = [name for name, _, _, _ in all_kernels if "matmul" in name]
    assert len(products) == 3
    assert sum("uint8" in reads for name, reads, _, _ in all_kernels if "matmul" in name) >= 2
    alone = [
        name
        for name, reads, dtype, _ in all_kernels
        if reads == ["uint8"] and dtype == "float32" and "reshape" not in name
    ]
    assert not alone, "what only dequantises is no kernel"
    feed = {"tokens": np.random.default_rng(1).standard_normal((2, 3, 16)).astype(np.float32)}
    expected = reference_session(model).run(None, feed)
    for mine, other in zip(run_ours(model, tmp_path, feed), expected, strict=True):
        assert np.abs(mine - other).max() <= 12 / 255 * 1.001


def gated():
    """A map that a number for each channel scales, made of the map's means (squeeze and excitation)."""
    b, rng = Builder("gated"), np.random.default_rng(0)

    def conv(x, outputs, inputs, kernel):
        weight = rng.standard_normal((outputs, inputs, kernel, kernel)).astype(np.float32) / np.sqrt(inputs) / kernel
        return b.op("Conv", x, b.constant(weight), pads=[kernel // 2] * 4)

    x = b.relu(conv(b.input("image", (1, 3, 9, 9)), 32, 3, 3))
    gate = conv(b.relu(conv(b.op("GlobalAveragePool", x), 8, 32, 1)), 32, 8, 1)
    return b.model(0, result=conv(b.op("Mul", x, b.op("Sigmoid", gate)), 16, 32, 1))


def test_a_gate_is_a_kernel_of_its_own_that_reads_bytes(tmp_path):
    path = quantise(gated(), "u8s8", tmp_path / "gated.onnx")
    model = load_model(path)
    all_kernels = kernels(imported(model, tmp_path))
    *inner, _, _ = all_kernels  # what is computed last is the model's output
    assert not [name for name, _, dtype, size in inner if dtype == "float32" and size > 32]
    tasks = imported(model, tmp_path).tasks
    assert not [task.name for task in tasks if task.template == "generic"]
    gates = [task for task in tasks if task.template == "elementwise" and task.shapes[-1][2:4] == (9, 9)]
    assert [task.dtypes[-1] for task in gates if "uint8" in task.dtypes[:-1]] == ["uint8"]
    feed = {"image": np.random.default_rng(1).standard_normal((1, 3, 9, 9)).astype(np.float32)}
    expected = reference_session(onnx.load(path)).run(None, feed)[0]
    error = run_ours(model, tmp_path, feed)[0] - expected
    assert np.sqrt(np.mean(error**2)) < 0.02 * np.sqrt(np.mean(expected**2))


@pytest.mark.parametrize("times", [2, 3, 4])
@pytest.mark.parametrize("shape", ["", "[3]"])
def test_a_kernel_may_read_what_it_made_itself(times, shape, tmp_path):
    """A condition is negated again and again, and what it was in between chooses as well."""
    steps = " ".join(
        f"c{k + 1} = Not(c{k}) s{k} = Mul(v{k}, v{k}) v{k + 1} = Where(c{k + 1}, s{k}, v{k})" for k in range(times)
    )
    text = f"(float[3] v0, bool{shape} c0) => (float[3] v{times}, bool{shape} c{times}) {{ {steps} }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> choices {text}')
    for condition in (np.array([True, False, True]), np.array([False, False, True])):
        feed = {"v0": np.array([1, 2, 3], np.float32), "c0": condition if shape else np.array(condition[0])}
        expected = reference_session(model).run(None, feed)
        for mine, other in zip(run_ours(model, tmp_path, feed), expected, strict=True):
            np.testing.assert_array_equal(mine, other)
