"""DeformConv."""

from onnx import helper

from autotune.importer.conversion.operator_catalog import import_graph
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def test_one_kernel_with_the_shape_of_the_offsets():
    shapes = {"x": (1, 4, 6, 6), "w": (8, 4, 3, 3), "o": (1, 18, 4, 4), "b": (8,), "m": (1, 9, 4, 4)}
    node = helper.make_node("DeformConv", list(shapes), ["y"], "deform")
    module = import_graph(model_of([node], [value(name, shape) for name, shape in shapes.items()], ["y"], opset=19))
    assert [int(n) for n in module["main"].ret_ty.shape] == [1, 8, 4, 4]
    assert [var.name_hint for var, _ in module.functions_items()].count("deform_conv") == 1
