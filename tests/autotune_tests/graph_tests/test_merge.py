"""Programs of subgraphs as one graph: calls, weights and slices are numbered on, values go by name."""

import numpy as np

from autotune.graph.arena import Slice
from autotune.graph.flat import Flat, FlatCall, Source, Use
from autotune.graph.merge import Part, device_flat, device_symbol, merge
from autotune.interface import TensorSpec


def use(place, index):
    return Use(Source(place, index), (4,), "float32")


def call(symbol, *arguments):
    return FlatCall(symbol, arguments, (4,), "float32")


ONE, TWO = np.zeros(4, np.float32), np.ones(4, np.float32)
FIRST = Part(
    "0",
    Flat((call("a", use("input", 0), use("weight", 0)),), (use("arena", 0),), {}, frozenset(), (ONE,)),
    ("x",),
    ("y",),
)
SECOND = Part(
    "1",
    Flat(
        (call("b", use("input", 0), use("weight", 0)), call("c", use("arena", 0), use("input", 1))),
        (use("arena", 1),),
        {0: Slice(1, 8)},
        frozenset({1}),
        (TWO,),
    ),
    ("y", "x"),
    ("z",),
)


def test_subgraphs_read_each_other_by_name():
    merged = merge([FIRST, SECOND], ["x"], ["z"])
    assert merged.calls == ((0,), (1, 2))
    a, b, c = merged.flat.calls
    assert a.arguments == (use("input", 0), use("weight", 0))
    assert b.arguments == (use("arena", 0), use("weight", 1))  # y, which the first call made
    assert c.arguments == (use("arena", 1), use("input", 0))  # the model's x
    assert merged.flat.outputs == (use("arena", 2),)
    assert merged.flat.slices == {1: Slice(2, 8)}
    assert merged.flat.removed == {2}
    assert [array is known for array, known in zip(merged.flat.weights, (ONE, TWO), strict=True)] == [True, True]


def test_a_device_has_a_call_for_every_output_and_runs_in_the_first():
    flat = device_flat("2.1", [TensorSpec("x", (4,), "float32")], [TensorSpec(n, (4,), "float32") for n in "yz"])
    assert [each.symbol for each in flat.calls] == [device_symbol("2.1", 0), device_symbol("2.1", 1)]
    assert [len(each.arguments) for each in flat.calls] == [1, 0]
    assert [each.source.index for each in flat.outputs] == [0, 1]
