"""Sequences and optional values: lists of tensors that are known at import, so that nothing of them is left.

``Scope.sequences`` says of which tensors a sequence consists; what reads one reads its elements instead.
"""

from __future__ import annotations

from onnx import GraphProto

from autotune.importer.onnx_model.shapes import OWN_DOMAIN
from autotune.importer.operators.control import check_size, inlined
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import rewrites

CHOOSE = "Choose"
"""Ours: what one of an If's branches makes, by a condition that is computed."""


def _elements(node: Node, index: int) -> tuple[str, ...]:
    """The elements of an input.

    Raises:
        UnsupportedError: if they are not known.
    """
    elements = node.scope.sequences.get(node.input(index))
    if elements is None:
        raise node.refused(f"the elements of its sequence {node.input(index)!r} are not known before the model runs")
    return elements


def made_sequence(e: Emit, elements: list[str]) -> str:
    """A sequence of ``elements``."""
    return e.op("SequenceConstruct", *elements) if elements else e.op("SequenceEmpty")


def _position(node: Node, index: int, count: int) -> int:
    """The place that an input says, counted from the back if it is negative."""
    place = int(node.constant(index, "position").reshape(-1)[0])
    return place + count if place < 0 else place


@rewrites("SequenceInsert")
def sequence_insert(node: Node, e: Emit) -> list[str] | None:
    """One element more, at the back unless a place is given."""
    elements = list(_elements(node, 0))
    place = _position(node, 2, len(elements)) if node.input(2) else len(elements)
    elements.insert(place, node.input(1))
    return [made_sequence(e, elements)]


@rewrites("SequenceErase")
def sequence_erase(node: Node, e: Emit) -> list[str] | None:
    """One element less, the last unless a place is given."""
    elements = list(_elements(node, 0))
    del elements[_position(node, 1, len(elements)) if node.input(1) else -1]
    return [made_sequence(e, elements)]


@rewrites("SequenceAt")
def sequence_at(node: Node, e: Emit) -> list[str] | None:
    """One element; a row of all where the position is computed and all have one shape."""
    elements = _elements(node, 0)
    shapes = {node.scope.shapes.get(element) for element in elements}
    if node.scope.settled and node.array(1) is None and len(shapes) == 1 and None not in shapes:
        rows = e.concat([e.unsqueeze(element, 0) for element in elements], 0)
        return [e.op("Gather", rows, e.reshape(node.input(1)), axis=0)]
    place = _position(node, 1, len(elements))
    if not 0 <= place < len(elements):
        raise node.refused(f"it reads element {place} of a sequence of {len(elements)}")
    return [e.op("Identity", elements[place])]


@rewrites("SequenceLength")
def sequence_length(node: Node, e: Emit) -> list[str] | None:
    """The number of elements."""
    return [e.const(len(_elements(node, 0)), "int64")]


@rewrites("ConcatFromSequence")
def concat_from_sequence(node: Node, e: Emit) -> list[str] | None:
    """The elements one after the other, or along an axis of their own."""
    elements, axis = list(_elements(node, 0)), int(node.attr("axis"))
    if not elements:
        raise node.refused("it joins a sequence without elements")
    if node.attr("new_axis", 0):
        elements = [e.unsqueeze(element, axis) for element in elements]
    return [e.op("Concat", *elements, axis=axis)]


@rewrites("SplitToSequence")
def split_to_sequence(node: Node, e: Emit) -> list[str] | None:
    """Slices along an axis: of given sizes, of one size (the last may be smaller), or of one, without that axis."""
    shape = node.shape(0)
    axis = int(node.attr("axis", 0)) % len(shape)
    extent, sizes = shape[axis], [1] * shape[axis]
    if node.input(1):
        split = node.constant(1, "split")
        sizes = [int(size) for size in split.reshape(-1)]
        if not split.ndim:
            sizes = [min(sizes[0], extent - start) for start in range(0, extent, sizes[0])]
    parts = e.split(node.input(0), sizes, axis)
    if not node.input(1) and not node.attr("keepdims", 1):
        parts = [e.squeeze(part, axis) for part in parts]
    return [made_sequence(e, parts)]


@rewrites("SequenceMap")
def sequence_map(node: Node, e: Emit) -> list[str] | None:
    """A copy of the body per element of the first sequence; tensors among the inputs are given to every copy."""
    body: GraphProto = node.attr("body")
    first = _elements(node, 0)
    more = [node.scope.sequences.get(node.input(index)) for index in range(1, len(node.proto.input))]
    check_size(node, len(first), body)
    results: list[list[str]] = [[] for _ in body.output]
    for place, one in enumerate(first):
        others = [
            sequence[place] if sequence is not None else name
            for sequence, name in zip(more, node.proto.input[1:], strict=True)
        ]
        for collected, value in zip(results, inlined(e, body, [one, *others], f"element{place}"), strict=True):
            collected.append(value)
    return [made_sequence(e, values) for values in results]


@rewrites(CHOOSE, domain=OWN_DOMAIN)
def choose(node: Node, e: Emit) -> list[str] | None:
    """Tensors of one shape; sequences element by element, where both have as many of the same shapes."""
    known = node.scope.sequences
    are_sequences = node.input(1) in known and node.input(2) in known
    sides = [list(known[name]) if are_sequences else [name] for name in (node.input(1), node.input(2))]
    shapes = [[node.scope.shapes.get(name) for name in side] for side in sides]
    if shapes[0] != shapes[1] or None in shapes[0]:
        raise node.refused("its branches make values of different or unknown shapes and its condition is computed")
    condition = e.reshape(node.input(0))
    chosen = [e.op("Where", condition, a, b) for a, b in zip(*sides, strict=True)]
    return [made_sequence(e, chosen) if are_sequences else chosen[0]]


@rewrites("Optional")
def optional(node: Node, e: Emit) -> list[str] | None:
    """Return the value that it holds, if it holds anything."""
    return [e.op("Identity", node.input(0))] if node.input(0) else None


@rewrites("OptionalGetElement")
def optional_get_element(node: Node, e: Emit) -> list[str] | None:
    """Return the value itself: an optional value that holds something is that."""
    return None if node.scope.is_absent(node.input(0)) else [e.op("Identity", node.input(0))]


@rewrites("OptionalHasElement")
def optional_has_element(node: Node, e: Emit) -> list[str] | None:
    """Known at import: values that may be there are, but for those that the model itself leaves empty."""
    return [e.const(not node.scope.is_absent(node.input(0)), "bool")]
