"""Small ONNX models for the importer's tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autotune.importer.load import load_model
from autotune.importer.program import simplify
from tests.models.reference import reference_session

FLOAT = TensorProto.FLOAT


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model whose outputs are fp32 of unknown shape."""
    graph = helper.make_graph(
        nodes,
        "small",
        inputs,
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(values, name) for name, values in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def value(name: str, shape: Sequence[int | str | None] | None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def conv_model(shape: Sequence[int | str | None] | None = (1, 3, 8, 8), channels: int = 3) -> onnx.ModelProto:
    """Conv 3×3 with a ReLU."""
    weight = np.random.default_rng(0).standard_normal((4, channels, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="first_conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    return model_of(nodes, [value("x", shape)], ["y"], {"w": weight})


def written(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def recurrent(
    kind,
    direction,
    hidden,
    batch=2,
    steps=5,
    inputs=6,
    states=False,
    lengths=(),
    kept_lengths=(),
    peepholes=False,
    **attributes,
):
    """Return a model of one recurrent node with all its outputs, and a feed.

    With ``lengths``, one for each sequence, these are an input, and the outputs are the states and the last one. With
    ``kept_lengths`` they are a constant.
    """
    rng = np.random.default_rng(0)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    count = 2 if direction == "bidirectional" else 1
    weights = {
        "w": rng.standard_normal((count, gates * hidden, inputs)) / np.sqrt(inputs),
        "r": rng.standard_normal((count, gates * hidden, hidden)) / np.sqrt(hidden),
        "b": rng.standard_normal((count, 2 * gates * hidden)) / 4,
    }
    names = ["x", "w", "r", "b", "lengths" if lengths or kept_lengths else ""]
    if states:
        names += ["h0", "c0"] if kind == "LSTM" else ["h0"]
        for name in names[5:]:
            weights[name] = rng.standard_normal((count, batch, hidden)) / 2
    if peepholes:
        names += [""] * (7 - len(names)) + ["p"]
        weights["p"] = rng.standard_normal((count, 3 * hidden)) / 2
    outputs = ["y", "yh", "yc"] if kind == "LSTM" and not lengths else ["y", "yh"]
    node = helper.make_node(kind, names, outputs, "cell", hidden_size=hidden, direction=direction, **attributes)
    constants = {name: array.astype(np.float32) for name, array in weights.items()}
    infos = [value("x", (steps, batch, inputs))]
    feed = {"x": rng.standard_normal((steps, batch, inputs)).astype(np.float32)}
    if kept_lengths:
        constants["lengths"] = np.array(kept_lengths, np.int32)
    if lengths:
        infos.append(value("lengths", (batch,), TensorProto.INT32))
        feed["lengths"] = np.array(lengths, np.int32)
    return model_of([node], infos, outputs, constants), feed


def rewritten(model: onnx.ModelProto, folder: Path, feed: Mapping[str, np.ndarray]) -> Counter[str]:
    """Operators of the simplified model, after a check that ONNX Runtime computes the same with it."""
    plain = simplify(load_model(written(model, folder)))
    before, after = (reference_session(one).run(None, feed) for one in (model, plain))
    for expected, output in zip(before, after, strict=True):
        assert expected.dtype == output.dtype
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
    return Counter(node.op_type for node in plain.graph.node)


def quantised_recurrent(hidden, batch=2, steps=6, inputs=10, dtype=np.int8, zeros="middle", **more):
    """Return a model of one DynamicQuantizeLSTM, the same as an LSTM of the numbers its bytes stand for, and a feed.

    Args:
        zeros: ``middle`` of the type; ``any``, of lopsided weights; or ``gate``: scales for every column.
        more: as ``recurrent`` takes it.
    """
    plain, feed = recurrent("LSTM", more.pop("direction", "forward"), hidden, batch, steps, inputs, **more)
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in plain.graph.initializer}
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    quantised = {name: array for name, array in arrays.items() if name not in ("w", "r")}
    for name in ("w", "r"):
        weight = arrays[name].transpose(0, 2, 1) + (0.3 if zeros == "any" else 0)
        axes = 1 if zeros == "gate" else (1, 2)
        least, most = (np.minimum(weight.min(axes, keepdims=True), 0), np.maximum(weight.max(axes, keepdims=True), 0))
        if zeros == "any":
            scale = ((most - least) / 255).astype(np.float32)
            zero = np.rint(low - least / scale)
        else:
            scale = (np.maximum(most, -least) / 127).astype(np.float32)
            zero = np.full_like(scale, low + 128)
        levels = np.clip(np.rint(weight / scale) + zero, low, high).astype(dtype)
        shape = (len(weight), -1) if zeros == "gate" else (-1,)
        quantised |= {name: levels, f"{name}s": scale.reshape(shape), f"{name}z": zero.astype(dtype).reshape(shape)}
        arrays[name] = ((levels.astype(np.float32) - zero) * scale).transpose(0, 2, 1).astype(np.float32)
    (node,) = plain.graph.node
    names = [*node.input, *[""] * (8 - len(node.input)), "ws", "wz", "rs", "rz"]
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    cell = helper.make_node("DynamicQuantizeLSTM", names, node.output, "cell", domain="com.microsoft", **attributes)
    infos = [info for info in plain.graph.input if info.name in feed]
    ours = model_of([cell], infos, list(node.output), quantised, domains=["com.microsoft"])
    return ours, model_of([node], infos, list(node.output), arrays), feed
