"""Which choices become kernels of their own."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.importer.program import import_program, simplify
from schedules.target import Target

TARGET = Target("llvm", "avx512", "skylake-avx512", threads=1)


def chosen(one, other, outputs=("y",), before=()):
    """A model that chooses between ``one`` and ``other``, names of what nodes make of x."""
    weights = [numpy_helper.from_array(np.full((16, 16), n, np.float32), name) for n, name in enumerate("vw")]
    nodes = [
        *before,
        helper.make_node("MatMul", ["x", "v"], ["product"]),
        helper.make_node("MatMul", ["x", "w"], ["other product"]),
        helper.make_node("Relu", ["x"], ["relu"]),
        helper.make_node("Neg", ["x"], ["neg"]),
        helper.make_node("Where", ["c", one, other], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, [1]),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 16]) for name in outputs]
    graph = helper.make_graph(nodes, "chosen", inputs, infos, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def kernels(model):
    return [task.name for task in import_program(simplify(onnx.shape_inference.infer_shapes(model)), TARGET).tasks]


@pytest.mark.parametrize(
    ("one", "other", "outputs", "is_apart"),
    [
        ("product", "relu", ("y",), True),
        ("neg", "product", ("y",), True),
        ("product", "other product", ("y",), True),
        ("relu", "neg", ("y",), False),  # two elementwise operators take less time than a kernel
        ("product", "relu", ("y", "product"), False),  # it is computed in any case
        ("product", "product", ("y",), False),
    ],
)
def test_a_choice_is_kept_apart_if_it_saves_work(one, other, outputs, is_apart):
    assert ("choice" in kernels(chosen(one, other, outputs))) is is_apart


def test_a_condition_is_computed_first_and_without_a_reshape():
    program = import_program(simplify(onnx.shape_inference.infer_shapes(chosen("product", "relu"))), TARGET)
    assert not any(task.name.startswith("reshape") for task in program.tasks)
