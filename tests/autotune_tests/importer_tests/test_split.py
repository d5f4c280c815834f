"""Split becomes slices: every output right, whichever axis and sizes."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import autotune.importer.operators.moving  # noqa: F401  # registers the rewrite
from autotune.importer.conversion.registry import rewrite
from autotune.importer.onnx_model.rewrites import remove_identities


@pytest.mark.parametrize(("axis", "sizes"), [(1, (2, 3, 2)), (-1, (1, 4)), (0, (3,))])
def test_split_is_slices(axis, sizes):
    shape = [3, 7, 5]
    names = [f"part{index}" for index in range(len(sizes))]
    graph = helper.make_graph(
        [helper.make_node("Split", ["x", "sizes"], names, "split", axis=axis)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=name) for name in names],
        [numpy_helper.from_array(np.array(sizes, np.int64), "sizes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(model)
    for value, known in zip(model.graph.output, inferred.graph.output, strict=True):
        value.CopyFrom(known)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    before = ReferenceEvaluator(model).run(None, {"x": x})
    assert rewrite(model)
    remove_identities(model.graph)
    assert [node.op_type for node in model.graph.node] == ["Slice"] * len(sizes)
    onnx.checker.check_model(model)
    for old, new in zip(before, ReferenceEvaluator(model).run(None, {"x": x}), strict=True):
        assert np.array_equal(old, new)
