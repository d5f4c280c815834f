"""Chains of integer operators that overflow within one kernel, where a simplifier may take that for impossible."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

from tests.conformance.integer_edges.cases import SIGNED, Array, ends

CHAINS = {
    "less c": "s = Sub(x, c) y = Less(s, x)",
    "more c": "s = Add(x, c) y = Less(s, x)",
    "more z": "s = Add(x, z) y = Less(s, x)",
    "x - (x + c)": "s = Add(x, c) y = Sub(x, s)",
    "x - (c + z)": "s = Add(c, z) t = Sub(x, s) y = Sub(t, x)",
    "(x + c) + c": "s = Add(x, c) y = Add(s, c)",
    "(x * c) * c": "s = Mul(x, c) y = Mul(s, c)",
    "x * 0 - c": "s = Mul(x, zero) y = Sub(s, c)",
    "(x * c) / c": "s = Mul(x, c) y = Div(s, c)",
    "(x * c) % c": "s = Mul(x, c) y = Mod(s, c)",
    "(x * c + x) / c": "s = Mul(x, c) t = Add(s, x) y = Div(t, c)",
    "(x * c + x) % c": "s = Mul(x, c) t = Add(s, x) y = Mod(t, c)",
    "(x + x) / 2": "s = Add(x, x) y = Div(s, two)",
    "c - x < c": "s = Sub(c, x) y = Less(s, c)",
    "|x * c|": "s = Mul(x, c) y = Abs(s)",
    "x * x < 0": "s = Mul(x, x) y = Less(s, zero)",
    "-x < c": "s = Neg(x) y = Less(s, c)",
    "min(x, x + c)": "s = Add(x, c) y = Min(x, s)",
    "max(x, x + c)": "s = Add(x, c) y = Max(x, s)",
    "wide (x * c) / c": "s = Mul(x, c) t = Cast<to=7>(s) k = Cast<to=7>(c) y = Div(t, k)",
}
"""Name of a computation of inputs x and z and a constant c → its nodes, which make y."""

NO_EXTREMES = ("int16", "uint16")
"""Types of which ONNX Runtime has no maxima and minima."""


def chains_of(dtype: str) -> list[str]:
    """The names of the chains that exist for a type."""
    return [
        name
        for name, text in CHAINS.items()
        if (dtype in SIGNED or "Neg" not in text) and not (dtype in NO_EXTREMES and name.startswith("m"))
    ]


def constants_of(dtype: str) -> list[int]:
    """Constants that overflow soon, at once, and from the other side."""
    info = np.iinfo(dtype)
    return [100, min(int(info.max), 2**63 - 1) - 3, *([-7] if info.min else [])]


def model_of_chains(dtype: str) -> tuple[onnx.ModelProto, dict[str, Array], list[str]]:
    """All chains of one type with all constants in one model, its inputs, and the outputs' names.

    Each has inputs of its own, since what several chains compute would be a kernel of its own.
    """
    x = ends(dtype)
    nodes, values, labels = [], {"zero": np.array(0, dtype), "two": np.array(2, dtype)}, []
    for number, constant in enumerate(constants_of(dtype)):
        values[f"c{number}"] = np.array(constant, dtype)
        for at, name in enumerate(chains_of(dtype)):
            graph = parser.parse_graph(f"g (float x) => (float y) {{ {CHAINS[name]} }}")
            renamed = {"zero": "zero", "two": "two", "c": f"c{number}"}
            for node in graph.node:
                node.input[:] = [renamed.get(each, f"{each}/{number}/{at}") for each in node.input]
                node.output[:] = [f"{each}/{number}/{at}" for each in node.output]
                nodes.append(node)
            labels.append(f"{name}, c = {constant}")
    outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in nodes if node.output[0].startswith("y/")]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    read = sorted({name for node in nodes for name in node.input if name.startswith(("x/", "z/"))})
    inputs = [helper.make_tensor_value_info(name, kind, x.shape) for name in read]
    graph = helper.make_graph(
        nodes, "chains", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in values.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    inferred = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.output}
    for value in model.graph.output:
        value.CopyFrom(inferred[value.name])
    return model, {name: x if name.startswith("x/") else x[::-1].copy() for name in read}, labels
