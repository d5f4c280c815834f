"""Transposed convolutions as convolutions, with an output for every place within a step."""

from __future__ import annotations

import math

import numpy as np

from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import rewrites

OWN_PHASE = 16
"""Channels of the result from which the places within a step are convolutions of their own where they have different
numbers of terms: fewer do not fill a vector."""

MOST_APART = 16
"""Places within a step that are depthwise convolutions of their own. Heuristic: each is a kernel; more of them are
filters enough for a vector in each group of one."""

FEW_CHANNELS = 8
"""Channels of a depthwise convolution below which few places within a step stay together: 3 channels of 112², 4 × 4 by
steps of 2, took 375 µs as four convolutions, 222 as one (Zen 4)."""


def _phases_as_one(node: Node, e: Emit, steps: list[int], terms: list[int], pads: list[int]) -> str:
    """All places within a step by one convolution of ``terms``, side by side as channels; what is missing is zeros."""
    (channels, outputs), kernel, rank = node.shape(1)[:2], node.shape(1)[2:], len(steps)
    weight, phases, groups = node.input(1), int(np.prod(steps)), int(node.attr("group", 1))
    own = channels // groups
    missing = [t * s - k for t, s, k in zip(terms, steps, kernel, strict=True)]
    if any(missing):
        weight = e.op("Pad", weight, e.ints(*[0] * (rank + 4), *missing))
    parts = (part for t, s in zip(terms, steps, strict=True) for part in (t, s))
    weight = e.reshape(weight, groups, own, outputs, *parts)
    for axis, count in enumerate(terms):
        if count > 1:
            weight = e.slice(weight, 3 + 2 * axis, count - 1, -count - 1, -1)
    weight = e.transpose(weight, 0, *range(4, 4 + 2 * rank, 2), 2, 1, *range(3, 3 + 2 * rank, 2))
    weight = e.reshape(weight, groups * phases * outputs, own, *terms)
    bias = []
    if node.input(2):
        bias = [e.reshape(e.concat([e.reshape(node.input(2), groups, 1, outputs)] * phases, 1), -1)]
    return e.op("Conv", node.input(0), weight, *bias, kernel_shape=terms, pads=pads, group=groups)


def _phases_apart(node: Node, e: Emit, steps: list[int], after: list[int]) -> str:
    """Each place within a step by a convolution of the terms that it has: a kernel of 3 × 3 in steps of 2 has 9 in all,
    where one convolution for the four places would compute 16.
    """
    (channels, outputs), kernel, groups = node.shape(1)[:2], node.shape(1)[2:], int(node.attr("group", 1))
    bias = [node.input(2)] if node.input(2) else []
    phases = []
    for place in np.ndindex(*steps):
        terms = [-(-(k - i) // s) for k, i, s in zip(kernel, place, steps, strict=True)]
        weight = node.input(1)
        for axis, (i, s, count) in enumerate(zip(place, steps, terms, strict=True)):
            weight = e.slice(weight, 2 + axis, i + s * (count - 1), -kernel[axis] - 1, -s)
        weight = e.reshape(weight, groups, channels // groups, outputs, *terms)
        weight = e.transpose(weight, 0, 2, 1, *range(3, 3 + len(steps)))
        weight = e.reshape(weight, groups * outputs, channels // groups, *terms)
        pads = [*(count - 1 for count in terms), *after]
        phases.append(e.op("Conv", node.input(0), weight, *bias, kernel_shape=terms, pads=pads, group=groups))
    return e.concat(phases, 1)


def _by_phases(node: Node, e: Emit) -> list[str] | None:
    """Convolutions with an output for every place within a step, the places side by side (Shi et al., CVPR 2016).

    With step s, T = ⌈k / s⌉ terms and q + before = s·m + i, y[o, q] = Σ_c,t x[c, m − t] · weight[c, o, s·t + i].
    """
    kernel, data = node.shape(1)[2:], node.shape(0)[2:]
    rank = len(kernel)
    steps = [int(v) for v in node.attr("strides", [1] * rank)]
    pads = [int(v) for v in node.attr("pads", [0] * 2 * rank)]
    extra = [int(v) for v in node.attr("output_padding", [0] * rank)]
    if list(node.attr("dilations", [1] * rank)) != [1] * rank:
        return None
    if {len(steps), len(pads) // 2, len(extra)} != {rank} or min(steps) < 1:
        return None  # the importer of the operator says what is wrong
    before, after = pads[:rank], pads[rank:]
    axes = list(zip(data, kernel, steps, before, after, extra, strict=True))
    sizes = [(n - 1) * s + k - p - r + more for n, k, s, p, r, more in axes]
    terms = [-(-k // s) for k, s in zip(kernel, steps, strict=True)]
    first = [p // s for p, s in zip(before, steps, strict=True)]
    last = [(p + size - 1) // s for p, s, size in zip(before, steps, sizes, strict=True)]
    read = [t - 1 - m for t, m in zip(terms, first, strict=True)]
    read += [m - n + 1 for m, n in zip(last, data, strict=True)]
    if min(read) < 0 or min(sizes) < 1:
        return None  # more padding than filter
    (channels, outputs), phases, groups = node.shape(1)[:2], int(np.prod(steps)), int(node.attr("group", 1))
    # Apart, none of them may begin behind the start of the data: that would be a negative padding.
    even = [t * s for t, s in zip(terms, steps, strict=True)] == list(kernel)
    is_each = channels == groups > 1 and outputs == 1
    if is_each and groups < FEW_CHANNELS and phases < MOST_APART:
        return None
    suits = 1 < phases <= MOST_APART if is_each else not even and outputs >= OWN_PHASE
    apart = suits and all(k >= s for k, s in zip(kernel, steps, strict=True)) and not any(first)
    result = _phases_apart(node, e, steps, read[rank:]) if apart else _phases_as_one(node, e, steps, terms, read)
    own = [groups] if groups > 1 and not apart else []
    outputs = outputs if own else groups * outputs
    counts = [m - f + 1 for m, f in zip(last, first, strict=True)]
    if phases > 1:
        result = e.reshape(result, -1, *own, *steps, outputs, *counts)
        begin = 1 + len(own)
        places = [place for axis in range(rank) for place in (begin + 1 + rank + axis, begin + axis)]
        result = e.transpose(result, *range(begin), begin + rank, *places)
        result = e.reshape(result, -1, math.prod(own) * outputs, *(n * s for n, s in zip(counts, steps, strict=True)))
    for axis, (p, s, f, size, count) in enumerate(zip(before, steps, first, sizes, counts, strict=True)):
        if (p - s * f, size) != (0, count * s):
            result = e.slice(result, 2 + axis, p - s * f, p - s * f + size)
    return [result]


@rewrites("ConvTranspose")
def conv_transpose(node: Node, e: Emit) -> list[str] | None:
    """Write out the padding of an output shape or of automatic padding; without either, ``_by_phases``."""
    auto = str(node.attr("auto_pad", "NOTSET"))
    wanted = node.attr("output_shape")
    if wanted is None and auto == "NOTSET":
        return _by_phases(node, e)
    data, weight = node.shape(0), node.shape(1)
    rank = len(data) - 2
    strides = [int(v) for v in node.attr("strides", [1] * rank)]
    dilations = [int(v) for v in node.attr("dilations", [1] * rank)]
    extra = [int(v) for v in node.attr("output_padding", [0] * rank)]
    pads = [0] * 2 * rank
    for i in range(rank):
        full = (data[i + 2] - 1) * strides[i] + (weight[i + 2] - 1) * dilations[i] + 1 + extra[i]
        target = int(wanted[-rank:][i]) if wanted is not None else data[i + 2] * strides[i]
        if auto == "VALID" and wanted is None:
            target = full
        total = full - target
        if total < 0:  # the output is larger than what is made: the rest is zeros after the end
            extra[i], total = extra[i] - total, 0
        first = total - total // 2 if auto != "SAME_UPPER" else total // 2
        pads[i], pads[i + rank] = first, total - first
    attributes = {"group": int(node.attr("group", 1)), "strides": strides, "dilations": dilations, "pads": pads}
    names = [str(name) for name in node.proto.input]
    return [e.op("ConvTranspose", *names, output_padding=extra, kernel_shape=list(weight[2:]), **attributes)]
