"""Relax's ONNX importer, with our converters before its own, and errors that name the operator."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from typing import Any

import onnx
import tvm
import tvm_ffi
from onnx.external_data_helper import uses_external_data
from tvm import relax, tirx
from tvm.ir import GenericConst, IRModule
from tvm.relax.frontend.onnx import onnx_frontend

from autotune.contributions import operator_advice
from autotune.host.dtypes import as_words, is_end, is_short_float
from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.onnx_model.shapes import OWN_DOMAIN, STANDARD_DOMAINS, WINDOWED
from autotune.importer.onnx_model.tensors import array_of
from autotune.importer.rewriting.registry import BY_HAND, Role, function_of
from schedules.vocabulary.errors import ModelError, UnsupportedError, first_line

COMPUTED = frozenset({"Add", "Sub", "Mul", "Max", "Min", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
"""Operators of two tensors that broadcast, in which scalars become part of a kernel's expressions."""

logger = logging.getLogger(__name__)


class _Importer(onnx_frontend.ONNXGraphImporter):  # type: ignore[misc]
    """Looks converters up here first.

    Attributes:
        by_hand: as ``TemplateSet``.
    """

    by_hand = True

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        known = onnx_frontend._get_convert_map()
        for node in graph.node:
            ours = node.domain in (*STANDARD_DOMAINS, OWN_DOMAIN)
            if not ours or (node.op_type not in known and function_of(Role.CONVERT, node.op_type) is None):
                kind = node.op_type if ours else f"{node.domain}::{node.op_type}"
                advice = operator_advice("", node.op_type, "export the model without it")
                raise UnsupportedError(f"operator {kind} (node {node.name!r}) is not supported; {advice}")

    def _parse_array(self, tensor: onnx.TensorProto) -> tvm.runtime.Tensor:
        if not uses_external_data(tensor):
            return super()._parse_array(tensor)
        # A constant in the tensor's file. Exporters leave no gaps between tensors; no kernel reads it where it lies.
        array = array_of(tensor)
        shared = tvm_ffi.from_dlpack(as_words(array), require_alignment=0)
        return shared._create_view(array.shape, array.dtype.name) if is_short_float(array.dtype) else shared

    def _parse_graph_input(self, graph: onnx.GraphProto) -> None:
        for value in graph.input:  # Relax's own takes an axis of size zero for a symbol
            if value.name not in self._nodes:
                tensor = value.type.tensor_type
                shape = [int(dim.dim_value) for dim in tensor.shape.dim]
                dtype = str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
                self._nodes[value.name] = self._new_var(self._sanitize_name(value.name), shape=shape, dtype=dtype)
                self._num_input += 1
            self._inputs[value.name] = self._nodes[value.name]

    def _convert_operator(self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int) -> relax.Expr:
        where = f"operator {op_name} (node {attrs['tvm_custom']['name']!r})"
        if op_name in COMPUTED:
            inputs = onnx_frontend.onnx_input([_no_immediate(inputs[at], inputs) for at in range(len(inputs))])
        try:
            with third_party():
                if (converter := function_of(Role.CONVERT, op_name)) is None:
                    result = super()._convert_operator(op_name, inputs, attrs, opset)
                    return self._windowed(inputs[0], result) if op_name in WINDOWED else result
                attrs["tvm_custom"].update({"kind": op_name, BY_HAND: self.by_hand})
                padded = [inputs[index] for index in range(max(len(inputs), 8))]
                return self.bb.normalize(converter(self.bb, padded, attrs, opset))
        except ModelError as error:
            raise UnsupportedError(f"{where} is not supported: {error}") from error
        except ThirdPartyError as error:
            raise UnsupportedError(f"{where} cannot be imported: {first_line(error, 200)}") from error

    def _windowed(self, data: relax.Expr, result: relax.Expr) -> relax.Expr:
        """``result``, unless its window fits nowhere: ONNX's inference is wrong about some pools that round up."""
        result = self.bb.normalize(result)
        if _is_empty(result) and not _is_empty(self.bb.normalize(data)):
            raise ModelError("its window is larger than its padded data; check --input and the model")
        return result


def _no_immediate(value: relax.Expr, inputs: Any) -> relax.Expr:
    """A scalar that TVM would take for infinity as a tensor of one element, which kernels load (``is_end``)."""
    others = (inputs[at] for at in range(len(inputs)))
    ranks = [len(other.ty.shape) for other in others if isinstance(other, relax.Expr) and other.ty.shape is not None]
    if not isinstance(value, GenericConst) or len(value.ty.shape) or not max(ranks, default=0):
        return value
    array = value.value.numpy()
    return relax.const(array.reshape(1), str(array.dtype)) if is_end(array) else value


def _is_empty(value: relax.Expr) -> bool:
    shape = value.ty.shape
    return shape is not None and any(isinstance(size, tirx.IntImm) and int(size.value) == 0 for size in shape)


def import_graph(model: onnx.ModelProto, by_hand: bool = True) -> IRModule:
    """The Relax module of a simplified model; its ``main`` takes the model's inputs.

    Args:
        by_hand: as ``TemplateSet``.

    Raises:
        ModelError: in one line that names the operator. Outside of operators, Relax raises errors of its own.
    """
    opset = next((o.version for o in model.opset_import if o.domain in STANDARD_DOMAINS), 13)
    printed = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            warnings.simplefilter("ignore")
            importer = _Importer({}, "float32")
            importer.by_hand = by_hand
            return importer.from_onnx(model.graph, opset)
    finally:
        logger.debug("importer: %s", printed.getvalue())
