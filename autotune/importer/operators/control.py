"""If, Loop and Scan without control flow: what is static is laid out flat.

An If whose condition is known becomes its branch; one whose condition is computed becomes both branches and a choice
between their results. A Loop or Scan with a known trip count becomes that many copies of its body; a Loop that may
stop early keeps the state of the moment it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.onnx_model.graph_walk import BODIED, RANDOM, rename
from autotune.importer.onnx_model.shapes import OWN_DOMAIN, STANDARD_DOMAINS, fixed_shape
from autotune.importer.rewriting.emit import INT64, Emit, Node
from autotune.importer.rewriting.folding import LARGEST
from autotune.importer.rewriting.registry import rewrites

MAKES_SEQUENCE = dict.fromkeys(
    ("SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceMap", "SplitToSequence"),
    "sequence_type",
)
"""Operators whose results are sequences, with what ONNX calls their type."""

MOST_NODES = 20_000
"""Nodes that one loop may become: a bound on import and compile time. Heuristic, not measured."""


@rewrites("If")
def branch(node: Node, e: Emit) -> list[str] | None:
    """The branch taken, or a choice between the results of both."""
    condition = node.array(0)
    if condition is not None:
        return inlined(e, node.attr("then_branch" if condition.reshape(-1)[0] else "else_branch"), [], "taken")
    if not node.scope.settled:
        raise node.refused("its condition is not known yet")
    sides = [node.attr("then_branch"), node.attr("else_branch")]
    kinds = [[_kind(body, value) for value in body.output] for body in sides]
    if kinds[0] != kinds[1] or not {*kinds[0]} <= {"tensor_type", "sequence_type"}:
        raise node.refused("its branches make optional values, or values of different kinds")
    then, other = (inlined(e, body, [], label) for body, label in zip(sides, ("then", "else"), strict=True))
    # Shapes are compared once the nodes are in the graph.
    return [e.op("Choose", node.input(0), *pair, domain=OWN_DOMAIN) for pair in zip(then, other, strict=True)]


def _kind(body: GraphProto, value: onnx.ValueInfoProto) -> str:
    """Return ONNX's name of an output's type: the declared one, else the one that its operator implies."""
    declared = value.type.WhichOneof("value")
    maker = next((node for node in body.node if value.name in node.output), None)
    if declared or maker is None:
        return str(declared or "tensor_type")
    if maker.op_type == "If":
        inner = next(attribute.g for attribute in maker.attribute if attribute.name == "then_branch")
        return _kind(inner, inner.output[[*maker.output].index(value.name)])
    return "optional_type" if maker.op_type == "Optional" else MAKES_SEQUENCE.get(maker.op_type, "tensor_type")


@rewrites("Loop")
def loop(node: Node, e: Emit) -> list[str] | None:
    """Copies of the body."""
    body: GraphProto = node.attr("body")
    trips = known_trips(node)
    if trips is None and not node.scope.settled:
        raise node.refused("its condition is not known yet")
    computed = trips is None
    trips = _most_trips(node) if trips is None else trips
    kept = len(node.proto.input[2:])
    scanned = body.output[1 + kept :]
    if scanned and not trips:
        return [*node.proto.input[2:], *(e.const(_nothing(node, value)) for value in scanned)]
    if scanned and computed and trips > 1 - bool(_running(node)):
        raise node.refused("how often it runs is computed, and another operator reads what it collects")
    return _laid_out(node, e, trips, computed and not _always(body))[0]


def _running(node: Node) -> str:
    """The input that says whether a loop begins, if that is computed; else ""."""
    return node.input(1) if node.input(1) and node.array(1) is None else ""


def known_trips(node: Node) -> int | None:
    """Return how often a loop runs; None if its condition depends on the model's inputs."""
    body: GraphProto = node.attr("body")
    start = node.array(1) if node.input(1) else np.array(True)
    if start is None:
        return None
    if not start.reshape(-1)[0]:
        return 0
    if node.input(0) and _always(body):
        return _most_trips(node)
    control = _control(node, body)
    if control is None or (node.input(0) and node.array(0) is None):
        return None
    evaluator, states = control
    names = [body.input[0].name, body.input[1].name]
    most = min(_most_trips(node) if node.input(0) else MOST_NODES, MOST_NODES // len(body.node) + 1)
    for trip in range(most):
        feed = dict(zip(names, (np.array(trip, np.int64), np.array(True)), strict=True)) | states
        try:
            with third_party(), np.errstate(all="ignore"):
                results: Any = evaluator.run(None, {name: feed[name] for name in evaluator.input_names})
        except ThirdPartyError:  # the reference lacks some operators and versions
            return None
        if not np.reshape(results[0], -1)[0]:
            return trip + 1
        states = dict(zip(states, results[1:], strict=True))
    return most


def _most_trips(node: Node) -> int:
    if not node.input(0):
        raise node.refused("it has no trip count; give it a constant one")
    return int(node.constant(0, "trip count").reshape(-1)[0])


def _control(node: Node, body: GraphProto) -> tuple[ReferenceEvaluator, dict[str, NDArray[Any]]] | None:
    """Return the part of ``body`` that computes its condition, and the first values of the states that it reads.

    None if anything of it depends on the model's inputs.
    """
    states = {value.name: place for place, value in enumerate(body.input[2:])}
    wanted, needed, carried = [body.output[0].name], set[str](), list[str]()
    producers = {name: proto for proto in body.node for name in proto.output}
    while wanted:
        name = wanted.pop()
        if name in needed:
            continue
        needed.add(name)
        if name in states:
            carried.append(name)
            wanted.append(body.output[1 + states[name]].name)
        elif name in producers:
            if producers[name].op_type in (*RANDOM, *BODIED) or producers[name].domain not in STANDARD_DOMAINS:
                return None
            wanted += [source for source in producers[name].input if source]
    own = {value.name for value in body.input[:2]} | {tensor.name for tensor in body.initializer} | {*producers}
    begun, outer = dict[str, NDArray[Any]](), dict[str, NDArray[Any]]()
    for name in needed - own:
        array = node.array(2 + states[name]) if name in states else node.scope.array(name)
        if array is None or array.size > LARGEST:
            return None
        (begun if name in states else outer)[name] = array
    begun = {name: begun[name] for name in carried}
    graph = helper.make_graph(
        [proto for proto in body.node if needed & {*proto.output}],
        "control",
        [helper.make_empty_tensor_value_info(name) for name in (*(v.name for v in body.input[:2]), *carried)],
        [
            helper.make_empty_tensor_value_info(name)
            for name in (body.output[0].name, *(body.output[1 + states[name]].name for name in carried))
        ],
        [*body.initializer, *(numpy_helper.from_array(array, name) for name, array in outer.items())],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.scope.opset)])
    try:
        with third_party():
            return ReferenceEvaluator(model), begun
    except ThirdPartyError:
        return None


def loop_until(node: Node, e: Emit, _wanted: int | None = None) -> tuple[list[str], list[int], str]:
    """A loop that may stop early and collects: as often as it runs at most, and how often it does run."""
    trips = _most_trips(node)
    results, running = _laid_out(node, e, trips, not _always(node.attr("body")))
    counted = [e.cast(flag, INT64) if flag else e.const(np.int64(1)) for flag in running]
    length = counted[0]
    for count in counted[1:]:
        length = e.op("Add", length, count)
    kept = len(node.proto.input[2:])
    return results, [-1] * kept + [0] * (len(results) - kept), e.reshape(length)


def _laid_out(node: Node, e: Emit, trips: int, stops: bool) -> tuple[list[str], list[str]]:
    """The last states and what is collected of ``trips`` copies of the body, and of each whether it runs.

    Args:
        stops: whether the body may stop the loop before.
    """
    body: GraphProto = node.attr("body")
    check_size(node, trips, body)
    running = _running(node)  # "" as long as nothing can stop it
    states = [str(name) for name in node.proto.input[2:]]
    kept, ran = len(states), list[str]()
    scans: list[list[str]] = [[] for _ in range(len(body.output) - 1 - kept)]
    for trip in range(trips):
        condition = running or e.const(np.array(True))
        outputs = inlined(e, body, [e.const(np.array(trip, np.int64)), condition, *states], f"trip{trip}")
        news = outputs[1 : 1 + kept]
        if running:
            news = [e.op("Where", running, new, old) for new, old in zip(news, states, strict=True)]
        states = news
        ran.append(running)
        for collected, value in zip(scans, outputs[1 + kept :], strict=True):
            collected.append(value)
        if stops:
            going = e.reshape(outputs[0])
            running = e.op("And", running, going) if running else going
    return [*states, *(e.concat([e.unsqueeze(value, 0) for value in values], 0) for values in scans)], ran


def _nothing(node: Node, value: onnx.ValueInfoProto) -> NDArray[Any]:
    """Return the collected values of a loop that never runs."""
    dims = fixed_shape(value)
    if dims is None or not value.type.tensor_type.elem_type:
        raise node.refused("it never runs, so its scan outputs have no shape")
    return np.zeros((0, *dims), onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))


def check_size(node: Node, trips: int, body: GraphProto) -> None:
    """Refuse a loop that is too long to be laid out flat."""
    if trips * len(body.node) > MOST_NODES:
        raise node.refused(f"{trips} trips of {len(body.node)} nodes are more than {MOST_NODES} when laid out flat")


def _always(body: GraphProto) -> bool:
    """Return whether the body hands its condition on, or makes it a constant True."""
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
    count = int(node.attr("num_scan_inputs"))
    if node.scope.opset < 9:
        return _batched_scan(node, e, count)
    names = [str(name) for name in node.proto.input]
    kept = len(names) - count
    axes = node.attr("scan_input_axes") or [0] * count
    elements = list(zip(names[kept:], axes, strict=True))
    trips = node.shape(kept)[axes[0]]
    states, results = _scanned(node, e, names[:kept], elements, trips)
    out_axes = node.attr("scan_output_axes") or [0] * len(results)
    out_back = node.attr("scan_output_directions") or [0] * len(results)
    joined = [
        e.concat([e.unsqueeze(value, axis) for value in (reversed(values) if back else values)], axis)
        for values, axis, back in zip(results, out_axes, out_back, strict=True)
    ]
    return [*states, *joined]


def _scanned(
    node: Node, e: Emit, states: list[str], scanned: Sequence[tuple[str, int]], trips: int
) -> tuple[list[str], list[list[str]]]:
    """The last states, and per scan output its elements in the order in which they are made.

    Args:
        scanned: names of scanned inputs, and the axis along which each is scanned.
    """
    body: GraphProto = node.attr("body")
    check_size(node, trips, body)
    if not trips:
        raise node.refused("it scans nothing, so its outputs have no shape")
    backwards = node.attr("scan_input_directions") or node.attr("directions") or [0] * len(scanned)
    results: list[list[str]] = [[] for _ in range(len(body.output) - len(states))]
    for trip in range(trips):
        elements = [
            e.op("Gather", name, e.const(np.array(trips - 1 - trip if back else trip, np.int64)), axis=axis)
            for (name, axis), back in zip(scanned, backwards, strict=True)
        ]
        outputs = inlined(e, body, [*states, *elements], f"trip{trip}")
        states = outputs[: len(states)]
        for collected, value in zip(results, outputs[len(states) :], strict=True):
            collected.append(value)
    return states, results


def _batched_scan(node: Node, e: Emit, count: int) -> list[str]:
    """As operator set 8 has it: every state and scanned input has a batch in front; all are scanned along axis 1."""
    if node.input(0):
        raise node.refused("sequences of several lengths; export the model for opset 9 or newer")
    names = [str(name) for name in node.proto.input[1:]]
    kept = len(names) - count
    batch, trips = node.shape(1 + kept)[:2]
    whole: list[list[str]] = [[] for _ in node.proto.output]
    for member in range(batch):
        own = [e.op("Gather", name, e.const(np.array(member, np.int64)), axis=0) for name in names]
        states, results = _scanned(node, e, own[:kept], [(name, 0) for name in own[kept:]], trips)
        joined = [_stacked(e, values) for values in results]
        for collected, value in zip(whole, [*states, *joined], strict=True):
            collected.append(value)
    return [_stacked(e, values) for values in whole]


def _stacked(e: Emit, values: list[str]) -> str:
    """``values`` along a new first axis, in the words of operator sets before 13."""
    return e.concat([e.op("Unsqueeze", value, axes=[0]) for value in values], 0)


def inlined(e: Emit, body: GraphProto, inputs: Sequence[str], label: str) -> list[str]:
    """Copy ``body`` in, every name of its own made new; the names of its outputs."""
    stem = f"{e.fresh()}/{label}"
    names = dict(zip((value.name for value in body.input), inputs, strict=False))
    for tensor in body.initializer:
        names[tensor.name] = e.scope.names.new(f"{stem}/{tensor.name}")
        e.scope.add(names[tensor.name], numpy_helper.to_array(tensor))
    for node in body.node:
        for name in node.output:
            if name:
                names[name] = e.scope.names.new(f"{stem}/{name}")
    for node in body.node:
        copy = deepcopy(node)
        rename(copy, names)
        copy.name = f"{stem}/{node.name or node.output[0]}"
        e.nodes.append(copy)
    return [names.get(value.name, value.name) for value in body.output]
