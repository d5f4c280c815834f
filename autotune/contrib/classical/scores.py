"""Results that models of scikit-learn compute from raw scores: probabilities, and the label of the class that wins."""

from __future__ import annotations

import numpy as np

from autotune.importer.rewriting.emit import FLOAT, Emit, Node

CLASSICAL = "ai.onnx.ml"
"""Domain of ONNX's operators for models of scikit-learn and the like."""

POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""Names in the order in which ``TreeEnsemble`` numbers them."""

ABOUT_ZERO = 1e-7
"""Magnitude up to which ONNX Runtime takes a score for zero in ``SOFTMAX_ZERO``."""


def transformed(node: Node, e: Emit, scores: str) -> str:
    """``scores`` (rows, classes) after the node's ``post_transform``.

    Raises:
        UnsupportedError: for ``PROBIT``.
    """
    transform = node.attr("post_transform", "NONE")
    kind = POST_TRANSFORMS[transform] if isinstance(transform, int) else str(transform)
    if kind == "NONE":
        return scores
    if kind == "SOFTMAX":
        return e.op("Softmax", scores, axis=-1)
    if kind == "SOFTMAX_ZERO":
        return _softmax_of_others(e, scores)
    if kind == "LOGISTIC":
        return e.op("Sigmoid", scores)
    raise node.refused(f"its post_transform {kind!r} is none of NONE, SOFTMAX, SOFTMAX_ZERO, LOGISTIC")


def _softmax_of_others(e: Emit, scores: str) -> str:
    """Softmax of the scores that are not about zero; one that is stays about zero, and is not in the sum."""
    scores = e.cast(scores, FLOAT)
    greatest = e.reduce("ReduceMax", scores, [-1])
    is_zero = e.op("Less", e.op("Abs", scores), e.const(np.float32(ABOUT_ZERO)))
    powers = e.op("Exp", e.op("Sub", scores, greatest))
    total = e.reduce("ReduceSum", e.op("Where", is_zero, e.const(np.float32(0)), powers), [-1])
    small = e.op("Mul", scores, e.op("Exp", e.op("Neg", greatest)))
    return e.op("Div", e.op("Where", is_zero, small, powers), total)


def class_labels(node: Node, field: str) -> list[int]:
    """The labels of the classes, which have to be whole numbers.

    Raises:
        UnsupportedError: for strings, which no tensor of ours holds.
    """
    labels = node.attr(field)
    if not labels:
        raise node.refused("its class labels are strings; train the model with whole numbers as labels")
    return [int(label) for label in labels]


def best_label(e: Emit, scores: str, labels: list[int]) -> str:
    """The label of the greatest of ``scores`` (rows, classes), the first of equal ones."""
    best = e.op("ArgMax", scores, axis=1, keepdims=0)
    return e.op("Gather", e.const(np.array(labels, np.int64)), best, axis=0)


def label_by_sign(e: Emit, score: str, rows: int, labels: list[int], least: float = 0.0) -> str:
    """The second label where ``score`` (rows, 1) is above ``least``, else the first."""
    positive = e.op("Greater", e.reshape(score, rows), e.const(np.float32(least)))
    first, second = (e.const(np.int64(label)) for label in (*labels, 1)[:2])
    return e.op("Where", positive, second, first)


def as_float_rows(node: Node, e: Emit) -> tuple[str, int, int]:
    """The first input as fp32 of two axes, and their sizes; a vector counts as one row."""
    shape = node.shape(0)
    rows, columns = (1, *shape)[-2:] if shape else (1, 1)
    x = node.input(0) if node.type(0) == FLOAT else e.cast(node.input(0), FLOAT)
    return (x if len(shape) == 2 else e.reshape(x, rows, columns)), rows, columns
