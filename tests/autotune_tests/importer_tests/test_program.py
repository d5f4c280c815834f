"""A model as fused tasks."""

import numpy as np
import pytest
from onnx import helper

from autotune.importer import kernel_passes
from autotune.importer.kernel_passes import interface
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from autotune.options import FP32, Precision
from schedules.target import Target
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests import tiny
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written
from tests.models import cached
from tests.models.quantised import quantise

CPU = Target("llvm", "avx512", "sapphirerapids", threads=1)
AMX = Target.cpu("sapphirerapids", 1)
BF16 = Precision(None)


def test_the_same_kernel_twice_is_one_task(tmp_path):
    weights = {name: np.full((16, 16), index + 1, np.float32) for index, name in enumerate("ab")}
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("MatMul", ["h", "b"], ["y"])]
    model = simplify(load_model(written(model_of(nodes, [value("x", (4, 16))], ["y"], weights), tmp_path)))
    program = import_program(model, CPU)
    assert [(task.weight, task.constants) for task in program.tasks] == [(2, (1,))]
    assert set(program.kernels.values()) == {program.tasks[0].key}
    assert program.programs.keys() == program.spaces.keys() == {program.tasks[0].key}
    assert len(program.weights) == 2


def test_a_reshape_of_the_only_output_is_no_kernel(tmp_path):
    """The logits of a prompt were copied: 78 MB for 128 positions of 151,936 numbers."""
    constants = {"w": np.ones((64, 32), np.float32), "shape": np.array([2, 2, 32], np.int64)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Reshape", ["h", "shape"], ["y"])]
    model = simplify(load_model(written(model_of(nodes, [value("x", (4, 64))], ["y"], constants), tmp_path)))
    program = import_program(model, CPU)
    assert len(program.tasks) == 1
    assert [spec.shape for spec in program.outputs] == [(2, 2, 32)]


def test_biases_and_scales_of_a_quantised_product_are_constants(tmp_path):
    model = quantise(load_model(cached("tiny_cnn")), "u8s8", tmp_path / "model.onnx")
    program = import_program(simplify(load_model(model)), CPU)
    products = [task for task in program.tasks if task.dtypes[:4] == ("uint8", "int8", "int32", "float32")]
    assert products
    assert all({1, 2, 3} <= set(task.constants) for task in products)


def two_convolutions(channels, tmp_path):
    """``channels`` to as many by 1 × 1, and on by 3 × 3."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal((channels, channels, size, size), np.float32) for name, size in (("v", 1), ("w", 3))
    }
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["y"], pads=[1, 1, 1, 1]),
    ]
    return load_model(written(model_of(nodes, [value("x", (1, channels, 8, 8))], ["y"], weights), tmp_path))


def blocks_of(program):
    """Channels in a block of the images that convolutions read and make."""
    images = [shape for task in program.tasks if task.op == "conv2d" for shape in (task.shapes[0], task.shapes[-1])]
    return {shape[-1] for shape in images if len(shape) == 5}


@pytest.mark.parametrize(
    ("channels", "precision", "target", "block"),
    [(64, BF16, AMX, 32), (48, BF16, AMX, 16), (64, FP32, AMX, 16), (64, BF16, Target.cpu("znver4", 1), 16)],
    ids=["rows of tiles", "no whole rows", "fp32", "no AMX"],
)
def test_images_are_blocked_by_the_row_of_a_tile_where_all_have_whole_ones(
    channels, precision, target, block, tmp_path
):
    program = import_program(simplify(two_convolutions(channels, tmp_path)), target, precision)
    assert blocks_of(program) == {block}


def test_so_are_quantised_ones_and_products_of_matrices_keep_their_panels(tmp_path):
    model = quantise(two_convolutions(128, tmp_path), "u8s8", tmp_path / "quantised.onnx")
    assert blocks_of(import_program(simplify(load_model(model)), AMX)) == {64}
    program = import_program(simplify(load_model(cached("tiny_cnn"))), AMX, BF16)
    panels = [task.shapes[1] for task in program.tasks if task.op == "matmul"]
    assert [shape[2] for shape in panels] == [AMX.lanes()] * len(panels) != []


def test_the_interface_leaves_out_initialisers(tmp_path):
    model = load_model(tiny.save_tiny(tmp_path / "tiny.onnx"))
    inputs, outputs = interface(model)
    assert [(spec.name, spec.shape, spec.dtype) for spec in inputs] == [("data", (1, 16, 8, 8), "float32")]
    assert [spec.name for spec in outputs] == ["scores"]


def test_a_pass_that_fails_is_attributed_to_an_operator(tmp_path, monkeypatch):
    fused = kernel_passes._fused

    def fail(module, between):
        if any("tanh" in str(function) for _, function in module.functions_items()):
            raise IndexError("no such pattern")
        return fused(module, between)

    monkeypatch.setattr(kernel_passes, "_fused", fail)
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Tanh", ["r"], ["y"], "culprit")]
    model = simplify(load_model(written(model_of(nodes, [value("x", (4,))], ["y"]), tmp_path)))
    with pytest.raises(ModelError, match=r"operator Tanh \(node 'culprit'\) cannot be built: no such pattern"):
        import_program(model, CPU)
