"""Tensors, values and nodes of a model, with floats of 64 bits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

FLOATS: dict[int, float] = {
    TensorProto.FLOAT: 2.0**-23,
    TensorProto.FLOAT16: 2.0**-10,
    TensorProto.BFLOAT16: 2.0**-7,
    TensorProto.DOUBLE: 2.0**-52,
}
"""Types that are widened, and their relative spacing."""


def widened_tensor(tensor: TensorProto) -> TensorProto:
    """``tensor`` with 64-bit numbers; integers stay as they are."""
    if tensor.data_type not in FLOATS:
        return tensor
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)


def widened_value(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """A copy of ``value`` with floats of 64 bits."""
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(value)
    if copy.type.tensor_type.elem_type in FLOATS:
        copy.type.tensor_type.elem_type = TensorProto.DOUBLE
    return copy


def widened_node(node: NodeProto) -> NodeProto:
    """A copy of ``node`` whose types and tensors are of 64 bits."""
    copy = NodeProto()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        if attribute.name in ("to", "dtype") and attribute.i in FLOATS:
            attribute.i = TensorProto.DOUBLE
        for tensor in _tensors_of(attribute):
            tensor.CopyFrom(widened_tensor(tensor))
    if node.op_type == "Constant":
        _widen_constant(copy)
    return copy


def _tensors_of(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.type == AttributeProto.TENSOR:
        yield attribute.t
    yield from attribute.tensors


def _widen_constant(node: NodeProto) -> None:
    """Write ``value_float`` and ``value_floats``, which are 32 bits wide, as a tensor."""
    attribute = node.attribute[0]
    if attribute.name in ("value_float", "value_floats"):
        array = np.array(helper.get_attribute_value(attribute), np.float64)
        attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(array)))


@lru_cache(maxsize=1)
def wide_kernels() -> dict[tuple[str, str], tuple[tuple[int, int], ...]]:
    """Return (domain, operator) → the ranges of versions for which ONNX Runtime has a 64-bit kernel."""
    import onnxruntime  # optional: an extra

    versions: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for kernel in onnxruntime.capi.onnxruntime_pybind11_state.get_all_opkernel_def():
        wide = any("tensor(double)" in types for types in kernel.type_constraints.values())
        if wide and kernel.provider == "CPUExecutionProvider":
            versions.setdefault((kernel.domain, kernel.op_name), []).append(kernel.version_range)
    return {name: tuple(ranges) for name, ranges in versions.items()}
