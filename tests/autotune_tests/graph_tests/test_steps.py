"""Flat programs: concatenations vanish where they can, stay where they cannot, and outputs are right either way."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.artifact.apply_plan import apply_plan
from autotune.artifact.plan import Choice, Plan
from autotune.graph.flattening import flatten
from autotune.graph.steps import CallJobs, LiveRows, LiveSizes, nested
from autotune.importer.program import import_program
from autotune.measure.measurer import symbol_of
from schedules.lower import BASELINE, load_program
from schedules.target import Target
from schedules.templates.common.movements import concat_axis

TARGET = Target("llvm", "avx2", "haswell", threads=1)


def conv(name, x, y, inputs, outputs, rng, groups=1):
    weight = (rng.standard_normal((outputs, inputs // groups, 1, 1)) / np.sqrt(inputs)).astype(np.float32)
    node = helper.make_node("Conv", [x, f"{name}.w"], [y], name=name, group=groups)
    return node, numpy_helper.from_array(weight, f"{name}.w")


def model(nodes, weights, outputs):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 6, 6])
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs]
    graph = helper.make_graph(nodes, "g", [x], infos, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def joined(rng, axis=1, twice=False):
    a, aw = conv("a", "x", "l", 16, 16, rng)
    b, bw = conv("b", "x", "r", 16, 32, rng)
    parts = ["l", "r", "l"] if twice else ["l", "r"]
    channels = 64 if twice else 48
    c = helper.make_node("Concat", parts, ["c"], axis=axis)
    d, dw = conv("d", "c", "y", channels, 16, rng)
    return model([a, b, c, d], [aw, bw, dw], [("y", [1, 16, 6, 6])])


def flat(onnx_model):
    program = import_program(onnx.shape_inference.infer_shapes(onnx_model), TARGET)
    plan = Plan(TARGET, tuple(Choice(task.key, BASELINE, None) for task in program.tasks))
    axes = {symbol_of(task.key): concat_axis(load_program(program.programs[task.key])) for task in program.tasks}
    concats = {symbol: axis for symbol, axis in axes.items() if axis is not None}
    return concats, flatten(apply_plan(program, plan), concats)


def test_a_concatenation_is_written_in_place():
    concats, steps = flat(joined(np.random.default_rng(0)))
    assert len(concats) == 1
    assert not {call.symbol for call in steps.calls} & set(concats)
    *_, last = steps.calls[-1].operands
    whole = [operand for call in steps.calls for operand in call.operands if operand.shape[1:2] == (6,)]
    assert whole, "the consumer reads the whole"


def test_a_part_that_appears_twice_is_copied():
    concats, steps = flat(joined(np.random.default_rng(0), twice=True))
    assert {call.symbol for call in steps.calls} & set(concats)


def test_an_input_handed_through_is_copied_by_a_kernel():
    node = helper.make_node("Identity", ["x"], ["y"])
    relu = helper.make_node("Relu", ["x"], ["z"])
    _, steps = flat(model([node, relu], [], [("y", [1, 16, 6, 6]), ("z", [1, 16, 6, 6])]))
    assert len(steps.calls) == 2


@pytest.mark.parametrize("twice", [False, True])
def test_outputs_are_right(tiny_build, twice):
    proto = joined(np.random.default_rng(1), twice=twice)
    x = np.random.default_rng(2).standard_normal((1, 16, 6, 6)).astype(np.float32)
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    session = tiny_build(proto)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected[0], rtol=1e-3, atol=1e-5)
    # The arena is used again: a second run with other numbers must not see the first one's.
    other = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": 2 * x})
    np.testing.assert_allclose(session.run(None, {"x": 2 * x})[0], other[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("inputs", "outputs", "groups"), [(24, 40, 4), (30, 30, 3), (48, 64, 2), (96, 40, 8)])
def test_groups_that_no_block_divides(tiny_build, inputs, outputs, groups):
    rng = np.random.default_rng(3)
    first, fw = conv("f", "x", "m", 16, inputs, rng)
    second, sw = conv("s", "m", "y", inputs, outputs, rng, groups)
    proto = model([first, second], [fw, sw], [("y", [1, outputs, 6, 6])])
    x = rng.standard_normal((1, 16, 6, 6)).astype(np.float32)
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(tiny_build(proto).run(None, {"x": x})[0], expected[0], rtol=1e-3, atol=1e-5)


def test_models_are_valid():
    onnx.checker.check_model(joined(np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("live", "threads", "share"),
    [
        (1, 1, (1 + 3 / 4) / 4),
        (4, 1, (1 + 3 / 4) / 4),
        (5, 1, (1 + 3 * 2 / 4) / 4),
        (16, 1, 1.0),
        (5, 2, (1 + 3 / 2) / 4),
    ],
)
def test_a_run_of_fewer_rows_takes_the_share_of_the_jobs_that_are_left(live, threads, share):
    """A call of 1 s always runs whole; the four jobs of one of 3 s make four of 16 rows each."""
    rows = LiveSizes((LiveRows("n", 16, (CallJobs(), CallJobs(4, 1, 4, 4))),), (1.0, 3.0))
    assert rows.share({"n": live}, threads) == pytest.approx(share)


@pytest.mark.parametrize(("rows", "parts", "share"), [(1, 1, 1 / 6), (2, 1, 1 / 3), (1, 3, 1 / 2), (2, 2, 2 / 3)])
def test_two_sizes_leave_out_what_either_does(rows, parts, share):
    sizes = LiveRows("rows", 2, (CallJobs(6, 3, 2, 1),)), LiveRows("parts", 3, (CallJobs(6, 1, 3, 1),))
    assert LiveSizes(sizes, (1.0,)).share({"rows": rows, "parts": parts}, 1) == pytest.approx(share)


def test_sizes_are_put_one_within_the_other():
    """Jobs of the last call lie the other way round, so one size leaves them out; its zeros stay."""
    rows, parts = CallJobs(6, 3, 2, 1, 8), CallJobs(6, 1, 3, 1, 4, outer=2)
    inner = LiveRows("parts", 3, (parts, parts, CallJobs(), CallJobs(6, 2, 3, 1, 4)))
    outer = LiveRows("rows", 2, (rows, rows, rows, CallJobs(6, 1, 2, 1)))
    assert nested([outer]) == (outer,)
    sizes = nested([inner, outer])
    assert [size.symbol for size in sizes] == ["rows", "parts"]
    assert sizes[0] == outer
    assert sizes[1].calls == (parts, parts, CallJobs(), CallJobs(6, 2, 0, 1, 4))


def test_rows_are_the_share_where_no_times_are_known():
    sizes = LiveRows("n", 16, (CallJobs(),)), LiveRows("m", 4, (CallJobs(),))
    assert LiveSizes(sizes).share({"n": 4, "m": 2}, 1) == 0.125
