"""Normalisations and running sums."""

import re

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.autotune_tests.importer_tests.built import close, imported, run, run_ours
from tests.autotune_tests.importer_tests.onnx_cases import model_of, rewritten, value

RNG = np.random.default_rng(0)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_layer_norm_is_written_out_only_where_its_statistics_are_read(tmp_path):
    weights = {"scale": array(6), "bias": array(6)}
    for outputs, kept in ((["y"], 1), (["y", "mean"], 0)):
        nodes = [helper.make_node("LayerNormalization", ["x", "scale", "bias"], outputs)]
        counts = rewritten(model_of(nodes, [value("x", (4, 6))], outputs, weights), tmp_path, {"x": array(4, 6)})
        assert counts["LayerNormalization"] == kept


def test_batch_norm_with_computed_parameters(tmp_path):
    shapes = {"x": (2, 3, 4), "scale": (3,), "bias": (3,), "mean": (3,), "var": (3,)}
    nodes = [helper.make_node("BatchNormalization", list(shapes), ["y"])]
    feed = {name: np.abs(array(*shape)) for name, shape in shapes.items()}
    counts = rewritten(model_of(nodes, [value(name, s) for name, s in shapes.items()], ["y"]), tmp_path, feed)
    assert "BatchNormalization" not in counts


@pytest.mark.parametrize("order", [1, 2])
def test_lp_norm(tmp_path, order):
    nodes = [helper.make_node("LpNormalization", ["x"], ["y"], p=order, axis=1)]
    x = array(2, 3)
    assert "LpNormalization" not in rewritten(model_of(nodes, [value("x", (2, 3))], ["y"]), tmp_path, {"x": x})


def test_a_norm_that_is_another_type_is_computed_in_the_stash_type(tmp_path):
    nodes = [helper.make_node("LayerNormalization", ["x", "s"], ["y", "mean"], stash_type=1)]
    model = model_of(nodes, [value("x", (2, 4), TensorProto.FLOAT16)], [], {"s": np.ones(4, np.float16)})
    model.graph.output.extend([value("y", (2, 4), TensorProto.FLOAT16), value("mean", (2, 1))])
    assert rewritten(model, tmp_path, {"x": np.ones((2, 4), np.float16)})["Cast"] >= 2


@pytest.mark.parametrize("beta", [0.75, 0.5, 0.25, 1.0, 0.6])
@pytest.mark.parametrize("size", [3, 5])
def test_local_response_norm_raises_to_quarters_by_square_roots(tmp_path, beta, size):
    nodes = [helper.make_node("LRN", ["x"], ["y"], size=size, alpha=0.3, beta=beta, bias=1.5)]
    counts = rewritten(model_of(nodes, [value("x", (2, 6, 4, 3))], ["y"]), tmp_path, {"x": 3 * array(2, 6, 4, 3)})
    assert "LRN" not in counts
    assert ("Sqrt" in counts, "Pow" in counts) == (beta not in (1.0, 0.6), beta == 0.6)


def test_local_response_norm_over_an_even_number_of_channels_has_one_more_behind(tmp_path):
    """ONNX Runtime refuses even sizes."""
    node = helper.make_node("LRN", ["x"], ["y"], size=4, alpha=0.4, beta=0.6, bias=2.0)
    x = 3 * array(2, 7, 2, 3)
    padded = np.pad(x**2, [(0, 0), (1, 2), (0, 0), (0, 0)])
    sums = sum(padded[:, start : start + 7] for start in range(4))
    (ours,) = run_ours(model_of([node], [value("x", x.shape)], ["y"]), tmp_path, {"x": x})
    np.testing.assert_allclose(ours, x / (2 + 0.4 / 4 * sums) ** 0.6, 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [("LRN", {"size": 3, "alpha": 1e-3}), ("LRN", {"size": 3, "beta": 0.6}), ("LpPool", {"kernel_shape": [2, 2]})],
)
def test_squares_beyond_16_bits_are_computed_in_fp32(kind, attributes, tmp_path):
    x = (400 * array(1, 8, 2, 2)).astype(np.float16)
    model = model_of(
        [helper.make_node(kind, ["x"], ["y"], **attributes)], [value("x", x.shape, TensorProto.FLOAT16)], []
    )
    result_shape = (1, 8, 1, 1) if kind == "LpPool" else x.shape
    model.graph.output.append(value("y", result_shape, TensorProto.FLOAT16))
    wide = model_of([helper.make_node(kind, ["x"], ["y"], **attributes)], [value("x", x.shape)], ["y"])
    (theirs,) = run_ours(wide, tmp_path, {"x": x.astype(np.float32)})
    (ours,) = run_ours(model, tmp_path, {"x": x})
    assert np.isfinite(ours).all()
    np.testing.assert_allclose(ours.astype(np.float32), theirs, 1e-3)


def _group_norm(groups, channels, size=6, batch=1):
    """As PyTorch exports a group norm: an instance norm of groups of channels, then scale and shift of channels."""
    weights = {
        "groups": np.array([0, groups, -1]),
        "back": np.array([batch, channels, size, size]),
        "s": np.linspace(0.5, 1.5, groups).astype(np.float32),
        "b": np.linspace(-1, 1, groups).astype(np.float32),
        "scale": np.linspace(1, 2, channels).astype(np.float32).reshape(-1, 1, 1),
        "w": np.random.default_rng(3).standard_normal((channels, 4, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Reshape", ["c", "groups"], ["r"]),
        helper.make_node("InstanceNormalization", ["r", "s", "b"], ["i"], epsilon=1e-3),
        helper.make_node("Reshape", ["i", "back"], ["n"]),
        helper.make_node("Mul", ["n", "scale"], ["m"]),
        helper.make_node("Add", ["m", "c"], ["y"]),
    ]
    return model_of(nodes, [value("x", (batch, 4, size, size))], ["y"], weights)


@pytest.mark.parametrize(("groups", "batch"), [(1, 1), (4, 2), (32, 1)])
def test_a_group_norm_keeps_the_layout_of_its_signal(groups, batch, tmp_path):
    weights = {
        "groups": np.array([0, groups, -1]),
        "back": np.array([batch, 32, 40]),
        "s": np.linspace(0.5, 1.5, groups).astype(np.float32),
        "b": np.linspace(-1, 1, groups).astype(np.float32),
        "slope": np.array([0.2], np.float32),
        "w": np.random.default_rng(3).standard_normal((32, 4, 1)).astype(np.float32),
        "v": np.random.default_rng(4).standard_normal((32, 32, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("PRelu", ["c", "slope"], ["p"]),
        helper.make_node("Reshape", ["p", "groups"], ["r"]),
        helper.make_node("InstanceNormalization", ["r", "s", "b"], ["i"], epsilon=1e-3),
        helper.make_node("Reshape", ["i", "back"], ["n"]),
        helper.make_node("Conv", ["n", "v"], ["y"]),
    ]
    model = model_of(nodes, [value("x", (batch, 4, 40))], ["y"], weights)
    x = np.random.default_rng(0).standard_normal((batch, 4, 40)).astype(np.float32) + 3
    assert close(*run(model, tmp_path, {"x": x}))
    shapes = [task.shapes[0] for task in imported(model, tmp_path).tasks if task.name.startswith("unblock")]
    assert shapes in ([], [(batch, 2, 1, 38, 16)], [(batch, 4, 1, 38, 8)])  # the output alone leaves the blocks


@pytest.mark.parametrize(("groups", "channels", "batch"), [(1, 32, 1), (4, 32, 2), (32, 32, 1), (3, 12, 1)])
def test_a_group_norm_keeps_the_layout_of_its_image(groups, channels, batch, tmp_path):
    x = np.random.default_rng(0).standard_normal((batch, 4, 6, 6)).astype(np.float32) + 3
    model = _group_norm(groups, channels, batch=batch)
    assert close(*run(model, tmp_path, {"x": x}))
    names = [task.name for task in imported(model, tmp_path).tasks]
    assert not any("variance" in name for name in names)
    assert any(re.search(r"multiply\d*_sum", name) for name in names), "squares are summed as they are made"


@pytest.mark.parametrize("shape", [(2, 3, 7), (1, 3, 5, 6), (1, 2, 3, 4, 5)])
def test_instance_norms_of_any_rank(shape, tmp_path):
    weights = {"s": np.array([0.5, 1, 2][: shape[1]], np.float32), "b": np.array([1, 0, -1][: shape[1]], np.float32)}
    nodes = [helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"])]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 3 + 5
    assert close(*run(model_of(nodes, [value("x", shape)], ["y"], weights), tmp_path, {"x": x}))
