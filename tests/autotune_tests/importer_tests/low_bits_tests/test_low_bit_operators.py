"""Products by packed weights, and rows gathered from packed tables, against ONNX Runtime."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests import tiny
from tests.autotune_tests.importer_tests.built import run, run_ours
from tests.autotune_tests.importer_tests.contrib_cases import Case, floats, integers
from tests.autotune_tests.importer_tests.onnx_cases import written

LEVEL = {1: 1e-4, 4: 1e-3}
"""Accuracy level → tolerance: a level of an activation may be rounded the other way."""


def packed(rows, columns, depth, block, bits=4, zeros=False, level=1, bias=False):
    """A MatMulNBits with random weights."""
    blocks = -(-depth // block)
    arrays = [
        floats(*rows, depth),
        integers(0, 256, columns, blocks, block * bits // 8),
        floats(columns * blocks, scale=0.1),
        integers(0, 256, columns * -(-blocks * bits // 8)) if zeros else None,
        None,
        floats(columns) if bias else None,
    ]
    while arrays[-1] is None:
        arrays.pop()
    numbers = {"K": depth, "N": columns, "bits": bits, "block_size": block, "accuracy_level": level}
    constant = tuple(at for at in range(1, len(arrays)) if arrays[at] is not None)
    label = f"{rows} {columns}x{depth} by {block} of {bits} {zeros} {level} {bias}"
    return Case("MatMulNBits", tuple(arrays), constant, numbers, label=label)


def of_a_table(kind, columns, depth, block):
    """A MatMulBnb4 with random weights."""
    arrays = floats(3, depth), integers(0, 256, -(-columns * depth // 2)), floats(-(-columns * depth // block)) ** 2
    numbers = {"K": depth, "N": columns, "quant_type": kind, "block_size": block}
    return Case("MatMulBnb4", arrays, (1, 2), numbers, label=f"{kind} {columns}x{depth} by {block}")


PRODUCTS = [
    packed((1,), 32, 64, 32),
    packed((1,), 32, 64, 32, level=4),
    packed((2, 3), 40, 128, 16, zeros=True, level=4, bias=True),
    packed((2, 3), 40, 128, 16, zeros=True, bias=True),
    packed((5,), 19, 96, 32, zeros=True),
    packed((8,), 16, 256, 128, level=4),
    packed((4,), 24, 100, 32, zeros=True),
    packed((4,), 24, 64, 32, bits=8, zeros=True),
    packed((12,), 24, 64, 64, bits=8, level=4),
]
ROWS = [
    Case(
        "GatherBlockQuantized",
        (integers(0, 256, 11, 16), np.array([[3, 10, 0]], np.int64), floats(11, 1), *zeros),
        (0, 2, 3)[: 2 + len(zeros)],
        {"bits": bits, "block_size": 32 if bits == 4 else 16, "gather_axis": 0, "quantize_axis": 1},
        label=f"{bits} {len(zeros)}",
    )
    for bits, zeros in ((4, ()), (8, ()), (8, (integers(0, 256, 11, 1),)), (4, (integers(0, 256, 11, 1),)))
]
TABLES = [of_a_table(0, 32, 64, 32), of_a_table(1, 32, 64, 64), of_a_table(1, 5, 48, 32), of_a_table(0, 8, 32, 16)]
ALL = [*PRODUCTS, *ROWS, *TABLES]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_it_computes_what_onnxruntime_computes(case, tmp_path):
    ours, theirs = run(case.model(), tmp_path, case.feed())
    error = LEVEL[case.attributes.get("accuracy_level", 1)] * np.abs(theirs[0]).max()
    assert ours[0].shape == theirs[0].shape
    assert np.abs(ours[0] - theirs[0]).max() <= error


@pytest.mark.parametrize("beside", ["NonZero", "Unique"])
def test_a_product_that_is_an_output_beside_one_of_an_open_size(beside, tmp_path):
    """Its shape, which ONNX cannot infer, must outlive what sizes that depend on data do to a graph."""
    case = packed((2, 3), 32, 64, 32)
    model = case.model()
    model.graph.node.append(helper.make_node(beside, [model.graph.input[0].name], ["open"]))
    kind = TensorProto.INT64 if beside == "NonZero" else TensorProto.FLOAT
    model.graph.output.append(helper.make_tensor_value_info("open", kind, None))
    ours, theirs = run(model, tmp_path, case.feed())
    assert [array.shape for array in ours] == [array.shape for array in theirs]
    assert all(np.allclose(a, b, 1e-3, 1e-4) for a, b in zip(ours, theirs, strict=True))


def test_constant_activations(tmp_path):
    """Larger than what is folded."""
    case = packed((2, 3), 32, 64, 32)
    model = case.model()
    (name,) = (value.name for value in model.graph.input)
    array = case.feed()[name]
    model.graph.initializer.append(numpy_helper.from_array(array, name))
    del model.graph.input[:]
    model.graph.input.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, [4]))
    model.graph.node.append(helper.make_node("Neg", ["other"], ["negative"]))
    model.graph.output.append(helper.make_tensor_value_info("negative", TensorProto.FLOAT, [4]))
    ours, theirs = run(model, tmp_path, {"other": np.ones(4, np.float32)})
    assert all(np.allclose(a, b, 1e-3, 1e-4) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("kind", [-1, 2])
def test_a_table_of_another_format_is_named(kind, tmp_path):
    with pytest.raises(ModelError, match=rf"its quant_type {kind}, .* in FP4 or NF4"):
        simplify(load_model(written(of_a_table(kind, 8, 32, 16).model(), tmp_path)))


def test_rows_outside_the_table_are_held_within_it(tmp_path):
    case = ROWS[0]
    feed = case.feed()
    name = next(name for name, array in feed.items() if array.dtype == np.int64)
    beyond, within = np.array([[2**40, -12, 4]]), np.array([[10, 0, 4]])
    (output,) = run_ours(case.model(), tmp_path, {**feed, name: beyond})
    (wanted,) = run_ours(case.model(), tmp_path, {**feed, name: within})
    np.testing.assert_array_equal(output, wanted)


@pytest.mark.parametrize("level", [1, 4])
def test_weights_stay_packed(level, tmp_path):
    model = simplify(load_model(written(packed((1,), 64, 128, 32, level=level).model(), tmp_path)))
    program = import_program(model, tiny.target())
    assert sum(array.nbytes for array in program.weights) == 64 * 128 // 2 + 64 * 128 // 32 * 4
    assert [task.template for task in program.tasks] == ["low_bit_matmul"]


def test_a_table_of_other_axes_is_named(tmp_path):
    table = (integers(0, 256, 11, 16), np.array([3], np.int64), floats(1, 16))
    axes = {"bits": 8, "block_size": 16, "gather_axis": 1, "quantize_axis": 0}
    case = Case("GatherBlockQuantized", table, (0, 2), axes)
    with pytest.raises(ModelError, match="only rows of a table of two axes"):
        simplify(load_model(written(case.model(), tmp_path)))
