"""TVM's ONNX importer with our converters before its own, and its failures told by operator."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from typing import Any

import onnx
from tvm import relax, te, tirx
from tvm.ir import GenericConst, IRModule
from tvm.relax.frontend.onnx import onnx_frontend

from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS, WINDOWED
from autotune.importer.onnx_model.tensors import one_line
from schedules.errors import ModelError

Inputs = list[relax.Expr | None]
Converter = Callable[[relax.BlockBuilder, Inputs, dict[str, Any], int], relax.Expr]
"""(builder, inputs with None for those left out, attributes, opset) → result; a Tuple of several."""

CONVERTERS: dict[str, Converter] = {}
"""Operator → our converter. It comes before Relax's."""

logger = logging.getLogger(__name__)


def converts(*kinds: str) -> Callable[[Converter], Converter]:
    """Register a converter of the operators ``kinds``."""

    def register(function: Converter) -> Converter:
        for kind in kinds:
            assert kind not in CONVERTERS, kind
            CONVERTERS[kind] = function
        return function

    return register


class _Importer(onnx_frontend.ONNXGraphImporter):  # type: ignore[misc]
    """Looks converters up here first."""

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        known = onnx_frontend._get_convert_map()
        for node in graph.node:
            if node.op_type not in known and node.op_type not in CONVERTERS:
                raise ModelError(
                    f"operator {node.op_type} (node {node.name!r}) is not supported; docs/conformance.md says what is"
                )

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
        try:
            if op_name not in CONVERTERS:
                made = super()._convert_operator(op_name, inputs, attrs, opset)
                return self._windowed(inputs[0], made) if op_name in WINDOWED else made
            attrs["tvm_custom"]["kind"] = op_name
            padded = [inputs[index] for index in range(max(len(inputs), 8))]
            return self.bb.normalize(CONVERTERS[op_name](self.bb, padded, attrs, opset))
        except ModelError as error:
            raise ModelError(f"{where} is not supported: {error}") from error
        except Exception as error:  # converters raise whatever they run into; each is the model's, not ours
            raise ModelError(f"{where} cannot be imported: {one_line(error, 200)}") from error

    def _windowed(self, data: relax.Expr, made: relax.Expr) -> relax.Expr:
        """``made``, unless its window fits nowhere: ONNX's inference is wrong about some pools that round up."""
        made = self.bb.normalize(made)
        if _is_empty(made) and not _is_empty(self.bb.normalize(data)):
            raise ModelError("its window is larger than its padded data; check --input and the model")
        return made


def _is_empty(value: relax.Expr) -> bool:
    shape = value.ty.shape
    return shape is not None and any(isinstance(size, tirx.IntImm) and int(size.value) == 0 for size in shape)


def import_graph(model: onnx.ModelProto) -> IRModule:
    """The Relax module of a simplified model; its ``main`` takes the model's inputs.

    Raises:
        ModelError: in one line that names the operator.
    """
    opset = next((o.version for o in model.opset_import if o.domain in STANDARD_DOMAINS), 13)
    spoken = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(spoken), contextlib.redirect_stderr(spoken):
            warnings.simplefilter("ignore")
            return _Importer({}, "float32").from_onnx(model.graph, opset)
    except ModelError:
        raise
    except Exception as error:
        kinds = ", ".join(sorted({node.op_type for node in model.graph.node}))
        raise ModelError(f"the model cannot be imported: {one_line(error, 200)}; its operators are {kinds}") from error
    finally:
        logger.debug("importer: %s", spoken.getvalue())


@converts("Copy")
def copy(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """The same values in memory of their own."""

    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: x(*i), name="copy")

    return bb.emit_te(compute, inputs[0], primfunc_name_hint="copy")


@converts("Max", "Min")
def extreme(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Two at a time, so that shapes broadcast; Relax's importer stacks all inputs."""
    given = [value for value in inputs if value is not None]
    combine = relax.op.maximum if attrs["tvm_custom"]["kind"] == "Max" else relax.op.minimum
    result = given[0]
    for value in given[1:]:
        result = bb.normalize(combine(result, value))
    return result


@converts("BatchNormalization")
def batch_norm(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """(x − mean) ÷ √(variance + ε) · scale + bias; Relax's operation is for constant parameters only."""
    x, parameters = inputs[0], inputs[1:5]
    if all(isinstance(value, GenericConst) for value in parameters):
        native = onnx_frontend._get_convert_map()["BatchNormalization"].get_converter(opset)
        return native(bb, onnx_frontend.onnx_input([x, *parameters]), attrs, [{}, {}])
    rank = len(x.ty.shape)  # type: ignore[union-attr]
    channels = [1 if axis != 1 else -1 for axis in range(rank)][1:]
    scale, bias, mean, variance = (bb.normalize(relax.op.reshape(value, channels)) for value in parameters)
    epsilon = relax.const(attrs.get("epsilon", 1e-5), str(x.ty.dtype))  # type: ignore[union-attr]
    deviation = bb.normalize(relax.op.sqrt(relax.op.add(variance, epsilon)))
    normal = bb.normalize(relax.op.divide(relax.op.subtract(x, mean), deviation))
    return relax.op.add(relax.op.multiply(normal, scale), bias)
