"""Operators on images and regions of an open number."""

from __future__ import annotations

import numpy as np

from autotune.importer.operators.dynamic.open_sizes import Made, Open, OpenNode
from autotune.importer.operators.dynamic.regions import regions_of
from autotune.importer.rewriting.registry import handles


@handles("Pad")
def pad(at: OpenNode) -> Made | None:
    """Pad other axes than the open one."""
    node, size, rank = at.node, at.open(0), len(at.node.shape(0))
    pads, axes = node.array(1), node.array(3) if node.input(3) else np.arange(rank)
    if size is None or not at.only(0) or pads is None or axes is None:
        return None
    padded = {int(axis) % rank for axis, each in zip(np.tile(axes, 2), pads.reshape(-1), strict=True) if each}
    given = [str(name) for name in node.proto.input]
    return None if size.axis in padded else [(at.e.op("Pad", *given, mode=node.attr("mode", "constant")), size)]


@handles("Resize")
def resize(at: OpenNode) -> Made | None:
    """Resize other axes than the open one, whose scale is one, or which is to be as long as it is."""
    node, e, size, shape = at.node, at.e, at.open(0), at.node.shape(0)
    scales, sizes = node.array(2) if node.input(2) else None, at.numbers(3) if node.input(3) else None
    if size is None or not at.only(0) or node.attr("axes") is not None:
        return None
    if sizes is None:
        if scales is None or scales.size != len(shape) or scales.reshape(-1)[size.axis] != 1:
            return None
        wanted = node.input(2), ""
    else:
        if [n.name for n in sizes] != [size.length if axis == size.axis else "" for axis in range(len(shape))]:
            return None
        wanted = "", e.ints(*(shape[axis] if axis == size.axis else n.most for axis, n in enumerate(sizes)))
    return [(e.op("Resize", node.input(0), node.input(1), *wanted, **node.attributes), size)]


@handles("RoiAlign")
def roi_align(at: OpenNode) -> Made | None:
    """Align an open number of regions."""
    node, regions = at.node, at.open(1)
    if at.open(0) is not None or regions is None or {*at.opens[1:]} != {Open(0, regions.length)}:
        return None
    return [(regions_of(node, at.e, at.e.unsqueeze(regions.length, 0)), regions)]
