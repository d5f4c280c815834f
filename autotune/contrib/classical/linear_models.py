"""Linear models and support vector machines: products with constants, then scores and labels."""

from __future__ import annotations

import math
from functools import reduce
from itertools import combinations

import numpy as np

from autotune.contrib.classical.scores import (
    CLASSICAL,
    as_float_rows,
    best_label,
    class_labels,
    label_by_sign,
    transformed,
)
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import rewrites


def _weighted(node: Node, e: Emit, x: str, columns: int, count: int) -> str:
    """X·Wᵀ + b (rows, count) of the node's coefficients and intercepts."""
    coefficients = np.array(node.attr("coefficients"), np.float32)
    if coefficients.size != count * columns:
        raise node.refused(f"its {coefficients.size} coefficients are not {count} times its {columns} features")
    product = e.op("MatMul", x, e.const(np.ascontiguousarray(coefficients.reshape(count, columns).T)))
    intercepts = node.attr("intercepts")
    return e.op("Add", product, e.const(np.array(intercepts, np.float32))) if intercepts else product


@rewrites("LinearRegressor", domain=CLASSICAL)
def linear_regressor(node: Node, e: Emit) -> list[str] | None:
    """X·Wᵀ + b per target."""
    x, _, columns = as_float_rows(node, e)
    return [transformed(node, e, _weighted(node, e, x, columns, int(node.attr("targets", 1))))]


@rewrites("LinearClassifier", domain=CLASSICAL)
def linear_classifier(node: Node, e: Emit) -> list[str] | None:
    """Label and scores per class; one score for two classes is that of the second."""
    labels = class_labels(node, "classlabels_ints")
    x, rows, columns = as_float_rows(node, e)
    count = len(node.attr("coefficients")) // columns
    scores = _weighted(node, e, x, columns, count)
    if count > 1:
        return [best_label(e, scores, labels), transformed(node, e, scores)]
    kind = str(node.attr("post_transform", "NONE"))
    if kind not in ("NONE", "LOGISTIC"):
        raise node.refused(f"it has one score for two classes, and its post_transform is {kind!r}")
    rest = e.op("Neg", scores) if kind == "LOGISTIC" else e.op("Sub", e.const(np.float32(1)), scores)
    return [label_by_sign(e, scores, rows, labels), transformed(node, e, e.concat([rest, scores], 1))]


def _kernel(node: Node, e: Emit, x: str, vectors: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> str:
    """Products of all rows of x with all support vectors (rows, vectors) under the node's kernel."""
    kind = str(node.attr("kernel_type", "LINEAR"))
    gamma, shift, degree = ([float(value) for value in node.attr("kernel_params") or ()] + [0.0] * 3)[:3]
    product = e.op("MatMul", x, e.const(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return product
    if kind == "RBF":  # |x − v|² = x·x − 2 x·v + v·v
        own = e.reduce("ReduceSum", e.op("Mul", x, x), [1])
        theirs = e.const((vectors.astype(np.float64) ** 2).sum(1).astype(np.float32))
        far = e.op("Add", e.op("Sub", own, e.op("Mul", product, e.const(np.float32(2)))), theirs)
        return e.op("Exp", e.op("Mul", far, e.const(np.float32(-gamma))))
    inner = e.op("Add", e.op("Mul", product, e.const(np.float32(gamma))), e.const(np.float32(shift)))
    if kind == "SIGMOID":
        return e.op("Tanh", inner)
    if kind == "POLY":
        return e.op("Pow", inner, e.const(np.float32(degree)))
    raise node.refused(f"its kernel_type {kind!r} is none of LINEAR, RBF, POLY, SIGMOID")


@rewrites("SVMRegressor", domain=CLASSICAL)
def svm_regressor(node: Node, e: Emit) -> list[str] | None:
    """Σ coefficient · kernel + rho; of a one-class machine its sign, 1 or −1."""
    x, _, columns = as_float_rows(node, e)
    count = int(node.attr("n_supports", 0))
    coefficients = np.array(node.attr("coefficients"), np.float32)
    if count:
        vectors = np.array(node.attr("support_vectors"), np.float32).reshape(count, columns)
        scores = e.op("MatMul", _kernel(node, e, x, vectors), e.const(coefficients.reshape(-1, 1)))
    else:
        scores = _kernel(node, e, x, coefficients.reshape(1, columns))
    scores = e.op("Add", scores, e.const(np.float32(node.attr("rho")[0])))
    if node.attr("one_class", 0):
        above = e.op("Greater", scores, e.const(np.float32(0)))
        scores = e.op("Where", above, e.const(np.float32(1)), e.const(np.float32(-1)))
    return [transformed(node, e, scores)]


COUPLED = 0.0025
"""ONNX Runtime's bound for the error of two coupled probabilities."""


@rewrites("SVMClassifier", domain=CLASSICAL)
def svm_classifier(node: Node, e: Emit) -> list[str] | None:
    """A decision per pair of classes, the votes of the pairs, and Platt's probability for two classes."""
    labels = class_labels(node, "classlabels_ints")
    sizes = [int(size) for size in node.attr("vectors_per_class") or ()]
    if not sizes or len(sizes) != len(labels):
        raise node.refused("it has no support vectors; export a linear model as LinearClassifier")
    if node.attr("prob_a") and len(labels) > 2:
        raise node.refused("probabilities of more than two classes are found by iteration; train it without them")
    x, rows, columns = as_float_rows(node, e)
    vectors = np.array(node.attr("support_vectors"), np.float32).reshape(sum(sizes), columns)
    kernel = _kernel(node, e, x, vectors)
    decisions = e.op("MatMul", kernel, e.const(_pair_weights(node, sizes)))
    decisions = e.op("Add", decisions, e.const(np.array(node.attr("rho"), np.float32)))
    pairs = list(combinations(range(len(labels)), 2))
    wins = e.cast(e.op("Greater", decisions, e.const(np.float32(0))), 1)
    table = np.zeros((len(pairs), len(labels)), np.float32)
    lost = np.zeros(len(labels), np.float32)  # votes where no decision is positive
    for number, (one, other) in enumerate(pairs):
        table[number, one] += 1
        table[number, other] -= 1
        lost[other] += 1
    votes = e.op("Add", e.op("MatMul", wins, e.const(table)), e.const(lost))
    if node.attr("prob_a"):
        a, b = (e.const(np.float32(node.attr(name)[0])) for name in ("prob_a", "prob_b"))
        first = e.op("Sigmoid", e.op("Neg", e.op("Add", e.op("Mul", decisions, a), b)))
        chances = _coupled(e, first)
        return [best_label(e, chances, labels), transformed(node, e, chances)]
    if len(labels) == 2:
        return [best_label(e, votes, labels), transformed(node, e, e.concat([e.op("Neg", decisions), decisions], 1))]
    return [best_label(e, votes, labels), transformed(node, e, decisions)]


def _coupled(e: Emit, first: str) -> str:
    """The probabilities (rows, 2) of two classes of which the first has the pairwise probability ``first`` (rows, 1).

    ONNX Runtime couples the probabilities of pairs as it does for many classes: by the iteration of Wu, Lin and Weng
    (JMLR 5, 2004, algorithm 2), which stops at ``COUPLED``. For two classes that takes at most two rounds.
    """

    def product(one: str, *others: str) -> str:
        return reduce(lambda a, b: e.op("Mul", a, b), others, one)

    def ended(values: list[str], total: str, step: str, row: list[str]) -> tuple[list[str], str]:
        """``values`` and ``total`` after ``step``, whose row of Q is ``row``, brought to a sum of 1."""
        scale = e.op("Add", one, step)
        moved = [e.op("Add", value, product(step, factor)) for value, factor in zip(values, row, strict=True)]
        return [e.op("Div", value, scale) for value in moved], e.op("Div", e.op("Div", total, scale), scale)

    one, half, two = (e.const(np.float32(number)) for number in (1, 0.5, 2))
    r = e.op("Clip", first, e.const(np.float32(1e-7)), e.const(np.float32(1 - 1e-7)))
    q = e.op("Sub", one, r)
    across = e.op("Neg", product(q, r))
    table = [[product(q, q), across], [across, product(r, r)]]
    p = [half, half]
    for _ in range(2):
        gains = [e.op("Add", product(row[0], p[0]), product(row[1], p[1])) for row in table]
        total = e.op("Add", product(p[0], gains[0]), product(p[1], gains[1]))
        errors = [e.op("Abs", e.op("Sub", gain, total)) for gain in gains]
        goes_on = e.op("GreaterOrEqual", e.op("Max", *errors), e.const(np.float32(COUPLED)))
        new = list(p)
        for place, row in enumerate(table):
            step = e.op("Div", e.op("Sub", total, gains[place]), row[place])
            grown = product(step, e.op("Add", product(step, row[place]), product(two, gains[place])))
            gains, total = ended(gains, e.op("Add", total, grown), step, row)
            new[place] = e.op("Add", new[place], step)
            new = [e.op("Div", value, e.op("Add", one, step)) for value in new]
        p = [e.op("Where", goes_on, value, before) for value, before in zip(new, p, strict=True)]
    return e.concat(p, 1)


def _pair_weights(node: Node, sizes: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """(vectors, pairs): the coefficient of every support vector in every pair's decision, as libsvm lays them out."""
    total, classes = sum(sizes), len(sizes)
    coefficients = np.array(node.attr("coefficients"), np.float32).reshape(classes - 1, total)
    starts = np.cumsum([0, *sizes])
    table = np.zeros((total, math.comb(classes, 2)), np.float32)
    for number, (one, other) in enumerate(combinations(range(classes), 2)):
        table[starts[one] : starts[one + 1], number] = coefficients[other - 1, starts[one] : starts[one + 1]]
        table[starts[other] : starts[other + 1], number] = coefficients[one, starts[other] : starts[other + 1]]
    return table
