"""Models that tune and run in moments: each stands for a case that a template or the importer must get right."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from tests.models.builder import Builder


def tiny_cnn(seed: int = 0, batch: int = 1) -> onnx.ModelProto:
    """A first convolution 7×7 over 3 channels, a residual block, pooling, a dense layer and a softmax."""
    b = Builder("tiny_cnn")
    x = b.max_pool(b.relu(b.conv(b.input("image", (batch, 3, 32, 32)), (3, 16), 7, 2)), 3, 2, 1)
    y = b.conv(b.relu(b.conv(x, (16, 16))), (16, 16))
    x = b.pooled(b.relu(b.op("Add", x, y)))
    return b.model(seed, scores=b.op("Softmax", b.dense(x, (16, 10)), axis=-1))


def tiny_odd(seed: int = 0) -> onnx.ModelProto:
    """Channel counts and sizes that no vector divides: 3 → 7 → 13 → 5 over 15×11 images."""
    b = Builder("tiny_odd")
    x = b.relu(b.conv(b.input("image", (1, 3, 15, 11)), (3, 7)))
    x = b.relu(b.conv(x, (7, 13), 1))
    return b.model(seed, scores=b.conv(x, (13, 5), (3, 1)))


def tiny_strided(seed: int = 0) -> onnx.ModelProto:
    """Strides, even kernels, no padding, uneven padding and dilation."""
    b = Builder("tiny_strided")
    x = b.relu(b.conv(b.input("image", (1, 16, 17, 17)), (16, 32), 3, 2))
    x = b.relu(b.conv(x, (32, 32), 3, dilation=2))
    x = b.op("Pad", x, b.ints(0, 0, 1, 0, 0, 0, 0, 1), b.constant(0.0))
    x = b.relu(b.conv(x, (32, 16), 2, padding=0))
    return b.model(seed, scores=b.conv(x, (16, 16), 1, 2))


def tiny_grouped(seed: int = 0) -> onnx.ModelProto:
    """Depthwise 3×3 and 5×5 with stride, a grouped 1×1, and ShuffleNet's channel shuffle."""
    b = Builder("tiny_grouped")
    x = b.relu(b.conv(b.input("image", (1, 32, 14, 14)), (32, 32), 3, groups=32))
    x = b.relu(b.conv(x, (32, 64), 1, groups=4))
    x = b.op("Transpose", b.op("Reshape", x, b.ints(1, 4, 16, 14, 14)), perm=[0, 2, 1, 3, 4])
    x = b.op("Reshape", x, b.ints(1, 64, 14, 14))
    x = b.relu(b.conv(x, (64, 64), 5, 2, groups=64))
    return b.model(seed, scores=b.conv(x, (64, 24), groups=8))


def tiny_branches(seed: int = 0) -> onnx.ModelProto:
    """An inception block: four branches, concatenated; average and max pooling."""
    b = Builder("tiny_branches")
    x = b.input("image", (1, 16, 12, 12))
    branches = [
        b.relu(b.conv(x, (16, 16), 1)),
        b.relu(b.conv(b.relu(b.conv(x, (16, 8), 1)), (8, 32), 3)),
        b.relu(b.conv(b.relu(b.conv(x, (16, 8), 1)), (8, 16), 5)),
        b.relu(b.conv(b.max_pool(x, 3, 1, 1), (16, 16), 1)),
    ]
    x = b.op("Concat", *branches, axis=1)
    x = b.op("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    return b.model(seed, scores=b.pooled(b.relu(b.conv(x, (80, 20), 1))))


def tiny_gated(seed: int = 0) -> onnx.ModelProto:
    """Squeeze-and-excitation, swish and a batch norm that stays: what EfficientNet and DenseNet are made of."""
    b = Builder("tiny_gated")
    x = b.relu(b.batch_norm(b.input("image", (1, 24, 10, 10)), 24))
    x = b.swish(b.batch_norm(b.conv(x, (24, 24), groups=24, bias=False), 24))
    gate = b.conv(b.swish(b.conv(b.op("GlobalAveragePool", x), (24, 6), 1)), (6, 24), 1)
    x = b.op("Mul", x, b.op("Sigmoid", gate))
    return b.model(seed, scores=b.conv(x, (24, 16), 1))


def tiny_open_batch(seed: int = 0) -> onnx.ModelProto:
    """A perceptron whose batch is open: rows know nothing of each other."""
    b = Builder("tiny_open_batch")
    x = b.relu(b.dense(b.input("rows", ("batch", 24)), (24, 48)))
    return b.model(seed, scores=b.op("Softmax", b.dense(x, (48, 10)), axis=-1))


def tiny_open_length(seed: int = 0) -> onnx.ModelProto:
    """Words of open number, a mask that says which count: attention among these, and their mean."""
    b = Builder("tiny_open_length")
    b.input("ids", ("batch", "length"), TensorProto.INT64)
    b.input("mask", ("batch", "length"), TensorProto.INT64)
    counts = b.op("Cast", "mask", to=TensorProto.FLOAT)
    x = b.op("Add", b.op("Gather", b.weight(32, 32), "ids"), b.weight(32))
    least = b.op("Mul", b.op("Sub", b.constant(1.0), b.op("Unsqueeze", counts, b.ints(1))), b.constant(-1e4))
    query, key, value = (b.linear(x, (32, 32)) for _ in range(3))
    scores = b.op("MatMul", query, b.op("Transpose", key, perm=[0, 2, 1]))
    shares = b.op("Softmax", b.op("Add", scores, least), axis=-1)
    x = b.op("Add", x, b.op("MatMul", shares, value))
    columns = b.op("Unsqueeze", counts, b.ints(2))
    total = b.op("ReduceSum", b.op("Mul", x, columns), b.ints(1), keepdims=0)
    number = b.op("Max", b.op("ReduceSum", columns, b.ints(1), keepdims=0), b.constant(1.0))
    return b.model(seed, words=x, mean=b.op("Div", total, number))


def tiny_open_size(seed: int = 0) -> onnx.ModelProto:
    """Convolutions and a mean over an image of any size: borders and the mean know where it ends."""
    b = Builder("tiny_open_size")
    x = b.relu(b.conv(b.input("image", (1, 3, "height", "width")), (3, 16), 3, 2))
    x = b.relu(b.conv(x, (16, 16)))
    return b.model(seed, scores=b.dense(b.pooled(x), (16, 10)), features=x)
