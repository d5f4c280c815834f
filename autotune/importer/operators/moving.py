"""Operators that move elements to places that constants or other tensors decide: pads, windows, gathers, scatters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx

from autotune.importer.operators.pool_windows import windows, with_pads, within_data
from autotune.importer.rewriting.emit import INT64, Emit, Node
from autotune.importer.rewriting.registry import Inputs, converts, rewrites
from autotune.importer.rewriting.relax_values import constant_of, dtype_of, native, sizes_of
from schedules.templates.common.movements import REPEATED, REPEATED_BORDER, with_repeated_border
from schedules.vocabulary.errors import ModelError


@converts("Gather")
def gather(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Constant places are counted from the start here; others in the kernel, which holds them within the axis.

    Relax's importer has a kernel of its own count them, and another trusts what comes of it: a place outside the axis,
    such as the number of a word that a model does not know, would read any memory.
    """
    data, indices = inputs[:2]
    shape, known = sizes_of(data), constant_of(indices)
    axis = int(attrs.get("axis", 0)) % len(shape)
    size = shape[axis]
    if known is not None:
        places = held_within(known, np.array(size))
        if size == 1:  # nothing to choose; a kernel would be measured with places that are not there
            before, after = shape[:axis], shape[axis + 1 :]
            reshaped = bb.normalize(relax.op.reshape(data, [*before, *[1] * places.ndim, *after]))
            return relax.op.broadcast_to(reshaped, [*before, *places.shape, *after]) if places.size > 1 else reshaped
        return relax.op.take(data, relax.const(np.where(places < 0, places + size, places)), axis)

    def compute(x: te.Tensor, places: te.Tensor) -> te.Tensor:
        zero, last, count = (tirx.const(number, places.dtype) for number in (0, size - 1, size))
        behind = axis + len(places.shape)

        def element(*at: Any) -> Any:
            place = places(*at[axis:behind])
            place = tirx.max(tirx.min(tirx.Select(place < zero, place + count, place), last), zero)
            return x(*at[:axis], place.astype("int64"), *at[behind:])  # as the axes of what makes x

        return te.compute((*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]), element, name="take")

    # Not fused with its readers: in a long chain every copy of what they read would find its place once more.
    return bb.emit_te(compute, data, indices, primfunc_name_hint="take")


def held_within(places: NDArray[Any], sizes: NDArray[Any]) -> NDArray[Any]:
    """``places``, which are constants.

    Raises:
        ModelError: if one is outside of axes of these sizes.
    """
    if ((places < -sizes) | (places >= sizes)).any():
        raise ModelError(f"places {places.min()} to {places.max()} are not all within axes of {sizes.tolist()}")
    return places


@converts("GatherElements", "GatherND")
def at_places(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """With places held within the tensor: Relax's own read and write where they are told to."""
    kind = str(attrs["tvm_custom"]["kind"])
    data, indices = inputs[:2]
    operands = [operand for operand in inputs if operand is not None]
    shape, dtype = sizes_of(data), dtype_of(indices)
    sizes: NDArray[Any] = np.array(shape[int(attrs.get("axis", 0)) % len(shape)])
    if kind.endswith("ND"):
        first = int(attrs.get("batch_dims", 0))
        sizes = np.array(shape[first : first + sizes_of(indices)[-1]])
    if (known := constant_of(indices)) is not None:
        held_within(known, sizes)
        return native(kind, bb, operands, attrs, opset)
    count, last, zero = (relax.const(bounds.astype(dtype), dtype) for bounds in (sizes, sizes - 1, 0 * sizes))
    wrapped = relax.op.where(relax.op.less(indices, zero), relax.op.add(indices, count), indices)
    held = bb.normalize(relax.op.maximum(relax.op.minimum(bb.normalize(wrapped), last), zero))
    return native(kind, bb, [data, held, *operands[2:]], attrs, opset)


@rewrites("Pad")
def pad(node: Node, e: Emit) -> list[str] | None:
    """Per axis a gather at constant places; a constant border is chosen over what was gathered there.

    Repeated elements around a tensor are left to ``border``.
    """
    shape, mode = node.shape(0), str(node.attr("mode", "constant"))
    rank = len(shape)
    pads = [int(p) for p in node.constant(1, "pads")]
    axes = [int(a) % rank for a in node.constant(3, "axes")] if node.input(3) else list(range(rank))
    value = node.array(2) if node.input(2) else np.zeros((), node.dtype(0))
    if mode == "constant" and min(pads, default=0) >= 0 and value is not None and not node.input(3):
        return None
    if mode != "constant" and min(pads, default=0) >= 0 and 0 not in shape:
        if not node.input(3):
            return None
        every = [0] * 2 * rank
        for position, axis in enumerate(axes):
            every[axis], every[axis + rank] = pads[position], pads[position + len(axes)]
        return [e.op("Pad", node.input(0), e.ints(*every), mode=mode)]
    x, count = node.input(0), len(axes)
    for position, axis in enumerate(axes):
        before, after = pads[position], pads[position + count]
        if not before and not after:
            continue
        places = np.arange(-before, shape[axis] + after)
        picks = _picked(shape[axis], before, after, mode).astype(np.int64)
        x = e.op("Gather", x, e.const(picks), axis=axis)
        inside = (places >= 0) & (places < shape[axis])
        if mode == "constant" and not inside.all():
            border = node.input(2) or e.like(0)
            if node.input(2) and node.known_shape(2):
                border = e.reshape(border)
            mask = inside.reshape([-1 if i == axis else 1 for i in range(rank)])
            x = e.op("Where", e.const(mask), x, border)
    return [x if x != node.input(0) else e.op("Identity", x)]


def _picked(size: int, before: int, after: int, mode: str) -> NDArray[np.int64]:
    """Return which element stands at each place of a padded axis; negative pads crop it before anything is repeated."""
    first, last = max(-before, 0), size - max(-after, 0)
    if last <= first:
        return np.zeros(max(before + size + after, 0), np.int64)
    places = np.arange(-max(before, 0), last - first + max(after, 0))
    return first + _reflected(places, last - first, mode)


def _reflected(places: NDArray[np.int64], size: int, mode: str) -> NDArray[np.int64]:
    """Return which element stands at each place, some of them outside."""
    if mode == "wrap":
        return np.mod(places, size)
    if mode == "reflect" and size > 1:
        period = 2 * (size - 1)
        folded = places % period
        mirrored: NDArray[np.int64] = np.where(folded < size, folded, period - folded)
        return mirrored
    return np.clip(places, 0, size - 1)


@rewrites("Range", "Split")
def sized_by_numbers(node: Node, e: Emit) -> list[str] | None:
    """Left to folding; refused where its sizes are computed from the inputs, once nothing else is left to fold."""
    names = ("start", "limit", "delta") if node.kind == "Range" else ("", "split")
    for index, what in enumerate(names) if e.scope.settled else ():
        if what and node.input(index):
            node.constant(index, what)
    return None


@converts("Pad")
def border(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Make a border of repeated elements one kernel, and one of a finite number an operator that layouts know."""
    present = [operand for operand in inputs if operand is not None]
    data, widths, value = [*inputs, None][:3]
    amounts, number = constant_of(widths), np.zeros(()) if value is None else constant_of(value)
    mode = str(attrs.get("mode", b"constant"), "ascii") if isinstance(attrs.get("mode"), bytes) else attrs.get("mode")
    if amounts is not None and mode in REPEATED and len(present) < 4:
        widths = tuple(zip(amounts[: len(amounts) // 2].tolist(), amounts[len(amounts) // 2 :].tolist(), strict=True))
        attrs = {REPEATED_BORDER: [mode, *(str(width) for pair in widths for width in pair)]}
        return bb.emit_te(with_repeated_border, data, widths, mode, primfunc_name_hint="border", primfunc_attrs=attrs)
    if amounts is None or number is None or not np.isfinite(number).all() or mode not in (None, "constant"):
        return native("Pad", bb, present, attrs, opset)
    if len(amounts) != 8 or not dtype_of(data).startswith("float"):
        return native("Pad", bb, present, attrs, opset)
    sides = [int(width) for pair in zip(amounts[:4], amounts[4:], strict=True) for width in pair]
    return relax.op.nn.pad(data, sides, pad_value=float(number.reshape(())))


@rewrites("SpaceToDepth")
def space_to_depth(node: Node, e: Emit) -> list[str] | None:
    """With the block's places after the channels (CRD), which Relax's importer does not know."""
    if str(node.attr("mode", "DCR")) != "CRD":
        return None
    batch, channels, height, width = node.shape(0)
    size = int(node.attr("blocksize"))
    x = e.reshape(node.input(0), batch, channels, height // size, size, width // size, size)
    return [e.reshape(e.transpose(x, 0, 1, 3, 5, 2, 4), batch, channels * size * size, height // size, width // size)]


@rewrites("ReverseSequence")
def reverse_sequence(node: Node, e: Emit) -> list[str] | None:
    """Element t of a sequence of n comes from n − 1 − t if t < n, else from t."""
    shape = node.shape(0)
    time, batch = int(node.attr("time_axis", 0)), int(node.attr("batch_axis", 1))
    rank = len(shape)
    steps = e.const(np.arange(shape[time], dtype=np.int64).reshape([-1 if i == time else 1 for i in range(rank)]))
    lengths = e.reshape(e.cast(node.input(1), INT64), *(shape[batch] if i == batch else 1 for i in range(rank)))
    back = e.op("Sub", e.op("Sub", lengths, e.const(np.int64(1))), steps)
    picks = e.op("Where", e.op("Less", steps, lengths), back, steps)
    return [e.op("GatherElements", node.input(0), e.op("Expand", picks, e.ints(*shape)), axis=time)]


@rewrites("TensorScatter")
def tensor_scatter(node: Node, e: Emit) -> list[str] | None:
    """Per sequence of the batch, the update overwrites the cache from a given place on."""
    cache, update = node.shape(0), node.shape(1)
    rank = len(cache)
    axis = int(node.attr("axis", -2)) % rank
    size = e.const(np.int64(cache[axis]))
    places = e.const(np.arange(cache[axis], dtype=np.int64).reshape([-1 if i == axis else 1 for i in range(rank)]))
    start = e.const(np.int64(0))
    if node.input(2):
        start = e.reshape(e.cast(node.input(2), INT64), cache[0], *[1] * (rank - 1))
    offset = e.op("Sub", places, start)
    if str(node.attr("mode", "linear")) == "circular":
        offset = e.op("Mod", offset, size)
    least, most = e.const(np.int64(0)), e.const(np.int64(update[axis] - 1))
    hit = e.op("And", e.op("GreaterOrEqual", offset, least), e.op("LessOrEqual", offset, most))
    picks = e.op("Expand", e.op("Clip", offset, least, most), e.ints(*cache))
    return [e.op("Where", hit, e.op("GatherElements", node.input(1), picks, axis=axis), node.input(0))]


@rewrites("Col2Im")
def col2im(node: Node, e: Emit) -> list[str] | None:
    """Every column element is added where it came from: a scatter with constant indices."""
    image = [int(v) for v in node.constant(1, "image shape")]
    block = [int(v) for v in node.constant(2, "block shape")]
    rank = len(image)
    strides = [int(v) for v in node.attr("strides", [1] * rank)]
    dilations = [int(v) for v in node.attr("dilations", [1] * rank)]
    pads = [int(v) for v in node.attr("pads", [0] * 2 * rank)]
    batch, rows, _ = node.shape(0)
    padded = [size + pads[i] + pads[i + rank] for i, size in enumerate(image)]
    places = np.zeros((1, 1), np.int64)  # (block elements, blocks) → place in the padded image
    for i in range(rank):
        count = (padded[i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
        own = np.arange(block[i])[:, None] * dilations[i] + np.arange(count)[None, :] * strides[i]
        places = places[:, None, :, None] * padded[i] + own[None, :, None, :]
        places = places.reshape(places.shape[0] * places.shape[1], -1)
    channels = rows // int(np.prod(block))
    values = e.reshape(node.input(0), batch, channels, places.size)
    indices = np.broadcast_to(places.reshape(1, 1, -1), (batch, channels, places.size))
    canvas = e.const(np.zeros((batch, channels, int(np.prod(padded))), node.dtype(0)))
    summed = e.op("ScatterElements", canvas, e.const(indices), values, axis=2, reduction="add")
    x = e.reshape(summed, batch, channels, *padded)
    for i in range(rank):
        if pads[i] or pads[i + rank]:
            x = e.slice(x, i + 2, pads[i], pads[i] + image[i])
    return [x]


@rewrites("MaxPool")
def max_pool(node: Node, e: Emit) -> list[str] | None:
    """With indices: windows gathered at constant places, their greatest element, and the place it came from."""
    if not node.wants(1):
        written = with_pads(node, e) or within_data(node, e)
        return None if written is None else [written]
    shape, pool = node.shape(0), windows(node)
    flat, column = np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64)
    valid: NDArray[np.bool_] = np.ones((1, 1), np.bool_)
    stride = 1
    for i, size in enumerate(shape[2:]):
        taps = np.arange(pool.kernel[i])[None, :] * pool.dilations[i] - pool.pads[i]
        own = np.arange(pool.counts[i])[:, None] * pool.strides[i] + taps
        ok, place = (own >= 0) & (own < size), np.clip(own, 0, size - 1)
        rows = (flat.shape[0] * pool.counts[i], -1)
        flat = (flat[:, None, :, None] * size + place[None, :, None, :]).reshape(rows)
        column = (column[:, None, :, None] + place[None, :, None, :] * stride).reshape(rows)
        valid = (valid[:, None, :, None] & ok[None, :, None, :]).reshape(rows)
        stride *= size
    lowest = -np.inf if node.dtype(0).kind == "f" else np.iinfo(node.dtype(0)).min
    pixels = int(np.prod(shape[2:]))
    seen = e.op("Gather", e.reshape(node.input(0), *shape[:2], pixels), e.const(flat), axis=2)
    seen = e.op("Where", e.const(valid), seen, e.like(lowest))
    best = e.reduce("ReduceMax", seen, [3], keepdims=False)
    where = e.op("ArgMax", seen, axis=3, keepdims=1)
    table = np.broadcast_to(column if node.attr("storage_order", 0) else flat, (*shape[:2], *flat.shape))
    table = table + (np.arange(shape[0] * shape[1]) * pixels).reshape(*shape[:2], 1, 1)
    indices = e.squeeze(e.op("GatherElements", e.const(table), where, axis=3), 3)
    return [e.reshape(part, *shape[:2], *pool.counts) for part in (best, indices)]


@rewrites("MaxUnpool")
def max_unpool(node: Node, e: Emit) -> list[str] | None:
    """Every element goes to the place it came from, in a tensor of zeros.

    Places of a ``MaxPool`` of this model are those of its input, which an output shape names where the window does not
    give it. Others are, as ONNX has it, of the shape that the window gives, which is padded with more zeros.
    """
    shape = node.shape(0)
    rank = len(shape) - 2
    kernel = [int(v) for v in node.attr("kernel_shape")]
    strides = [int(v) for v in node.attr("strides", [1] * rank)]
    pads = [int(v) for v in node.attr("pads", [0] * 2 * rank)]
    inferred = [(size - 1) * strides[i] - pads[i] - pads[i + rank] + kernel[i] for i, size in enumerate(shape[2:])]
    wanted = [int(v) for v in node.constant(2, "output shape")][2:] if node.input(2) else inferred
    if len(wanted) == rank and any(node.input(1) in maker.output[1:] for maker in node.scope.graph.node):
        inferred = wanted
    full = int(np.prod([*shape[:2], *inferred]))
    zeros = e.const(np.zeros(full, node.dtype(0)))
    filled = e.op("ScatterElements", zeros, e.reshape(node.input(1), -1), e.reshape(node.input(0), -1), axis=0)
    x = e.reshape(filled, *shape[:2], *inferred)
    if wanted != inferred:
        more = [b - a for a, b in zip(inferred, wanted, strict=True)]
        x = e.op("Pad", x, e.ints(*[0] * (rank + 2), 0, 0, *more))
    return [x]
