"""Sets of shapes with an input for each open size that says which positions count, for models that need it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import ModelProto

from autotune.frame.noise import live_name
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS, dim_name, is_known, true_inputs

QUANTISER = "DynamicQuantizeLinear"
"""The operator that takes a scale from all numbers of a tensor."""

Shapes = Mapping[str, tuple[int, ...]]


def quantises_whole_tensors(model: ModelProto | None) -> bool:
    """Return whether operators of the main graph take a scale from all numbers of a tensor; not of no model.

    All rows of a call have that scale, so they are no calls of their own.
    """
    nodes = [] if model is None else model.graph.node
    return any(node.op_type == QUANTISER and node.domain in STANDARD_DOMAINS for node in nodes)


def sets_with_live(model: ModelProto | None, sets: Sequence[Shapes]) -> tuple[Shapes, ...]:
    """Return ``sets``, with such inputs if ``model`` quantises by the range of whole tensors.

    Args:
        model: its weights are not looked at; None if it cannot be read.
        sets: shapes of its inputs. Nothing is added where one of them leaves an open input out.
    """
    if model is None or not quantises_whole_tensors(model):
        return tuple(sets)
    places = open_places(model)
    if any(name not in shapes for shapes in sets for name, _ in places):
        return tuple(sets)
    return tuple(
        {**shapes, **{live_name(symbol): (shapes[name][axis],) for (name, axis), symbol in places.items()}}
        for shapes in sets
    )


def open_places(model: ModelProto) -> dict[tuple[str, int], str]:
    """Return (input, axis) of every size that ``model`` leaves open → its symbol."""
    return {
        (value.name, axis): dim_name(dim) or f"{value.name}_{axis}"
        for value in true_inputs(model.graph)
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if not is_known(dim)
    }
