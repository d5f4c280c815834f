"""Volumes become the images of their frames, one after the other: convolutions have templates for images only.

Notation: n = volumes, c = channels, t = frames, h, w = height and width of a frame, o = filters, k = their frames.

    conv3d of (n, c, t, h, w) by k × kh × kw   →  conv2d of (t'·n, k·c, h, w) by kh × kw

The image of an output frame has the channels of all k frames that it depends on, one frame behind the other; so each
frame lies in memory k times. In groups, and by few filters, each frame is convolved by the k parts of a filter instead,
and what they contribute is added up:

    conv3d of (n, c, t, h, w) by k × kh × kw   →  sum of k results of conv2d of (t·n, c, h, w) by kh × kw

Few filters are those that leave vectors of ``SUMS`` filters mostly empty, unless the parts lie in one.
"""

from __future__ import annotations

from tvm import relax, te, tirx
from tvm.ir import GenericConst, IRModule

from autotune.importer.images.image_view import ImageView
from autotune.importer.images.polyphase import SUMS
from autotune.importer.layouts.packing import Shape
from autotune.importer.rewriting.relax_values import bindings_of, operator_name, shape_of

POOLS = ("relax.nn.max_pool3d", "relax.nn.avg_pool3d")

WORTH = 1.5
"""Times fewer vectors of sums from which the parts of few filters are convolved side by side. Heuristic."""


def volumes_as_images(module: IRModule) -> IRModule:
    """``module`` with the volumes that are convolved as images of their frames."""
    is_any = any(_is_convolution(binding.value) for binding in bindings_of(module))
    return _Volumes(module).module() if is_any else module


def _is_convolution(expr: relax.Expr) -> bool:
    """Return whether ``expr`` convolves volumes of a known size by constant filters."""
    if operator_name(expr) != "relax.nn.conv3d" or not isinstance(expr.args[1], GenericConst):
        return False
    if str(expr.attrs.data_layout) != "NCDHW" or str(expr.ty.dtype) != "float32":
        return False
    return shape_of(expr.args[0]) is not None


class _Volumes(ImageView):
    """The view of (n, c, t, h, w) is (t·n, c, h, w): all first frames, then all second ones."""

    def has_view(self, shape: Shape) -> bool:
        return len(shape) == 5

    def image_made(self, call: relax.Call) -> relax.Expr | None:
        if _is_convolution(call):
            return self._convolved(call)
        if operator_name(call) in POOLS and call.args[0] in self.images:
            return self._pooled(call)
        return None

    def to_image(self, expr: relax.Expr, shape: Shape) -> relax.Expr:
        count, channels, frames, height, width = shape
        turned = self.builder.emit(relax.op.permute_dims(expr, (2, 0, 1, 3, 4)))
        return self.builder.emit(relax.op.reshape(turned, (frames * count, channels, height, width)))

    def from_image(self, image: relax.Expr, shape: Shape) -> relax.Expr:
        count, channels, frames, height, width = shape
        apart = self.builder.emit(relax.op.reshape(image, (frames, count, channels, height, width)))
        return self.builder.emit(relax.op.permute_dims(apart, (1, 2, 0, 3, 4)))

    def broadcast(self, shape: Shape, like: Shape) -> Shape | None:
        if shape in ((), (1,)):
            return shape
        count, channels, frames, height, width = (1,) * (len(like) - len(shape)) + shape
        return (1, channels, height, width) if count == frames == 1 else None

    def _convolved(self, call: relax.Call) -> relax.Expr:
        attrs, weight = call.attrs, call.args[1].value.numpy()
        filters, channels, depth, *kernel = weight.shape
        front, top, left, back, bottom, right = (int(pad) for pad in attrs.padding)
        step, *strides = (int(size) for size in attrs.strides)
        apart, *dilation = (int(size) for size in attrs.dilation)
        geometry = strides, (top, left, bottom, right), dilation
        frames, volumes = self.image(call.args[0]), (shape_of(call) or ())[0]
        count, read = (shape_of(call) or ())[2], (shape_of(call.args[0]) or ())[2]
        firsts = [first * apart - front for first in range(depth)]
        few = int(attrs.groups) == 1 and step == 1
        few &= depth * _vectors(filters) * count >= WORTH * _vectors(depth * filters) * read
        if depth > 1 and few:
            stacked = weight.transpose(2, 0, 1, 3, 4).reshape(depth * filters, channels, *kernel)
            parts = self.convolved(call, frames, relax.const(stacked), *geometry)
            return self.builder.emit_te(
                _added_up, parts, [first * volumes for first in firsts], count * volumes, primfunc_name_hint="added_up"
            )
        if front or back:
            widths = (front * volumes, back * volumes, 0, 0, 0, 0, 0, 0)
            frames = self.builder.emit(relax.op.nn.pad(frames, widths))
        taken = [self._taken(frames, first + front, step, count, volumes) for first in firsts]
        if depth > 1 and int(attrs.groups) > 1:
            total = self.convolved(call, taken[0], relax.const(weight[:, :, 0]), *geometry)
            for first in range(1, depth):
                part = self.convolved(call, taken[first], relax.const(weight[:, :, first]), *geometry)
                total = self.builder.emit(relax.op.add(total, part))
            return total
        frames = self.builder.emit(relax.op.concat(taken, 1)) if depth > 1 else taken[0]
        flat = weight.transpose(0, 2, 1, 3, 4).reshape(filters, depth * channels, *kernel)
        return self.convolved(call, frames, relax.const(flat), *geometry)

    def _taken(self, frames: relax.Expr, first: int, step: int, count: int, volumes: int) -> relax.Expr:
        """Every ``step``-th frame of all volumes from ``first`` on, ``count`` of them."""
        if (first, step, count * volumes) == (0, 1, (shape_of(frames) or ())[0]):
            return frames

        def cut(begin: int, end: int, stride: int) -> relax.Expr:
            return self.builder.emit(relax.op.strided_slice(frames, [0], [begin], [end], [stride]))

        if step == 1 or volumes == 1:
            return cut(first * volumes, (first + step * (count - 1) + 1) * volumes, step)
        parts = [cut(at * volumes, (at + 1) * volumes, 1) for at in range(first, first + step * count, step)]
        return self.builder.emit(relax.op.concat(parts, 0)) if count > 1 else parts[0]

    def _pooled(self, call: relax.Call) -> relax.Expr | None:
        """Pool single frames; None if frames are pooled together."""
        attrs = call.attrs
        depth, *size = (int(extent) for extent in attrs.pool_size)
        step, *strides = (int(stride) for stride in attrs.strides)
        front, top, left, back, bottom, right = (int(pad) for pad in attrs.padding)
        if str(attrs.layout) != "NCDHW" or (depth, step, front, back) != (1, 1, 0, 0):
            return None
        dilation = [int(rate) for rate in attrs.dilation][1:]
        return self.pooled(call, size, strides, (top, left, bottom, right), dilation)


def _vectors(filters: int) -> int:
    """Vectors of sums that hold one sum of each filter."""
    return -(-filters // SUMS)


def _added_up(parts: te.Tensor, firsts: list[int], count: int) -> te.Tensor:
    """Image t of the result is the sum of image t + ``firsts[k]`` of part k, for those that exist.

    Args:
        parts: (images, k · o, h, w).
        count: images of the result.
    """
    images, channels, height, width = (int(size) for size in parts.shape)
    filters = channels // len(firsts)

    def element(t: tirx.Var, o: tirx.Var, h: tirx.Var, w: tirx.Var) -> tirx.Expr:
        total: tirx.Expr | None = None
        for part, first in enumerate(firsts):
            at = t + first
            value = parts(at, part * filters + o, h, w)
            if first < 0 or first + count > images:
                value = tirx.if_then_else(tirx.all(at >= 0, at < images), value, tirx.const(0, parts.dtype))
            total = value if total is None else total + value
        return total

    return te.compute((count, filters, height, width), element, name="added_up")
