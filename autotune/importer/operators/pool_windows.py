"""The windows that convolutions and pools move over an image, with padding in numbers.

Relax pads for ``SAME_UPPER`` in a step of its own; kernels that know the numbers need none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from onnx import helper

from autotune.importer.rewriting.emit import Emit, Node, Wide
from autotune.importer.rewriting.registry import rewrites


def same_pads(
    mode: str, image: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Return the padding of ``SAME_UPPER`` and ``SAME_LOWER``: before every axis, then behind every axis.

    The result has ⌈size ÷ stride⌉ elements along an axis; of an odd padding the larger half is behind with
    ``SAME_UPPER``, else before.
    """
    missing = [
        max(0, (-(-size // stride) - 1) * stride + (taps - 1) * step + 1 - size)
        for size, stride, taps, step in zip(image, strides, kernel, dilations, strict=True)
    ]
    before = [padding // 2 if mode == "SAME_UPPER" else padding - padding // 2 for padding in missing]
    return [*before, *(padding - first for padding, first in zip(missing, before, strict=True))]


@dataclass(frozen=True)
class Windows:
    """The windows of a pool: a number of each kind per axis.

    Attributes:
        pads: the model's padding before every axis, then behind every axis.
        counts: the windows along every axis.
    """

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def whole_pads(self) -> list[int]:
        """The padding that the last windows reach: at least ``pads``, which ceil mode exceeds."""
        rank = len(self.image)
        behind = [
            (count - 1) * stride + (taps - 1) * step + 1 - size - before
            for size, taps, stride, step, before, count in zip(
                self.image, self.kernel, self.strides, self.dilations, self.pads[:rank], self.counts, strict=True
            )
        ]
        return [*self.pads[:rank], *map(max, behind, [0] * rank)]


def windows(node: Node) -> Windows:
    """Return the windows of a pool.

    Raises:
        ModelError: if the shape of its input is not known.
    """
    image = tuple(node.shape(0)[2:])
    rank = len(image)

    def numbers(name: str, default: int, length: int = rank) -> tuple[int, ...]:
        return tuple(int(value) for value in node.attr(name, [default] * length))

    kernel, strides, dilations = numbers("kernel_shape", 1), numbers("strides", 1), numbers("dilations", 1)
    pads, mode = numbers("pads", 0, 2 * rank), str(node.attr("auto_pad", "NOTSET"))
    if mode.startswith("SAME"):
        pads = tuple(same_pads(mode, image, kernel, strides, dilations))
    counts = []
    for axis, (size, taps, stride, step) in enumerate(zip(image, kernel, strides, dilations, strict=True)):
        free = size + pads[axis] + pads[axis + rank] - (taps - 1) * step - 1
        count = (-(-free // stride) if node.attr("ceil_mode", 0) else int(free / stride)) + 1  # as C++ rounds
        if node.attr("ceil_mode", 0) and (count - 1) * stride >= size + pads[axis]:
            count -= 1  # a window must begin inside the input or the padding before it
        counts.append(count)
    return Windows(image, kernel, strides, dilations, pads, tuple(counts))


@rewrites("LpPool")
def lp_pool(node: Node, e: Emit) -> list[str] | None:
    """Compute (Σ |x|^p)^(1/p) over every window; padding is zeros."""
    pool, p = windows(node), int(node.attr("p", 2))
    data = Wide(e, 0)
    powers = e.op("Abs", data.x) if p % 2 else data.x
    powers = powers if p == 1 else e.op("Mul", powers, powers) if p == 2 else e.op("Pow", powers, data.number(p))
    pads, rank = pool.whole_pads, len(pool.image)
    if any(pad >= taps for pad, taps in zip(pads, pool.kernel * 2, strict=True)):  # which no pool takes
        powers = e.op("Pad", powers, e.ints(0, 0, *pads[:rank], 0, 0, *pads[rank:]))
        pads = [0] * 2 * rank
    geometry = {"kernel_shape": pool.kernel, "strides": pool.strides, "dilations": pool.dilations}
    means = e.op("AveragePool", powers, pads=pads, count_include_pad=1, **geometry)
    sums = e.op("Mul", means, data.number(math.prod(pool.kernel)))
    return [data.back(sums if p == 1 else e.op("Sqrt", sums) if p == 2 else e.op("Pow", sums, data.number(1 / p)))]


@rewrites("Conv", "ConvInteger", "AveragePool")
def written_out(node: Node, e: Emit) -> list[str] | None:
    """The operator with its padding in numbers, and a pool with its window within the padded data."""
    written = with_pads(node, e) or (within_data(node, e) if node.kind == "AveragePool" else None)
    return None if written is None else [written]


def within_data(node: Node, e: Emit) -> str | None:
    """A pool whose window is larger than the padded data with one that covers these; None if it is not."""
    if node.known_shape(0) is None:
        return None
    pool = windows(node)
    rank = len(pool.image)
    room = [size + pool.pads[axis] + pool.pads[axis + rank] for axis, size in enumerate(pool.image)]
    kernel = [min(taps, most) for taps, most in zip(pool.kernel, room, strict=True)]
    if tuple(kernel) == pool.kernel or max(pool.dilations) > 1:
        return None
    kept = {a.name: helper.get_attribute_value(a) for a in node.proto.attribute}
    return e.op(node.kind, node.input(0), **{**kept, "kernel_shape": kernel})


def with_pads(node: Node, e: Emit) -> str | None:
    """``node`` with its padding in numbers; None if it has numbers, or its shapes are not known."""
    mode, shape = str(node.attr("auto_pad", "NOTSET")), node.known_shape(0)
    kernel = node.attr("kernel_shape") or (node.known_shape(1) or ())[2:]
    if not mode.startswith("SAME") or shape is None or len(kernel) != len(shape) - 2:
        return None
    ones = [1] * len(kernel)
    geometry = node.attr("strides", ones), node.attr("dilations", ones)
    kept = {a.name: helper.get_attribute_value(a) for a in node.proto.attribute if a.name not in ("auto_pad", "pads")}
    names = [str(name) for name in node.proto.input]
    return e.op(node.kind, *names, pads=same_pads(mode, shape[2:], kernel, *geometry), **kept)
