"""Cutting a model into coarse subgraphs: together they are the model, and only what is worth it stands apart."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from autotune.builder.branches import MOST_PIECES, coarse, cut_branches, multiply_adds, worth_cutting
from autotune.graph.partition import Phase, Subgraph, partition
from autotune.graph.placement import Link
from autotune.host.roofline import Roofline
from autotune.importer.kernel_passes import interface
from autotune.importer.load import load_model
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.program import simplify
from autotune.validation.verify import random_inputs
from tests.autotune_tests.graph_tests.dags import chains, random_edges
from tests.models import transformer
from tests.models.catalog import cached

BRANCHY = ("tiny_wide_deep", "tiny_siamese", "tiny_branches", "tiny_mt_dnn")


def session(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def read_by(branch):
    """Return the inputs that the subgraph reads, without its weights."""
    weights = {tensor.name for tensor in branch.model.graph.initializer}
    return [value.name for value in branch.model.graph.input if value.name not in weights]


def made_by(branch):
    return [value.name for value in branch.model.graph.output]


@pytest.mark.parametrize("name", [*BRANCHY, "tiny_cnn", "tiny_encoder", "tiny_unet"])
def test_the_subgraphs_together_compute_the_model(name):
    model = simplify(load_model(cached(name), {}))
    branches = cut_branches(model).parts
    inputs, outputs = interface(model)
    feed = random_inputs(inputs, 0)
    values = dict(feed)
    for branch in branches:
        onnx.checker.check_model(branch.model)
        computed = session(branch.model).run(made_by(branch), {name: values[name] for name in read_by(branch)})
        values.update(zip(made_by(branch), computed, strict=True))
    for spec, expected in zip(outputs, session(model).run(None, feed), strict=True):
        np.testing.assert_allclose(values[spec.name], expected, rtol=1e-4, atol=1e-6)
    nodes = [name for branch in branches for node in branch.model.graph.node for name in node.output]
    assert sorted(nodes) == sorted(name for node in model.graph.node for name in node.output)


def test_branches_worth_running_side_by_side_stand_apart():
    names = [branch.name for branch in cut_branches(simplify(load_model(cached("tiny_wide_deep"), {}))).parts]
    phases = {name.partition(".")[0] for name in names if "." in name}
    assert len(phases) == 1
    assert len([name for name in names if "." in name]) >= 2
    assert len(cut_branches(simplify(load_model(cached("tiny_cnn"), {}))).parts) == 1


def test_a_random_graph_is_cut_into_subgraphs_that_can_run_in_order():
    rng = np.random.default_rng(0)
    for _ in range(300):
        edges = random_edges(rng)
        work = rng.uniform(0.0, 1.0, len(edges)).tolist()
        subgraphs = coarse(partition(edges).phases, work)
        assert sorted(node for _, nodes in subgraphs for node in nodes) == list(range(len(edges)))
        assert len({name for name, _ in subgraphs}) == len(subgraphs)
        done = set()
        for _, nodes in subgraphs:
            for node in nodes:
                assert set(edges[node]) <= done | set(nodes)
            done |= set(nodes)


def test_small_branches_are_one_subgraph():
    edges = chains(4, 4, 1, 1)
    work = [1.0] * 8 + [1e-4, 1e-4, 1.0]
    subgraphs = dict(coarse(partition(edges).phases, work))
    assert [8, 9] in subgraphs.values()
    assert len(subgraphs) == 4


def test_branches_beside_which_there_is_nothing_stay_in_one_subgraph():
    phases = (Phase(((Subgraph("0.0", (0, 1)),), (Subgraph("0.1", (2,)),))), Phase(((Subgraph("1", (3,)),),)))
    assert coarse(phases, [50.0, 50.0, 0.1, 1.0]) == [("0", [0, 1, 2, 3])]


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [("tiny_lstm", "LSTM", 6 * 4 * 16 * (16 + 16)), ("tiny_mlp", "Gemm", 64 * 64)],
)
def test_arithmetic_of_a_node(name, kind, expected):
    model = load_model(cached(name), {})
    scope = Scope(model)
    counts = [multiply_adds(node, scope) for node in model.graph.node if node.op_type in (kind, "MatMul")]
    assert counts[0] == expected


@pytest.mark.parametrize("name", ["tiny_mlp", "tiny_wide_deep", "tiny_unet", "tiny_mt_dnn"])
def test_subgraphs_of_cut_operators_together_compute_the_model(name):
    model = simplify(load_model(cached(name), {}))
    cut = cut_branches(model, lambda node, scope: 0.5)
    assert cut.joins or name == "tiny_wide_deep"  # in whose branches nothing is cut
    inputs, outputs = interface(model)
    values = feed = random_inputs(inputs, 0)
    values = dict(feed)
    for branch in cut.parts:
        for missing in set(read_by(branch)) - set(values):
            values[missing] = np.concatenate([values[part].reshape(-1) for part in cut.joins[missing]])
        shapes = {
            value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            for value in branch.model.graph.input
        }
        arrays = {name_read: values[name_read].reshape(shapes[name_read]) for name_read in read_by(branch)}
        values.update(zip(made_by(branch), session(branch.model).run(made_by(branch), arrays), strict=True))
    for spec, expected in zip(outputs, session(model).run(None, feed), strict=True):
        np.testing.assert_allclose(values[spec.name], expected, rtol=1e-4, atol=1e-5)


def rooflines(*gflops):
    return [Roofline(speed, 1e3, 1e3, 1 << 30) for speed in gflops]


def shares(cpu, device, link):
    model = simplify(load_model(cached("tiny_unet"), {}))
    scope = Scope(model)
    own, other = rooflines(cpu, device)
    share = worth_cutting(own, [other], link)
    return [share(node, scope) for node in model.graph.node if node.op_type == "Conv"]


def test_an_operator_is_cut_by_the_speeds_of_the_two_lanes():
    cut_shares = [share for share in shares(1e-3, 3e-3, Link()) if share is not None]
    assert cut_shares
    assert cut_shares
    assert cut_shares == pytest.approx([0.25] * len(cut_shares))


def test_with_several_lanes_an_operator_is_cut_between_the_two_that_are_faster_together():
    model = simplify(load_model(cached("tiny_unet"), {}))
    scope = Scope(model)
    nodes = [node for node in model.graph.node if node.op_type == "Conv"]
    cores, *devices = rooflines(1e-3, 3e-3, 9e-3, 1e-3)
    cut_shares = [share for node in nodes if (share := worth_cutting(cores, devices, Link())(node, scope)) is not None]
    assert cut_shares
    assert cut_shares == pytest.approx(
        [0.25] * len(cut_shares)
    )  # of the first device; the second one computes the rest
    equal = {worth_cutting(None, rooflines(1e-3, 1e-3), Link())(node, scope) for node in nodes} - {None}
    assert equal == {0.5}
    assert {worth_cutting(None, rooflines(1e-3), Link())(node, scope) for node in nodes} == {None}


def test_no_operator_is_cut_where_copies_or_one_lane_cost_more():
    assert set(shares(1e-3, 1e-3, Link(1e3))) == {None}
    assert set(shares(1e-3, 1.0, Link())) == {None}


@pytest.mark.parametrize(("share", "most"), [(1.1, 1), (0.9, 5), (0.5, 9), (0.01, MOST_PIECES + 1)])
def test_a_model_beyond_a_devices_memory_is_cut_into_layers(share, most):
    model = transformer.mlp(0, layers=24, width=16)
    weights = sum(numpy_helper.to_array(weight).nbytes for weight in model.graph.initializer)
    parts = cut_branches(simplify(model), memory_bytes=int(share * weights)).parts
    assert (share > 1.0) == (len(parts) == 1)
    assert len(parts) <= most
    sizes = [sum(numpy_helper.to_array(weight).nbytes for weight in part.model.graph.initializer) for part in parts]
    assert sum(sizes) == weights
    outputs = [node.output[0] for part in parts for node in part.model.graph.node]
    assert len(outputs) == len(set(outputs))
