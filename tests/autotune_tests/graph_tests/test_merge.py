"""Programs of subgraphs as one graph: calls, weights and slices are numbered on, values go by name."""

import numpy as np

from autotune.graph.arena import Slice
from autotune.graph.flat import Flat, FlatCall, Source, Use
from autotune.graph.lanes import cpu_lane
from autotune.graph.merge import COPY, Part, device_flat, device_symbol, merge, with_transfers
from autotune.graph.steps import Piece, arrange
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


SPECS = {name: TensorSpec(name, (4,), "float32") for name in "xyzw"}
GPU = "sim:0"


def device_part(name, inputs, outputs):
    flat = device_flat(name, [SPECS[n] for n in inputs], [SPECS[n] for n in outputs], GPU)
    return Part(name, flat, tuple(inputs), tuple(outputs), GPU)


def test_a_device_has_a_call_for_every_output_and_runs_in_the_last():
    flat = device_flat("2.1", [SPECS["x"]], [SPECS["y"], SPECS["z"]], GPU)
    assert [flat_call.symbol for flat_call in flat.calls] == [device_symbol("2.1", 1), device_symbol("2.1", 0)]
    assert [[use.source.place for use in flat_call.arguments] for flat_call in flat.calls] == [[], ["input", "arena"]]
    assert [output.source.index for output in flat.outputs] == [1, 0]
    assert {flat_call.memory for flat_call in flat.calls} == {GPU}


def test_a_value_is_copied_into_a_memory_once():
    parts = [FIRST, device_part("1", "y", "z"), device_part("2", "yz", "w")]
    merged = merge(parts, ["x"], ["w"])
    assert [(t.value, t.way) for t in merged.transfers] == [("y", ("", GPU)), ("w", (GPU, ""))]
    assert [call.symbol for call in merged.flat.calls] == ["a", COPY, "@1#0", "@2#0", COPY]
    assert [use.source.index for use in merged.flat.calls[3].arguments] == [1, 2]  # the copy of y, and z where it is
    assert merged.flat.outputs[0].source.index == 4


def test_the_models_inputs_and_outputs_lie_in_the_hosts_memory():
    merged = merge([device_part("0", "x", "y")], ["x"], ["y"])
    assert [(t.value, t.way) for t in merged.transfers] == [("x", ("", GPU)), ("y", (GPU, ""))]


def test_from_device_to_device_a_value_goes_through_the_host():
    other = device_flat("1", [SPECS["y"]], [SPECS["z"]], "sim:1")
    merged = merge([device_part("0", "x", "y"), Part("1", other, ("y",), ("z",), "sim:1")], ["x"], ["z"])
    ways = [t.way for t in merged.transfers if t.value == "y"]
    assert ways == [(GPU, ""), ("", "sim:1")]


def test_from_device_to_device_a_value_goes_past_the_host_where_there_is_such_a_way():
    other = Part("1", device_flat("1", [SPECS["y"]], [SPECS["z"]], "sim:1"), ("y",), ("z",), "sim:1")
    merged = merge([device_part("0", "x", "y"), other], ["x"], ["z"], direct=[(GPU, "sim:1")])
    assert [(t.value, t.way) for t in merged.transfers] == [
        ("x", ("", GPU)),
        ("y", (GPU, "sim:1")),
        ("z", ("sim:1", "")),
    ]
    back = merge([device_part("0", "x", "y"), other], ["x"], ["z"], direct=[("sim:1", GPU)])
    assert ("y", ("", "sim:1")) in [(t.value, t.way) for t in back.transfers]


def test_copies_come_before_what_waits_for_them_in_the_order_that_was_asked_for():
    merged = merge([FIRST, device_part("1", "x", "z"), device_part("2", "yz", "w")], ["x"], ["w"])
    pieces = [Piece(name, calls, lane) for name, calls, lane in zip("012", merged.calls, (0, 1, 1), strict=True)]
    engines = {("", GPU): 2, (GPU, ""): 3}
    named = [piece.name for piece in with_transfers(pieces, merged, engines, [])]
    assert named == ["0", "x to sim:0", "1", "y to sim:0", "2", "w to the host"]
    asked = [("y", ("", GPU)), ("x", ("", GPU))]
    assert [piece.name for piece in with_transfers(pieces, merged, engines, asked)][:3] == [
        "0",
        "y to sim:0",
        "x to sim:0",
    ]


def piece(name, memory=""):
    specs = [SPECS["x"]], [TensorSpec(f"y/{name}", (2,), "float32")]
    if memory:
        return Part(name, device_flat(name, *specs, memory), ("x",), (f"y/{name}",), memory)
    flat = Flat((FlatCall(f"k{name}", (use("input", 0),), (2,), "float32"),), (HALF,), {}, frozenset(), ())
    return Part(name, flat, ("x",), (f"y/{name}",))


CORES = (cpu_lane(0, 1), cpu_lane(1, 1))
HALF = Use(Source("arena", 0), (2,), "float32")
READER = Part("1", Flat((call("c", use("input", 0)),), (use("arena", 0),), {}, frozenset(), ()), ("y",), ("z",))
JOINS = {"y": ("y/0", "y/1")}


def test_parts_of_an_operator_are_written_where_they_belong_in_the_whole():
    merged = merge([piece("0"), piece("1"), READER], ["x"], ["z"], JOINS)
    assert merged.flat.slices == {0: Slice(2, 0), 1: Slice(2, 8)}
    assert merged.flat.removed == {2}
    assert merged.calls == ((0,), (1,), (2, 3))
    assert merged.flat.calls[3].arguments == (use("arena", 2),)
    steps = arrange({1: merged.flat}, [Piece("0", (0,), 0), Piece("1", (1,), 1), Piece("2", (2, 3), 0)], CORES)
    first, second, whole = steps.calls
    assert second.operands[-1].index == first.operands[-1].index + 8
    assert whole.operands[0].index == first.operands[-1].index
    assert steps.groups[2].waits == (1,)


def test_a_part_that_a_device_computes_is_copied_into_its_place():
    merged = merge([piece("0"), piece("1", GPU), READER], ["x"], ["z"], JOINS)
    copied = [(transfer.value, transfer.way) for transfer in merged.transfers]
    assert copied == [("x", ("", GPU)), ("y/1", (GPU, ""))]
    (join,) = merged.flat.removed
    parts = [use.source.index for use in merged.flat.calls[join].arguments]
    assert [merged.flat.slices[part] for part in parts] == [Slice(join, 0), Slice(join, 8)]
    assert merged.flat.calls[parts[1]].symbol == COPY
    assert join in merged.calls[2]
