"""The sets of input shapes that a model with open lengths or batches gets where no ``--input`` names any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from autotune.importer.dense_rows import uses_weights_once
from autotune.importer.model_files.inline_weights import model_without_weights
from autotune.importer.onnx_model.guessed_shapes import guessed_sets
from autotune.importer.onnx_model.input_shapes import assumed_text, open_batches
from autotune.importer.onnx_model.shapes import is_fixed, is_known, true_inputs

ROWS = (1, 4, 16, 64)
"""Batches of a model whose rows use most weights once. Measured: docs/lab/2026-11-29-any-batch.md."""


def assumed_sets(path: Path) -> tuple[tuple[Mapping[str, tuple[int, ...]], ...], str]:
    """Return several sets of shapes for a model with open lengths or an open batch, and what to say of them.

    An open batch alone has several sets only if a row uses most weights once. There are none for a model with other
    open sizes, with inputs that are not tensors of numbers, or that cannot be read: its import assumes one set or says
    what is wrong.
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
        sets = _batches(model, values, sets[0])
    if not sets:
        return (), ""
    return tuple(sets), assumed_text(path.name, [v for v in values if not is_fixed(v.type.tensor_type)], sets)


def _batches(
    model: onnx.ModelProto, values: Sequence[onnx.ValueInfoProto], one: Mapping[str, tuple[int, ...]]
) -> list[dict[str, tuple[int, ...]]]:
    """Return a set for each of ``ROWS``, where nothing but the batch is open and several rows share their weights.

    Args:
        one: the shapes of a batch of 1.
    """
    batched = open_batches(values)
    fixed = [value for value in values if value.name not in batched]
    later = [dim for value in values for dim in value.type.tensor_type.shape.dim[1:]]
    if not batched or not all(is_fixed(value.type.tensor_type) for value in fixed) or not all(map(is_known, later)):
        return []
    if not uses_weights_once(model.graph):
        return []
    return [{name: (rows, *shape[1:]) if name in batched else shape for name, shape in one.items()} for rows in ROWS]
