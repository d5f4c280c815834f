"""Operators that make values of an open size from numbers, which are computed from lengths."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto, numpy_helper

from autotune.importer.onnx_model.scope import Array
from autotune.importer.operators.dynamic.open_sizes import ROWS, Made, Open, OpenNode
from autotune.importer.rewriting.registry import handles

FILLED = 4096
"""Elements up to which a tensor of one number is a constant; larger ones are expanded. Heuristic, not measured."""


@handles("Expand")
def expand(at: OpenNode) -> Made | None:
    """Expand to sizes of which one may be open."""
    node, e, size, wanted = at.node, at.e, at.open(0), at.numbers(1)
    if wanted is None:
        return None
    shape = node.shape(0)
    rank = max(len(shape), len(wanted))
    lengths = {i + rank - len(wanted): n.name for i, n in enumerate(wanted) if not n.is_known}
    if size is not None:
        lengths[size.axis + rank - len(shape)] = size.length
    if len(lengths) > 1:
        return None
    expanded = e.op("Expand", node.input(0), e.ints(*(n.most for n in wanted)))
    if math.prod(shape[1:]) == 1 and len(shape) >= len(wanted):
        at.shared[ROWS, str(node.proto.output[0])] = e.reshape(node.input(0), -1)
    return [(expanded, Open(*next(iter(lengths.items()))) if lengths else None)]


@handles("ConstantOfShape")
def constant_of_shape(at: OpenNode) -> Made | None:
    """One number, in a size that may be open."""
    wanted = at.numbers(0)
    lengths = [(i, n.name) for i, n in enumerate(wanted or []) if not n.is_known]
    if wanted is None or len(lengths) > 1:
        return None
    tensor = at.node.attr("value")
    value = np.zeros(1, np.float32) if tensor is None else _array(tensor)
    most = [n.most for n in wanted]
    if math.prod(most) <= FILLED:
        filled = at.share(
            ("filled", *most, value.dtype.str, value.tobytes()), lambda: at.e.const(np.full(most, value[0]))
        )
    else:
        filled = at.e.op("Expand", at.e.const(value.reshape(())), at.e.ints(*most))
    return [(str(filled), Open(*lengths[0]) if lengths else None)]


def _array(tensor: TensorProto) -> Array:
    return np.asarray(numpy_helper.to_array(tensor)).reshape(-1)


@handles("Range")
def numbers_up_to(at: OpenNode) -> Made | None:
    """0, 1, 2 … up to a length."""
    node, e = at.node, at.e
    start, end, step = (at.numbers(index) for index in range(3))
    if start is None or end is None or step is None or (start[0].least, start[0].most, step[0].most) != (0, 0, 1):
        return None
    numbers = e.const(np.arange(end[0].most).astype(node.dtype(1)))
    return [(numbers, None if end[0].is_known else Open(0, end[0].name))]
