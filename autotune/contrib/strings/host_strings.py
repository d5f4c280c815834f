"""Operators on strings run on the host: nodes that read or make any are set apart from the kernels.

Those that strings of the user's or the model's own lead to come before the kernels; those that read what kernels make
come after them. What runs on the host after the kernels may lead to outputs and other such nodes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from autotune.frame.frame import HostStep
from autotune.importer.conversion.packed_outputs import STRINGS, makes_strings
from autotune.importer.onnx_model.graph_edits import replace_nodes
from autotune.importer.onnx_model.scope import Scope
from schedules.vocabulary.errors import UnsupportedError

KINDS = frozenset({"Equal", "Identity", "StringConcat", "RegexFullMatch", "StringNormalizer", "StringSplit"})
"""Operators on strings whose steps have the attributes of their nodes."""

LABELLED = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}
"""Classifier → its attribute of labels that are numbers."""

DEFAULTS: Mapping[str, Any] = {"strings": "_Unused", "int64s": -1, "floats": -0.0}
"""LabelEncoder's value for an unknown key, by the field that its values are in."""


def set_strings_apart(model: ModelProto) -> tuple[list[HostStep], list[HostStep]]:
    """Take nodes on strings out of the main graph, in place; the steps before the kernels and those after them.

    What the kernels read of the former becomes inputs, what the latter read of the kernels outputs.

    Raises:
        UnsupportedError: naming an operator that has no step, or stands behind one that follows the kernels.
    """
    _number_labels(model)
    graph, scope = model.graph, Scope(model)
    strings = {name for name, kind in scope.types.items() if kind == TensorProto.STRING}
    # Before its shape is inferred, the result of a LabelEncoder has no type.
    made_of = {output for node in graph.node if makes_strings(node) for output in node.output}
    strings |= made_of
    before, after, kept = [], [], []
    ready = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer} | {""}
    late: set[str] = set()
    for node in graph.node:
        if not strings & {*node.input, *node.output}:
            if late & {*node.input}:
                raise UnsupportedError(
                    f"operator {node.op_type} (node {node.name!r}) is not supported: it reads what is made of strings "
                    "after the kernels have run"
                )
            kept.append(node)
            continue
        step = _step(node)
        if node.op_type in ("Identity", "StringConcat", "StringNormalizer", "StringSplit"):
            strings.add(node.output[0])
        if ready >= {*node.input}:
            before.append(step)
            ready |= {*node.output}
        else:
            after.append(step)
            late |= {*node.output}
    if not before and not after and not strings:
        return [], []
    constants = _constants(model, strings)
    _cut_free(model, kept, [*before, *after], strings | late, scope)
    return [*constants, *before], after


def _number_labels(model: ModelProto) -> None:
    """Let classifiers whose labels are strings make their numbers, in place; a LabelEncoder names them.

    ONNX Runtime does the same: what depends on the labels of two classes depends on 0 and 1 then.
    """
    scope, nodes = Scope(model), []
    for node in model.graph.node:
        nodes.append(node)
        labels = next((a for a in node.attribute if a.name == "classlabels_strings" and a.strings), None)
        if labels is None or node.domain != "ai.onnx.ml" or node.op_type not in LABELLED or not node.output[0]:
            continue
        shape, name, numbers = scope.shapes.get(node.input[0]), node.output[0], list(range(len(labels.strings)))
        node.output[0] = scope.names.new(f"{name}/number")
        values = [text.decode() for text in labels.strings]
        node.attribute.remove(labels)
        node.attribute.append(helper.make_attribute(LABELLED[node.op_type], numbers))
        attributes = {"keys_int64s": numbers, "values_strings": values, "domain": node.domain}
        nodes.append(helper.make_node("LabelEncoder", [node.output[0]], [name], f"{node.name}/label", **attributes))
        rows = None if shape is None else [(1, 1, *shape)[-2]]
        model.graph.value_info.append(helper.make_tensor_value_info(node.output[0], TensorProto.INT64, rows))
    if len(nodes) > len(model.graph.node):
        replace_nodes(model.graph, nodes)


def _step(node: NodeProto) -> HostStep:
    if node.op_type == "LabelEncoder" and node.domain == "ai.onnx.ml":
        attributes = _label_encoder(node)
    elif node.op_type == "OneHotEncoder" and node.domain == "ai.onnx.ml":
        fields = _attributes(node)
        attributes = {"categories": fields.get("cats_strings", []), "zeros": fields.get("zeros", 1)}
    elif node.op_type in KINDS and not node.domain:
        attributes = _attributes(node)
    else:
        kind = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        raise UnsupportedError(f"operator {kind} (node {node.name!r}) is not supported: it reads or makes strings")
    return HostStep(node.op_type, tuple(node.input), tuple(node.output), attributes)


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {attribute.name: _plain(attribute) for attribute in node.attribute}


def _plain(attribute: AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        array = numpy_helper.to_array(value).reshape(-1).tolist()
        return [item.decode() if isinstance(item, bytes) else item for item in array]
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (int, float)):
        return value
    return [item.decode() if isinstance(item, bytes) else item for item in value]


def _label_encoder(node: NodeProto) -> dict[str, Any]:
    """Keys, values, default and type of the result, whichever fields they are in."""
    attributes = _attributes(node)
    fields = {side: next(name for name in attributes if name.startswith(f"{side}_")) for side in ("keys", "values")}
    field = fields["values"].removeprefix("values_")
    dtype = {"strings": STRINGS, "int64s": "int64", "floats": "float32"}.get(field)
    if dtype is None:
        tensor = next(attribute.t for attribute in node.attribute if attribute.name == "values_tensor")
        strings = tensor.data_type == TensorProto.STRING
        dtype = STRINGS if strings else str(np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)))
        field = "strings" if strings else "floats" if np.dtype(dtype).kind == "f" else "int64s"
    default = attributes.get(f"default_{field.removesuffix('s') if field != 'int64s' else 'int64'}", DEFAULTS[field])
    if "default_tensor" in attributes:
        (default,) = attributes["default_tensor"]
    return {
        "keys": attributes[fields["keys"]],
        "values": attributes[fields["values"]],
        "default": default,
        "dtype": dtype,
    }


def _constants(model: ModelProto, strings: set[str]) -> list[HostStep]:
    """Steps for initialisers of strings, which are taken out."""
    steps, graph = [], model.graph
    for index in reversed(range(len(graph.initializer))):
        tensor = graph.initializer[index]
        if tensor.data_type == TensorProto.STRING:
            values = [text.decode() for text in tensor.string_data]
            steps.append(HostStep("Constant", (), (tensor.name,), {"values": values, "shape": list(tensor.dims)}))
            strings.add(tensor.name)
            del graph.initializer[index]
    return steps


def _cut_free(model: ModelProto, kept: list[NodeProto], steps: list[HostStep], gone: set[str], scope: Scope) -> None:
    """Leave the nodes ``kept``; what they share with ``steps`` becomes inputs and outputs.

    Args:
        gone: values that no kernel can read: strings, and what is made after the kernels.
    """
    graph = model.graph
    replace_nodes(graph, kept)
    produced = {name for node in kept for name in node.output}
    numbers = {tensor.name for tensor in graph.initializer}
    on_host = {name: _shape_of_step(step, scope) for step in steps for name in step.outputs if name}
    inputs = [value for value in graph.input if value.name not in gone]
    read = {name for node in kept for name in node.input}
    inputs += [_value(name, on_host[name], scope) for name in on_host if name in read]
    have = {value.name for value in graph.output}
    wanted = {name for step in steps for name in step.inputs if name in produced | numbers and name not in gone}
    outputs = [
        value for value in graph.output if value.name in produced | numbers or value.name in {i.name for i in inputs}
    ]
    outputs = [value for value in outputs if value.name not in on_host]
    outputs += [_value(name, None, scope) for name in sorted(wanted - have)]
    for field, values in ((graph.input, inputs), (graph.output, outputs)):
        copies = [ValueInfoProto.FromString(value.SerializeToString()) for value in values]
        del field[:]
        field.extend(copies)


def _shape_of_step(step: HostStep, scope: Scope) -> tuple[int, ...] | None:
    """The shape of what a step makes, where it is that of what it reads."""
    shapes = [scope.shapes.get(name) for name in step.inputs]
    if None in shapes or step.kind in ("StringNormalizer", "StringSplit"):
        return None
    dtype = step.attributes.get("dtype", "float32" if step.kind == "OneHotEncoder" else STRINGS)
    for name in step.outputs:
        kind = TensorProto.STRING if dtype == STRINGS else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        scope.types.setdefault(name, TensorProto.BOOL if step.kind in ("Equal", "RegexFullMatch") else kind)
    if step.kind == "OneHotEncoder":
        return (*(shapes[0] or ()), len(step.attributes["categories"]))
    shape: tuple[int, ...] = np.broadcast_shapes(*(sizes or () for sizes in shapes))
    scope.shapes.update(dict.fromkeys(step.outputs, shape))
    return shape


def _value(name: str, shape: tuple[int, ...] | None, scope: Scope) -> ValueInfoProto:
    shape = scope.shapes.get(name) if shape is None else shape
    kind = scope.types.get(name)
    if shape is None or not kind:
        raise UnsupportedError(f"the size of {name!r}, which is made of strings, depends on data; it must be fixed")
    info: ValueInfoProto = helper.make_tensor_value_info(name, kind, shape)
    return info
