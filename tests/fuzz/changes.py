"""Small changes of a model, each of which leaves it valid: what exporters, optimisers and users do to graphs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

import autotune
from autotune.importer.program import simplify
from tests.fuzz.draft import FLOAT, Draft, all_names, rename
from tests.fuzz.grower import NoFitError

Change = Callable[[Draft], None]

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization", "Add", "Mul")
COMMUTATIVE = ("Add", "Mul", "Max", "Min", "And", "Or", "Equal")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Where")
SMOOTH = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "LeakyRelu", "Softplus", "HardSigmoid", "Elu")


# What reads a value.


def second_reader(d: Draft) -> None:
    """Another node reads a value, and its result is an output."""
    node = d.node(d.pick(SMOOTH), d.pick(d.values()))
    d.insert(d.position(node.input[0]), [node])
    d.output(node.output[0])


def shown(d: Draft) -> None:
    """A value between two nodes is an output too."""
    d.output(d.pick(d.values(lambda name: d.position(name) > 0)))


def shared_result(d: Draft) -> None:
    """One of two values of one shape is read where the other was."""
    name = d.pick(d.values(lambda name: d.position(name) > 0))
    others = d.values(lambda other: other != name and d.shape(other) == d.shape(name))
    other = d.pick(others)
    add = d.node(d.pick(("Add", "Mul", "Sub", "Max")), name, other)
    d.insert(max(d.position(name), d.position(other)), [add])
    d.output(add.output[0])


# What stands behind a value.


def scaled(d: Draft) -> None:
    """A constant along any axes is multiplied with, added to or subtracted from a result."""
    made = {name for number in d.nodes(*WEIGHTED) for name in d.graph.node[number].output}
    name = d.pick(d.values(lambda name: name in made) if d.chance(0.8) else d.values())
    shape = list(d.shape(name))
    first = int(d.rng.integers(0, len(shape) + 1))
    dims = [size if d.chance(0.5) else 1 for size in shape[first:]]
    if d.chance(0.15):
        dims = [1] * (len(shape) - first) + dims
    elif d.chance(0.2):
        dims = []
    constant = d.constant((0.5 + d.rng.random(dims)).astype(np.float32))
    kind = d.pick(("Mul", "Mul", "Mul", "Add", "Sub", "Div"))
    inputs = (name, constant) if kind == "Div" or d.chance(0.7) else (constant, name)
    node = d.node(kind, *inputs)
    if len(dims) > len(shape) or d.chance(0.2):
        d.insert(d.position(name), [node])
        d.output(node.output[0])
    else:
        d.splice(name, [node])
    if d.chance(0.25):
        d.output(name)


def pair(d: Draft) -> None:
    """Two nodes that undo each other, or one that does nothing."""
    name = d.pick(d.values())
    d.splice(name, d.pick(PAIRS)(d, name))


def _identity(d: Draft, name: str) -> list[NodeProto]:
    return [d.node("Identity", name)]


def _transposes(d: Draft, name: str) -> list[NodeProto]:
    if not d.shape(name):
        raise NoFitError
    order = [int(axis) for axis in d.rng.permutation(len(d.shape(name)))]
    there = d.node("Transpose", name, perm=order)
    return [there, d.node("Transpose", there.output[0], perm=[int(axis) for axis in np.argsort(order)])]


def _casts(d: Draft, name: str) -> list[NodeProto]:
    wide = d.node("Cast", name, to=TensorProto.DOUBLE)
    inner = [d.node("Abs", wide.output[0])] if d.chance(0.3) else []
    return [wide, *inner, d.node("Cast", [wide, *inner][-1].output[0], to=FLOAT)]


def _reshapes(d: Draft, name: str) -> list[NodeProto]:
    shape = d.shape(name)
    flat = d.node("Reshape", name, d.constant(np.array([-1], np.int64)))
    return [flat, d.node("Reshape", flat.output[0], d.constant(np.array(shape, np.int64)))]


def _unsqueezed(d: Draft, name: str) -> list[NodeProto]:
    axis = int(d.rng.integers(len(d.shape(name)) + 1))
    if d.opset < 13:
        there = d.node("Unsqueeze", name, axes=[axis])
        return [there, d.node("Squeeze", there.output[0], axes=[axis])]
    axes = d.constant(np.array([axis], np.int64))
    there = d.node("Unsqueeze", name, axes)
    return [there, d.node("Squeeze", there.output[0], axes)]


def _parts(d: Draft, name: str) -> list[NodeProto]:
    shape = d.shape(name)
    axis = d.pick([axis for axis, size in enumerate(shape) if size % 2 == 0])
    split = d.node("Split", name, outputs=2, axis=axis, **({"num_outputs": 2} if d.opset >= 18 else {}))
    return [split, d.node("Concat", *split.output, axis=axis)]


def _negations(d: Draft, name: str) -> list[NodeProto]:
    there = d.node("Neg", name)
    return [there, d.node("Neg", there.output[0])]


def _empty_clip(d: Draft, name: str) -> list[NodeProto]:
    if d.opset < 11:
        raise NoFitError
    return [d.node("Clip", name, *d.pick(((), ("",), ("", ""))))]


def _sliced(d: Draft, name: str) -> list[NodeProto]:
    if d.opset < 10:
        raise NoFitError
    axis = int(d.rng.integers(max(1, len(d.shape(name)))))
    bounds = (0, d.pick((1 << 40, d.shape(name)[axis] if d.shape(name) else 1)), axis - d.pick((0, len(d.shape(name)))))
    return [d.node("Slice", name, *(d.constant(np.array([each], np.int64)) for each in bounds))]


PAIRS = (_identity, _transposes, _casts, _reshapes, _unsqueezed, _parts, _negations, _empty_clip, _sliced)


# Nodes that are nearly equal.


def twins(d: Draft) -> None:
    """A node stands there twice, at times with another number in an attribute or with an optional input moved."""
    number = d.pick([each for each in d.nodes() if len(d.graph.node[each].output) == 1])
    node = d.graph.node[number]
    name = d.fresh("twin")
    twin = NodeProto.FromString(node.SerializeToString())
    twin.output[0] = twin.name = name
    numbers = [each for each in twin.attribute if each.type in (onnx.AttributeProto.INT, onnx.AttributeProto.FLOAT)]
    if numbers and d.chance(0.5):
        attribute = d.pick(numbers)
        attribute.i, attribute.f = (attribute.i + 1, 0.0) if attribute.i else (attribute.i, 2 * attribute.f)
    if len(twin.input) > 2 and "" in twin.input and d.chance(0.7):
        order = [twin.input[0], *(twin.input[int(each)] for each in 1 + d.rng.permutation(len(twin.input) - 1))]
        del twin.input[:]
        twin.input.extend(order)
    d.insert(number + 1, [twin])
    if d.dtype(node.output[0]) == FLOAT and d.chance(0.5):
        both = d.node("Sub", node.output[0], name)
        d.insert(number + 2, [both])
        name = both.output[0]
    d.output(name, d.dtype(node.output[0]))


def two_clips(d: Draft) -> None:
    """A value is clipped at one number from below and from above: the same inputs but for an empty one."""
    if d.opset < 11:
        raise NoFitError
    name = d.pick(d.values())
    bound = d.constant(np.float32(d.rng.normal()))
    nodes = [d.node("Clip", name, bound), d.node("Clip", name, "", bound)]
    d.insert(d.position(name), nodes)
    for node in nodes:
        d.output(node.output[0])


def emptied(d: Draft) -> None:
    """An optional input is empty, or empty ones are named behind the last."""
    number = d.pick(d.nodes())
    node = d.graph.node[number]
    schema = onnx.defs.get_schema(node.op_type, d.opset, "")
    optional = [
        k for k, each in enumerate(schema.inputs) if each.option == onnx.defs.OpSchema.FormalParameterOption.Optional
    ]
    given = [position for position in optional if position < len(node.input) and node.input[position]]
    more = [position for position in optional if position >= len(node.input)]
    if given and d.chance(0.5):
        node.input[d.pick(given)] = ""
    elif more:
        node.input.extend([""] * (d.pick(more) + 1 - len(node.input)))
    else:
        raise NoFitError


def swapped(d: Draft) -> None:
    """The operands of a commutative node are the other way round."""
    node = d.graph.node[d.pick([n for n in d.nodes(*COMMUTATIVE) if len(d.graph.node[n].input) == 2])]
    first, second = node.input
    node.input[0], node.input[1] = second, first


def counted_from_the_end(d: Draft) -> None:
    """An axis is named by its distance from the last."""
    nodes = [d.graph.node[number] for number in d.nodes()]
    found = [(node, a) for node in nodes for a in node.attribute if a.name == "axis" and a.i >= 0 and node.input]
    node, axis = d.pick([each for each in found if d.is_fixed(each[0].input[0])])
    axis.i -= len(d.shape(node.input[0]))


# Constants.


def other_rank(d: Draft) -> None:
    """A constant operand has more axes of one, or fewer."""
    fixed = d.constants
    nodes = [d.graph.node[number] for number in d.nodes(*BINARY)]
    node, position = d.pick([(n, p) for n in nodes for p, name in enumerate(n.input) if name in fixed])
    shape = list(fixed[node.input[position]].dims)
    most = len(d.shape(node.output[0])) if node.output[0] in d.types else len(shape)
    if shape[:1] == [1] and d.chance(0.5):
        shape = shape[1:]
    elif len(shape) < most:
        shape = [1] * int(d.rng.integers(1, most - len(shape) + 1)) + shape
    else:
        raise NoFitError
    values = numpy_helper.to_array(fixed[node.input[position]]).reshape(shape)
    node.input[position] = d.constant(values)


def moved_constant(d: Draft) -> None:
    """A constant comes from a node: Constant, Identity, Cast, Transpose, or ConstantOfShape; or is an input."""
    tensor = d.pick(list(d.graph.initializer))
    name, array = tensor.name, numpy_helper.to_array(tensor)
    kinds = ["Constant", "Identity", "input", "overridable"]
    kinds += ["Cast", *(["Transpose"] if array.ndim else [])] if tensor.data_type == FLOAT else []
    kind = d.pick(kinds)
    if kind == "overridable":
        d.graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
        return
    if kind == "input" and (d.feed is None or tensor.data_type != FLOAT):
        kind = "Identity"
    d.graph.initializer.remove(tensor)
    if kind == "input":
        d.graph.input.append(helper.make_tensor_value_info(name, FLOAT, array.shape))
        assert d.feed is not None
        d.feed[name] = array
    elif kind == "Constant":
        d.insert(0, [helper.make_node(kind, [], [name], name=name, value=numpy_helper.from_array(array, name))])
    elif kind == "Identity":
        d.insert(0, [helper.make_node(kind, [d.constant(array)], [name], name=name)])
    elif kind == "Cast":
        d.insert(0, [helper.make_node(kind, [d.constant(array.astype(np.float64))], [name], name=name, to=FLOAT)])
    else:
        order = [int(axis) for axis in d.rng.permutation(array.ndim)]
        turned = d.constant(array.transpose(np.argsort(order)))
        d.insert(0, [helper.make_node(kind, [turned], [name], name=name, perm=order)])


def one_constant(d: Draft) -> None:
    """Two constants of one shape and type are one."""
    tensors = list(d.graph.initializer)
    first = d.pick(tensors)
    alike = [t for t in tensors if t is not first and t.dims == first.dims and t.data_type == first.data_type]
    second = d.pick(alike)
    name = second.name
    d.graph.initializer.remove(second)
    for node in d.graph.node:
        for position, each in enumerate(node.input):
            if each == name:
                node.input[position] = first.name


def in_double(d: Draft) -> None:
    """A node is computed in float64, its float inputs and outputs cast."""
    kinds = (*SMOOTH, *BINARY[:6], "MatMul", "Softmax", "ReduceMean", "Resize", "Exp", "Sqrt", "Concat", "Transpose")
    number = d.pick(d.nodes(*kinds))
    node = d.graph.node[number]
    before = []
    for position, name in enumerate(node.input):
        if name and d.dtype(name) == FLOAT and not (node.op_type == "Resize" and position):
            before.append(d.node("Cast", name, to=TensorProto.DOUBLE))
            node.input[position] = before[-1].output[0]
    result = d.fresh("wide")
    after = helper.make_node("Cast", [result], [node.output[0]], name=result, to=FLOAT)
    node.output[0] = result
    d.insert(number + 1, [after])
    d.insert(number, before)


# Names and versions.


def collided(d: Draft) -> None:
    """A value has a name that the importer would give to one of its own."""
    taken = all_names(d.graph)
    if d.chance(0.5):
        try:
            made = all_names(simplify(d.model).graph)
        except Exception as error:  # a fault of the import shows where the graph itself is examined
            raise NoFitError from error
        invented = sorted(made - taken)
    else:
        stem = d.pick(sorted(taken - {""}))
        invented = [f"{stem}/{suffix}" for suffix in _suffixes()]
    new = d.pick([name for name in invented if name not in taken])
    interface = {value.name for value in (*d.graph.input, *d.graph.output)}
    old = d.pick(sorted(name for name in taken - {""} if name not in interface or d.chance(0.3)))
    rename(d.graph, old, new)
    for node in d.graph.node:
        node.name = new if node.name == old else node.name
    if d.feed is not None and old in d.feed:
        d.feed[new] = d.feed.pop(old)


@cache
def _suffixes() -> tuple[str, ...]:
    """What the importer's sources put behind a slash to name a new value."""
    sources = Path(autotune.__file__).parent.joinpath("importer").rglob("*.py")
    return tuple(sorted({name for path in sources for name in re.findall(r"\}/([a-z_]+)\"", path.read_text())}))


def other_opset(d: Draft) -> None:
    """Another opset that has the same operators, or that ONNX's converter reaches."""
    versions = [version for version in range(7, 24) if version != d.opset]
    version = d.pick(versions)
    entry = next(each for each in d.model.opset_import if each.domain in ("", "ai.onnx"))
    try:
        same = all(
            onnx.defs.get_schema(node.op_type, version, "").since_version
            == onnx.defs.get_schema(node.op_type, entry.version, "").since_version
            for node in d.graph.node
            if not node.domain
        )
        if same:
            entry.version = version
        else:
            d.model.CopyFrom(onnx.version_converter.convert_version(d.model, version))
    except Exception as error:  # the converter raises whatever it likes
        raise NoFitError from error
    d.graph = d.model.graph


def dead(d: Draft) -> None:
    """A node and a constant that nothing reads."""
    name = d.pick(d.values())
    d.insert(d.position(name), [d.node("Add", name, d.constant(np.ones(1, np.float32)))])
