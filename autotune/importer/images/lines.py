"""Signals of one dimension become images of one row: convolutions and pools have templates for images only.

Notation: n = samples, c = channels, l = length of the signal, k = length of a filter.

    conv1d of (n, c, l) by k                 →  conv2d of (n, c, 1, l) by 1 × k
    conv2d of (n, c, l, 1) by k × 1          →  the same; kernels are tiled along the last axis, here of extent 1
    conv2d of (n, c, l, w) by k × w          →  conv2d of (n, c·w, 1, l) by 1 × k
    max_pool1d, avg_pool1d                   →  max_pool2d, avg_pool2d

Reshapes that only add or drop the axis of extent 1 keep the image.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm import relax
from tvm.ir import GenericConst, IRModule

from autotune.importer.images.image_view import ImageView
from autotune.importer.layouts.packing import Shape
from autotune.importer.rewriting.relax_values import Values, bindings_of, operator_name, shape_of

RESHAPES = frozenset({"relax.reshape", "relax.squeeze", "relax.expand_dims"})

POOLS = ("relax.nn.max_pool1d", "relax.nn.avg_pool1d")


def lines_as_images(module: IRModule) -> IRModule:
    """``module`` with every signal of one dimension that is convolved as an image of one row."""
    values = [binding.value for binding in bindings_of(module)]
    is_any = any(
        operator_name(value) == "relax.nn.conv1d" or _is_column(value) or _is_as_wide(value) for value in values
    )
    return _Lines(module).module() if is_any else module


def _is_column(expr: relax.Expr) -> bool:
    """Return whether ``expr`` convolves images of one column by filters of one column."""
    if operator_name(expr) != "relax.nn.conv2d" or str(expr.attrs.data_layout) != "NCHW":
        return False
    shapes = [shape_of(value) for value in (*expr.args, expr)]
    if any(shape is None for shape in shapes) or any(shape[3] != 1 for shape in shapes if shape is not None):
        return False
    image = shapes[0] or ()
    return image[2] > 1 and not any(int(pad) for pad in expr.attrs.padding[1::2])


def _is_as_wide(expr: relax.Expr) -> bool:
    """Return whether ``expr`` convolves images of several columns by constant filters of all of them."""
    if operator_name(expr) != "relax.nn.conv2d" or str(expr.attrs.data_layout) != "NCHW":
        return False
    image, weight, result = (shape_of(value) for value in (*expr.args, expr))
    if image is None or weight is None or result is None or not isinstance(expr.args[1], GenericConst):
        return False
    columns = image[3] == weight[3] > result[3] == 1 and not any(int(pad) for pad in expr.attrs.padding[1::2])
    return columns and result[2] > 1 and int(expr.attrs.groups) == 1


@dataclass
class _Lines(ImageView):
    """The view of (n, c, l) and of (n, c, l, 1) is (n, c, 1, l), which is its own.

    Attributes:
        turned: images of several columns → rows whose channels are these columns.
    """

    turned: Values = field(default_factory=dict)

    def has_view(self, shape: Shape) -> bool:
        return len(shape) == 3 or (len(shape) == 4 and 1 in shape[2:])

    def image_made(self, call: relax.Call) -> relax.Expr | None:
        name = operator_name(call)
        if name == "relax.nn.conv1d" and str(call.attrs.data_layout) == "NCW":
            return self._convolved(call, 0)
        if _is_column(call):
            return self._convolved(call, 1)
        if _is_as_wide(call):
            return self._convolved_across(call)
        if name in POOLS and str(call.attrs.layout) == "NCW":
            return self._pooled(call)
        if name in RESHAPES and call.args[0] in self.images:
            row = self.images[call.args[0]]
            n, c, _, length = shape_of(row) or ()  # of a signal of one of these shapes
            return row if shape_of(call) in ((n, c, length), (n, c, length, 1), (n, c, 1, length)) else None
        return None

    def to_image(self, expr: relax.Expr, shape: Shape) -> relax.Expr:
        if _is_row(shape):
            return expr
        n, c, length, *_ = shape
        return self.builder.emit(relax.op.reshape(expr, (n, c, 1, length)))

    def from_image(self, image: relax.Expr, shape: Shape) -> relax.Expr:
        return image if _is_row(shape) else self.builder.emit(relax.op.reshape(image, shape))

    def broadcast(self, shape: Shape, like: Shape) -> Shape | None:
        if shape in ((), (1,)):
            return shape
        n, c, *rest = (1,) * (len(like) - len(shape)) + shape
        if len(like) == 3:
            return n, c, 1, rest[0]
        row, column = rest
        if _is_row(like):
            return n, c, row, column
        return (n, c, 1, row) if column == 1 else None

    def _convolved(self, call: relax.Call, axis: int) -> relax.Expr:
        """``axis``: 0 where the attributes of ``call`` are of one axis, 1 where they are of two, the first is meant."""
        attrs, weight = call.attrs, call.args[1]
        filters, channels, length, *_ = shape_of(weight) or ()
        shape = filters, channels, 1, length
        if isinstance(weight, GenericConst):
            array = weight.value.numpy().reshape(shape)
            weight = relax.const(array, str(array.dtype))  # by itself it makes fp32 of fp64
        else:
            weight = self.builder.emit(relax.op.reshape(self.in_own_shape(weight), shape))
        before, after = int(attrs.padding[0]), int(attrs.padding[1 + axis])
        steps, spread = ((1, int(sizes[0])) for sizes in (attrs.strides, attrs.dilation))
        return self.convolved(call, self.image(call.args[0]), weight, steps, (0, before, 0, after), spread)

    def _convolved_across(self, call: relax.Call) -> relax.Expr:
        """The columns of images are channels of rows."""
        attrs, weight = call.attrs, call.args[1].value.numpy()
        filters, channels, length, columns = weight.shape
        weight = relax.const(weight.swapaxes(2, 3).reshape(filters, channels * columns, 1, length), str(weight.dtype))
        image = call.args[0]
        if image not in self.turned:
            turned = self.builder.emit(relax.op.permute_dims(self.in_own_shape(image), (0, 1, 3, 2)))
            n, _, _, height = shape_of(turned) or ()
            row = (n, channels * columns, 1, height)
            self.turned[image] = self.builder.emit(relax.op.reshape(turned, row))
        steps, spread = ((1, int(sizes[0])) for sizes in (attrs.strides, attrs.dilation))
        padding = (0, int(attrs.padding[0]), 0, int(attrs.padding[2]))
        return self.convolved(call, self.turned[image], weight, steps, padding, spread)

    def _pooled(self, call: relax.Call) -> relax.Expr:
        attrs, (before, after) = call.attrs, map(int, call.attrs.padding)
        size, steps, spread = ((1, int(sizes[0])) for sizes in (attrs.pool_size, attrs.strides, attrs.dilation))
        return self.pooled(call, size, steps, (0, before, 0, after), spread)


def _is_row(shape: Shape) -> bool:
    """Return whether images of ``shape`` have one row."""
    return len(shape) == 4 and shape[2] == 1
