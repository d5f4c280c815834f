"""Operators on values of an open size, against ONNX Runtime: some rows, none and all of them count."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.importer.operators.dynamic.open_sizes import REDUCED_TO
from tests.autotune_tests.importer_tests.built import close, run, run_all
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

INT64 = TensorProto.INT64
ROWS, COLUMNS = 7, 4
MIXED = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)
FEEDS = {"some": MIXED, "none": -abs(MIXED), "all": abs(MIXED) + 0.1}
NODE = helper.make_node

WEIGHTS = {
    "column": np.array(0),
    "zero": np.array(0, np.float32),
    "first": np.array([0]),
    "second": np.array([1]),
    "ends": np.array([3]),
    "last": np.array([-1]),
    "two": np.array([2]),
    "three": np.array([3]),
    "flat": np.array([-1]),
    "pairs": np.array([-1, 2]),
    "fours": np.array([-1, 4]),
    "copied": np.array([0, 2, 2]),
    "wide": np.array([5.0, 7.0, 1.0], np.float32),
    "table": np.arange(24, dtype=np.float32).reshape(6, 4),
    "weights": np.random.default_rng(4).standard_normal((COLUMNS, 5)).astype(np.float32),
    "step": np.array(1),
    "start": np.array(0),
}


def behind(nodes, kind=TensorProto.FLOAT):
    """``nodes``, which make ``y`` of ``rows`` (n, 4) and ``firsts`` (n,): the rows of x above zero in column 0."""
    model = model_of(
        [
            NODE("Gather", ["x", "column"], ["heads"], axis=1),
            NODE("Greater", ["heads", "zero"], ["hit"]),
            NODE("NonZero", ["hit"], ["places"]),
            NODE("Squeeze", ["places", "first"], ["numbers"]),
            NODE("Gather", ["x", "numbers"], ["rows"]),
            NODE("Gather", ["heads", "numbers"], ["firsts"]),
            *nodes,
        ],
        [value("x", (ROWS, COLUMNS))],
        ["y"],
        WEIGHTS,
    )
    model.graph.output[0].type.tensor_type.elem_type = kind
    return model


def counted(name="rows"):
    """Nodes that make ``n`` (1,) of the length of ``name``."""
    return [NODE("Shape", [name], ["shape"]), NODE("Slice", ["shape", "first", "second"], ["n"])]


CASES = {
    "Shape": ([NODE("Shape", ["rows"], ["y"])], INT64),
    "Size": ([NODE("Size", ["rows"], ["y"])], INT64),
    "TopK of as many as there are": (
        [
            *counted(),
            NODE("Concat", ["n", "three"], ["both"], axis=0),
            NODE("ReduceMin", ["both"], ["least"], keepdims=1),
            NODE("TopK", ["firsts", "least"], ["y", "order"]),
        ],
        TensorProto.FLOAT,
    ),
    "TopK of the smallest by rows": (
        [NODE("TopK", ["rows", "two"], ["y", "order"], largest=0)],
        TensorProto.FLOAT,
    ),
    "rows in another order": (
        [*counted("firsts"), NODE("TopK", ["firsts", "n"], ["v", "order"]), NODE("Gather", ["rows", "order"], ["y"])],
        TensorProto.FLOAT,
    ),
    "GatherND": (
        [
            *counted("firsts"),
            NODE("TopK", ["firsts", "n"], ["v", "order"]),
            NODE("Unsqueeze", ["order", "second"], ["at"]),
            NODE("GatherND", ["rows", "at"], ["y"]),
        ],
        TensorProto.FLOAT,
    ),
    "Concat of open and fixed": ([NODE("Concat", ["rows", "table", "rows"], ["y"], axis=0)], TensorProto.FLOAT),
    "Concat beside": ([NODE("Concat", ["rows", "rows"], ["y"], axis=1)], TensorProto.FLOAT),
    "Slice to the front": ([NODE("Slice", ["rows", "first", "ends", "first"], ["y"])], TensorProto.FLOAT),
    "Slice from the second": ([NODE("Slice", ["rows", "second", "ends", "first"], ["y"])], TensorProto.FLOAT),
    "Slice but the last": ([NODE("Slice", ["rows", "first", "last", "first"], ["y"])], TensorProto.FLOAT),
    "Slice of columns": ([NODE("Slice", ["rows", "second", "ends", "second"], ["y"])], TensorProto.FLOAT),
    "Slice of a fixed tensor": ([*counted(), NODE("Slice", ["x", "first", "n", "first"], ["y"])], TensorProto.FLOAT),
    "Split": (
        [NODE("Split", ["rows"], ["a", "b"], axis=1), NODE("Sub", ["a", "b"], ["y"])],
        TensorProto.FLOAT,
    ),
    "ReduceSum": ([NODE("ReduceSum", ["rows", "first"], ["y"], keepdims=0)], TensorProto.FLOAT),
    "ReduceProd by rows": ([NODE("ReduceProd", ["rows"], ["y"], axes=[1], keepdims=0)], TensorProto.FLOAT),
    "Softmax": ([NODE("Softmax", ["firsts"], ["y"], axis=0)], TensorProto.FLOAT),
    "Softmax by rows": ([NODE("Softmax", ["rows"], ["y"], axis=1)], TensorProto.FLOAT),
    "ArgMin by rows": ([NODE("ArgMin", ["rows"], ["y"], axis=1, keepdims=0)], INT64),
    "Reshape to pairs": ([NODE("Reshape", ["rows", "pairs"], ["y"])], TensorProto.FLOAT),
    "Reshape of one row at most": (
        [
            NODE("Slice", ["rows", "first", "second", "first"], ["one"]),
            NODE("Reshape", ["one", "flat"], ["vector"]),
            NODE("Reshape", ["vector", "fours"], ["y"]),
        ],
        TensorProto.FLOAT,
    ),
    "Reshape that copies": ([NODE("Reshape", ["rows", "copied"], ["y"])], TensorProto.FLOAT),
    "Reshape to a vector": ([NODE("Reshape", ["rows", "flat"], ["y"])], TensorProto.FLOAT),
    "Flatten": ([NODE("Flatten", ["rows"], ["y"], axis=1)], TensorProto.FLOAT),
    "Expand to a length": (
        [
            *counted(),
            NODE("Concat", ["n", "three"], ["sizes"], axis=0),
            NODE("Expand", ["wide", "sizes"], ["y"]),
        ],
        TensorProto.FLOAT,
    ),
    "ConstantOfShape": (
        [*counted(), NODE("ConstantOfShape", ["n"], ["y"], value=helper.make_tensor("v", 1, [1], [2.5]))],
        TensorProto.FLOAT,
    ),
    "Range": (
        [*counted(), NODE("Squeeze", ["n", "first"], ["scalar"]), NODE("Range", ["start", "scalar", "step"], ["y"])],
        INT64,
    ),
    "MatMul": ([NODE("MatMul", ["rows", "weights"], ["y"])], TensorProto.FLOAT),
    "Gemm": ([NODE("Gemm", ["rows", "weights"], ["y"])], TensorProto.FLOAT),
    "NonZero of what is open": (
        [NODE("Less", ["firsts", "half"], ["low"]), NODE("NonZero", ["low"], ["y"])],
        INT64,
    ),
    "ScatterND of rows": (
        [
            NODE("Unsqueeze", ["numbers", "second"], ["at"]),
            NODE("Neg", ["rows"], ["negative"]),
            NODE("ScatterND", ["x", "at", "negative"], ["y"]),
        ],
        TensorProto.FLOAT,
    ),
    "ScatterElements of numbers": (
        [NODE("Neg", ["firsts"], ["negative"]), NODE("ScatterElements", ["heads", "numbers", "negative"], ["y"])],
        TensorProto.FLOAT,
    ),
}
WEIGHTS["half"] = np.array(0.5, np.float32)
WEIGHTS |= {"nothing": np.array([0, 0, 0, 0]), "before": np.array([2, 0, 0, 1]), "fill": np.array(9.0, np.float32)}
WEIGHTS |= {"seven": np.array([ROWS]), "pad before": np.array([0]), "wide zeros": np.zeros((ROWS + 1, 3), np.float32)}
WEIGHTS |= {"sum": np.ones((3, COLUMNS), np.float32), "all three": np.array(3), "back": np.array(-1)}
CASES |= {
    "Pad in front and beside": ([NODE("Pad", ["rows", "before", "fill"], ["y"])], TensorProto.FLOAT),
    "Pad by nothing": ([NODE("Pad", ["rows", "nothing"], ["y"], mode="edge")], TensorProto.FLOAT),
    "Pad up to a size": (
        [
            *counted("firsts"),
            NODE("Sub", ["seven", "n"], ["missing"]),
            NODE("Concat", ["pad before", "missing"], ["pads"], axis=0),
            NODE("Pad", ["firsts", "pads", "fill"], ["y"]),
        ],
        TensorProto.FLOAT,
    ),
    "Pad a fixed tensor by a length": (
        [
            *counted("firsts"),
            NODE("Concat", ["second", "n"], ["pads"], axis=0),
            NODE("Pad", ["heads", "pads", "fill"], ["y"]),
        ],
        TensorProto.FLOAT,
    ),
    "CumSum from the end": ([NODE("CumSum", ["rows", "column"], ["y"], reverse=1)], TensorProto.FLOAT),
    "CumSum by rows": ([NODE("CumSum", ["rows", "step"], ["y"], exclusive=1)], TensorProto.FLOAT),
    "GatherND of every row": (
        [
            NODE("Mod", ["numbers", "all three"], ["column of each"]),
            NODE("Unsqueeze", ["column of each", "second"], ["at"]),
            NODE("GatherND", ["rows", "at"], ["y"], batch_dims=1),
        ],
        TensorProto.FLOAT,
    ),
    "ScatterND of numbers in rows": (
        [
            NODE("Mod", ["numbers", "all three"], ["column of each"]),
            NODE("Unsqueeze", ["column of each", "second"], ["beside"]),
            NODE("Unsqueeze", ["numbers", "second"], ["row of each"]),
            NODE("Concat", ["row of each", "beside"], ["at"], axis=1),
            NODE("ScatterND", ["wide zeros", "at", "firsts"], ["y"]),
        ],
        TensorProto.FLOAT,
    ),
    "ScatterElements that add": (
        [
            NODE("Mod", ["numbers", "all three"], ["bin"]),
            NODE("Unsqueeze", ["bin", "second"], ["bins"]),
            NODE("Expand", ["bins", "columns wide"], ["spread"]),
            NODE("Mul", ["spread", "back"], ["from the end"]),
            NODE("ScatterElements", ["sum", "from the end", "rows"], ["y"], axis=0, reduction="add"),
        ],
        TensorProto.FLOAT,
    ),
}
WEIGHTS["columns wide"] = np.array([1, COLUMNS])


@pytest.mark.parametrize("name", CASES)
def test_what_counts_is_right(tmp_path, name):
    nodes, kind = CASES[name]
    outputs = run_all(behind(nodes, kind), tmp_path, [{"x": x} for x in FEEDS.values()])
    for case, (ours, theirs) in zip(FEEDS, outputs, strict=True):
        assert close(ours, theirs), case


@pytest.mark.parametrize("kind", REDUCED_TO)
def test_reductions_of_a_slice_whose_length_is_an_input(tmp_path, kind):
    """What they make of nothing, too: a mean is 0, a maximum minus infinity."""
    nodes = [NODE("Slice", ["x", "zero", "n", "zero"], ["rows"]), NODE(kind, ["rows", "zero"], ["y"])]
    inputs = [value("x", (ROWS, COLUMNS)), value("n", (1,), INT64)]
    model = model_of(nodes, inputs, ["y"], {"zero": np.array([0])}, opset=18)
    feeds = [{"x": abs(MIXED), "n": np.array([length])} for length in (3, 0, ROWS)]
    for ours, theirs in run_all(model, tmp_path, feeds):
        np.testing.assert_allclose(ours[0], theirs[0], 1e-4, 1e-5)


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin", "ReduceMean", "ArgMax"])
def test_of_no_elements_there_is_no_extreme(tmp_path, kind):
    """ONNX Runtime fails where nothing is left, so only what has elements is compared."""
    attributes = {"axis": 0} if kind == "ArgMax" else {"axes": [0]}
    model = behind([NODE(kind, ["rows"], ["y"], keepdims=1, **attributes)], INT64 if kind == "ArgMax" else 1)
    for ours, theirs in run_all(model, tmp_path, [{"x": FEEDS[case]} for case in ("some", "all")]):
        assert close(ours, theirs)


def branch(*nodes):
    return helper.make_graph(list(nodes), "branch", [], [helper.make_tensor_value_info(nodes[-1].output[0], 1, ["n"])])


def test_a_branch_of_nothing_and_one_of_an_open_size(tmp_path):
    """As exporters write ``empty if nothing is left else …``."""
    nothing = NODE("Constant", [], ["none"], value=helper.make_tensor("v", 1, [0], []))
    nodes = [
        NODE("Size", ["firsts"], ["size"]),
        NODE("Equal", ["size", "start"], ["empty"]),
        NODE(
            "If",
            ["empty"],
            ["y"],
            then_branch=branch(nothing),
            else_branch=branch(NODE("Neg", ["firsts"], ["other"])),
        ),
    ]
    model = behind(nodes)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for ours, theirs in run_all(model, tmp_path, [{"x": x} for x in FEEDS.values()]):
        assert close(ours, theirs)


def test_of_two_of_the_same_one_may_be_read_as_a_whole(tmp_path):
    """Of the first only the best box is read, which must not shorten the second."""
    boxes = np.arange(24, dtype=np.float32).reshape(1, 6, 4)
    scores = np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(1, 1, 6)
    same = ["boxes", "scores", "most"]
    nodes = [
        NODE("NonMaxSuppression", same, ["one"]),
        NODE("NonMaxSuppression", same, ["other"]),
        NODE("Slice", ["one", "first", "second", "first"], ["best"]),
        NODE("Concat", ["best", "other"], ["y"], axis=0),
    ]
    inputs = [value("boxes", boxes.shape), value("scores", scores.shape)]
    model = model_of(nodes, inputs, ["y"], {**WEIGHTS, "most": np.array([6])})
    model.graph.output[0].type.tensor_type.elem_type = INT64
    assert close(*run(model, tmp_path, {"boxes": boxes, "scores": scores}))


def test_parts_of_rows_are_not_scattered_as_whole_ones(tmp_path):
    nodes = [
        NODE("Reshape", ["numbers", "ones"], ["upright"]),
        *counted(),
        NODE("Concat", ["n", "two"], ["sizes"], axis=0),
        NODE("Expand", ["upright", "sizes"], ["at"]),
        NODE("Slice", ["rows", "first", "two", "second"], ["left"]),
        NODE("ScatterElements", ["x", "at", "left"], ["y"]),
    ]
    model = behind(nodes)
    model.graph.initializer.append(helper.make_tensor("ones", INT64, [2], [-1, 1]))
    for ours, theirs in run_all(model, tmp_path, [{"x": x} for x in FEEDS.values()]):
        assert close(ours, theirs)


def test_suppression_of_an_open_number_of_boxes(tmp_path):
    nodes = [
        NODE("Unsqueeze", ["rows", "first"], ["boxes"]),
        NODE("Unsqueeze", ["firsts", "ahead"], ["scores"]),
        NODE("NonMaxSuppression", ["boxes", "scores", "most", "overlap"], ["chosen"]),
        NODE("Gather", ["chosen", "two"], ["box"], axis=1),
        NODE("Squeeze", ["box", "second"], ["kept"]),
        NODE("Slice", ["kept", "first", "two", "first"], ["best"]),
        NODE("Gather", ["rows", "best"], ["y"]),
    ]
    model = behind(nodes)
    for name, array in {
        "ahead": np.array([0, 1]),
        "most": np.array([100]),
        "overlap": np.array([0.3], np.float32),
    }.items():
        model.graph.initializer.append(
            helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array)
        )
    for ours, theirs in run_all(model, tmp_path, [{"x": x} for x in FEEDS.values()]):
        assert close(ours, theirs)
