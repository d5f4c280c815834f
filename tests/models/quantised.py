"""A convolutional network as quantisation tools export it: int8 weights, uint8 activations, QDQ pairs everywhere."""

from __future__ import annotations

import numpy as np
import onnx

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
