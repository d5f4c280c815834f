"""A program with its plan applied: weights in the form the chosen kernels want, and nothing else changed."""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from autotune.artifact.apply_plan import apply_plan
from autotune.artifact.plan import Choice, Plan
from autotune.backends.cpu.cpu_build import build_artifact
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from autotune.measure.measurer import symbol_of
from autotune.runtime.session import InferenceSession
from schedules.lower import BASELINE
from tests.autotune_tests.tiny import target

CHANNELS, SIZE = 32, 12


def two_sizes(shared=True):
    """x → conv 3×3, relu → pool 2×2 → conv 3×3, relu: one task per size; the filters are one tensor, or two."""
    rng = np.random.default_rng(0)
    shape = (CHANNELS, CHANNELS, 3, 3)
    filters = [(rng.standard_normal(shape) / np.sqrt(9 * CHANNELS)).astype(np.float32) for _ in range(2)]
    names = ["w", "w" if shared else "v"]
    nodes = [
        helper.make_node("Conv", ["x", names[0]], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["c", names[1]], ["d"], pads=[1] * 4),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in dict(zip(names, filters, strict=True)).items()]
    return model(nodes, weights, {"y": (1, CHANNELS, SIZE // 2, SIZE // 2)})


def model(nodes, weights, outputs):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, CHANNELS, SIZE, SIZE])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def imported(tmp_path):
    """``imported(model)`` → (path, program)."""

    def save(proto):
        onnx.save(proto, tmp_path / "m.onnx")
        return tmp_path / "m.onnx", import_program(simplify(load_model(tmp_path / "m.onnx")), target())

    return save


def with_algorithm(space, m):
    rows = space.rows[space.columns(space.rows)["algorithm"] == m]
    return space.config(rows[len(rows) // 2])


def plan_of(program, algorithms):
    """Convolutions, the largest first, with these algorithms; the rest untuned."""
    left = list(algorithms)
    convolutions = sorted((task for task in program.tasks if task.template == "conv2d"), key=lambda task: -task.flop)
    assert len(convolutions) == len(left)
    chosen = {task.key: with_algorithm(program.spaces[task.key], left.pop(0)) for task in convolutions}
    choices = [Choice(task.key, chosen.get(task.key, BASELINE), None) for task in program.tasks]
    return Plan(target(), tuple(sorted(choices, key=lambda choice: choice.task)))


def weight_shapes(program):
    return [array.shape for array in program.weights]


def transformed(m, lanes):
    return (m + 2, m + 2, CHANNELS // lanes, CHANNELS // lanes, lanes, lanes)


@pytest.mark.parametrize("algorithms", [(4, 4), (2, 4), (4, 0)])
def test_a_winograd_artifact_computes_what_the_direct_one_does(imported, measurer, tmp_path, algorithms):
    path, program = imported(two_sizes(shared=False))
    x = np.random.default_rng(1).standard_normal((1, CHANNELS, SIZE, SIZE)).astype(np.float32)
    outputs = []
    for name, chosen in (("direct", (0, 0)), ("winograd", algorithms)):
        assert build_artifact(tmp_path / name, program, plan_of(program, chosen), path, measurer)
        outputs += InferenceSession(tmp_path / name).run(None, {"x": x})
    expected = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(outputs[0], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-3, atol=1e-4)
    assert not np.array_equal(outputs[1], outputs[0]), "the algorithms differ, so must the last bits"


def test_shared_weights_are_kept_once_per_form(imported):
    _, program = imported(two_sizes())
    assert len(program.weights) == 1
    lanes = target().lanes()
    same = apply_plan(program, plan_of(program, (4, 4)))
    assert weight_shapes(same) == [transformed(4, lanes)]
    mixed = apply_plan(program, plan_of(program, (4, 2)))
    assert weight_shapes(mixed) == [transformed(4, lanes), transformed(2, lanes)]
    direct = apply_plan(program, plan_of(program, (0, 0)))
    assert np.array_equal(direct.weights[0], program.weights[0])


def test_weights_that_nobody_reads_are_dropped(imported):
    _, program = imported(two_sizes(shared=False))
    main = program.main
    spare = relax.Var("spare", relax.TensorType((3,), "float32"))
    params = [*main.params, spare]
    longer = relax.Function(params, main.body, main.ret_ty, main.is_pure, main.attrs)
    more = replace(program, main=longer, weights=(*program.weights, np.zeros(3, np.float32)))
    ready = apply_plan(more, plan_of(program, (0, 0)))
    assert weight_shapes(ready) == weight_shapes(program)
    assert len(ready.main.params) == 1 + len(program.weights)


def test_kernels_are_called_by_their_symbols(imported):
    _, program = imported(two_sizes())
    ready = apply_plan(program, plan_of(program, (4, 0)))
    text = ready.main.script()
    for task in program.tasks:
        assert f'"{symbol_of(task.key)}"' in text
    assert "call_tir" not in text


def test_a_weight_that_is_an_output_is_kept(imported, measurer, tmp_path):
    proto = two_sizes()
    bias = np.arange(40, dtype=np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(bias, "k"))
    proto.graph.node.append(helper.make_node("Identity", ["k"], ["kept"]))
    proto.graph.output.append(helper.make_tensor_value_info("kept", TensorProto.FLOAT, [40]))
    path, program = imported(proto)
    build_artifact(tmp_path / "out", program, plan_of(program, (0, 0)), path, measurer)
    x = np.zeros((1, CHANNELS, SIZE, SIZE), np.float32)
    assert np.array_equal(InferenceSession(tmp_path / "out").run(["kept"], {"x": x})[0], bias)
