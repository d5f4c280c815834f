"""Wrong rewrites of a model, one for each kind of fault; each returns whether it applied."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.shape_inference import infer_shapes

Rewrite = Callable[[ModelProto], bool]
Kinds = tuple[str, ...]
FAULTS: dict[str, Rewrite] = {}
"""What is wrong → the rewrite."""


def fault(about: str) -> Callable[[Rewrite], Rewrite]:
    """Register a rewrite."""

    def register(rewrite: Rewrite) -> Rewrite:
        FAULTS[about] = rewrite
        return rewrite

    return register


def _constants(graph: GraphProto) -> dict[str, TensorProto]:
    return {tensor.name: tensor for tensor in graph.initializer}


def _attribute(node: NodeProto, name: str) -> AttributeProto | None:
    return next((each for each in node.attribute if each.name == name), None)


def _drop_attribute(node: NodeProto, *names: str) -> bool:
    kept = [each for each in node.attribute if each.name not in names]
    dropped = len(kept) < len(node.attribute)
    del node.attribute[:]
    node.attribute.extend(kept)
    return dropped


def _chains(graph: GraphProto, first: Kinds, second: Kinds) -> Iterator[tuple[NodeProto, NodeProto, int]]:
    """(producer, reader, position of its result in the reader)."""
    made = {name: node for node in graph.node if node.op_type in first for name in node.output}
    for node in graph.node:
        if node.op_type in second:
            for position, name in enumerate(node.input):
                if name in made:
                    yield made[name], node, position


def _readers(graph: GraphProto, name: str) -> int:
    return sum(each == name for node in graph.node for each in node.input) + sum(v.name == name for v in graph.output)


def _put(graph: GraphProto, array: NDArray[Any], name: str) -> str:
    graph.initializer.append(numpy_helper.from_array(np.array(array, order="C"), name))
    return name


def _forward(graph: GraphProto, node: NodeProto, source: str) -> None:
    """Make ``node`` an Identity of ``source``."""
    node.op_type, node.domain = "Identity", ""
    del node.input[:]
    del node.attribute[:]
    node.input.append(source)


@fault("a scale of as many numbers as channels is folded into a convolution, whatever its axis")
def conv_scale(model: ModelProto) -> bool:
    graph, fixed = model.graph, _constants(model.graph)
    for conv, mul, position in _chains(graph, ("Conv",), ("Mul",)):
        scale = fixed.get(mul.input[1 - position])
        weight = fixed.get(conv.input[1])
        if scale is None or weight is None or math.prod(scale.dims) != weight.dims[0] or len(scale.dims) > 4:
            continue
        if _readers(graph, conv.output[0]) > 1 or (len(conv.input) > 2 and conv.input[2] not in fixed):
            continue
        numbers = numpy_helper.to_array(scale).reshape(-1, *[1] * (len(weight.dims) - 1))
        conv.input[1] = _put(graph, numpy_helper.to_array(weight) * numbers, f"{conv.output[0]}?w")
        if len(conv.input) > 2:
            bias = numpy_helper.to_array(fixed[conv.input[2]]) * numbers.reshape(-1)
            conv.input[2] = _put(graph, bias, f"{conv.output[0]}?b")
        _forward(graph, mul, conv.output[0])
        return True
    return False


@fault("a scale after a product is folded into its weight although the product is read twice")
def second_reader(model: ModelProto) -> bool:
    graph, fixed = model.graph, _constants(model.graph)
    for product, mul, position in _chains(graph, ("Gemm", "MatMul", "Conv"), ("Mul",)):
        scale, weight = fixed.get(mul.input[1 - position]), fixed.get(product.input[1])
        if scale is None or weight is None or math.prod(scale.dims) != 1 or weight.data_type != TensorProto.FLOAT:
            continue
        if _readers(graph, product.output[0]) < 2 or len(product.input) > 2:
            continue
        array = numpy_helper.to_array(weight) * numpy_helper.to_array(scale).reshape(())
        product.input[1] = _put(graph, array.astype(np.float32), f"{product.output[0]}?w")
        _forward(graph, mul, product.output[0])
        return True
    return False


@fault("a scale is multiplied into a weight that another layer shares")
def shared_weight(model: ModelProto) -> bool:
    graph, fixed = model.graph, _constants(model.graph)
    for product, mul, position in _chains(graph, ("Gemm", "MatMul", "Conv"), ("Mul",)):
        scale, weight = fixed.get(mul.input[1 - position]), fixed.get(product.input[1])
        if scale is None or weight is None or math.prod(scale.dims) != 1 or weight.data_type != TensorProto.FLOAT:
            continue
        if _readers(graph, weight.name) < 2 or len(product.input) > 2 or _readers(graph, product.output[0]) > 1:
            continue
        array = numpy_helper.to_array(weight) * numpy_helper.to_array(scale).reshape(())
        weight.CopyFrom(numpy_helper.from_array(array.astype(np.float32), weight.name))
        _forward(graph, mul, product.output[0])
        return True
    return False


@fault("nodes are merged that differ only in the position of an empty input")
def empty_inputs(model: ModelProto) -> bool:
    return _merge(model, lambda node: [name for name in node.input if name], True)


@fault("nodes are merged that differ in an attribute")
def other_attributes(model: ModelProto) -> bool:
    return _merge(model, lambda node: list(node.input), False)


def _merge(model: ModelProto, key: Callable[[NodeProto], list[str]], attributes: bool) -> bool:
    seen: dict[str, NodeProto] = {}
    applied = False
    for node in model.graph.node:
        if len(node.output) != 1 or not node.input:
            continue
        kept = sorted(each.SerializeToString() for each in node.attribute) if attributes else ()
        text = f"{node.op_type} {node.domain} {key(node)} {kept}"
        twin = seen.setdefault(text, node)
        if twin is not node and (list(twin.input) != list(node.input) or twin.attribute != node.attribute):
            _forward(model.graph, node, twin.output[0])
            applied = True
    return applied


@fault("a bias behind a product loses the axes that it has more than the product")
def bias_rank(model: ModelProto) -> bool:
    fixed = _constants(model.graph)
    for _, add, position in _chains(model.graph, ("MatMul", "Gemm", "Conv"), ("Add", "Mul")):
        bias = fixed.get(add.input[1 - position])
        if bias is not None and len(bias.dims) > 1 and bias.dims[0] == 1:
            array = numpy_helper.to_array(bias).squeeze()
            if array.shape != tuple(bias.dims):
                add.input[1 - position] = _put(model.graph, array, f"{add.output[0]}?b")
                return True
    return False


@fault("a constant operand is taken for one per channel")
def per_channel(model: ModelProto) -> bool:
    fixed = _constants(model.graph)
    for node in model.graph.node:
        if node.op_type in ("Mul", "Add", "PRelu") and node.input[-1] in fixed:
            array = numpy_helper.to_array(fixed[node.input[-1]])
            if array.ndim >= 1 and array.size > 1 and array.shape[-1] == array.size:
                turned = array.reshape(-1, 1, 1)
                node.input[len(node.input) - 1] = _put(model.graph, turned, f"{node.output[0]}?c")
                return True
    return False


@fault("the operands of a difference or quotient are swapped where the first is constant")
def first_constant(model: ModelProto) -> bool:
    fixed = _constants(model.graph)
    for node in model.graph.node:
        if node.op_type in ("Sub", "Div") and node.input[0] in fixed:
            node.input[0], node.input[1] = node.input[1], node.input[0]
            return True
    return False


@fault("a constant that the importer names takes the place of a value of the model")
def collision(model: ModelProto) -> bool:
    """Every computed value's derived name is taken for a constant of the importer's."""
    names = {name for node in model.graph.node for name in node.output} | {v.name for v in model.graph.input}
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            stem, slash, _ = name.rpartition("/")
            if slash and stem in names:
                graph = model.graph
                node.input[position] = _put(graph, np.zeros(1, np.float32), f"{name}?invented")
                return True
    return False


@fault("a function's attribute without a value takes the operator's default, not the function's")
def default_attributes(model: ModelProto) -> bool:
    applied = False
    for function in model.functions:
        given = {each.name for node in model.graph.node if node.op_type == function.name for each in node.attribute}
        lost = {each.name for each in function.attribute_proto} - given
        for node in function.node:
            kept = [each for each in node.attribute if each.ref_attr_name not in lost]
            applied |= len(kept) < len(node.attribute)
            del node.attribute[:]
            node.attribute.extend(kept)
    return applied


@fault("an If with a computed condition takes its first branch")
def first_branch(model: ModelProto) -> bool:
    fixed = _constants(model.graph)
    for node in model.graph.node:
        if node.op_type == "If" and node.input[0] not in fixed:
            node.input[0] = _put(model.graph, np.array(True), f"{node.output[0]}?true")
            return True
    return False


@fault("an If with a constant condition takes its other branch")
def other_branch(model: ModelProto) -> bool:
    fixed = _constants(model.graph)
    for node in model.graph.node:
        if node.op_type == "If" and node.input[0] in fixed:
            value = numpy_helper.to_array(fixed[node.input[0]])
            node.input[0] = _put(model.graph, np.logical_not(value), f"{node.output[0]}?not")
            return True
    return False


@fault("a Loop takes one turn more")
def loop_count(model: ModelProto) -> bool:
    fixed = _constants(model.graph)
    for node in model.graph.node:
        if node.op_type == "Loop" and node.input[0] in fixed:
            count = numpy_helper.to_array(fixed[node.input[0]]) + 1
            node.input[0] = _put(model.graph, count.astype(np.int64), f"{node.output[0]}?count")
            return True
    return False


@fault("a Loop's condition is not asked")
def loop_condition(model: ModelProto) -> bool:
    for node in model.graph.node:
        body = _attribute(node, "body") if node.op_type == "Loop" else None
        if body is not None:
            last = body.g.output[0].name
            for inner in body.g.node:
                if last in inner.output and inner.op_type != "Identity":
                    inner.CopyFrom(helper.make_node("Identity", [body.g.input[1].name], [last]))
                    return True
    return False


@fault("an activation behind a value that is an output as well takes its place")
def output_lost(model: ModelProto) -> bool:
    outputs = {value.name for value in model.graph.output}
    kinds = ("Conv", "Gemm", "MatMul", "Add", "BatchNormalization")
    for made, act, _ in _chains(model.graph, kinds, ("Relu", "Sigmoid", "Tanh", "Neg", "Abs")):
        if made.output[0] in outputs:
            name = made.output[0]
            made.output[0] = f"{name}?inner"
            act.input[0] = made.output[0]
            model.graph.node.append(helper.make_node("Identity", [act.output[0]], [name]))
            return True
    return False


@fault("two transposes in a row are joined in the wrong order")
def transposes(model: ModelProto) -> bool:
    for first, second, _ in _chains(model.graph, ("Transpose",), ("Transpose",)):
        one, two = _attribute(first, "perm"), _attribute(second, "perm")
        if one and two:
            joined = [two.ints[axis] for axis in one.ints]
            if joined != [one.ints[axis] for axis in two.ints]:
                second.input[0] = first.input[0]
                two.ints[:] = joined
                return True
    return False


@fault("casts that are no inverse of each other are dropped")
def casts(model: ModelProto) -> bool:
    exact = (TensorProto.FLOAT, TensorProto.DOUBLE)
    for first, second, _ in _chains(model.graph, ("Cast",), ("Cast",)):
        kind, last = _attribute(first, "to"), _attribute(second, "to")
        if kind and last and kind.i not in exact and last.i in exact:
            second.input[0] = first.input[0]
            return True
    return False


@fault("a lower bound of Clip is taken for the upper where that is empty, and the other way round")
def clip_bounds(model: ModelProto) -> bool:
    for node in model.graph.node:
        if node.op_type == "Clip" and len(node.input) == 3 and not node.input[1] and node.input[2]:
            bound = node.input[2]
            del node.input[1:]
            node.input.append(bound)
            return True
    return False


@fault("Softmax and its kin before opset 13 are taken along one axis")
def old_softmax(model: ModelProto) -> bool:
    entry = next((each for each in model.opset_import if each.domain in ("", "ai.onnx")), None)
    if entry is None or entry.version >= 13:
        return False
    applied = False
    for node in model.graph.node:
        axis = _attribute(node, "axis")
        if node.op_type in ("Softmax", "LogSoftmax") and (axis is None or axis.i in (0, 1)):
            if axis is None:
                node.attribute.append(helper.make_attribute("axis", -1))
            else:
                axis.i = -1
            applied = True
    return applied


@fault("an axis counted from the end is taken from the start")
def negative_axis(model: ModelProto) -> bool:
    for node in model.graph.node:
        axis = _attribute(node, "axis")
        if axis is not None and axis.i < -1:
            axis.i = -axis.i - 1
            return True
    return False


@fault("an attribute that is rarely given is left out")
def rare_attributes(model: ModelProto) -> bool:
    rare = ("output_padding", "output_shape", "ceil_mode", "count_include_pad", "alpha", "beta", "epsilon", "keepdims")
    dropped = [_drop_attribute(node, *rare) for node in model.graph.node if not node.domain]
    return any(dropped)


@fault("padding beyond the first axis of a pair, or auto_pad, is left out")
def auto_pad(model: ModelProto) -> bool:
    applied = False
    for node in model.graph.node:
        pads = _attribute(node, "pads")
        if pads is not None and list(pads.ints[: len(pads.ints) // 2]) != list(pads.ints[len(pads.ints) // 2 :]):
            pads.ints[len(pads.ints) // 2 :] = pads.ints[: len(pads.ints) // 2]
            applied = True
    return applied


@fault("Resize to the nearest pixel computes exact places, not fp32 ones")
def nearest(model: ModelProto) -> bool:
    fixed = _constants(model.graph)
    inferred = infer_shapes(model).graph
    known = {value.name: value for value in (*inferred.input, *inferred.output, *inferred.value_info)}
    for node in model.graph.node:
        mode, where = _attribute(node, "mode"), _attribute(node, "coordinate_transformation_mode")
        rounding = _attribute(node, "nearest_mode")
        is_floor = rounding is not None and rounding.s == b"floor" and where is not None and where.s == b"asymmetric"
        if node.op_type != "Resize" or not is_floor or (mode is not None and mode.s != b"nearest"):
            continue
        if len(node.input) != 4 or node.input[3] not in fixed or node.input[0] not in known:
            continue
        source = [dim.dim_value for dim in known[node.input[0]].type.tensor_type.shape.dim]
        sizes = numpy_helper.to_array(fixed[node.input[3]]).tolist()
        if len(source) != len(sizes):
            continue
        name = node.input[0]
        for axis, (old, new) in enumerate(zip(source, sizes, strict=True)):
            places = np.arange(new, dtype=np.int64) * old // new
            wanted = _put(model.graph, places, f"{node.output[0]}?{axis}")
            gather = helper.make_node("Gather", [name, wanted], [f"{node.output[0]}?axis{axis}"], axis=axis)
            position = list(model.graph.node).index(node)
            model.graph.node.insert(position, gather)
            name = gather.output[0]
        _forward(model.graph, node, name)
        return True
    return False


@fault("a wrapped padding is not taken after cropping")
def wrapped(model: ModelProto) -> bool:
    applied = False
    for node in model.graph.node:
        mode = _attribute(node, "mode")
        if node.op_type == "Pad" and mode is not None and mode.s == b"wrap":
            mode.s = b"reflect"
            applied = True
    return applied


@fault("the axes of Pad are ignored")
def pad_axes(model: ModelProto) -> bool:
    for node in model.graph.node:
        if node.op_type == "Pad" and len(node.input) > 3 and node.input[3]:
            node.input[3] = ""
            return True
    return False


@fault("an optional input is left out")
def optional_inputs(model: ModelProto) -> bool:
    kinds = ("LayerNormalization", "Clip", "Pad", "Attention", "LSTM", "GRU", "RNN", "ConvTranspose", "QLinearConv")
    for node in model.graph.node:
        if node.op_type in kinds and len(node.input) > 2 and node.input[len(node.input) - 1]:
            del node.input[len(node.input) - 1]
            return True
    return False
