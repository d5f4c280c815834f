"""Inputs that are sequences or optional values: their elements become inputs, since kernels take tensors.

Element k of the input ``x`` is the input ``x[k]``, and the model puts the sequence together again in front of what
reads it, so that it stays one that ONNX Runtime runs. How many elements there are is said by ``--input``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import onnx
from onnx import ModelProto, TypeProto, ValueInfoProto, helper

from autotune.frame.frame import element
from autotune.importer.onnx_model.graph_walk import Names, rename
from autotune.importer.onnx_model.shapes import true_inputs
from schedules.vocabulary.errors import ModelError

SEQUENCES = "tune.sequences"
"""Key of the metadata of a model: input that was a sequence → its number of elements, as JSON."""


NOTHING = (0,)
"""The shape that ``--input x:0`` gives: of a sequence without elements, or an optional value that holds nothing."""


def sequences_of(model: ModelProto) -> dict[str, int]:
    """Return the notes of ``take_apart`` in ``model``."""
    return next((dict(json.loads(entry.value)) for entry in model.metadata_props if entry.key == SEQUENCES), {})


def take_apart(model: ModelProto, inputs: Mapping[str, Sequence[int]], name: str) -> dict[str, Sequence[int]]:
    """Replace sequences and optional values among the inputs, in place; ``inputs`` for those there are now.

    Args:
        inputs: name → shape; ``x[0]`` and so on for elements, or ``x`` → (n,) for n elements of the declared shape;
            ``NOTHING`` for an optional value that is left out.
        name: the model's, for messages.

    Raises:
        ModelError: if it is not known how many elements a sequence has, or they are no tensors.
    """
    rest, names = dict(inputs), Names(model.graph)
    counts: dict[str, int] = {}
    front: list[onnx.NodeProto] = []
    for value in true_inputs(model.graph):
        kind = value.type.WhichOneof("value")
        if kind not in ("sequence_type", "optional_type"):
            continue
        inner = value.type.optional_type.elem_type if kind == "optional_type" else value.type
        whole, source = names.new(f"{value.name}/given"), value.name
        new = [_tensor(value.name, inner, value.name, name)]
        if kind == "optional_type" and tuple(rest.get(value.name, ())) == NOTHING:
            del rest[value.name]
            counts[value.name] = 0
            front.append(helper.make_node("Optional", [], [whole], type=inner))
            _replace(model, value, [], whole)
            continue
        if inner.WhichOneof("value") == "sequence_type":
            count = counts[value.name] = _count(value, rest, model, name)
            elements = [element(value.name, index) for index in range(count)]
            new = [_tensor(part, inner.sequence_type.elem_type, value.name, name) for part in elements]
            source = names.new(f"{value.name}/elements") if kind == "optional_type" else whole
            front.append(_construct(elements, source, inner.sequence_type.elem_type))
        if kind == "optional_type":
            front.append(helper.make_node("Optional", [source], [whole]))
        _replace(model, value, new, whole)
    if front:
        nodes = [*front, *model.graph.node]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.metadata_props.add(key=SEQUENCES, value=json.dumps(counts))
    return rest


def _tensor(new: str, kind: TypeProto, value: str, name: str) -> ValueInfoProto:
    if kind.WhichOneof("value") == "sequence_type":
        return ValueInfoProto(name=new)
    if kind.WhichOneof("value") != "tensor_type" or not kind.tensor_type.elem_type:
        raise ModelError(f"{name}: input {value!r} is neither a tensor nor a sequence of tensors; only these are taken")
    info = ValueInfoProto(name=new, type=kind)
    if new != value:
        for dim in info.type.tensor_type.shape.dim:
            dim.ClearField("dim_param")  # elements may differ where a name says that a size is open
    return info


def _construct(names: Sequence[str], output: str, kind: TypeProto) -> onnx.NodeProto:
    if names:
        return helper.make_node("SequenceConstruct", list(names), [output])
    return helper.make_node("SequenceEmpty", [], [output], dtype=kind.tensor_type.elem_type)


def _count(value: ValueInfoProto, rest: dict[str, Sequence[int]], model: ModelProto, name: str) -> int:
    """The number of elements of a sequence; what says it alone is taken out of ``rest``."""
    if value.name in rest:
        shape = rest.pop(value.name)
        if len(shape) == 1:
            return int(shape[0])
    pattern = re.compile(re.escape(value.name) + r"\[(\d+)\]")
    places = [int(match[1]) for match in map(pattern.fullmatch, rest) if match]
    if places:
        return max(places) + 1
    readers = dict.fromkeys(node.op_type for node in model.graph.node if value.name in node.input)
    raise ModelError(
        f"{name}: input {value.name!r} (read by {', '.join(readers) or 'nothing'}) is a sequence, of which the number "
        f"of elements is not known; give their shapes, as --input '{value.name}[0]:1x3' --input '{value.name}[1]:1x3', "
        f"or for n elements of the declared shape --input {value.name}:n"
    )


def _replace(model: ModelProto, value: ValueInfoProto, new: Sequence[ValueInfoProto], new_name: str) -> None:
    """Put ``new`` in the place of the input ``value``, and let readers read ``new_name``."""
    graph, old = model.graph, value.name
    kept: list[ValueInfoProto] = []
    for entry in graph.input:
        kept += [entry] if entry.name != old else new
    copies = [ValueInfoProto.FromString(entry.SerializeToString()) for entry in kept]
    del graph.input[:]
    graph.input.extend(copies)
    for node in graph.node:
        rename(node, {old: new_name})
    for out in graph.output:
        if out.name == old:  # an output keeps its name
            graph.node.append(helper.make_node("Identity", [new_name], [old]))
