"""Operators cut in two compute what they did whole, in parts that lie one behind the other."""

import numpy as np
import onnx
import onnxruntime
import pytest

from autotune.importer.kernel_passes import interface
from autotune.importer.load import load_model
from autotune.importer.onnx_model.operator_splits import UNIT, split_operators
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.program import simplify
from autotune.validation.verify import random_inputs
from tests.models import transformer
from tests.models.builder import Builder
from tests.models.catalog import cached


def outputs(model, feed):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)


def assert_equal(model, cut):
    onnx.checker.check_model(cut, full_check=True)
    feed = random_inputs(interface(model)[0], 0)
    for ours, theirs in zip(outputs(cut, feed), outputs(model, feed), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def halves(node, scope):
    return 0.5


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
@pytest.mark.parametrize(
    ("name", "fewest"), [("tiny_wide_deep", 8), ("tiny_mlp", 2), ("tiny_mt_dnn", 1), ("tiny_unet", 0)]
)
def test_a_model_of_cut_operators_computes_the_same(name, fewest, share):
    model = simplify(load_model(cached(name), {}))
    cut, joins = split_operators(model, lambda node, scope: share)
    assert len(joins) >= fewest
    assert_equal(model, cut)


def test_parts_follow_each_other_in_memory_and_begin_on_a_cache_line():
    for name in ("tiny_unet", "tiny_wide_deep", "tiny_mlp"):
        cut, joins = split_operators(simplify(load_model(cached(name), {})), halves)
        shapes = Scope(cut).shapes
        for join in joins:
            whole, (first, second) = shapes[join.value], (shapes[part] for part in join.parts)
            axis = next(index for index, extent in enumerate(whole) if extent > 1)
            assert first[axis] + second[axis] == whole[axis]
            assert set(whole[:axis]) <= {1}
            assert 4 * int(np.prod(first)) % 64 == 0


def made(build, shape):
    b = Builder("m")
    y = b.op("Softmax", build(b, b.input("x", shape)))  # what the model puts out is never cut
    return simplify(b.model(0, y=y))


def joined(model, share=halves):
    cut, joins = split_operators(model, share)
    assert_equal(model, cut)
    return cut, joins


def test_a_batch_is_cut_by_samples_and_weights_are_shared():
    model = made(lambda b, x: b.relu(b.conv(x, (8, 32), 3)), (3, 8, 6, 6))
    cut, (join,) = joined(model)
    assert {node.op_type for node in cut.graph.node} == {"Slice", "Conv", "Relu", "Concat", "Softmax"}
    assert Scope(cut).shapes[join.parts[0]][0] == 2
    weights = {node.input[1] for node in cut.graph.node if node.op_type == "Conv"}
    assert len(weights) == 1


def test_channels_are_cut_with_the_activation_behind_them():
    cut, (join,) = joined(made(lambda b, x: b.relu(b.conv(x, (8, 64), 3)), (1, 8, 6, 6)))
    kinds = [node.op_type for node in cut.graph.node]
    assert kinds.count("Conv") == kinds.count("Relu") == 2
    assert Scope(cut).shapes[join.parts[0]][1] == 32


def test_rows_of_a_product_are_cut_with_constants_behind_them():
    def build(b, x):
        y = b.op("Add", b.op("MatMul", x, b.weight(16, 24)), b.weight(24))
        return b.op("Mul", y, b.weight(64, 1))  # runs along the rows: each part has its own of it

    cut, (join,) = joined(made(build, (64, 16)))
    assert Scope(cut).shapes[join.parts[1]] == (32, 24)
    assert [node.op_type for node in cut.graph.node if node.op_type in ("Add", "Mul", "Concat")][-1] == "Concat"


def test_columns_are_cut_where_there_is_one_row():
    _, (join,) = joined(made(lambda b, x: b.dense(x, (16, 96)), (1, 16)), lambda node, scope: 0.3)
    assert join.parts[0].endswith("/0")


def test_what_cannot_be_cut_stays_whole():
    one_block = made(lambda b, x: b.conv(x, (8, UNIT), 3), (1, 8, 6, 6))
    grouped = made(lambda b, x: b.op("Conv", x, b.weight(32, 1, 3, 3), group=32), (1, 32, 6, 6))
    by_another = made(lambda b, x: b.op("MatMul", x, x), (64, 64))
    for model in (one_block, grouped, by_another):
        cut, joins = split_operators(model, halves)
        assert not joins
        assert cut.graph.node == model.graph.node


def test_a_value_that_others_read_too_is_joined_before_them():
    def build(b, x):
        y = b.conv(x, (8, 64), 3)
        return b.op("Add", b.relu(y), y)

    cut, (join,) = joined(made(build, (1, 8, 6, 6)))
    assert [node.op_type for node in cut.graph.node if join.value in node.input] == ["Relu", "Add"]


def test_only_what_is_asked_for_is_cut():
    model = simplify(transformer.mlp(0, layers=3, width=64))
    asked = []

    def first(node, scope):
        asked.append(node.op_type)
        return 0.5 if len(asked) == 1 else None

    _, joins = joined(model, first)
    assert len(joins) == 1
    assert len(asked) > 1
