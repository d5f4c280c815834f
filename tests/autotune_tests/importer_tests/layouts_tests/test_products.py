"""Products of two activations without materialised transposes."""

import pytest
from onnx import TensorProto, helper

from autotune.importer.conversion.operator_catalog import import_graph
from autotune.importer.layouts.assign import assign_layouts
from autotune.importer.layouts.blocked import Blocked
from tests.autotune_tests.importer_tests.layouts_tests.test_assign import calls
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def assigned(nodes, shapes, output):
    model = model_of([helper.make_node(kind, names, [result], **more) for kind, names, result, more in nodes], [], [])
    model.graph.input.extend(value(name, shape) for name, shape in shapes.items())
    model.graph.output.append(value("y", output))
    return calls(assign_layouts(import_graph(model), Blocked(8))[0])


def test_attention_needs_no_transpose():
    heads = {"perm": [0, 2, 1, 3]}
    nodes = [
        ("Transpose", ["q"], "a", heads),
        ("Transpose", ["k"], "b", {"perm": [0, 2, 3, 1]}),
        ("MatMul", ["a", "b"], "scores", {}),
        ("Transpose", ["v"], "c", heads),
        ("MatMul", ["scores", "c"], "mixed", {}),
        ("Transpose", ["mixed"], "y", heads),
    ]
    counts = assigned(nodes, dict.fromkeys("qkv", (1, 6, 2, 4)), (1, 6, 2, 4))
    assert sum(counts.values()) == 2
    assert all(name.startswith("batch_matmul") for name in counts)


def test_rows_may_be_the_last_axis_of_the_result():
    nodes = [("MatMul", ["a", "b"], "p", {}), ("Transpose", ["p"], "y", {"perm": [0, 3, 1, 2]})]
    counts = assigned(nodes, {"a": (1, 2, 3, 4), "b": (1, 2, 4, 5)}, (1, 5, 2, 3))
    assert sum(counts.values()) == 1


def test_a_cast_between_product_and_transpose_hides_nothing():
    nodes = [
        ("MatMul", ["a", "b"], "p", {}),
        ("Cast", ["p"], "short", {"to": TensorProto.FLOAT16}),
        ("Transpose", ["short"], "y", {"perm": [0, 2, 1, 3]}),
    ]
    counts = assigned(nodes, {"a": (1, 2, 3, 4), "b": (1, 2, 4, 5)}, (1, 3, 2, 5))
    assert "relax.permute_dims" not in counts
    assert counts["relax.astype"] == 1


@pytest.mark.parametrize(("left", "right", "kernels"), [((2, 3, 4), (1, 4, 5), (2, 3, 5)), ((4,), (2, 4, 5), (2, 5))])
def test_batches_that_differ_are_left_to_relax(left, right, kernels):
    assert assigned([("MatMul", ["a", "b"], "y", {})], {"a": left, "b": right}, kernels) == {"relax.matmul": 1}
