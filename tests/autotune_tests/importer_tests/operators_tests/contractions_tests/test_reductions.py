"""CumSum and CumProd as kernels, against ONNX Runtime and between targets."""

import numpy as np
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax

from autotune.importer.operators.contractions.reductions import cumulative
from autotune.importer.rewriting.registry import BY_HAND
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

RNG = np.random.default_rng(0)
ORDERS = [(0, 0), (1, 0), (0, 1), (1, 1)]


@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 1, 1), (2, 0, 3)], ids=str)
def test_every_axis_and_order(shape, tiny_build):
    cases = [(axis, *order) for axis in (0, 1, -1) for order in ORDERS]
    nodes = [
        helper.make_node("CumSum", ["x", f"a{axis}"], [f"y{number}"], exclusive=exclusive, reverse=reverse)
        for number, (axis, exclusive, reverse) in enumerate(cases)
    ]
    constants = {f"a{axis}": np.array(axis) for axis in (0, 1, -1)}
    model = model_of(nodes, [value("x", shape)], [node.output[0] for node in nodes], constants)
    x = RNG.standard_normal(shape).astype(np.float32)
    x[..., 2:3] = np.nan
    theirs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    for ours, other in zip(tiny_build(model).run(None, {"x": x}), theirs, strict=True):
        np.testing.assert_array_equal(ours, other)


def test_reductions_of_nothing(tiny_build):
    """A mean, of integers too, is 0 as in ONNX Runtime."""
    kinds = ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceProd", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"]
    nodes = [helper.make_node(kind, ["x", "rows"], [f"y{number}"]) for number, kind in enumerate(kinds)]
    model = model_of(nodes, [value("x", (0, 3))], [n.output[0] for n in nodes], {"rows": np.array([0])}, opset=18)
    whole = helper.make_node("ReduceMean", ["n", "rows"], ["mean"])
    model.graph.node.append(whole)
    model.graph.input.append(value("n", (0, 3), TensorProto.INT32))
    model.graph.output.append(value("mean", (1, 3), TensorProto.INT32))
    feed = {"x": np.zeros((0, 3), np.float32), "n": np.zeros((0, 3), np.int32)}
    theirs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    for ours, other in zip(tiny_build(model).run(None, feed), theirs, strict=True):
        np.testing.assert_array_equal(ours, other)


def test_halves_are_added_up_in_fp32(tiny_build):
    node = helper.make_node("CumSum", ["x", "a"], ["y"])
    model = model_of([node], [value("x", (2, 3000), TensorProto.FLOAT16)], [], {"a": np.array(1)})
    model.graph.output.append(value("y", (2, 3000), TensorProto.FLOAT16))
    x = np.ones((2, 3000), np.float16)  # 2048 + 1 is 2048 in halves
    np.testing.assert_array_equal(tiny_build(model).run(None, {"x": x})[0][:, -1], [3000, 3000])


def called(kind, shape, by_hand, **attributes):
    """A module whose main function is a running sum over axis 1 of a tensor."""
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType(list(shape), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            attrs = {"tvm_custom": {"kind": kind, BY_HAND: by_hand}, **attributes}
            result = builder.emit_output(cumulative(builder, [data, relax.const(np.array(1))], attrs, 14))
        builder.emit_func_output(result)
    return builder.finalize()


@pytest.mark.parametrize("kind", ["CumSum", "CumProd"])
@pytest.mark.parametrize(("exclusive", "reverse"), ORDERS)
@pytest.mark.parametrize("by_hand", [True, False])
def test_by_steps_and_by_doubling(kind, exclusive, reverse, by_hand):
    x = RNG.uniform(0.5, 1.5, (2, 6, 3)).astype(np.float32)
    module = called(kind, x.shape, by_hand, exclusive=exclusive, reverse=reverse)
    machine = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    ours = machine["main"](tvm.runtime.tensor(x)).numpy()
    turned = x[:, ::-1] if reverse else x
    total = (np.cumprod if kind == "CumProd" else np.cumsum)(turned, 1)
    if exclusive:
        total = np.concatenate([np.full_like(x[:, :1], kind == "CumProd"), total[:, :-1]], 1)
    np.testing.assert_allclose(ours, total[:, ::-1] if reverse else total, 1e-6)


def test_a_computed_axis_is_refused():
    builder = relax.BlockBuilder()
    data, axis = relax.Var("x", relax.TensorType([2], "float32")), relax.Var("a", relax.TensorType([], "int64"))
    with pytest.raises(ModelError, match="constant axis"):
        cumulative(builder, [data, axis], {"tvm_custom": {"kind": "CumSum", BY_HAND: True}}, 14)
