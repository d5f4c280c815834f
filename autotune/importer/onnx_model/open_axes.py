"""Sizes that a model leaves open: found by comparing its interfaces at several sets of shapes.

Axes of inputs that the model gives one name share a symbol; an axis without a name is called after its input,
``data_0``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import onnx

from autotune.frame.noise import is_live, live_name, live_sizes, live_symbol, noise_of, without_noise
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS, dim_name, is_known, true_inputs
from autotune.interface import Axis, Extent, Growth, Interface, OpenSpec, axis_size, axis_symbols, with_fixed

QUANTISER = "DynamicQuantizeLinear"
"""The operator that takes a scale from all numbers of a tensor."""

REUSING = frozenset(
    {"Conv", "ConvInteger", "ConvTranspose", "DynamicQuantizeLSTM", "FusedConv", "GRU", "LSTM", "QLinearConv", "RNN"}
)
"""Operators that use each of their weights at many places or steps of a sequence or an image."""

ENDLESS = ("GRU", "LSTM")
"""Recurrent layers of which kernels compute fewer steps where they are told to."""

POSITION_MIXERS = REUSING | {"Loop", "Scan"}
"""Operators that work along a sequence: kernels for one length compute all of it."""

BESIDE = frozenset(
    {
        *("AveragePool", "Conv", "ConvTranspose", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "QLinearConv"),
        *("GroupNormalization", "InstanceNormalization"),
    }
)
"""Operators of images and signals: what stands behind the end of one changes what they make before it."""

Shapes = Mapping[str, tuple[int, ...]]

OutputAxes = Mapping[tuple[int, int], Axis]
"""(Output's number, axis) → its parts, if it follows open sizes."""


def open_interface(
    model: onnx.ModelProto,
    inputs: Sequence[Sequence[tuple[str, tuple[int, ...], str]]],
    outputs: Sequence[Sequence[tuple[str, tuple[int, ...], str]]],
    known: OutputAxes | None = None,
) -> Interface:
    """The interface that several static ones of ``model`` have in common.

    Args:
        model: as in its file, with names for open sizes.
        inputs, outputs: for each set of shapes (name, shape, dtype) of all.
        known: what the model says of axes of outputs; others are taken to grow as a size does in all sets.
    """
    names = _dim_names(model)
    opened = []
    for index, (name, shape, dtype) in enumerate(inputs[0]):
        every = [specs[index][1] for specs in inputs]
        opened.append(OpenSpec(name, tuple(_opened(every, axis, names, name) for axis in range(len(shape))), dtype))
    opened = _named_noise(opened, inputs)
    interface = Interface(tuple(opened), (), {})
    sizes = [interface.sizes({name: shape for name, shape, _ in specs}) or {} for specs in inputs]
    results, scale, parts = [], {}, {}
    fixed = live_sizes({name: shape for name, shape, _ in inputs[-1]})
    fixed = {symbol: size for symbol, size in fixed.items() if symbol not in sizes[-1]}
    for number, (name, shape, dtype) in enumerate(outputs[0]):
        dims: list[int | str] = []
        for axis in range(len(shape)):
            others = [specs[number][1] for specs in outputs]
            if any(len(other) != len(shape) for other in others):
                dims.append("?")
                continue
            own = with_fixed((known or {}).get((number, axis), ()), fixed)
            extents = [other[axis] for other in others]
            if axis_symbols(own) and extents == [axis_size(own, at) for at in sizes]:
                dims.append(_axis_name(own))
                if len(own) == 1 and isinstance(own[0], Extent):
                    scale[number, axis] = own[0].growth
                else:
                    parts[number, axis] = own
                continue
            dim, growth = _followed(extents, sizes)
            dims.append(dim)
            if growth is not None:
                scale[number, axis] = growth
        results.append(OpenSpec(name, tuple(dims), dtype))
    return Interface(tuple(opened), tuple(results), scale, parts=parts)


def _axis_name(axis: Axis) -> str:
    """The name of an output's axis: that of its open size, or the names of all that it follows."""
    if len(axis) == 1 and isinstance(axis[0], Extent):
        return axis[0].symbol
    return f"of {', '.join(axis_symbols(axis))}"


def wider_shapes(
    model: onnx.ModelProto, inputs: Sequence[Sequence[tuple[str, tuple[int, ...], str]]]
) -> dict[str, tuple[int, ...]] | None:
    """The last set's shapes, where sizes that the model leaves open and no set varies are multiplied.

    The first symbol is doubled, the second tripled, and so on, so that an output shows which of them it follows. None
    if the sets vary all that is open, or if there are inputs that the model does not have.

    Args:
        inputs: as for ``open_interface``.
    """
    names, values = _dim_names(model), true_inputs(model.graph)
    if {name for name, _, _ in inputs[-1] if not is_live(name)} - {value.name for value in values}:
        return None
    factors: dict[str, int] = {}
    wider = {name: list(shape) for name, shape, _ in inputs[-1]}
    for value in values:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            sizes = {shape[axis] for specs in inputs for name, shape, _ in specs if name == value.name}
            if not is_known(dim) and len(sizes) == 1:
                symbol = names.get((value.name, axis), f"{value.name}_{axis}")
                wider[value.name][axis] *= factors.setdefault(symbol, 2 + len(factors))
    for symbol, factor in factors.items():
        if live_name(symbol) in wider:
            wider[live_name(symbol)][0] *= factor
    return {name: tuple(shape) for name, shape in wider.items()} if factors else None


def walks_open_sequences(model: onnx.ModelProto | None) -> bool:
    """Return whether the main graph has recurrent layers over all steps, and leaves more open than batches."""
    if model is None or not any(is_endless(node) for node in model.graph.node):
        return False
    return any(axis for _, axis in open_places(model))


def looks_beside(nodes: Iterable[onnx.NodeProto]) -> bool:
    """Return whether ``nodes`` have operators of ``BESIDE``."""
    return any(node.op_type in BESIDE and node.domain in STANDARD_DOMAINS for node in nodes)


def _looks_beside(model: onnx.ModelProto) -> bool:
    """Return whether a graph of the model has operators of ``BESIDE``, and more is open than batches."""
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    return looks_beside(nodes) and any(axis for _, axis in open_places(model))


def is_endless(node: onnx.NodeProto) -> bool:
    """Return whether ``node`` is a recurrent layer of one kernel that is not told how long its sequences are."""
    return node.op_type in ENDLESS and node.domain in STANDARD_DOMAINS and not any(node.input[4:5])


def quantises_whole_tensors(model: onnx.ModelProto | None) -> bool:
    """Return whether operators of the main graph take a scale from all numbers of a tensor; not of no model.

    All rows of a call have that scale, so they are no calls of their own.
    """
    nodes = [] if model is None else model.graph.node
    return any(node.op_type == QUANTISER and node.domain in STANDARD_DOMAINS for node in nodes)


def mixes_positions(model: onnx.ModelProto | None) -> bool:
    """Return whether operators of the main graph work along sequences in a way of which nothing can be left out."""
    return any(node.op_type in POSITION_MIXERS for node in ([] if model is None else model.graph.node))


def constant_extents(model: onnx.ModelProto | None) -> frozenset[int]:
    """The extents of all constants: those of tables of positions say how long a sequence may be."""
    if model is None:
        return frozenset()
    tensors = [*model.graph.initializer]
    for node in model.graph.node:
        tensors += [attribute.t for attribute in node.attribute if attribute.type == onnx.AttributeProto.TENSOR]
    return frozenset(int(extent) for tensor in tensors for extent in tensor.dims)


def sets_with_live(model: onnx.ModelProto | None, sets: Sequence[Shapes]) -> tuple[Shapes, ...]:
    """Return ``sets``, with an input for each open size that says which positions count (``frame/noise.py``).

    Only if ``model`` quantises by the range of whole tensors, has recurrent layers over sequences of open length, or
    operators of images and signals of open sizes.

    Args:
        model: its weights are not looked at; None if it cannot be read.
        sets: shapes of its inputs. Nothing is added where one of them leaves an open input out.
    """
    if model is None or has_live_names(model):
        return tuple(sets)
    places = open_places(model)
    if not quantises_whole_tensors(model) and not walks_open_sequences(model) and not _looks_beside(model):
        return tuple(sets)
    if any(name not in shapes for shapes in sets for name, _ in places):
        return tuple(sets)
    return tuple(
        {**shapes, **{live_name(symbol): (shapes[name][axis],) for (name, axis), symbol in places.items()}}
        for shapes in sets
    )


def has_live_names(model: onnx.ModelProto) -> bool:
    """Return whether a value of the main graph has the name of an input that says what counts; then none is added."""
    graph = model.graph
    names = [value.name for values in (graph.input, graph.initializer) for value in values]
    return any(map(is_live, [*names, *(name for node in graph.node for name in node.output)]))


def open_places(model: onnx.ModelProto) -> dict[tuple[str, int], str]:
    """Return (input, axis) of every size that ``model`` leaves open → its symbol."""
    return {
        (value.name, axis): dim_name(dim) or f"{value.name}_{axis}"
        for value in true_inputs(model.graph)
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if not is_known(dim)
    }


def _named_noise(
    opened: Sequence[OpenSpec], inputs: Sequence[Sequence[tuple[str, tuple[int, ...], str]]]
) -> list[OpenSpec]:
    """``opened`` with the open sizes of noise called after the inputs' sizes that they equal in every set."""
    known = Interface(tuple(without_noise(opened)), (), {})
    sizes = [known.sizes({name: shape for name, shape, _ in specs}) or {} for specs in inputs]
    named = []
    for index, spec in enumerate(opened):
        shape = list(spec.shape)
        for axis, size in enumerate(shape):
            if isinstance(size, str) and is_live(spec.name):
                shape[axis] = live_symbol(spec.name)
            elif isinstance(size, str) and noise_of(spec.name) is not None:
                every = [specs[index][1][axis] for specs in inputs]
                shape[axis] = next((name for name in sizes[0] if [symbols[name] for symbols in sizes] == every), size)
        named.append(replace(spec, shape=tuple(shape)))
    return named


def _dim_names(model: onnx.ModelProto) -> dict[tuple[str, int], str]:
    """(input, axis) → the name that the model gives its size."""
    return {
        (value.name, axis): dim_name(dim)
        for value in true_inputs(model.graph)
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if dim_name(dim)
    }


def _opened(shapes: Sequence[tuple[int, ...]], axis: int, names: Mapping[tuple[str, int], str], name: str) -> int | str:
    """An input's size if it is the same everywhere, else its symbol."""
    sizes = {shape[axis] for shape in shapes}
    return sizes.pop() if len(sizes) == 1 else names.get((name, axis), f"{name}_{axis}")


def _followed(sizes: Sequence[int], symbols: Sequence[Mapping[str, int]]) -> tuple[int | str, Growth | None]:
    """Return what an output's size follows: itself, a symbol and how, or nothing that is known."""
    if len(set(sizes)) == 1:
        return sizes[0], None
    candidates: dict[str, Fraction] = {}
    for symbol in symbols[0]:
        factors = {Fraction(size, known[symbol]) for size, known in zip(sizes, symbols, strict=True)}
        if len(factors) == 1:
            candidates[symbol] = factors.pop()
    if not candidates:
        return "?", None
    # Sizes that grow alike in all sets: equal ones first.
    symbol, ratio = min(candidates.items(), key=lambda item: item[1] != 1)
    return symbol, Growth().then(ratio.numerator, 0, ratio.denominator)
