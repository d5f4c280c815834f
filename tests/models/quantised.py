"""A convolutional network as quantisation tools export it, and any model as ONNX Runtime's quantiser makes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from tests.models.builder import Builder


def _levels(b: Builder, x: str, scale: float, zero: int = 128) -> str:
    """``x`` rounded to uint8 and back."""
    parameters = b.constant(np.float32(scale)), b.constant(np.uint8(zero))
    return b.op("DequantizeLinear", b.op("QuantizeLinear", x, *parameters), *parameters)


def _weight(b: Builder, rng: np.random.Generator, *shape: int) -> str:
    """int8 values with a scale per output channel."""
    fan_in = int(np.prod(shape[1:]))
    values = rng.integers(-127, 128, shape).astype(np.int8)
    scales = (rng.uniform(0.8, 1.2, shape[0]) / 73.0 / np.sqrt(fan_in)).astype(np.float32)
    zeros = b.constant(np.zeros(shape[0], np.int8))
    return b.op("DequantizeLinear", b.constant(values), b.constant(scales), zeros, axis=0)


def qdq_cnn(seed: int = 0, batch: int = 1, size: int = 32, width: int = 32) -> onnx.ModelProto:
    """Three convolutions, a residual sum, pooling and a dense layer, all quantised."""
    b, rng = Builder("qdq_cnn"), np.random.default_rng(seed)

    def conv(x: str, outputs: int, inputs: int, kernel: int, stride: int = 1) -> str:
        pad = kernel // 2
        weight = _weight(b, rng, outputs, inputs, kernel, kernel)
        return b.op("Conv", x, weight, pads=[pad] * 4, strides=[stride] * 2, kernel_shape=[kernel] * 2)

    x = _levels(b, b.input("image", (batch, 3, size, size)), 8 / 255)
    x = _levels(b, b.relu(conv(x, width, 3, 3, 2)), 5 / 255, 0)
    y = _levels(b, b.relu(conv(x, width, width, 3)), 5 / 255, 0)
    x = _levels(b, b.op("Add", x, conv(y, width, width, 1)), 12 / 255)
    x = b.op("Flatten", b.op("GlobalAveragePool", x))
    x = _levels(b, x, 4 / 255)
    scores = b.op("Gemm", x, _weight(b, rng, 10, width), transB=1)
    return b.model(seed, scores=scores)


class _Calibration(CalibrationDataReader):
    """Random inputs, from which ONNX Runtime's quantiser takes the range of every tensor."""

    def __init__(self, model: onnx.ModelProto, count: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        weights = {tensor.name for tensor in model.graph.initializer}
        inputs = [value for value in model.graph.input if value.name not in weights]
        self._feeds = [{value.name: _random(value, rng) for value in inputs} for _ in range(count)]

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        return self._feeds.pop() if self._feeds else None


def _random(value: onnx.ValueInfoProto, rng: np.random.Generator) -> NDArray[Any]:
    tensor = value.type.tensor_type
    shape = [dim.dim_value for dim in tensor.shape.dim]
    if tensor.elem_type == onnx.TensorProto.FLOAT:
        return rng.standard_normal(shape).astype(np.float32)
    return rng.integers(0, 2, shape).astype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))


KINDS = {
    "u8s8": (QuantFormat.QDQ, QuantType.QUInt8, QuantType.QInt8, True),
    "s8s8": (QuantFormat.QDQ, QuantType.QInt8, QuantType.QInt8, True),
    "u8s8_per_tensor": (QuantFormat.QDQ, QuantType.QUInt8, QuantType.QInt8, False),
    "u8u8": (QuantFormat.QDQ, QuantType.QUInt8, QuantType.QUInt8, False),
    "qoperator": (QuantFormat.QOperator, QuantType.QUInt8, QuantType.QInt8, True),
}
"""Ways to quantise: format, types of activations and of weights, whether every filter has a scale of its own."""


def quantise(model: onnx.ModelProto, kind: str, path: Path, seed: int = 7) -> Path:
    """Write ``model`` as ONNX Runtime's quantiser makes it of 8 bits.

    Args:
        kind: one of ``KINDS``, or ``dynamic``, whose activations are quantised by their own range when the model runs.
    """
    onnx.save(model, path)
    if kind == "dynamic":
        quantize_dynamic(path, path, weight_type=QuantType.QInt8)
        return path
    form, activations, weights, per_channel = KINDS[kind]
    quantize_static(
        path,
        path,
        _Calibration(model, 2, seed),
        quant_format=form,
        activation_type=activations,
        weight_type=weights,
        per_channel=per_channel,
    )
    return path
