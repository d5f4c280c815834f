"""Nodes of a model moved into the branch of an If, the body of a Loop, or a function."""

from __future__ import annotations

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, ValueInfoProto, helper

from tests.fuzz.draft import FLOAT, Draft, names_read
from tests.fuzz.grower import NoFitError

DOMAIN = "fuzz.local"
MOST = 4
"""Nodes that are moved together."""

FUNCTIONS_SINCE = 9
"""IR version that knows functions with default attributes."""


def in_if(d: Draft) -> None:
    """Some nodes are both branches of an If; the other branch may negate what they make."""
    first, nodes, made = _run(d)
    graph = helper.make_graph(nodes, "then", [], [_value(d, name) for name in made])
    other = _renamed(d, nodes)
    ends = [f"{name}/else" for name in made]
    if d.chance(0.5) and all(d.dtype(name) == FLOAT for name in made):
        flipped = [f"{end}/flipped" for end in ends]
        other += [helper.make_node("Neg", [end], [flip], name=flip) for end, flip in zip(ends, flipped, strict=True)]
        ends = flipped
    values = [ValueInfoProto(name=end, type=d.types[name]) for end, name in zip(ends, made, strict=True)]
    before = []
    if d.chance(0.6):
        condition = d.constant(np.array(d.chance(0.5)))
    else:
        source = d.pick(
            [value.name for value in d.graph.input if d.dtype(value.name) == FLOAT and d.is_fixed(value.name)]
        )
        total = d.node("ReduceMax", source, keepdims=0)
        above = d.node("Greater", total.output[0], d.constant(np.float32(d.pick((0.1, 100.0)))))
        before, condition = [total, above], above.output[0]
    outputs = [d.fresh("joined") for _ in made]
    name = d.fresh("if")
    node = helper.make_node(
        "If",
        [condition],
        outputs,
        name=name,
        then_branch=graph,
        else_branch=helper.make_graph(other, "else", [], values),
    )
    _replace(d, first, len(nodes), [*before, node], dict(zip(made, outputs, strict=True)))


def in_loop(d: Draft) -> None:
    """Some nodes are the body of a Loop of a few turns, which adds up what they make or not, and may stop early."""
    first, nodes, made = _run(d)
    turn, going, kept = d.fresh("turn"), d.fresh("going"), d.fresh("kept")
    states = [d.fresh("state") for _ in made]
    moved = len(nodes)
    if d.chance(0.4):
        last = d.constant(np.array(d.pick((0, 1)), np.int64))
        nodes.append(helper.make_node("Less", [turn, last], [kept], name=kept))
    else:
        nodes.append(helper.make_node("Identity", [going], [kept], name=kept))
    ends = made
    if d.chance(0.5) and all(d.dtype(name) == FLOAT for name in made):
        ends = [d.fresh("sum") for _ in made]
        sums = zip(states, made, ends, strict=True)
        nodes += [helper.make_node("Add", [state, name], [end], name=end) for state, name, end in sums]
    values = [ValueInfoProto(name=end, type=d.types[name]) for end, name in zip(ends, made, strict=True)]
    body = helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info(turn, TensorProto.INT64, []),
            helper.make_tensor_value_info(going, TensorProto.BOOL, []),
            *(ValueInfoProto(name=state, type=d.types[name]) for state, name in zip(states, made, strict=True)),
        ],
        [helper.make_tensor_value_info(kept, TensorProto.BOOL, []), *values],
    )
    starts = []
    for name in made:
        dtype = helper.tensor_dtype_to_np_dtype(d.dtype(name))
        starts.append(d.constant(np.zeros(d.shape(name), dtype)))
    count = d.constant(np.array(d.pick((1, 2, 3)), np.int64))
    outputs = [d.fresh("after") for _ in made]
    inputs = [count, d.constant(np.array(True)) if d.chance(0.5) else "", *starts]
    node = helper.make_node("Loop", inputs, outputs, name=d.fresh("loop"), body=body)
    _replace(d, first, moved, [node], dict(zip(made, outputs, strict=True)))


def in_function(d: Draft) -> None:
    """Some nodes are a function; constants move into it, and a number becomes an attribute with a default."""
    first, nodes, made = _run(d)
    inside = {name for node in nodes for name in node.output}
    read = list(dict.fromkeys(name for node in nodes for name in names_read(node) if name and name not in inside))
    fixed = d.constants
    moved = [name for name in read if name in fixed and d.chance(0.5)]
    constants = [helper.make_node("Constant", [], [name], value=fixed[name]) for name in moved]
    outer = [name for name in read if name not in moved]
    defaults: list[AttributeProto] = []
    numbers = [
        attribute
        for node in nodes
        for attribute in node.attribute
        if attribute.type in (AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.INTS)
    ]
    if numbers and d.chance(0.6):
        attribute = d.pick(numbers)
        default = AttributeProto()
        default.CopyFrom(attribute)
        default.name = f"own_{attribute.name}"
        defaults.append(default)
        kind = attribute.type
        name = attribute.name
        attribute.Clear()
        attribute.name, attribute.ref_attr_name, attribute.type = name, default.name, kind
    kind = d.fresh("Part")
    function = helper.make_function(
        DOMAIN, kind, outer, made, [*constants, *nodes], [helper.make_opsetid("", d.opset)], attribute_protos=defaults
    )
    given = {default.name: helper.get_attribute_value(default) for default in defaults if d.chance(0.4)}
    outputs = [d.fresh("called") for _ in made]
    node = helper.make_node(kind, outer, outputs, name=d.fresh("call"), domain=DOMAIN, **given)
    d.model.functions.append(function)
    d.model.ir_version = max(d.model.ir_version, FUNCTIONS_SINCE)
    if all(each.domain != DOMAIN for each in d.model.opset_import):
        d.model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    _replace(d, first, len(nodes), [node], dict(zip(made, outputs, strict=True)))


def _run(d: Draft) -> tuple[int, list[NodeProto], list[str]]:
    """The position of some nodes in a row, copies of them, and what others read of theirs."""
    nodes = d.graph.node
    first = int(d.rng.integers(len(nodes))) if len(nodes) else 0
    count = int(d.rng.integers(1, MOST + 1))
    chosen = [NodeProto.FromString(node.SerializeToString()) for node in nodes[first : first + count]]
    if not chosen or any(node.domain for node in chosen):
        raise NoFitError
    rest = [*nodes[:first], *nodes[first + count :]]
    wanted = {value.name for value in d.graph.output} | {name for node in rest for name in names_read(node)}
    made = [name for node in chosen for name in node.output if name and name in wanted]
    if not made or not all(d.is_fixed(name) for name in made):
        raise NoFitError
    return first, chosen, made


def _value(d: Draft, name: str) -> ValueInfoProto:
    return ValueInfoProto(name=name, type=d.types[name])


def _renamed(d: Draft, nodes: list[NodeProto]) -> list[NodeProto]:
    """Copies that make other names."""
    inside = {name for node in nodes for name in node.output if name}
    copies = []
    for node in nodes:
        copy = NodeProto.FromString(node.SerializeToString())
        if any(attribute.type == AttributeProto.GRAPH for attribute in copy.attribute):
            raise NoFitError
        copy.name = f"{copy.name}/else"
        for field in (copy.input, copy.output):
            for position, name in enumerate(field):
                if name in inside:
                    field[position] = f"{name}/else"
        copies.append(copy)
    return copies


def _replace(d: Draft, first: int, count: int, nodes: list[NodeProto], outputs: dict[str, str]) -> None:
    """Put ``nodes`` where ``count`` nodes stood, and their outputs where those were read; outputs keep their names."""
    kept = list(d.graph.node)
    interface = {value.name for value in d.graph.output}
    ends = [
        helper.make_node("Identity", [new], [old], name=f"{new}/same")
        for old, new in outputs.items()
        if old in interface
    ]
    for node in kept[first + count :]:
        for position, name in enumerate(node.input):
            node.input[position] = outputs.get(name, name)
        if outputs.keys() & set(names_read(node)):  # an inner graph reads it
            raise NoFitError
    del d.graph.node[:]
    d.graph.node.extend([*kept[:first], *nodes, *ends, *kept[first + count :]])
