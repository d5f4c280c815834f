"""Numbers that are computed from lengths: between which they lie, and which of them are handed on."""

import numpy as np
from onnx import TensorProto, helper

from autotune.importer.onnx_model.scope import Scope
from autotune.importer.operators.dynamic.lengths import Counts, counted, known_counts
from autotune.importer.rewriting.emit import Node
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

SIZES = Counts(np.array([0, 4]), np.array([30, 4]), np.array(["boxes", ""], object))


def made(kind, *counts, **attributes):
    """What is known of the result of ``kind``."""
    names = [f"x{index}" for index in range(len(counts))]
    node = helper.make_node(kind, names, ["y"], "node", **attributes)
    inputs = [value(name, count.least.shape, TensorProto.INT64) for name, count in zip(names, counts, strict=True)]
    model = model_of([node], inputs, ["y"])
    model.graph.output[0].type.Clear()  # which it would be made of
    return counted(Node(node, Scope(model)), dict(zip(names, counts, strict=True)))


def test_a_size_taken_out_and_put_together_again_keeps_its_name():
    one = made("Gather", SIZES, known_counts(np.array([0])), axis=0)
    both = made("Concat", known_counts(np.array([300])), one, axis=0)
    assert both.least.tolist() == [300, 0]
    assert both.most.tolist() == [300, 30]
    assert both.names.tolist() == ["", "boxes"]


def test_the_least_of_two_sizes_is_another_number():
    both = made("Concat", known_counts(np.array([20])), SIZES, axis=0)
    least = made("ReduceMin", both, keepdims=0)
    assert (int(least.least), int(least.most), str(least.names)) == (0, 4, "")


def test_a_difference_falls_with_what_is_taken_away():
    known = made("Sub", known_counts(np.array([40, 40])), SIZES)
    assert known.least.tolist() == [10, 36]
    assert known.most.tolist() == [40, 36]


def test_sizes_that_cannot_be_equal():
    equal = made("Equal", SIZES, known_counts(np.array([-1, 4])))
    assert equal.least.tolist() == equal.most.tolist() == [False, True]
    chosen = made("Where", equal, known_counts(np.array([1, 1])), SIZES)
    assert chosen.most.tolist() == [30, 1]
    assert chosen.names.tolist() == ["boxes", ""]


def test_nothing_is_said_of_what_may_fall():
    assert made("Mod", SIZES, known_counts(np.array([7, 7]))) is None
    assert made("Mul", SIZES, known_counts(np.array([-1, 1]))) is None


def test_nothing_is_said_of_numbers_that_a_computed_place_picks():
    table, place = known_counts(np.array([5, 1, 9])), Counts(np.array([0]), np.array([2]), np.array([""], object))
    assert made("Gather", table, place, axis=0) is None
