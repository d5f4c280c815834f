"""If and Loop without control flow."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.importer.conversion.dead_branches import notes_of
from autotune.importer.load import load_model
from autotune.importer.program import simplify
from tests.autotune_tests.importer_tests.built import close
from tests.autotune_tests.importer_tests.built import run as built_run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written


def _branch(name, kind):
    node = helper.make_node(kind, ["x"], [name])
    return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, (3, 4))])


def _gate(condition, then, other, output):
    """An If whose branches apply one operator each to ``x`` along axis 0, so that their results differ in rank."""
    branches = [
        helper.make_graph(
            [helper.make_node(kind, [name, *axes], [result])], result, [], [helper.make_empty_tensor_value_info(result)]
        )
        for kind, name, axes, result in (then, other)
    ]
    return helper.make_node("If", [condition], [output], output, then_branch=branches[0], else_branch=branches[1])


def test_a_condition_that_another_one_settles_is_folded_before_anything_is_refused(tmp_path):
    """Exporters ask for ranks and sizes that follow from the inputs only once the Ifs before them are gone."""
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "one"], ["size"]),
        helper.make_node("Equal", ["size", "four"], ["plain"]),
        _gate("plain", ("Identity", "x", [], "kept"), ("Unsqueeze", "x", ["axis"], "cut"), "first"),
        helper.make_node("Shape", ["first"], ["left"]),
        helper.make_node("Size", ["left"], ["rank"]),
        helper.make_node("Equal", ["rank", "two"], ["flat"]),
        _gate("flat", ("Unsqueeze", "first", ["axis"], "deep"), ("Identity", "first", [], "same"), "second"),
        helper.make_node("LSTM", ["second", "w", "r"], ["y"], "lstm", hidden_size=8),
    ]
    draw = np.random.default_rng(0).standard_normal
    constants = {name: np.array(n, np.int64) for name, n in {"one": 1, "four": 4, "two": 2}.items()}
    constants |= {"axis": np.zeros(1, np.int64)}
    constants |= {"w": draw((1, 32, 4)).astype(np.float32), "r": draw((1, 32, 8)).astype(np.float32)}
    model = model_of(nodes, [value("x", (3, 4))], ["y"], constants)
    assert close(*built_run(model, tmp_path, {"x": draw((3, 4)).astype(np.float32)}))


def test_a_branch_that_does_not_fit_the_inputs_is_told_with_its_operator(tmp_path):
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axis"], ["deep"]),
        helper.make_node("LSTM", ["deep", "w", "r"], ["y"], "lstm", hidden_size=8),
    ]
    constants = {"axis": np.array([0, 1], np.int64)}
    constants |= {"w": np.zeros((1, 32, 4), np.float32), "r": np.zeros((1, 32, 8), np.float32)}
    other = helper.make_graph(nodes, "other", [], [value("y", None)])
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["n"])], "then", [], [value("n", None)])
    choice = helper.make_node("If", ["c"], ["z"], "choice", then_branch=then, else_branch=other)
    model = model_of([choice], [value("x", (3, 4)), value("c", (), TensorProto.BOOL)], ["z"], constants)
    loaded = load_model(written(model, tmp_path))
    (note,) = notes_of(loaded)
    assert "then_branch is always taken" in note
    assert "(op_type:LSTM, node name: lstm): First input tensor must have rank 3" in note
    assert {node.op_type for node in simplify(loaded).graph.node} <= {"Neg", "Identity"}


@pytest.mark.parametrize("taken", [True, False])
def test_a_computed_condition_chooses(tmp_path, taken):
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=_branch("t", "Exp"), else_branch=_branch("e", "Neg"))]
    model = model_of(nodes, [value("x", (3, 4)), value("c", (), TensorProto.BOOL)], ["y"])
    feed = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32), "c": np.array(taken)}
    assert close(*built_run(model, tmp_path, feed))


@pytest.mark.parametrize("taken", [True, False])
def test_branches_need_not_declare_what_they_make(tmp_path, taken):
    def undeclared(name, *nodes):
        return helper.make_graph(list(nodes), name, [], [onnx.ValueInfoProto(name=nodes[-1].output[0])])

    inner = (
        undeclared("t2", helper.make_node("Exp", ["x"], ["t2"])),
        undeclared("e2", helper.make_node("Sin", ["x"], ["e2"])),
    )
    then = undeclared("t", helper.make_node("If", ["c"], ["t"], then_branch=inner[0], else_branch=inner[1]))
    other = undeclared("e", helper.make_node("Neg", ["x"], ["e"]))
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    model = model_of(nodes, [value("x", (3, 4)), value("c", (), TensorProto.BOOL)], ["y"])
    feed = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32), "c": np.array(taken)}
    assert close(*built_run(model, tmp_path, feed))


def test_a_loop_stops_when_its_condition_says_so(tmp_path):
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "s"], ["d"]),
            helper.make_node("ReduceMax", ["d"], ["m"], keepdims=0),
            helper.make_node("Less", ["m", "limit"], ["go"]),
        ],
        "body",
        [value("i", (), TensorProto.INT64), value("go_in", (), TensorProto.BOOL), value("s", (4,))],
        [value("go", (), TensorProto.BOOL), value("d", (4,))],
    )
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y"], "loop", body=body)]
    constants = {"trips": np.array(8, np.int64), "limit": np.array(20, np.float32)}
    model = model_of(nodes, [value("x", (4,))], ["y"], constants)
    assert close(*built_run(model, tmp_path, {"x": np.array([1, 2, 3, 4], np.float32)}))


def stopping_loop(trips, with_condition=True):
    """Collects its state and stops once the sum of the state is beyond 4."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "one"], ["new"]),
            helper.make_node("ReduceSum", ["new"], ["sum"], keepdims=0),
            helper.make_node("Less", ["sum", "most"], ["go"]),
            helper.make_node("Identity", ["new"], ["seen"]),
        ],
        "body",
        [value("i", (), TensorProto.INT64), value("on", (), TensorProto.BOOL), value("state", (3,))],
        [value("go", (), TensorProto.BOOL), value("new", (3,)), value("seen", (3,))],
    )
    inputs = ["trips", "first" if with_condition else "", "x"]
    weights = {"trips": np.array(trips), "one": np.ones(1, np.float32), "most": np.array(4, np.float32)}
    nodes = [
        helper.make_node("Greater", ["x0", "never"], ["first"]),
        helper.make_node("Loop", inputs, ["last", "all"], body=body),
    ]
    weights["never"] = np.array(-100, np.float32)
    return model_of(nodes, [value("x", (3,)), value("x0", ())], ["last", "all"], weights)


@pytest.mark.parametrize(("trips", "start"), [(7, 0.0), (7, -1.0), (2, 0.0), (1, 0.0), (0, 0.0), (7, 9.0)])
@pytest.mark.parametrize("with_condition", [True, False])
def test_a_loop_that_stops_early_gives_what_it_collected_until_then(tmp_path, trips, start, with_condition):
    feed = {"x": np.full(3, start, np.float32), "x0": np.array(0, np.float32)}
    ours, theirs = built_run(stopping_loop(trips, with_condition), tmp_path, feed)
    assert [array.shape for array in ours] == [array.shape for array in theirs]
    assert close(ours, theirs)


def test_a_loop_that_is_off_from_the_start_collects_nothing(tmp_path):
    ours, theirs = built_run(
        stopping_loop(5), tmp_path, {"x": np.zeros(3, np.float32), "x0": np.array(-200, np.float32)}
    )
    assert ours[1].shape == theirs[1].shape == (0, 3)


def test_a_loop_over_slices_between_computed_places(tmp_path):
    """An embedding bag of PyTorch's TorchScript exporter: the rows from each offset to the next are added."""
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["starts", "i"], ["a"], axis=0),
            helper.make_node("Gather", ["ends", "i"], ["b"], axis=0),
            helper.make_node("Unsqueeze", ["a", "zero"], ["a1"]),
            helper.make_node("Unsqueeze", ["b", "zero"], ["b1"]),
            helper.make_node("Slice", ["ids", "a1", "b1", "zero"], ["own"]),
            helper.make_node("Gather", ["table", "own"], ["rows"], axis=0),
            helper.make_node("ReduceSum", ["rows", "zero"], ["bag"], keepdims=0),
            helper.make_node("Identity", ["on"], ["go"]),
        ],
        "body",
        [value("i", (), TensorProto.INT64), value("on", (), TensorProto.BOOL)],
        [value("go", (), TensorProto.BOOL), value("bag", None)],
    )
    nodes = [
        helper.make_node("Shape", ["starts"], ["count"]),
        helper.make_node("Squeeze", ["count", "zero"], ["trips"]),
        helper.make_node("Slice", ["starts", "one", "many", "zero"], ["later"]),
        helper.make_node("Shape", ["ids"], ["length"]),
        helper.make_node("Concat", ["later", "length"], ["ends"], axis=0),
        helper.make_node("Loop", ["trips", ""], ["y"], body=body),
    ]
    rng = np.random.default_rng(0)
    weights = {"zero": np.array([0]), "one": np.array([1]), "many": np.array([1 << 60])}
    weights["table"] = rng.standard_normal((11, 5)).astype(np.float32)
    kind = TensorProto.INT64
    model = model_of(nodes, [value("ids", (9,), kind), value("starts", (4,), kind)], ["y"], weights)
    feed = {"ids": rng.integers(0, 11, 9), "starts": np.array([0, 2, 2, 7])}
    assert close(*built_run(model, tmp_path, feed))


def counted_loop(seed, grows):
    """A loop that ends by a comparison of what follows from constants: numbers that its body or the model holds.

    It adds the trip's number to its state, and either collects that or inserts it in a sequence.
    """
    rng = np.random.default_rng(seed)
    kind = TensorProto.INT64 if rng.random() < 0.5 else TensorProto.FLOAT
    number = {TensorProto.INT64: np.int64, TensorProto.FLOAT: np.float32}[kind]
    last = int(rng.integers(0, 6))
    inside, always = bool(rng.random() < 0.5), bool(rng.random() < 0.25)
    weights = {"zero": np.array(0, number), "two": np.array(2, number), "yes": np.array(True)}
    weights["trips"] = np.array(rng.integers(1, 5), np.int64)
    limit = {"limit": np.array(2 * last, number)}
    test = [helper.make_node("Identity", ["yes"], ["go"])] if always else []
    test = test or [
        helper.make_node("Add", ["count", "two"], ["step"]),
        helper.make_node("Less", ["step", "limit"], ["go"]),
    ]
    if always:
        test.append(helper.make_node("Identity", ["count"], ["step"]))
    own = [numpy_helper.from_array(array, name) for name, array in limit.items()] if inside else []
    weights |= {} if inside else limit
    end = helper.make_node("SequenceInsert", ["kept", "new"], ["more"])
    sequence = helper.make_tensor_sequence_value_info
    body = helper.make_graph(
        [
            *test,
            helper.make_node("Cast", ["i"], ["trip"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["state", "trip"], ["new"]),
            *([end] if grows else [helper.make_node("Identity", ["new"], ["seen"])]),
        ],
        "body",
        [
            *(value("i", (), TensorProto.INT64), value("on", (), TensorProto.BOOL), value("count", (), kind)),
            value("state", (3,)),
            *([sequence("kept", TensorProto.FLOAT, None)] if grows else []),
        ],
        [
            *(value("go", (), TensorProto.BOOL), value("step", (), kind), value("new", (3,))),
            sequence("more", TensorProto.FLOAT, None) if grows else value("seen", (3,)),
        ],
        own,
    )
    trips = "trips" if always or rng.random() < 0.5 else ""
    collected = "list" if grows else "all"
    nodes = [
        *([helper.make_node("SequenceEmpty", [], ["none"])] if grows else []),
        helper.make_node(
            "Loop",
            [trips, "yes" if rng.random() < 0.5 else "", "zero", "x", *(["none"] if grows else [])],
            ["ended", "last", collected],
            "loop",
            body=body,
        ),
        *([helper.make_node("ConcatFromSequence", ["list"], ["all"], axis=0, new_axis=1)] if grows else []),
    ]
    return model_of(nodes, [value("x", (3,))], ["last", "all"], weights)


@pytest.mark.parametrize("grows", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_how_often_a_loop_runs_is_known_if_its_condition_follows_from_constants(tmp_path, seed, grows):
    ours, theirs = built_run(counted_loop(seed, grows), tmp_path, {"x": np.arange(3, dtype=np.float32)})
    assert [array.shape for array in ours] == [array.shape for array in theirs]
    assert close(ours, theirs)
