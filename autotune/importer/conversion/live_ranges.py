"""Only what counts of a call decides its results, if the set of shapes is larger than the call.

What stands behind the end of a padded call would change many results: convolutions and pools read it beside the last
positions, norms and means take it for numbers, a recurrent layer that walks backwards begins there. Each of these
operators gets numbers that do no harm in its place: zeros for sums, the least number for a maximum. Means are divided
by how many numbers count.

``DynamicQuantizeLinear`` takes its scale from all numbers of a tensor. With the numbers of the first position in the
place of those that do not count, the range is the call's own, and NaN stays NaN. Rows that do not count are still
quantised, so that kernels may leave them out.

Which positions count is an input of booleans for each open size (``frame/noise.py``), which a session fills with ones
and pads with zeros as it does every other input. Zeros are put where a value is made, so that they become part of the
kernel that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike
from onnx import ModelProto, NodeProto, TensorProto, helper

from autotune.frame.noise import live_name
from autotune.importer.conversion.live_axes import Axes, is_open, kernel_of
from autotune.importer.conversion.live_masks import Masks
from autotune.importer.onnx_model.graph_edits import constants_to_initialisers, replace_nodes
from autotune.importer.onnx_model.graph_walk import name_nodes
from autotune.importer.onnx_model.open_axes import QUANTISER, is_endless
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS, infer_shapes
from autotune.importer.operators.recurrent_ops import LENGTHS
from autotune.importer.rewriting.emit import FLOAT, HALVES, Emit, Node, Wide
from autotune.importer.rewriting.registry import replacement
from autotune.interface import Extent

PER_AXIS = 13
"""First opset whose ``Softmax`` is along one axis, not along all from one on."""

PER_CHANNEL = 21
"""First opset whose ``GroupNormalization`` has a scale for each channel."""

Edit = Callable[[Node, Emit, Masks], list[str] | None]
"""The values that take the place of a node's outputs; None where it may stay as it is."""


def mask_positions(model: ModelProto, live: Mapping[str, int], axes: Mapping[str, Axes]) -> None:
    """Let only what counts decide the results of ``model``, in place.

    Args:
        model: flattened, its shapes inferred.
        live: the open sizes of the set of shapes.
        axes: of values, as ``followed_axes`` finds them; what reads others stays as it is.

    Raises:
        ModelError: as ``infer_shapes``.
    """
    graph = model.graph
    graph.input.extend(
        helper.make_tensor_value_info(live_name(symbol), TensorProto.BOOL, [size]) for symbol, size in live.items()
    )
    constants_to_initialisers(graph)
    scope, masks = Scope(model), Masks(live, axes)
    cleared = _Cleared(masks)
    makers = {name: node for node in graph.node for name in node.output}
    for proto in graph.node:
        cleared.note(Node(proto, scope), makers)
    kept = cleared.of_inputs(scope)
    for proto in [*graph.node]:
        for node in _edited(proto, scope, masks):
            cleared.rename(node)
            kept += [node, *cleared.behind(node, scope)]
    replace_nodes(graph, kept)
    name_nodes(graph.node)
    infer_shapes(model, graph.name or "model")


@dataclass
class _Cleared:
    """The values that become a number where they do not count, as soon as they are made.

    Attributes:
        wanted: value → the axes behind whose end it stands, and the number.
        renamed: input of the model → what is read in its place.
    """

    masks: Masks
    wanted: dict[str, tuple[set[int], ArrayLike]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def note(self, node: Node, makers: Mapping[str, NodeProto]) -> None:
        """Note what the operator ``node`` reads beside what counts, as sums and products do."""
        reads = _reads_beside(node, self.masks)
        if reads:
            self._want(node.input(0), set(reads), _neutral(node), makers)

    def _want(self, name: str, axes: set[int], number: ArrayLike, makers: Mapping[str, NodeProto]) -> None:
        maker = makers.get(name)
        if maker is not None and maker.op_type == "Concat":
            parts = [part for part in maker.input if self.masks.open_axes(part, axes) == sorted(axes)]
            if len(parts) == len(maker.input):
                for part in parts:
                    self._want(part, axes, number, makers)
                return
        if maker is not None and maker.op_type == "DequantizeLinear":  # before it is quantised: zero stays zero
            quantiser = makers.get(maker.input[0])
            if quantiser is not None and quantiser.op_type == "QuantizeLinear":
                self._want(quantiser.input[0], axes, number, makers)
                return
        known = self.wanted.setdefault(name, (set(), number))
        known[0].update(axes)

    def rename(self, node: NodeProto) -> None:
        """Let ``node`` read cleared inputs of the model, in place."""
        for index, name in enumerate(node.input):
            node.input[index] = self.renamed.get(name, name)

    def behind(self, maker: NodeProto, scope: Scope) -> list[NodeProto]:
        """The nodes that clear what ``maker`` makes, which has another name from now on."""
        nodes = []
        for index, name in enumerate(maker.output):
            if name in self.wanted:
                maker.output[index] = scope.names.new(f"{name}/all")
                nodes += self._clear(name, maker.output[index], name, scope)
        return nodes

    def of_inputs(self, scope: Scope) -> list[NodeProto]:
        """The nodes that clear inputs of the model."""
        nodes = []
        for value in scope.graph.input:
            if value.name in self.wanted:
                self.renamed[value.name] = scope.names.new(f"{value.name}/counted")
                nodes += self._clear(value.name, value.name, self.renamed[value.name], scope)
        return nodes

    def _clear(self, name: str, source: str, result: str, scope: Scope) -> list[NodeProto]:
        axes, number = self.wanted[name]
        e = Emit(Node(helper.make_node("Where", [source], [result]), scope))
        mask = self.masks.mask(e, self.masks.axes[name], sorted(axes))
        fill = e.const(np.asarray(number, helper.tensor_dtype_to_np_dtype(scope.types[name])))
        return [*e.nodes, helper.make_node("Where", [mask, source, fill], [result], result)]


def _edited(proto: NodeProto, scope: Scope, masks: Masks) -> list[NodeProto]:
    """What takes the place of a node; itself where nothing needs to."""
    edit = EDITS.get(proto.op_type) if proto.domain in STANDARD_DOMAINS else None
    nodes = None if edit is None else replacement(lambda node, e: edit(node, e, masks), proto, scope)
    return [proto] if nodes is None else nodes


def _reads_beside(node: Node, masks: Masks) -> list[int]:
    """The axes of its first input along which an operator adds up numbers that do not count."""
    if node.proto.domain not in STANDARD_DOMAINS:
        return []
    own = masks.axes.get(node.input(0), ())
    if node.kind in CONVOLUTIONS:
        return _open_windows(node, masks)
    if node.kind in ("AveragePool", "LpPool"):
        return _open_windows(node, masks) if _has_border(node) else []
    if node.kind in AVERAGED:
        return masks.open_axes(node.input(0), AVERAGED[node.kind](node, len(own)))
    if node.kind == "Pad":
        return _open_borders(node, masks) if _border_number(node) == 0 else []
    if node.kind == "MatMul":
        return masks.open_axes(node.input(0), [len(own) - 1]) if len(own) > 1 else []
    return []


def _open_windows(node: Node, masks: Masks) -> list[int]:
    """The axes of an image that follow open sizes and along which a window has more than one number."""
    kernel = kernel_of(node) or []
    return masks.open_axes(node.input(0), [2 + at for at, size in enumerate(kernel) if size > 1])


def _has_border(node: Node) -> bool:
    """Return whether windows reach beyond the image."""
    auto = str(node.attr("auto_pad", "NOTSET"))
    return auto.startswith("SAME") or any(node.attr("pads", ())) or bool(node.attr("ceil_mode", 0))


def _open_borders(node: Node, masks: Masks) -> list[int]:
    """The axes that follow open sizes and get a border; none where it repeats numbers."""
    own = masks.axes.get(node.input(0), ())
    pads = node.attr("pads") or node.array(1)
    if str(node.attr("mode", "constant")) != "constant" or pads is None or node.input(3):
        return []
    return masks.open_axes(node.input(0), [at for at in range(len(own)) if pads[at] or pads[at + len(own)]])


def _border_number(node: Node) -> float | None:
    """The number of a constant border; None if it is not known before the model runs."""
    if not node.input(2):
        return float(node.attr("value", 0.0))
    array = node.array(2)
    return None if array is None else float(array.ravel()[0])


def _neutral(node: Node) -> ArrayLike:
    """What adds nothing to a sum of products: zero, or what stands for it."""
    zero = node.array(2) if node.kind in ("ConvInteger", "QLinearConv") else None
    return 0 if zero is None else zero.ravel()[0]


def _behind_two(node: Node, rank: int) -> list[int]:  # as ``_reduced``
    """The axes of an image."""
    return [*range(2, rank)]


def _reduced(node: Node, rank: int) -> list[int]:
    """The axes of a reduction; none where they are not known."""
    return node.axes(rank) or []


def _softened(node: Node, rank: int) -> list[int]:
    """The axes over which a softmax adds up to one."""
    default = -1 if node.scope.opset >= PER_AXIS else 1
    axis = int(node.attr("axis", default)) % max(1, rank)
    return [axis] if node.scope.opset >= PER_AXIS else [*range(axis, rank)]


def _picked(node: Node, rank: int) -> list[int]:
    """The axis along which a number is looked for."""
    return [int(node.attr("axis", -1 if node.kind == "TopK" else 0)) % max(1, rank)]


def _same(node: Node, e: Emit, x: str) -> list[str]:
    """``node`` with another first input."""
    return e.ops(node.kind, x, *node.proto.input[1:], outputs=len(node.proto.output), **node.attributes)


def _filled(over: Callable[[Node, Masks], Collection[int]], number: Callable[[Node], ArrayLike]) -> Edit:
    """Read a number in place of what does not count along some axes."""

    def edit(node: Node, e: Emit, masks: Masks) -> list[str] | None:
        axes, x = over(node, masks), node.input(0)
        if not axes:
            return None
        return _same(node, e, e.op("Where", masks.mask(e, masks.axes[x], axes), x, e.const(_as(node, number(node)))))

    return edit


def _as(node: Node, number: ArrayLike) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    return np.asarray(number, node.dtype(0))


def _bounds(node: Node) -> Any:
    """The least and largest numbers of the type of the first input."""
    dtype = node.dtype(0)
    finfo: Any = ml_dtypes.finfo  # NumPy's knows no bfloat16
    return np.iinfo(dtype) if dtype.kind in "iu" else finfo(dtype)


def _least(node: Node) -> ArrayLike:
    """A number that is never the largest."""
    return np.asarray(_bounds(node).min)


def _most(node: Node) -> ArrayLike:
    """A number that is never the least."""
    return np.asarray(_bounds(node).max)


def _searched(node: Node) -> ArrayLike:
    """What is not found where the largest numbers are looked for, or the least."""
    return _least(node) if node.attr("largest", 1) else _most(node)


def _along(axes_of: Callable[[Node, int], Collection[int]]) -> Callable[[Node, Masks], list[int]]:
    """Those of an operator's axes that follow open sizes."""
    return lambda node, masks: masks.open_axes(node.input(0), axes_of(node, len(masks.axes.get(node.input(0), ()))))


def _bordered(node: Node, masks: Masks) -> list[int]:
    """The axes of a pool whose windows reach beyond the image."""
    return _open_windows(node, masks) if _has_border(node) else []


def _with_border(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """A border of another number than zero."""
    number = _border_number(node)
    if not number:  # zeros stand there already, or it is not known
        return _continued(node, e, masks)
    return _filled(_open_borders, lambda _: number)(node, e, masks)


def _continued(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """What is resized linearly, or gets a border of its last numbers, goes on with these behind its end."""
    x, axes = node.input(0), masks.axes.get(node.input(0), ())
    if node.kind == "Pad":
        over = masks.open_axes(x) if str(node.attr("mode", "constant")) == "edge" else []
    else:
        over = masks.open_axes(x) if str(node.attr("mode", "nearest")) != "nearest" else []
    if not over or any(len(axes[axis]) != 1 or not isinstance(axes[axis][0], Extent) for axis in over):
        return None
    for axis in over:
        (part,) = axes[axis]
        assert isinstance(part, Extent)
        last = e.op("Sub", masks.count(e, part), e.ints(1))
        x = e.op("Where", masks.mask(e, axes, [axis]), x, e.op("Gather", x, last, axis=axis))
    return _same(node, e, x)


def _mean(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """The mean of what counts: all else is zero."""
    x = node.input(0)
    axes = [*AVERAGED[node.kind](node, len(masks.axes.get(x, ())))]
    if not masks.open_axes(x, axes):
        return None
    total = e.reduce("ReduceSum", x, axes, bool(node.attr("keepdims", 1)))
    return [e.op("Div", total, e.reshape(masks.total(e, masks.axes[x], axes, node.type(0))))]


def _average(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """Averages of what counts: by averages of ones, which have the same borders."""
    over = _open_windows(node, masks) if _has_border(node) and not node.attr("count_include_pad", 0) else []
    if not over:
        return None
    x, attributes = node.input(0), {**node.attributes, "count_include_pad": 1}
    counted = e.cast(masks.mask(e, masks.axes[x], over), node.type(0))
    sizes = node.scope.shapes[x]
    ones = e.op("Expand", counted, e.ints(1, 1, *sizes[2:]))
    share = e.op("AveragePool", ones, **attributes)
    share = e.op("Max", share, e.const(_as(node, np.finfo(np.float16).tiny)))  # windows of nothing that counts
    return [e.op("Div", e.op("AveragePool", x, **attributes), share)]


def _instances(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """Normalise each channel by the mean and variance of what counts."""
    axes = masks.axes.get(node.input(0), ())
    if not masks.open_axes(node.input(0), _behind_two(node, len(axes))):
        return None
    data = Wide(e, 0)
    normal = _normal(node, e, masks, data, axes)
    return [data.back(_scaled(node, e, data, normal, len(axes)))]


def _groups(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """Normalise each group of channels by the mean and variance of what counts."""
    axes, count = masks.axes.get(node.input(0), ()), int(node.attr("num_groups", 1))
    if node.scope.opset < PER_CHANNEL or not masks.open_axes(node.input(0), _behind_two(node, len(axes))):
        return None
    data, shape = Wide(e, 0), node.scope.shapes[node.input(0)]
    x, data.x = data.x, e.reshape(data.x, shape[0], count, shape[1] // count, *shape[2:])
    normal = _normal(node, e, masks, data, (axes[0], (count,), (shape[1] // count,), *axes[2:]))
    data.x = x
    return [data.back(_scaled(node, e, data, e.reshape(normal, *shape), len(axes)))]


def _normal(node: Node, e: Emit, masks: Masks, data: Wide, axes: Axes) -> str:
    """x less its mean, by the root of its variance, over all axes behind the second."""
    over = [*range(2, len(axes))]
    total = e.reshape(masks.total(e, axes, over, FLOAT if node.type(0) in HALVES else node.type(0)))
    opened = [at for at in over if is_open(axes[at])]
    rest = e.op("Sub", data.x, e.op("Div", e.reduce("ReduceSum", data.x, over), total))
    square = e.op("Where", masks.mask(e, axes, opened), e.op("Mul", rest, rest), data.number(0.0))
    variance = e.op("Div", e.reduce("ReduceSum", square, over), total)
    return e.op("Div", rest, e.op("Sqrt", e.op("Add", variance, data.number(float(node.attr("epsilon", 1e-5))))))


def _scaled(node: Node, e: Emit, data: Wide, x: str, rank: int) -> str:
    """``x`` times the scale of each channel, plus its bias."""
    for kind, name in (("Mul", node.input(1)), ("Add", node.input(2))):
        wide = e.cast(name, FLOAT) if node.type(0) in HALVES else name
        x = e.op(kind, x, e.reshape(wide, 1, -1, *[1] * (rank - 2)))
    return x


def _ended(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """A recurrent layer, all of whose sequences end where the call does."""
    axes, turned = masks.axes.get(node.input(0), ()), bool(node.attr("layout", 0))
    if not is_endless(node.proto) or len(axes) != 3 or not masks.open_axes(node.input(0), [int(turned)]):
        return None
    axis, (first, second, _) = axes[turned], node.scope.shapes[node.input(0)]
    if len(axis) != 1 or not isinstance(axis[0], Extent):
        return None
    steps = e.cast(masks.count(e, axis[0]), TensorProto.INT32)
    lengths = e.op("Expand", steps, e.ints(first if turned else second))
    inputs = [*node.proto.input[:LENGTHS], *[""] * (LENGTHS - len(node.proto.input))]
    inputs += [lengths, *node.proto.input[LENGTHS + 1 :]]
    states, *ends = e.ops(node.kind, *inputs, outputs=len(node.proto.output), **node.attributes)
    # What stands behind the end follows what stood there before, not zeros: so experiments find which jobs make it.
    alive = e.reshape(masks.mask(e, axes, [int(turned)]), *((1, -1, 1, 1) if turned else (-1, 1, 1, 1)))
    other = e.slice(node.input(0), 2, 0, 1)
    other = e.reshape(other, *((first, second, 1, 1) if turned else (first, 1, second, 1)))
    return [e.op("Where", alive, states, other), *ends]


def _quantised(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """Quantise all of x by the scale of what counts: of the least and largest numbers of its rows, where x has rows."""
    x, axes = node.input(0), masks.axes.get(node.input(0), ())
    over, last = masks.open_axes(x), len(axes) - 1
    if not over:
        return None
    ends = [x] if last in over else [e.reduce(kind, x, [last]) for kind in ("ReduceMin", "ReduceMax")]
    mask = masks.mask(e, axes, over)
    counted = [e.op("Where", mask, end, _first(e, end, over)) for end in ends]
    both = counted[0] if len(counted) == 1 else e.concat(counted, last)
    _, scale, zero_point = e.ops(QUANTISER, both, outputs=3)
    return [e.op("QuantizeLinear", x, scale, zero_point), scale, zero_point]


def _first(e: Emit, x: str, axes: Collection[int]) -> str:
    """The part of x at the first position of every open size, which always counts."""
    for axis in axes:
        x = e.slice(x, axis, 0, 1)
    return x


CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "ConvTranspose", "QLinearConv"})

AVERAGED: Mapping[str, Callable[[Node, int], Collection[int]]] = {
    **dict.fromkeys(("GlobalAveragePool", "GroupNormalization", "InstanceNormalization"), _behind_two),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare"), _reduced),
}
"""Operator → the axes over which it adds up numbers."""

EDITS: Mapping[str, Edit] = {
    QUANTISER: _quantised,
    **dict.fromkeys(("GRU", "LSTM"), _ended),
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean"), _mean),
    "AveragePool": _average,
    "InstanceNormalization": _instances,
    "GroupNormalization": _groups,
    "Pad": _with_border,
    **dict.fromkeys(("Resize", "Upsample"), _continued),
    "MaxPool": _filled(_bordered, _least),
    "GlobalMaxPool": _filled(_along(_behind_two), _least),
    **dict.fromkeys(("LogSoftmax", "Softmax"), _filled(_along(_softened), _least)),
    **dict.fromkeys(("ReduceLogSumExp", "ReduceMax"), _filled(_along(_reduced), _least)),
    "ReduceMin": _filled(_along(_reduced), _most),
    "ReduceProd": _filled(_along(_reduced), lambda _: 1),
    "ArgMax": _filled(_along(_picked), _least),
    "ArgMin": _filled(_along(_picked), _most),
    "TopK": _filled(_along(_picked), _searched),
}
"""Operator → what takes its place where it reads what does not count. Sums and products stay: zeros stand there."""
