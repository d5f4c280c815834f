"""Operators on ONNX Runtime's blocked images, which it writes when it saves a model at its highest level.

An image (n, C, h, w) lies in memory as (n, C/b, h, w, b), C padded to whole blocks, and is declared as (n, C, h, w). So
each operator becomes the standard one on padded channels. Filters lie as their kernels read them:

    (O, I, kh, kw)   stored as (O/b, I/b, kh, kw, b of I, b of O), or (O/b, I, kh, kw, b of O)

in the second way where each group reads one channel, or all channels are less than a block. No file says which b it
has. ONNX Runtime takes that of the machine that it runs on, so a file is right on machines like the one that saved it.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.importer.operators.contrib_ops import activated
from autotune.importer.operators.quantised import GEOMETRY
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import rewrites

BLOCKED = "com.microsoft.nchwc"
"""Domain of these operators."""

BLOCKS = 16, 8
"""Channels of a block on processors with AVX-512, and on others."""

POOLS = ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")


def block_of(node: Node) -> int:
    """Channels of a block: the largest of ``BLOCKS`` that all convolutions of the model have whole ones of.

    Raises:
        UnsupportedError: if there is none.
    """
    filters = [other.input[1] for other in node.scope.graph.node if (other.domain, other.op_type) == (BLOCKED, "Conv")]
    outputs = math.gcd(*(node.scope.shapes[name][0] for name in filters if name in node.scope.shapes))
    block = next((block for block in BLOCKS if outputs % block == 0), 0)
    if not block:
        raise node.refused(f"its {outputs} channels are no whole blocks; save the model at a lower optimisation level")
    return block


@rewrites("ReorderInput", domain=BLOCKED)
def to_blocks(node: Node, e: Emit) -> list[str] | None:
    """The image with its channels padded to whole blocks."""
    x, shape = node.input(0), node.shape(0)
    if node.attr("channels_last", 0):
        x, shape = e.transpose(x, 0, 3, 1, 2), (shape[0], shape[3], *shape[1:3])
    missing = -shape[1] % block_of(node)
    return [e.op("Pad", x, e.ints(0, 0, 0, 0, 0, missing, 0, 0)) if missing else x]


@rewrites("ReorderOutput", domain=BLOCKED)
def from_blocks(node: Node, e: Emit) -> list[str] | None:
    """The image without the channels that fill its last block."""
    x, channels = node.input(0), int(node.attr("channels", 0))
    x = e.slice(x, 1, 0, channels) if channels != node.shape(0)[1] else x
    return [e.transpose(x, 0, 2, 3, 1) if node.attr("channels_last", 0) else x]


@rewrites("Conv", domain=BLOCKED)
def blocked_conv(node: Node, e: Emit) -> list[str] | None:
    """A convolution of filters in their usual order, an image (input 3) added to it, and an activation."""
    outputs, inputs, *kernel = node.shape(1)
    block, groups = block_of(node), int(node.attr("group", 1))
    if inputs < block and (groups == 1 or inputs == 1):
        stored = e.reshape(node.input(1), outputs // block, inputs, *kernel, block)
        ordered = e.transpose(stored, 0, 4, 1, 2, 3)
    else:
        stored = e.reshape(node.input(1), outputs // block, inputs // block, *kernel, block, block)
        ordered = e.transpose(stored, 0, 5, 1, 4, 2, 3)
    operands = [
        node.input(0),
        e.reshape(ordered, outputs, inputs, *kernel),
        *([node.input(2)] if node.input(2) else []),
    ]
    result = e.op("Conv", *operands, **node.given(*GEOMETRY))
    result = e.op("Add", result, node.input(3)) if node.input(3) else result
    kind = str(node.attr("activation", ""))
    return [activated(node, e, result, kind, node.attr("activation_params", [])) if kind else result]


@rewrites(*POOLS, domain=BLOCKED)
def blocked_pool(node: Node, e: Emit) -> list[str] | None:
    """Return the standard operator."""
    return [e.op(node.kind, node.input(0), **node.attributes)]


@rewrites("Upsample", domain=BLOCKED)
def blocked_upsample(node: Node, e: Emit) -> list[str] | None:
    """Return a resize by whole factors."""
    scales = node.attr("scales", [1, 1, 1, 1])
    mode = str(node.attr("mode", "nearest"))
    where = str(node.attr("coordinate_transformation_mode", "asymmetric"))
    more = {"nearest_mode": "floor"} if mode == "nearest" else {}
    return [
        e.op(
            "Resize",
            node.input(0),
            "",
            e.const(np.array(scales, np.float32)),
            mode=mode,
            coordinate_transformation_mode=where,
            **more,
        )
    ]
