"""Only the positions of a call count for what depends on all of a tensor, if the set of shapes is larger than the call.

A recurrent layer that walks backwards would begin with what stands behind the end, and the last state of any would
come from there. So it is told where its sequences end.

``DynamicQuantizeLinear`` takes its scale from all numbers of a tensor, so what stands behind the end of a padded call
would change every result. With the numbers of the first position in their place, the range is the call's own, and NaN
stays NaN. Rows that do not count are still quantised, so that kernels may leave them out.

Which positions count is an input of booleans for each open size (``frame/noise.py``), which a session fills with ones
and pads with zeros as it does every other input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from onnx import ModelProto, NodeProto, TensorProto, helper

from autotune.frame.noise import live_name
from autotune.importer.conversion.flat_model import flatten
from autotune.importer.onnx_model.graph_edits import constants_to_initialisers
from autotune.importer.onnx_model.graph_walk import name_nodes
from autotune.importer.onnx_model.open_axes import QUANTISER, is_endless
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS, infer_shapes
from autotune.importer.operators.recurrent_ops import LENGTHS
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import replace_all

Axes = tuple[tuple[str, ...], ...]
"""Open sizes whose product each axis of a tensor is; none for a size that never changes."""

OpenShapes = tuple[tuple[str, tuple[int | str, ...]], ...]
"""Names and shapes of inputs, in which an open size is a symbol."""

PRIMES = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61)
"""Sizes at which a model is looked at: a product of some of them shows which."""


def mask_positions(model: ModelProto, live: Mapping[str, int], axes: Mapping[str, Axes]) -> None:
    """Take scales from the positions of a call alone, and walk no further, in place.

    Args:
        model: its shapes are inferred.
        live: the open sizes of the set of shapes.
        axes: of values that are quantised or walked along, as ``followed_axes`` finds them; others stay as they are.

    Raises:
        ModelError: as ``infer_shapes``.
    """
    graph = model.graph
    graph.input.extend(
        helper.make_tensor_value_info(live_name(symbol), TensorProto.BOOL, [size]) for symbol, size in live.items()
    )
    constants_to_initialisers(graph)

    def masked(node: Node, e: Emit) -> list[str] | None:
        own = axes.get(node.input(0), ())
        return _masked(node, e, own, live) if any(own) else None

    def ended(node: Node, e: Emit) -> list[str] | None:
        own = axes.get(node.input(0), ((),) * 3)
        first = bool(node.attr("layout", 0))
        return _ended(node, e, own[first][0], node.shape(0)[1 - first]) if len(own[first]) == 1 else None

    replace_all(
        model,
        Scope(model),
        lambda proto: masked if _quantises(proto) else ended if is_endless(proto) else None,
    )
    name_nodes(graph.node)
    infer_shapes(model, graph.name or "model")


def _quantises(node: NodeProto) -> bool:
    return node.op_type == QUANTISER and node.domain in STANDARD_DOMAINS


def _ended(node: Node, e: Emit, symbol: str, batch: int) -> list[str]:
    """The recurrent layer ``node``, all of whose sequences end where the call does along ``symbol``."""
    steps = e.reduce("ReduceSum", e.cast(live_name(symbol), TensorProto.INT32), [0])
    lengths = e.op("Expand", steps, e.ints(batch))
    inputs = [*node.proto.input[:LENGTHS], *[""] * (LENGTHS - len(node.proto.input))]
    inputs += [lengths, *node.proto.input[LENGTHS + 1 :]]
    states, *ends = e.ops(node.kind, *inputs, outputs=len(node.proto.output), **node.attributes)
    # What stands behind the end follows what stood there before, not zeros: so experiments find which jobs make it.
    alive = e.reshape(live_name(symbol), *((1, -1, 1, 1) if node.attr("layout", 0) else (-1, 1, 1, 1)))
    other = e.unsqueeze(e.slice(node.input(0), 2, 0, 1), 2 if node.attr("layout", 0) else 1)
    return [e.op("Where", alive, states, other), *ends]


def _masked(node: Node, e: Emit, axes: Axes, live: Mapping[str, int]) -> list[str]:
    """Quantise all of x by the scale of what counts: of the least and largest numbers of its rows, where x has rows."""
    x, last = node.input(0), len(axes) - 1
    ends = [x] if axes[last] else [e.reduce(kind, x, [last]) for kind in ("ReduceMin", "ReduceMax")]
    mask = _mask(e, axes, live)
    counted = [e.op("Where", mask, end, _first(e, end, axes)) for end in ends]
    both = counted[0] if len(counted) == 1 else e.concat(counted, last)
    _, scale, zero_point = e.ops(QUANTISER, both, outputs=3)
    return [e.op("QuantizeLinear", x, scale, zero_point), scale, zero_point]


def _first(e: Emit, x: str, axes: Axes) -> str:
    """The part of x at the first position of every open size, which always counts."""
    for axis, own in enumerate(axes):
        x = e.slice(x, axis, 0, 1) if own else x
    return x


def _mask(e: Emit, axes: Axes, live: Mapping[str, int]) -> str:
    """Whether each position counts: one axis for each symbol, and then those of the tensor."""
    symbols = [symbol for own in axes for symbol in own]
    parts = [
        e.reshape(live_name(symbol), *(live[symbol] if i == at else 1 for i in range(len(symbols))))
        for at, symbol in enumerate(symbols)
    ]
    mask = parts[0]
    for part in parts[1:]:
        mask = e.op("And", mask, part)
    return e.reshape(mask, *(math.prod(live[symbol] for symbol in own) for own in axes))


def followed_axes(load: Callable[[OpenShapes, Mapping[str, int]], ModelProto], shapes: OpenShapes) -> dict[str, Axes]:
    """Return by the name of every value that is quantised or walked along which open sizes its axes follow.

    Values of which an axis follows them in another way are left out; all, if there are more open sizes than primes.

    Args:
        load: loads the model at sizes by symbol.
        shapes: of its inputs.

    Raises:
        ModelError: if the model cannot be loaded at such sizes.
    """
    symbols = list(dict.fromkeys(size for _, shape in shapes for size in shape if isinstance(size, str)))
    if 2 * len(symbols) > len(PRIMES):
        return {}
    looks, shapes_at = [], []
    for first in (0, len(symbols)):
        primes = dict(zip(symbols, PRIMES[first:], strict=False))
        model = load(shapes, primes)
        looks.append(primes)
        shapes_at.append(Scope(flatten(model)).shapes)
    axes = {}
    wanted = {node.input[0] for node in model.graph.node if _quantises(node) or is_endless(node)}
    for name in wanted.intersection(*shapes_at):
        own = [_factors(sizes, looks, symbols) for sizes in zip(*(known[name] for known in shapes_at), strict=True)]
        if None not in own:
            axes[name] = tuple(factors for factors in own if factors is not None)
    return axes


def _factors(
    sizes: Sequence[int], looks: Sequence[Mapping[str, int]], symbols: Sequence[str]
) -> tuple[str, ...] | None:
    """Return the symbols whose product a size is; none of one that stays the same, None if it is something else."""
    if len(set(sizes)) == 1:
        return ()
    factors = tuple(
        symbol for symbol in symbols if all(size % look[symbol] == 0 for size, look in zip(sizes, looks, strict=True))
    )
    products = [math.prod(look[symbol] for symbol in factors) for look in looks]
    return factors if list(sizes) == products else None
