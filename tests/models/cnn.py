"""Convolutional networks like the well-known ones: the same layers and sizes, random weights."""

from __future__ import annotations

import onnx

from tests.models.builder import Builder

MOBILENET_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""(expansion, channels, repeats, first stride); Sandler et al., CVPR 2018, table 2."""

EFFICIENTNET_B0 = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
"""(expansion, channels, repeats, first stride, kernel); Tan and Le, ICML 2019, table 1."""

MOBILENET_V3 = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)
"""(kernel, expanded channels, channels, is gated, has hard swish, stride); Howard et al., ICCV 2019, table 1."""


def mobilenet_v2(seed: int = 0, batch: int = 1, size: int = 224) -> onnx.ModelProto:
    """Inverted residuals with depthwise convolutions and ReLU6; batch norms left for the importer to fold."""
    b = Builder("mobilenet_v2")

    def layer(x: str, channels: tuple[int, int], kernel: int, stride: int = 1, groups: int = 1) -> str:
        return b.batch_norm(b.conv(x, channels, kernel, stride, groups, bias=False), channels[1])

    def relu6(x: str) -> str:
        return b.op("Clip", x, b.constant(0.0), b.constant(6.0))

    x = relu6(layer(b.input("image", (batch, 3, size, size)), (3, 32), 3, 2))
    width = 32
    for expansion, channels, repeats, first_stride in MOBILENET_V2:
        for index in range(repeats):
            stride, inner = first_stride if index == 0 else 1, width * expansion
            y = relu6(layer(x, (width, inner), 1)) if expansion > 1 else x
            y = layer(relu6(layer(y, (inner, inner), 3, stride, inner)), (inner, channels), 1)
            x = b.op("Add", x, y) if stride == 1 and width == channels else y
            width = channels
    x = b.pooled(relu6(layer(x, (width, 1280), 1)))
    return b.model(seed, scores=b.dense(x, (1280, 1000)))


def mobilenet_v3(seed: int = 0, batch: int = 1, size: int = 224) -> onnx.ModelProto:
    """MobileNetV3-Large: hard swish, and gates of hard sigmoids on pooled features."""
    b = Builder("mobilenet_v3")

    def layer(x: str, channels: tuple[int, int], kernel: int = 1, stride: int = 1, groups: int = 1) -> str:
        return b.batch_norm(b.conv(x, channels, kernel, stride, groups, bias=False), channels[1])

    def hard_sigmoid(x: str) -> str:
        return b.op("HardSigmoid", x, alpha=1 / 6)

    def hard_swish(x: str) -> str:
        return b.op("Mul", x, hard_sigmoid(x))

    def squeeze_excite(x: str, channels: int) -> str:
        squeezed = (channels // 4 + 7) // 8 * 8
        gate = b.conv(b.op("GlobalAveragePool", x), (channels, squeezed), 1)
        return b.op("Mul", x, hard_sigmoid(b.conv(b.relu(gate), (squeezed, channels), 1)))

    x = hard_swish(layer(b.input("image", (batch, 3, size, size)), (3, 16), 3, 2))
    width = 16
    for kernel, inner, channels, is_gated, is_hard, stride in MOBILENET_V3:
        active = hard_swish if is_hard else b.relu
        y = active(layer(x, (width, inner))) if inner != width else x
        y = active(layer(y, (inner, inner), kernel, stride, inner))
        y = layer(squeeze_excite(y, inner) if is_gated else y, (inner, channels))
        x = b.op("Add", x, y) if stride == 1 and width == channels else y
        width = channels
    x = b.pooled(hard_swish(layer(x, (width, 960))))
    return b.model(seed, scores=b.dense(hard_swish(b.dense(x, (960, 1280))), (1280, 1000)))


def efficientnet_b0(seed: int = 0, batch: int = 1, size: int = 224) -> onnx.ModelProto:
    """Inverted residuals with squeeze-and-excitation and swish."""
    b = Builder("efficientnet_b0")

    def layer(x: str, channels: tuple[int, int], kernel: int, stride: int = 1, groups: int = 1) -> str:
        return b.batch_norm(b.conv(x, channels, kernel, stride, groups, bias=False), channels[1])

    def squeeze_excite(x: str, channels: int, squeezed: int) -> str:
        gate = b.op("GlobalAveragePool", x)
        gate = b.conv(b.swish(b.conv(gate, (channels, squeezed), 1)), (squeezed, channels), 1)
        return b.op("Mul", x, b.op("Sigmoid", gate))

    x = b.swish(layer(b.input("image", (batch, 3, size, size)), (3, 32), 3, 2))
    width = 32
    for expansion, channels, repeats, first_stride, kernel in EFFICIENTNET_B0:
        for index in range(repeats):
            stride, inner = first_stride if index == 0 else 1, width * expansion
            y = b.swish(layer(x, (width, inner), 1)) if expansion > 1 else x
            y = squeeze_excite(b.swish(layer(y, (inner, inner), kernel, stride, inner)), inner, max(1, width // 4))
            y = layer(y, (inner, channels), 1)
            x = b.op("Add", x, y) if stride == 1 and width == channels else y
            width = channels
    x = b.pooled(b.swish(layer(x, (width, 1280), 1)))
    return b.model(seed, scores=b.dense(x, (1280, 1000)))


def unet(seed: int = 0, batch: int = 1, size: int = 256, width: int = 32, levels: int = 4) -> onnx.ModelProto:
    """Down by max pooling, up by transposed convolution, with skips; Ronneberger et al., MICCAI 2015, half as wide."""
    b = Builder("unet")

    def double(x: str, channels: tuple[int, int]) -> str:
        x = b.relu(b.conv(x, channels))
        return b.relu(b.conv(x, (channels[1], channels[1])))

    x, channels, skips = b.input("image", (batch, 3, size, size)), 3, []
    for level in range(levels):
        x = double(x, (channels, width << level))
        channels = width << level
        skips.append(x)
        x = b.max_pool(x)
    x = double(x, (channels, width << levels))
    for level in reversed(range(levels)):
        channels = width << level
        up = b.op("ConvTranspose", x, b.weight(2 * channels, channels, 2, 2), b.weight(channels), strides=[2, 2])
        x = double(b.op("Concat", skips[level], up, axis=1), (2 * channels, channels))
    return b.model(seed, mask=b.op("Sigmoid", b.conv(x, (width, 1), 1)))


def resnet18_body(b: Builder, image: str, width: int = 64) -> str:
    """The pooled features (n, 8 · width) of ResNet-18; He et al., CVPR 2016, table 1."""
    x = b.max_pool(b.relu(b.batch_norm(b.conv(image, (3, width), 7, 2, bias=False), width)), 3, 2, 1)
    for channels, first_stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
        for stride in (first_stride, 1):
            y = b.relu(b.batch_norm(b.conv(x, (width, channels), 3, stride, bias=False), channels))
            y = b.batch_norm(b.conv(y, (channels, channels), 3, bias=False), channels)
            if stride != 1 or width != channels:
                x = b.batch_norm(b.conv(x, (width, channels), 1, stride, bias=False), channels)
            x = b.relu(b.op("Add", x, y))
            width = channels
    return b.pooled(x)


def resnet18(seed: int = 0, batch: int = 1, size: int = 224) -> onnx.ModelProto:
    b = Builder("resnet18")
    x = resnet18_body(b, b.input("image", (batch, 3, size, size)))
    return b.model(seed, scores=b.dense(x, (512, 1000)))
