"""The ONNX files in an artifact: fallback partitions, which ONNX Runtime runs."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import uses_external_data

from autotune.importer.onnx_model.graph_walk import walk_tensors
from autotune.importer.onnx_model.segments import Segment
from autotune.importer.onnx_model.shapes import true_inputs
from autotune.interface import Interface, OpenSpec
from schedules.vocabulary.errors import ArtifactError


def read_fallback(path: Path) -> tuple[Interface, tuple[str, ...]]:
    """Inputs and outputs of the fallback partition at ``path``, and the kinds of its nodes.

    Raises:
        ArtifactError: if it is no ONNX file, or has data in other files: it could name any file.
    """
    model = _load(path)
    return interface_of(model), Segment(True, model).operators


def interface_of(model: onnx.ModelProto) -> Interface:
    """Inputs and outputs of a model; sizes that are not known, and types of what is no tensor, are ``?``."""
    inputs = tuple(_spec(value) for value in true_inputs(model.graph))
    return Interface(inputs, tuple(_spec(value) for value in model.graph.output), {})


def _spec(value: onnx.ValueInfoProto) -> OpenSpec:
    tensor = value.type.tensor_type
    if not tensor.elem_type:  # a sequence, or of a type that nothing knows
        return OpenSpec(value.name, ("?",), "?")
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else "?" for dim in tensor.shape.dim)
    return OpenSpec(value.name, shape, str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)))


def _load(path: Path) -> onnx.ModelProto:
    """The model of a fallback partition.

    Raises:
        ArtifactError: if it is no ONNX file, or has data in other files: it could name any file.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError as error:
        raise ArtifactError(f"{path} is no ONNX file; build the artifact again") from error
    outside = next((tensor.name for tensor in walk_tensors(model) if uses_external_data(tensor)), None)
    if outside is not None:
        raise ArtifactError(f"{path} has data in another file (tensor {outside!r}); build the artifact again")
    return model
