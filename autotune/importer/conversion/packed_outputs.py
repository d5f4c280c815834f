"""Outputs that are sequences leave the kernels element by element, and the frame of a model as its metadata."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from autotune.frame.frame import Frame, HostStep, element
from autotune.importer.onnx_model.graph_edits import tidy
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.sequence_inputs import sequences_of
from autotune.importer.onnx_model.shapes import infer_shapes
from autotune.interface import OpenSpec, TensorSpec
from schedules.vocabulary.errors import ModelError

FRAME = "tune.frame"
"""Key of the metadata of a simplified model: its frame as JSON."""

STRINGS = "object"
"""NumPy's type of strings, as ``TensorSpec`` names it."""

WHOLE = "sequences, strings or sizes that depend on data are dealt with around the whole model, which cannot be cut"


def spec_of(value: ValueInfoProto) -> TensorSpec:
    """Name, shape and type of a tensor of known shape."""
    tensor = value.type.tensor_type
    kind = STRINGS
    if tensor.elem_type != TensorProto.STRING:
        kind = str(np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)))
    return TensorSpec(value.name, tuple(int(dim.dim_value) for dim in tensor.shape.dim), kind)


def has_strings(model: ModelProto) -> bool:
    """Return whether the main graph computes with strings."""
    return TensorProto.STRING in Scope(model).types.values() or any(map(makes_strings, model.graph.node))


def makes_strings(node: NodeProto) -> bool:
    """Return whether ``node`` is a LabelEncoder whose values are strings: ONNX infers no type for it."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    tensor = attributes.get("values_tensor")
    return node.op_type == "LabelEncoder" and (
        "values_strings" in attributes or (tensor is not None and tensor.t.data_type == TensorProto.STRING)
    )


def pack_outputs(model: ModelProto) -> list[HostStep]:
    """Make the elements of outputs that are sequences outputs in their place; the steps that put them together again.

    Raises:
        ModelError: if an output is neither a tensor nor a sequence whose elements are known.
    """
    graph, scope = model.graph, Scope(model)
    makers = {name: node for node in graph.node for name in node.output}
    steps: list[HostStep] = []
    outputs: list[ValueInfoProto] = []
    for value in graph.output:
        parts = scope.sequences.get(value.name)
        if parts is None and value.type.WhichOneof("value") not in ("tensor_type", None):
            by = f" of operator {makers[value.name].op_type}" if value.name in makers else ""
            raise ModelError(
                f"output {value.name!r}{by} is neither a tensor nor a known sequence of them; drop that output"
            )
        if parts is None:
            outputs.append(ValueInfoProto.FromString(value.SerializeToString()))
            continue
        names = [element(value.name, index) for index in range(len(parts))]
        graph.node.extend(
            helper.make_node("Identity", [part], [name], name) for part, name in zip(parts, names, strict=True)
        )
        outputs.extend(ValueInfoProto(name=name) for name in names)
        steps.append(HostStep("Pack", tuple(names), (value.name,)))
    if steps:
        del graph.output[:]
        graph.output.extend(outputs)
        tidy(graph)
        infer_shapes(model, strict=False)
    return steps


def frame_of(model: ModelProto) -> Frame | None:
    """The frame of a simplified model."""
    texts = [entry.value for entry in model.metadata_props if entry.key == FRAME]
    return Frame.from_data(json.loads(texts[0])) if texts else None


def set_frame(
    simplified: ModelProto,
    model: ModelProto,
    inputs: Sequence[TensorSpec],
    steps: tuple[list[HostStep], list[HostStep]],
) -> None:
    """Note in ``simplified`` the frame around it, if it has any.

    Args:
        simplified: simplified from ``model``.
        inputs: of ``model``.
        steps: before and after the kernels.
    """
    before, after = steps
    sequences = sequences_of(model)
    if not before and not after and not sequences and all(spec.dtype != STRINGS for spec in inputs):
        return
    kept = {entry.key: entry.value for entry in simplified.metadata_props if entry.key != FRAME}
    frame = Frame(tuple(inputs), _outputs(simplified, model, after), sequences, tuple(before), tuple(after))
    helper.set_model_props(simplified, {**kept, FRAME: json.dumps(frame.to_data())})


def _outputs(simplified: ModelProto, model: ModelProto, after: Sequence[HostStep]) -> tuple[OpenSpec, ...]:
    """Return the outputs as users see them."""
    specs = {value.name: spec_of(value) for value in simplified.graph.output}
    last = {name: step for step in after for name in step.outputs}
    outputs = []
    for value in model.graph.output:
        spec, step = specs.get(value.name), last.get(value.name)
        if step is not None and step.kind == "Pack":
            outputs.append(OpenSpec(value.name, (len(step.inputs),), "sequence"))
        elif spec is not None:
            sizes: list[int | str] = list(spec.shape)
            if step is not None and step.kind == "Cut":
                sizes[int(step.attributes["axis"])] = "?"
            outputs.append(OpenSpec(value.name, tuple(sizes), spec.dtype))
        else:
            dims = value.type.tensor_type.shape.dim
            shape = tuple(int(dim.dim_value) if dim.HasField("dim_value") else "?" for dim in dims)
            kind = value.type.tensor_type.elem_type
            outputs.append(OpenSpec(value.name, shape, spec_of(value).dtype if kind else STRINGS))
    return tuple(outputs)
