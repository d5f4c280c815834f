"""Whole numbers that are computed from lengths, which are known only when the model runs: between which they lie.

Exporters write sizes by arithmetic, such as ``TopK`` of ``min(300, number of boxes)``. What decides a shape is taken at
its most, and the number itself is computed beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from autotune.importer.onnx_model.scope import Array
from autotune.importer.rewriting.emit import INT64, Emit, Node
from autotune.importer.rewriting.folding import evaluated

MOVES = frozenset({"Cast", "Concat", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that hand numbers on as they are."""

RISING = frozenset({"Add", "Max", "Min", "ReduceMax", "ReduceMin", "ReduceSum"})
"""Operators whose result rises with each of the numbers that they take."""

PRODUCTS = frozenset({"Mul", "ReduceProd"})
"""Operators whose result does where no number is negative."""


@dataclass(frozen=True)
class Counts:
    """Whole numbers that lie between ``least`` and ``most``; those of which both are equal are known.

    Attributes:
        names: for each of them, the int64 scalar that holds it; "" where none does yet.
    """

    least: Array
    most: Array
    names: Array


@dataclass(frozen=True)
class Length:
    """One such number.

    Attributes:
        name: the int64 scalar that holds it; "" where it is known.
    """

    least: int
    most: int
    name: str = ""

    @property
    def is_known(self) -> bool:
        """Whether it is the same in every run."""
        return self.least == self.most


def known_counts(array: Array) -> Counts:
    """Numbers of a constant."""
    return Counts(array, array, np.full(array.shape, "", object))


def counted(node: Node, counts: Mapping[str, Counts]) -> Counts | None:
    """Return the numbers that ``node`` makes, or None where nothing can be said.

    Args:
        counts: of every input of the node, constants too.
    """
    names = [str(name) for name in node.proto.input if name]
    if not all(name in counts for name in names) or len(node.proto.output) != 1 or node.proto.domain:
        return None

    def run(pick: Callable[[str, int], Array]) -> Array | None:
        outputs = evaluated(node.proto, {name: pick(name, index) for index, name in enumerate(names)}, node.scope)
        return None if outputs is None else outputs[str(node.proto.output[0])]

    if node.kind == "Equal":
        return _equal(*(counts[name] for name in names))
    if node.kind == "Where":
        return _where(*(counts[name] for name in names))
    data = [names[0]] if node.kind.startswith("Reduce") or (node.kind in MOVES and node.kind != "Concat") else names
    if not all((counts[name].least == counts[name].most).all() for name in names[len(data) :]):
        return None  # which numbers are taken, or how, is computed too
    if node.kind == "Sub":
        least = run(lambda name, index: counts[name].most if index else counts[name].least)
        most = run(lambda name, index: counts[name].least if index else counts[name].most)
    elif node.kind in MOVES | RISING or (node.kind in PRODUCTS and all((counts[n].least >= 0).all() for n in data)):
        least, most = run(lambda name, _: counts[name].least), run(lambda name, _: counts[name].most)
    else:
        return None
    if least is None or most is None or least.shape != most.shape or least.dtype.kind not in "iu":
        return None
    return Counts(least, most, _handed_on(node, counts, run, least.shape))


def _equal(one: Counts, other: Counts) -> Counts:
    never = (one.most < other.least) | (one.least > other.most)
    always = (one.least == one.most) & (other.least == other.most) & (one.least == other.least)
    return Counts(np.asarray(always), np.asarray(~never), np.full(never.shape, "", object))


def _where(condition: Counts, one: Counts, other: Counts) -> Counts | None:
    """Return the counts of a Where all of whose choices are known."""
    if (condition.least != condition.most).any():
        return None
    pairs = [(one.least, other.least), (one.most, other.most), (one.names, other.names)]
    return Counts(*(np.where(condition.least, a, b) for a, b in pairs))


def _handed_on(
    node: Node,
    counts: Mapping[str, Counts],
    run: Callable[[Callable[[str, int], Array]], Array | None],
    shape: tuple[int, ...],
) -> Array:
    """The names of the numbers that ``node`` hands on: their numbers are moved as the numbers themselves are."""
    nothing = np.full(shape, "", object)
    if node.kind not in MOVES:
        return nothing
    table = [""]
    data = set(node.proto.input) if node.kind == "Concat" else {node.input(0)}

    def numbered(name: str, _index: int) -> Array:
        if name not in data:
            return counts[name].least
        places = np.zeros(counts[name].names.shape, np.int64)
        for place, label in np.ndenumerate(counts[name].names):
            if label:
                table.append(str(label))
                places[place] = len(table) - 1
        return places.astype(counts[name].least.dtype)

    moved = run(numbered)
    return nothing if moved is None else np.array([table[int(i)] for i in moved.reshape(-1)], object).reshape(shape)


def scalar_of(e: Emit, name: str, index: int, size: int) -> str:
    """Element ``index`` of the ``size`` numbers in ``name``, as an int64 scalar."""
    flat = e.reshape(name, -1)
    one = flat if size == 1 else e.slice(flat, 0, index, index + 1)
    return e.cast(e.squeeze(one, 0), INT64)
