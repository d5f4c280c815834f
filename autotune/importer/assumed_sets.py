"""The sets of input shapes that a model with open lengths gets where no ``--input`` names any."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from autotune.importer.model_files.inline_weights import model_without_weights
from autotune.importer.onnx_model.guessed_shapes import guessed_sets
from autotune.importer.onnx_model.input_shapes import assumed_text
from autotune.importer.onnx_model.shapes import is_fixed, true_inputs


def assumed_sets(path: Path) -> tuple[tuple[Mapping[str, tuple[int, ...]], ...], str]:
    """Return several sets of shapes for a model whose lengths are open, and what to say of them.

    There are none for a model with other open sizes, with inputs that are not tensors of numbers, or that cannot be
    read: its import assumes one set or says what is wrong.
    """
    model = model_without_weights(path)
    if model is None:
        return (), ""
    values = true_inputs(model.graph)
    if not all(value.type.tensor_type.HasField("shape") for value in values):
        return (), ""
    if any(value.type.tensor_type.elem_type in (0, onnx.TensorProto.STRING) for value in values):
        return (), ""
    sets = guessed_sets(values)
    if len(sets) < 2:
        return (), ""
    return tuple(sets), assumed_text(path.name, [v for v in values if not is_fixed(v.type.tensor_type)], sets)
