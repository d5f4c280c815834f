"""Products of two activations without materialised transposes."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.importer.conversion.operator_catalog import import_graph
from autotune.importer.layouts.assign import assign_layouts
from autotune.importer.layouts.blocked import Blocked
from tests.autotune_tests.importer_tests.built import close, imported, run
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


@pytest.mark.parametrize(
    ("left", "right", "kernels"),
    [((2, 1, 3, 4), (1, 5, 4, 6), (2, 5, 3, 6)), ((4,), (2, 4, 5), (2, 5)), ((3, 4), (4, 5), (3, 5))],
)
def test_other_batches_and_few_rows_are_left_to_relax(left, right, kernels):
    assert assigned([("MatMul", ["a", "b"], "y", {})], {"a": left, "b": right}, kernels) == {"relax.matmul": 1}


SHARED = {
    "two matrices": ((6, 4), (4, 5)),
    "rows of all with one": ((2, 3, 4), (1, 4, 5)),
    "rows of all with one matrix": ((2, 2, 3, 4), (4, 5)),
    "one with several": ((3, 4), (2, 7, 4, 5)),
    "one of a batch with several": ((1, 1, 3, 4), (2, 7, 4, 5)),
}


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", SHARED)
def test_an_operand_that_all_products_share(name, turned, constant, tmp_path):
    """The first one may be a constant, and a transpose of the result is none of its own or behind it."""
    left, right = SHARED[name]
    rng = np.random.default_rng(0)
    arrays = {"a": rng.standard_normal(left).astype(np.float32), "b": rng.standard_normal(right).astype(np.float32)}
    rank = max(len(left), len(right))
    nodes = [helper.make_node("MatMul", ["a", "b"], ["p"])]
    order = [*range(rank - 2), rank - 1, rank - 2]
    nodes.append(helper.make_node("Transpose", ["p"], ["y"], perm=order if turned else list(range(rank))))
    given = {"a": arrays.pop("a")} if constant else {}
    model = model_of(nodes, [value(key, array.shape) for key, array in arrays.items()], ["y"], given)
    assert close(*run(model, tmp_path, arrays))
    templates = [task.template for task in imported(model, tmp_path).tasks]
    shared_by_rows = constant and name.startswith("rows")
    assert "batch_matmul" in templates or shared_by_rows or (constant and name == "two matrices")


@pytest.mark.parametrize(("rows", "count"), [(1, 8), (1, 9), (2, 8), (7, 9)])
@pytest.mark.parametrize("turned", [False, True])
def test_queries_that_a_model_has_learnt(rows, count, turned, tmp_path):
    """A constant for each head, on the left of keys in any order; one query packs only an odd number of keys."""
    rng = np.random.default_rng(1)
    keys = rng.standard_normal((1, count, 3, 4) if turned else (1, 3, 4, count)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["q", "t"], ["y"])]
    nodes.insert(0, helper.make_node("Transpose", ["k"], ["t"], perm=[0, 2, 3, 1] if turned else [0, 1, 2, 3]))
    queries = rng.standard_normal((1, 3, rows, 4)).astype(np.float32)
    model = model_of(nodes, [value("k", keys.shape)], ["y"], {"q": queries})
    assert close(*run(model, tmp_path, {"k": keys}))
    templates = [task.template for task in imported(model, tmp_path).tasks]
    assert ("batch_matmul" in templates) == (rows > 1 or count == 9)
