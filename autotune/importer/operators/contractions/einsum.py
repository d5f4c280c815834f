"""Einstein sums as products of matrices, which have kernels of their own: pair by pair, from left to right.

    "bhid,bhjd->bhij"    x (bh · i · d) @ transposed y (bh · d · j)
    "bnd,hdk->bnhk"      x (b · n · d) @ transposed y (d · hk), and its columns apart

An axis that only one operand has, and the result has not, is summed up first.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass

from onnx import TensorProto

from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import rewrites

TYPES = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64)
"""Types that a product of matrices takes."""


@dataclass(frozen=True)
class Term:
    """A tensor and the letter of each of its axes."""

    name: str
    letters: str


@rewrites("Gemm")
def product_alone(node: Node, e: Emit) -> list[str] | None:
    """Return the product without a third operand whose factor is zero: that is never read, whatever it holds.

    A product whose factor is zero is computed: it is NaN where it is infinite.
    """
    bias = bool(node.input(2)) and node.attr("beta", 1.0) != 0
    if node.attr("alpha", 1.0) == 0:
        product = e.op("Mul", e.op("Gemm", *map(node.input, (0, 1)), **node.given("transA", "transB")), e.like(0))
        return [e.op("Add", product, e.op("Mul", node.input(2), e.like(node.attr("beta", 1.0)))) if bias else product]
    if bias or not node.input(2):
        return None
    return [e.op("Gemm", node.input(0), node.input(1), **node.given("alpha", "transA", "transB"))]


@rewrites("Einsum")
def einsum(node: Node, e: Emit) -> list[str] | None:
    """None for diagonals, axes of one that are broadcast, and other numbers: these are one generic kernel."""
    shapes = [node.shape(index) for index in range(len(node.proto.input))]
    read = _letters(str(node.attr("equation")), shapes)
    if read is None or node.type(0) not in TYPES:
        return None
    operands, result = read
    sizes: dict[str, int] = {}
    for letters, shape in zip(operands, shapes, strict=True):
        for letter, size in zip(letters, shape, strict=True):
            if sizes.setdefault(letter, size) != size or not size:
                return None
    terms = [Term(node.input(index), letters) for index, letters in enumerate(operands)]
    done = terms[0]
    for number, term in enumerate(terms[1:], 1):
        wanted = set(result).union(*(other.letters for other in terms[number + 1 :]))
        done = _product(e, done, term, wanted, sizes)
    done = _summed(e, done, set(result))
    return [_ordered(e, done, result).name]


def _letters(equation: str, shapes: Sequence[tuple[int, ...]]) -> tuple[list[str], str] | None:
    """The letters of every operand and of the result, those of ``...`` included; None where one has a letter twice."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    operands = left.split(",")
    spare = [letter for letter in string.ascii_letters if letter not in equation]
    most = 0
    for number, (letters, shape) in enumerate(zip(operands, shapes, strict=True)):
        count = len(shape) - len(letters.replace("...", ""))
        operands[number] = letters.replace("...", "".join(spare[:count][::-1]))
        most = max(most, count if "..." in letters else 0)
    unnamed = "".join(spare[:most][::-1])
    if not arrow:  # every letter that occurs once, in alphabetical order, behind those of ``...``
        every = left.replace(",", "").replace(".", "")
        result = "..." * ("..." in left) + "".join(sorted(letter for letter in every if every.count(letter) == 1))
    result = result.replace("...", unnamed)
    if any(len(set(letters)) < len(letters) for letters in operands):
        return None
    return operands, result


def _product(e: Emit, x: Term, y: Term, wanted: set[str], sizes: dict[str, int]) -> Term:
    """Return the product of ``x`` and ``y``, summed over the letters that nothing else wants."""
    x, y = (_summed(e, term, wanted | set(other.letters)) for term, other in ((x, y), (y, x)))
    common = [letter for letter in x.letters if letter in y.letters]
    batch = "".join(letter for letter in common if letter in wanted)
    depth = "".join(letter for letter in common if letter not in wanted)
    rows = "".join(letter for letter in x.letters if letter not in common)
    columns = "".join(letter for letter in y.letters if letter not in common)
    if not depth:
        letters = batch + rows + columns
        return Term(e.op("Mul", *(_spread(e, term, letters, sizes) for term in (x, y))), letters)
    product = e.op("MatMul", _matrices(e, x, batch, rows, depth, sizes), _matrices(e, y, batch, depth, columns, sizes))
    shape = [sizes[letter] for letter in batch + rows + columns]
    if len(rows) != 1 or len(columns) != 1:
        product = e.reshape(product, *shape)
    return Term(product, batch + rows + columns)


def _matrices(e: Emit, term: Term, batch: str, rows: str, columns: str, sizes: dict[str, int]) -> str:
    """A matrix for each place along ``batch``, each of its two axes of any number of letters."""
    name = _ordered(e, term, batch + rows + columns).name
    if len(rows) == len(columns) == 1:
        return name
    extents = [sizes[letter] for letter in batch]
    return e.reshape(name, *extents, *(math.prod(sizes[letter] for letter in axis) for axis in (rows, columns)))


def _spread(e: Emit, term: Term, letters: str, sizes: dict[str, int]) -> str:
    """``term`` with an axis of one for each of ``letters`` that it lacks."""
    name = _ordered(e, term, "".join(letter for letter in letters if letter in term.letters)).name
    return e.reshape(name, *(sizes[letter] if letter in term.letters else 1 for letter in letters))


def _summed(e: Emit, term: Term, wanted: set[str]) -> Term:
    """``term`` without the letters that are not ``wanted``."""
    gone = [axis for axis, letter in enumerate(term.letters) if letter not in wanted]
    if not gone:
        return term
    kept = "".join(letter for letter in term.letters if letter in wanted)
    return Term(e.reduce("ReduceSum", term.name, gone, keepdims=False), kept)


def _ordered(e: Emit, term: Term, letters: str) -> Term:
    """``term`` with its axes in the order of ``letters``."""
    if term.letters == letters:
        return term
    return Term(e.transpose(term.name, *(term.letters.index(letter) for letter in letters)), letters)
