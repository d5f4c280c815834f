"""Ifs with computed conditions: the side that is not chosen is not computed, and results are right for every choice."""

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.artifact.directory import read_artifact
from autotune.graph.arena import Slice
from autotune.graph.flat import Flat, FlatCall, Guard, Source, Use
from autotune.graph.sides import guard_sides

SIZE = 24
CONDITION = Use(Source("input", 1), (1,), "bool")


def call(symbol, *sources):
    uses = (source if isinstance(source, Use) else Use(Source("arena", source), (4,), "float32") for source in sources)
    return FlatCall(symbol, tuple(uses), (4,), "float32")


def guarded(*calls, outputs=None, slices=None, removed=()):
    wanted = outputs or [len(calls) - 1]
    outs = tuple(Use(Source("arena", number), (4,), "float32") for number in wanted)
    return guard_sides(Flat(calls, outs, slices or {}, frozenset(removed), ()), {"choice"})


X = Use(Source("input", 0), (4,), "float32")


def test_each_side_is_guarded_and_written_where_the_choice_would_write():
    flat = guarded(call("f", X), call("g", 0), call("h", X), call("choice", CONDITION, 1, 2))
    assert [one.guard for one in flat.calls] == [Guard(CONDITION, True)] * 2 + [Guard(CONDITION, False), None]
    assert flat.removed == {3}
    assert flat.slices == {1: Slice(3, 0), 2: Slice(3, 0)}


def test_what_others_read_is_always_computed():
    flat = guarded(call("f", X), call("g", 0), call("h", 0), call("choice", CONDITION, 1, 2), outputs=[3, 1])
    assert [one.guard for one in flat.calls] == [None, None, Guard(CONDITION, False), None]
    assert not flat.removed, "an output of its own cannot lie where the other side is written"


def test_a_choice_with_an_operand_that_is_an_input_stays():
    flat = guarded(call("f", X), call("choice", CONDITION, 0, X))
    assert flat.calls[0].guard == Guard(CONDITION, True)
    assert not flat.removed


def test_a_condition_that_is_computed_after_the_side_guards_nothing():
    late = Use(Source("arena", 1), (1,), "bool")
    flat = guarded(call("f", X), call("test", X), call("g", X), call("choice", late, 0, 2))
    assert [one.guard for one in flat.calls] == [None, None, Guard(late, False), None]


def test_an_inner_choice_is_guarded_as_a_whole_by_the_outer_one():
    """A call that runs must never read what a call that was left out should have written."""
    inner = Use(Source("input", 2), (1,), "bool")
    flat = guarded(
        call("a", X),
        call("f", 0),
        call("g", 0),
        call("choice", inner, 1, 2),
        call("h", X),
        call("choice", CONDITION, 3, 4),
    )
    assert [one.guard for one in flat.calls[:4]] == [Guard(CONDITION, True)] * 4
    assert 3 not in flat.removed


def test_a_part_that_others_read_is_not_written_over():
    """The part of a concatenation is always written, where the other side of the choice would write too."""
    flat = guarded(
        call("f", X),
        call("g", X),
        call("concat", 0, 1),
        call("h", X),
        call("choice", CONDITION, 2, 3),
        call("k", 0),
        outputs=[4, 5],
        slices={0: Slice(2, 0), 1: Slice(2, 8)},
        removed=[2],
    )
    assert flat.calls[0].guard is None
    assert flat.removed == {2}


def test_choices_by_two_conditions_that_overlap_leave_nothing_out_that_is_read():
    other = Use(Source("input", 2), (1,), "bool")
    flat = guarded(
        call("f", X),
        call("g", 0),
        call("choice", CONDITION, 1, X),
        call("choice", other, 1, X),
        call("add", 2, 3),
    )
    assert all(one.guard is None for one in flat.calls)


class _Random:
    """Random graphs of products, elementwise operators, gathers at computed positions, and nested Ifs."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.weights, self.names = [], (f"v{number}" for number in itertools.count())

    def nodes(self, values, depth):
        nodes, values = [], list(values)
        for _ in range(int(self.rng.integers(2, 5))):
            kind = self.rng.choice(["MatMul", "Relu", "Add", "Take", "Concat", "If"][: 6 if depth else 5])
            name = next(self.names)
            x, z = (str(self.rng.choice(values)) for _ in range(2))
            nodes += getattr(self, f"_{kind.lower()}")(name, x, z, values, depth)
            values.append(name)
        return nodes, values

    def _matmul(self, name, x, *_):
        weight = (self.rng.standard_normal((SIZE, SIZE)) / SIZE**0.5).astype(np.float32)
        self.weights.append(numpy_helper.from_array(weight, f"{name}.w"))
        return [helper.make_node("MatMul", [x, f"{name}.w"], [name])]

    def _relu(self, name, x, *_):
        return [helper.make_node("Relu", [x], [name])]

    def _add(self, name, x, z, *_):
        return [helper.make_node("Add", [x, z], [name])]

    def _take(self, name, x, z, *_):
        """Rows at positions that are data: what was left out must not be read as a position."""
        return [
            helper.make_node("ArgMax", [z], [f"{name}.i"], axis=1, keepdims=0),
            helper.make_node("Mod", [f"{name}.i", "rows"], [f"{name}.p"]),
            helper.make_node("Gather", [x, f"{name}.p"], [name], axis=0),
        ]

    def _concat(self, name, x, z, *_):
        return [
            helper.make_node("Slice", [x, "zero", "half", "axis"], [f"{name}.a"]),
            helper.make_node("Slice", [z, "half", "all", "axis"], [f"{name}.b"]),
            helper.make_node("Concat", [f"{name}.a", f"{name}.b"], [name], axis=0),
        ]

    def _if(self, name, x, z, values, depth):
        bodies = []
        for _ in range(2):
            nodes, made = self.nodes(values, depth - 1)
            info = helper.make_tensor_value_info(made[-1], TensorProto.FLOAT, [8, SIZE])
            bodies.append(helper.make_graph(nodes, next(self.names), [], [info]))
        if self.rng.random() < 0.7:
            condition, before = str(self.rng.choice(["c", "d"])), []
        else:
            condition, total = f"{name}.c", f"{name}.s"
            before = [
                helper.make_node("ReduceSum", [x], [total], keepdims=0),
                helper.make_node("Greater", [total, "nothing"], [condition]),
            ]
        return [*before, helper.make_node("If", [condition], [name], then_branch=bodies[0], else_branch=bodies[1])]

    def model(self):
        nodes, values = self.nodes(["x"], 2)
        nodes += self._if("last", "x", "x", values, 2)
        for name, number in {"rows": 8, "zero": [0], "half": [4], "all": [8], "axis": [0]}.items():
            self.weights.append(numpy_helper.from_array(np.array(number, np.int64), name))
        self.weights.append(numpy_helper.from_array(np.zeros((), np.float32), "nothing"))
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, SIZE])]
        inputs += [helper.make_tensor_value_info(name, TensorProto.BOOL, [1]) for name in "cd"]
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, SIZE]) for name in ("last", values[-1])]
        graph = helper.make_graph(nodes, "ifs", inputs, infos[: 1 + (values[-1] != "x")], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("seed", range(6))
def test_random_nested_ifs_are_right_after_any_other_call(seed, tiny_build):
    """What an earlier call of the other side left behind is NaN here."""
    model = _Random(seed).model()
    onnx.checker.check_model(model, full_check=True)
    session, reference = tiny_build(model), onnxruntime.InferenceSession(model.SerializeToString())
    wanted = [spec.name for spec in session.get_inputs()]
    rng = np.random.default_rng(seed)
    for c, d in [*itertools.product([False, True], repeat=2)] * 2:
        x = rng.standard_normal((8, SIZE)).astype(np.float32)
        switches = {"c": np.array([c]), "d": np.array([d])}
        poison = {"x": np.full_like(x, np.nan), "c": ~switches["c"], "d": ~switches["d"]}
        session.run(None, {name: poison[name] for name in wanted})
        feed = {name: array for name, array in {"x": x, **switches}.items() if name in wanted}
        for ours, theirs in zip(session.run(None, feed), reference.run(None, feed), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def branches(size):
    """An If between a product of ``size`` and one of another weight, both with biases."""
    rng, weights, bodies = np.random.default_rng(0), [], []
    for name in ("a", "b"):
        weights.append(numpy_helper.from_array(rng.standard_normal((size, size)).astype(np.float32), f"{name}.w"))
        nodes = [
            helper.make_node("MatMul", ["x", f"{name}.w"], [f"{name}.p"]),
            helper.make_node("Relu", [f"{name}.p"], [name]),
        ]
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, size])
        bodies.append(helper.make_graph(nodes, name, [], [info]))
    node = helper.make_node("If", ["c"], ["y"], then_branch=bodies[0], else_branch=bodies[1])
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, size]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, [1]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, size])]
    graph = helper.make_graph([node], "branches", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_the_artifact_computes_the_chosen_side_alone(tiny_build, tmp_path):
    tiny_build(branches(64))
    steps = read_artifact(tmp_path / "model.tuned").steps
    assert sorted(step.condition.when for step in steps.calls) == [False, True]
    assert len(steps.calls) == 2, "the choice itself takes no call"
