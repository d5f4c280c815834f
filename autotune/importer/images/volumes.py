"""Volumes become the images of their frames, one after the other: convolutions have templates for images only.

Notation: c = channels, t = frames, h, w = height and width of a frame, o = filters, k = frames of a filter.

    conv3d of (1, c, t, h, w) by k × kh × kw   →  conv2d of (t', k·c, h, w) by kh × kw

The image of an output frame has the channels of all k frames that it depends on, one frame behind the other; so each
frame lies in memory k times. Of several volumes at once, and in groups with k > 1, convolutions are left as they are.
"""

from __future__ import annotations

from tvm import relax
from tvm.ir import GenericConst, IRModule

from autotune.importer.images.image_view import ImageView
from autotune.importer.layouts.packing import Shape
from autotune.importer.rewriting.relax_values import bindings_of, operator_name, shape_of

POOLS = ("relax.nn.max_pool3d", "relax.nn.avg_pool3d")


def volumes_as_images(module: IRModule) -> IRModule:
    """``module`` with the volumes that are convolved as images of their frames."""
    is_any = any(_is_convolution(binding.value) for binding in bindings_of(module))
    return _Volumes(module).module() if is_any else module


def _is_convolution(expr: relax.Expr) -> bool:
    """Return whether ``expr`` convolves one volume by constant filters, in groups only frame by frame."""
    if operator_name(expr) != "relax.nn.conv3d" or not isinstance(expr.args[1], GenericConst):
        return False
    if str(expr.attrs.data_layout) != "NCDHW" or str(expr.ty.dtype) != "float32":
        return False
    volume, filters = shape_of(expr.args[0]), shape_of(expr.args[1]) or ()
    return volume is not None and volume[0] == 1 and (int(expr.attrs.groups) == 1 or filters[2] == 1)


class _Volumes(ImageView):
    """The view of (1, c, t, h, w) is (t, c, h, w)."""

    def has_view(self, shape: Shape) -> bool:
        return len(shape) == 5 and shape[0] == 1

    def image_made(self, call: relax.Call) -> relax.Expr | None:
        if _is_convolution(call):
            return self._convolved(call)
        if operator_name(call) in POOLS and call.args[0] in self.images:
            return self._pooled(call)
        return None

    def to_image(self, expr: relax.Expr, shape: Shape) -> relax.Expr:
        _, channels, frames, height, width = shape
        turned = self.builder.emit(relax.op.permute_dims(expr, (0, 2, 1, 3, 4)))
        return self.builder.emit(relax.op.reshape(turned, (frames, channels, height, width)))

    def from_image(self, image: relax.Expr, shape: Shape) -> relax.Expr:
        turned = self.builder.emit(relax.op.permute_dims(image, (1, 0, 2, 3)))
        return self.builder.emit(relax.op.reshape(turned, shape))

    def broadcast(self, shape: Shape, like: Shape) -> Shape | None:
        if shape in ((), (1,)):
            return shape
        _, channels, frames, height, width = (1,) * (len(like) - len(shape)) + shape
        return (1, channels, height, width) if frames == 1 else None

    def _convolved(self, call: relax.Call) -> relax.Expr:
        attrs, weight = call.attrs, call.args[1].value.numpy()
        filters, channels, depth, *kernel = weight.shape
        front, top, left, back, bottom, right = (int(pad) for pad in attrs.padding)
        step, *strides = (int(size) for size in attrs.strides)
        apart, *dilation = (int(size) for size in attrs.dilation)
        frames = self.image(call.args[0])
        if front or back:
            frames = self.builder.emit(relax.op.nn.pad(frames, (front, back, 0, 0, 0, 0, 0, 0)))
        count = (shape_of(call) or ())[2]
        if depth > 1 or step > 1:
            ends = [first * apart + step * (count - 1) + 1 for first in range(depth)]
            taken = [
                self.builder.emit(relax.op.strided_slice(frames, [0], [first * apart], [end], [step]))
                for first, end in enumerate(ends)
            ]
            frames = self.builder.emit(relax.op.concat(taken, 1)) if depth > 1 else taken[0]
        flat = weight.transpose(0, 2, 1, 3, 4).reshape(filters, depth * channels, *kernel)
        return self.convolved(call, frames, relax.const(flat), strides, (top, left, bottom, right), dilation)

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
