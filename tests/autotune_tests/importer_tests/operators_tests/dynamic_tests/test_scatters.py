"""Scatters as exporters write them, against ONNX Runtime, and which of them become one kernel."""

from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from tvm import relax

from autotune.importer.load import load_model
from autotune.importer.operators.dynamic.scatters import scattered, scattered_corner
from autotune.importer.program import import_program, simplified
from autotune.importer.rewriting.registry import BY_HAND
from schedules.target import Target
from schedules.templates.by_hand.scatter import REDUCTIONS
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests import tiny
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written

INT64 = TensorProto.INT64
RNG = np.random.default_rng(0)


def scatter(kind, output, data="d", places="i", updates="u", **attributes):
    return helper.make_node(kind, [data, places, updates], [output], output, **attributes)


def run_both(tiny_build, nodes, feed, weights=None):
    """Outputs of a session and of ONNX Runtime on one thread: its threads add to one element at a time."""
    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in feed.items()}
    inputs = [value(name, array.shape, types[name]) for name, array in feed.items()]
    outputs = [node.output[0] for node in nodes if node.op_type.startswith("Scatter")]
    model = model_of(nodes, inputs, outputs, weights, opset=18)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feed)
    return tiny_build(model).run(None, feed), theirs


def same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def places(size, *shape):
    return RNG.integers(-size, size, shape)


@pytest.mark.parametrize("special", [False, True], ids=["numbers", "NaN and infinity"])
def test_every_form_and_reduction_gives_onnx_runtime_s_bits(special, tiny_build):
    feed = {"d": normal(5, 6, 7), "i1": places(5, 30, 1), "u1": normal(30, 6, 7), "i2": places(5, 4, 9, 2)}
    feed |= {"u2": normal(4, 9, 7), "i3": places(5, 50, 3), "u3": normal(50)}
    for axis, name in enumerate("abc"):
        shape = [20 if at == axis else size for at, size in enumerate((5, 6, 7))]
        feed |= {f"i{name}": places(5 + axis, *shape), f"u{name}": normal(*shape)}
    feed |= {"ip": places(5, 3, 2, 7), "up": normal(3, 2, 7)}
    if special:
        for name in ("d", "u1", "u2", "u3", "ua", "ub", "uc"):
            flat = feed[name].reshape(-1)
            flat[::5], flat[2::7], flat[3::11] = np.nan, np.inf, -np.inf
    nodes = []
    for reduction in REDUCTIONS:
        nodes += [scatter("ScatterND", f"y{n}{reduction}", "d", f"i{n}", f"u{n}", reduction=reduction) for n in "123"]
        for axis, name in enumerate("abc"):
            output = f"y{name}{reduction}"
            nodes.append(
                scatter("ScatterElements", output, "d", f"i{name}", f"u{name}", axis=axis - 3, reduction=reduction)
            )
        nodes.append(scatter("ScatterElements", f"yp{reduction}", "d", "ip", "up", axis=0, reduction=reduction))
    same(*run_both(tiny_build, nodes, feed))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_updates_may_reach_a_part_of_the_other_axes(axis, reduction, tiny_build):
    reached = [7 if at == axis else size for at, size in enumerate((3, 2, 4))]
    feed = {"d": normal(5, 6, 7), "i": places((5, 6, 7)[axis], *reached), "u": normal(*reached)}
    node = scatter("ScatterElements", "y", axis=axis - 3, reduction=reduction)
    same(*run_both(tiny_build, [node], feed))


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize(("shape", "reached"), [((5, 6, 7), (5, 4, 3)), ((5, 6), (5, 6, 1)), ((), ())])
def test_shapes_that_are_known_too_late_are_refused(shape, reached, by_hand):
    data, updates = (
        relax.Var(name, relax.TensorType(sizes, "float32")) for name, sizes in (("d", shape), ("u", reached))
    )
    places = relax.Var("i", relax.TensorType(reached, "int64"))
    attrs = {"tvm_custom": {"kind": "ScatterElements", BY_HAND: by_hand}, "axis": -1}
    with pytest.raises(ModelError, match=r"updates of shape .* do not go with data of shape"):
        scattered(relax.BlockBuilder(), [data, places, updates], attrs, 18)


@pytest.mark.parametrize("shapes", [((), ()), ((3,), (3, 1)), ((3, 1), (3,)), (None, (3,)), ((3,), None)])
def test_shapes_of_other_ranks_have_no_corner(shapes):
    node = SimpleNamespace(known_shape=lambda number: shapes[number], attr=lambda name, default: default)
    assert scattered_corner(node, None) is None


def test_no_updates_leave_the_data(tiny_build):
    feed = {"d": normal(5, 6, 7), "u": normal(3, 0, 4)}
    same(*run_both(tiny_build, [scatter("ScatterElements", "y")], feed, {"i": places(5, 3, 0, 4)}))


def message_passing(constant):
    """A layer of a graph network: rows of the sources, added up at the targets, as PyTorch exports ``index_add``."""
    nodes = [
        helper.make_node("Gather", ["x", "from"], ["messages"], axis=0),
        helper.make_node("Unsqueeze", ["to", "one"], ["column"]),
        helper.make_node("Expand", ["column", "wide"], ["i"]),
        scatter("ScatterElements", "y", "zeros", "i", "messages", axis=0, reduction="add"),
    ]
    feed = {"x": normal(40, 24), "from": RNG.integers(0, 40, 200)}
    weights = {"one": np.array([1]), "wide": np.array([200, 24]), "zeros": np.zeros((40, 24), np.float32)}
    (weights if constant else feed)["to"] = places(40, 200)
    return nodes, feed, weights


@pytest.mark.parametrize("constant", [False, True])
def test_places_that_were_expanded_are_read_once_per_row(constant, tiny_build, tmp_path):
    nodes, feed, weights = message_passing(constant)
    same(*run_both(tiny_build, nodes, feed, weights))
    program = import_program(simplified(load_model(tmp_path / "model.onnx"), tiny.target()), tiny.target())
    (key,) = [key for key, text in program.programs.items() if "scatter {" in text]
    assert '\\"whole_rows\\": true' in program.programs[key].replace('\\\\"', '\\"')


def test_a_batch_of_expanded_places_keeps_its_rows_apart(tiny_build):
    nodes = [
        helper.make_node("Expand", ["i1", "wide"], ["i"]),
        scatter("ScatterElements", "y", "d", "i", "u", axis=1, reduction="add"),
    ]
    feed = {"d": normal(3, 9, 20), "i1": places(9, 3, 30, 1), "u": normal(3, 30, 20)}
    same(*run_both(tiny_build, nodes, feed, {"wide": np.array([3, 30, 20])}))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int64", "bool"])
def test_other_types(dtype, tiny_build):
    reduction = "none" if dtype == "bool" else "add"
    at = RNG.permutation(9)[:, None]
    feed = {"d": (normal(9, 5) * 9).astype(dtype), "i": at, "u": (normal(9, 5) * 9).astype(dtype)}
    model = model_of(
        [scatter("ScatterND", "y", reduction=reduction)],
        [value(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in feed.items()],
        ["y"],
        opset=18,
    )
    model.graph.output[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    wanted = feed["d"].copy()
    wanted[at[:, 0]] = feed["u"] if dtype == "bool" else wanted[at[:, 0]] + feed["u"]
    np.testing.assert_array_equal(tiny_build(model).run(None, feed)[0], wanted)


def test_a_gpu_has_no_kernel_scheduled_by_hand(tmp_path):
    nodes, feed, weights = message_passing(True)
    inputs = [value(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in feed.items()]
    path = written(model_of(nodes, inputs, ["y"], weights, opset=18), tmp_path)
    target = Target(kind="cuda", isa="sm_90", threads=1)
    program = import_program(simplified(load_model(path), target), target)
    assert not any("tune.scheduled" in text for text in program.programs.values())
