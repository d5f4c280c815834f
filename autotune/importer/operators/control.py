"""If, Loop and Scan without control flow: what is static is laid out flat.

An If whose condition is known becomes its branch; one whose condition is computed becomes both branches and a choice
between their results. A Loop or Scan with a known trip count becomes that many copies of its body; a Loop that may
stop early keeps the state of the moment it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import onnx
from onnx import GraphProto, numpy_helper

from autotune.importer.conversion.emit import Emit, Node
from autotune.importer.conversion.registry import rewrites
from autotune.importer.onnx_model.graph_walk import rename

MOST_NODES = 20_000
"""Nodes that one loop may become: a bound on import and compile time. Heuristic, not measured."""


@rewrites("If")
def branch(node: Node, e: Emit) -> list[str] | None:
    """The branch taken, or a choice between the results of both."""
    condition = node.array(0)
    if condition is not None:
        return _inlined(e, node.attr("then_branch" if condition.reshape(-1)[0] else "else_branch"), [], "taken")
    if not node.scope.settled:
        raise node.refused("its condition is not known yet")
    sides = [node.attr("then_branch"), node.attr("else_branch")]
    for body in sides:
        if any(value.type.WhichOneof("value") != "tensor_type" for value in body.output):
            raise node.refused("its branches make sequences or optional values")
    shapes = [[_dims(value) for value in body.output] for body in sides]
    if shapes[0] != shapes[1]:
        raise node.refused("its branches make tensors of different or unknown shapes and its condition is computed")
    then, other = (_inlined(e, body, [], label) for body, label in zip(sides, ("then", "else"), strict=True))
    condition_name = e.reshape(node.input(0))
    return [e.op("Where", condition_name, a, b) for a, b in zip(then, other, strict=True)]


def _dims(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    dims = value.type.tensor_type.shape.dim
    known = value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims)
    return tuple(dim.dim_value for dim in dims) if known else None


@rewrites("Loop")
def loop(node: Node, e: Emit) -> list[str] | None:
    """Copies of the body."""
    body: GraphProto = node.attr("body")
    start = node.array(1) if node.input(1) else np.array(True)
    if start is None and not node.scope.settled:
        raise node.refused("its condition is not known yet")
    if start is not None and not start.reshape(-1)[0]:
        trips = 0
    elif not node.input(0):
        raise node.refused("it has no trip count; give it a constant one")
    else:
        trips = int(node.constant(0, "trip count").reshape(-1)[0])
    _check_size(node, trips, body)
    states = [str(name) for name in node.proto.input[2:]]
    kept = len(states)
    scans: list[list[str]] = [[] for _ in range(len(body.output) - 1 - kept)]
    running = "" if start is not None else node.input(1)  # "" once and as long as nothing can stop it
    for trip in range(trips):
        condition = running or e.const(np.array(True))
        made = _inlined(e, body, [e.const(np.array(trip, np.int64)), condition, *states], f"trip{trip}")
        if running and scans:
            raise node.refused("how often it runs is computed and its scan outputs have no static shape")
        news = made[1 : 1 + kept]
        if running:
            news = [e.op("Where", running, new, old) for new, old in zip(news, states, strict=True)]
        states = news
        for collected, value in zip(scans, made[1 + kept :], strict=True):
            collected.append(value)
        stop = _always(body)
        if not stop:
            running = e.op("And", running, made[0]) if running else made[0]
    if scans and not trips:
        raise node.refused("it never runs, so its scan outputs have no shape")
    return [*states, *(e.concat([e.unsqueeze(value, 0) for value in values], 0) for values in scans)]


def _check_size(node: Node, trips: int, body: GraphProto) -> None:
    """Refuse a loop that is too long to be laid out flat."""
    if trips * len(body.node) > MOST_NODES:
        raise node.refused(f"{trips} trips of {len(body.node)} nodes are more than {MOST_NODES} when laid out flat")


def _always(body: GraphProto) -> bool:
    """Whether the body hands its condition on, or makes it a constant True."""
    name, producers = body.output[0].name, {out: node for node in body.node for out in node.output}
    constants = {tensor.name: tensor for tensor in body.initializer}
    while name in producers and producers[name].op_type == "Identity":
        name = producers[name].input[0]
    if name == body.input[1].name:
        return True
    if name in producers and producers[name].op_type == "Constant" and producers[name].attribute[0].name == "value":
        return bool(numpy_helper.to_array(producers[name].attribute[0].t).reshape(-1)[0])
    return name in constants and bool(numpy_helper.to_array(constants[name]).reshape(-1)[0])


@rewrites("Scan")
def scan(node: Node, e: Emit) -> list[str] | None:
    """Copies of the body, one per element of the scanned inputs."""
    body: GraphProto = node.attr("body")
    if node.scope.opset < 9:
        raise node.refused("opset 8 defines it with a batch axis; export the model for opset 9 or newer")
    count = int(node.attr("num_scan_inputs"))
    kept = len(node.proto.input) - count
    scanned = [str(name) for name in node.proto.input[kept:]]
    axes = node.attr("scan_input_axes") or [0] * count
    backwards = node.attr("scan_input_directions") or [0] * count
    shapes = [node.shape(kept + index) for index in range(count)]
    trips = shapes[0][axes[0]]
    _check_size(node, trips, body)
    states = [str(name) for name in node.proto.input[:kept]]
    results: list[list[str]] = [[] for _ in range(len(body.output) - kept)]
    for trip in range(trips):
        elements = [
            e.op("Gather", name, e.const(np.array(trips - 1 - trip if back else trip, np.int64)), axis=axis)
            for name, axis, back in zip(scanned, axes, backwards, strict=True)
        ]
        made = _inlined(e, body, [*states, *elements], f"trip{trip}")
        states = made[:kept]
        for collected, value in zip(results, made[kept:], strict=True):
            collected.append(value)
    if not trips:
        raise node.refused("it scans nothing, so its outputs have no shape")
    out_axes = node.attr("scan_output_axes") or [0] * len(results)
    out_back = node.attr("scan_output_directions") or [0] * len(results)
    joined = [
        e.concat([e.unsqueeze(value, axis) for value in (reversed(values) if back else values)], axis)
        for values, axis, back in zip(results, out_axes, out_back, strict=True)
    ]
    return [*states, *joined]


def _inlined(e: Emit, body: GraphProto, inputs: Sequence[str], label: str) -> list[str]:
    """Copy ``body`` in, every name of its own made new; the names of its outputs."""
    stem = f"{e.fresh()}/{label}"
    names = dict(zip((value.name for value in body.input), inputs, strict=False))
    for tensor in body.initializer:
        names[tensor.name] = f"{stem}/{tensor.name}"
        e.scope.add(names[tensor.name], numpy_helper.to_array(tensor))
    for node in body.node:
        for name in node.output:
            if name:
                names[name] = f"{stem}/{name}"
    for node in body.node:
        copy = deepcopy(node)
        rename(copy, names)
        copy.name = f"{stem}/{node.name or node.output[0]}"
        e.nodes.append(copy)
    return [names.get(value.name, value.name) for value in body.output]
