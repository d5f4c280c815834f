"""A loop's state has a shape where every turn keeps it, and none where a turn may change it."""

import numpy as np
import onnx
import pytest
from onnx import parser

from autotune.host.machine import host_target
from autotune.importer.guarded_import import cut_model
from autotune.importer.onnx_model.segments import declare_states
from tests.models.reference import reference_session

MODEL = """<ir_version: 8, opset_import: ["": 16]>
loops (float[3, 3] x, float[2, 3] z) => ({outputs})
<float[3, 3] w = {{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}}, float limit = {{3.0}}, bool yes = {{1}}> {{
    {made} = Loop("", yes, {states}) <body = {body}>
    {after}
}}"""

ONE = "s = MatMul(s0, w)\n new = Add(s, x)"
GROWING = "s = Concat<axis = 0>(s0, z)\n new = Add(s, limit)"
TURNED = "s = Transpose(s0)\n new = Add(s, limit)"


def turn(body, taken="float[n, m] s0", left="float[p, q] new"):
    """A body of a loop that goes on while ``new`` is small."""
    end = "most = ReduceMax<keepdims = 0>(new)\n go = Less(most, limit)"
    return f"turn (int64 i, bool on, {taken}) => (bool go, {left}) {{ {body}\n {end} }}"


def model(body, after, outputs="y", states="x"):
    """A loop until a value is large; ``after`` reads its states as ``a`` and ``b``."""
    heads = ", ".join(f"float[] {name}" for name in outputs.split())
    letters = ", ".join("ab"[: len(states.split())])
    text = MODEL.format(outputs=heads, made=letters, states=", ".join(states.split()), body=body, after=after)
    return onnx.shape_inference.infer_shapes(parser.parse_model(text))


TWO = {"taken": "float[n, m] s0, float[k, l] r0", "left": "float[p, q] new, float[u, v] r"}
APART = turn(GROWING + "\n r = Relu(r0)", **TWO)
FOLLOWING = turn(GROWING + "\n r = Relu(s0)", **TWO)
BEHIND = "y = MatMul(a, w)\n v = Concat<axis = 0>(b, z)"
SECOND = f'k = Relu(a)\n l = Loop("", yes, k) <body = {turn(ONE)}>\n y = Relu(l)'

SQUARE = (3, 3)
CASES = {
    "kept": (model(turn(ONE), "y = MatMul(a, w)"), {"a": SQUARE, "y": SQUARE}),
    "growing": (model(turn(GROWING), "y = MatMul(a, w)"), {}),
    "one of two": (model(APART, BEHIND, "y v", "x x"), {"b": SQUARE, "v": (5, 3)}),
    "one follows the other": (model(FOLLOWING, "y = Relu(a)\n v = Relu(b)", "y v", "x x"), {}),
    "turned square": (model(turn(TURNED), "y = Relu(a)"), {"a": SQUARE, "y": SQUARE}),
    "turned": (model(turn(TURNED), "y = Relu(a)", states="z"), {}),
    "a loop behind a loop": (model(turn(ONE), SECOND), dict.fromkeys("akly", SQUARE)),
    "an output itself": (model(turn(ONE), "y = Relu(a)", "y a"), {"a": SQUARE, "y": SQUARE}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_shape_that_is_declared_is_the_one_that_is_made(case):
    original, expected = CASES[case]
    declared = onnx.ModelProto()
    declared.CopyFrom(original)
    declare_states(declared)
    shapes = {}
    for value in (*declared.graph.value_info, *declared.graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            shapes[value.name] = tuple(dim.dim_value for dim in kind.shape.dim)
    assert shapes == expected
    asked = [name for name in expected if name not in {value.name for value in original.graph.output}]
    original.graph.output.extend(onnx.ValueInfoProto(name=name) for name in asked)
    session = reference_session(original)
    names = [value.name for value in session.get_outputs()]
    feed = {"x": np.full(SQUARE, 0.1, np.float32), "z": np.full((2, 3), 0.1, np.float32)}
    results = session.run(None, {value.name: feed[value.name] for value in session.get_inputs()})
    outputs = dict(zip(names, results, strict=True))
    assert {name: outputs[name].shape for name in expected} == expected


def test_what_reads_a_state_is_tuned(tmp_path):
    onnx.save(CASES["kept"][0], tmp_path / "loop.onnx")
    _, segments = cut_model(tmp_path / "loop.onnx", {}, host_target(1))
    assert [(segment.is_fallback, segment.operators) for segment in segments] == [
        (True, ("Loop",)),
        (False, ("MatMul",)),
    ]
