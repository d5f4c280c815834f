"""Ensembles of decision trees, as tables of nodes that ``tree_walk`` goes through.

M nodes and leaves of all trees, T trees, C targets or classes, a batch of N rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from autotune.contrib.classical.scores import (
    CLASSICAL,
    POST_TRANSFORMS,
    as_float_rows,
    best_label,
    class_labels,
    label_by_sign,
    transformed,
)
from autotune.contrib.classical.tree_walk import MEMBER, MODES, TABLES, WALK
from autotune.importer.onnx_model.shapes import OWN_DOMAIN
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import rewrites

Array = NDArray[Any]

LEAF = -1
"""The number that stands for a leaf among the numbers of modes, which are places in ``MODES``."""

NAMED = {b"LEAF": LEAF, **{name.encode(): number for number, name in enumerate(MODES)}}
"""Name of a mode → its number."""

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""Names in the order in which ``TreeEnsemble`` numbers them."""

DEEPEST = 256
"""Steps to the farthest leaf: in tables with a circle there is no end of them. Heuristic, not measured."""


@dataclass(frozen=True)
class Forest:
    """Trees as tables.

    Attributes:
        feature, threshold, missing: (M,), of a leaf anything; ``missing``: whether NaN takes the true branch.
        mode: (M,) numbers of modes, ``LEAF`` of a leaf.
        true, false: (M,) where the branches lead.
        roots: (T,).
        weights: (M, C), zero but at leaves.
        members: (M, K) what a ``BRANCH_MEMBER`` compares with, NaN where there is no more.
    """

    feature: Array
    threshold: Array
    mode: Array
    missing: Array
    true: Array
    false: Array
    roots: Array
    weights: Array
    members: Array | None = None

    def sizes(self) -> tuple[int, int]:
        """Trees and targets."""
        return len(self.roots), self.weights.shape[1]

    def depth(self) -> int:
        """Steps from a root to the farthest leaf; more than ``DEEPEST`` where there is a circle."""
        places, steps = self.roots, 0
        while steps <= DEEPEST and (inner := places[self.mode[places] != LEAF]).size:
            places, steps = np.flatnonzero(_marked(len(self.mode), self.true[inner], self.false[inner])), steps + 1
        return steps

    def leaves(self, node: Node, e: Emit, x: str, rows: int) -> str:
        """Weights (N, T, C) of the leaves that x (N, features) reaches."""
        depth = max(1, self.depth())  # of a tree that is a leaf: a step from it to itself
        inner = self.mode != LEAF
        feature = np.where(inner, self.feature, 0)  # a leaf's is read, too, and may be any
        if feature.min() < 0 or feature.max() >= node.shape(0)[-1]:
            raise node.refused(f"its trees read features 0 to {feature.max()}, and its rows have {node.shape(0)[-1]}")
        if depth > DEEPEST:
            raise node.refused(f"its trees are deeper than {DEEPEST} levels")
        modes = np.unique(self.mode[inner]).tolist()
        with_nan = bool(self.missing.any())
        fields = [feature, self.true, self.false, np.maximum(self.mode, 0), self.missing]
        tables = {
            "nodes": np.stack([column.astype(np.int32) for column in fields]),
            "threshold": self.threshold,
            "roots": self.roots.astype(np.int32),
            "members": np.zeros((1, 1), self.threshold.dtype) if self.members is None else self.members,
        }
        operands = [e.const(tables[name]) for name in TABLES]
        place = e.op(WALK, x, *operands, domain=OWN_DOMAIN, depth=depth, modes=modes or [0], missing=int(with_nan))
        e.declare(place, (rows, len(self.roots)), TensorProto.INT32)
        return e.op("Gather", e.const(self.weights), place, axis=0)


def _marked(size: int, *places: Array) -> Array:
    """(size,) whether each is among ``places``: sorting millions of them takes seconds."""
    marks = np.zeros(size, bool)
    for indices in places:
        marks[indices] = True
    return marks


def _numbers(node: Node, name: str, dtype: Any) -> Array:
    """A list attribute, or its twin ``…_as_tensor``, as an array; empty where there is none."""
    tensor = node.attr(f"{name}_as_tensor")
    if tensor is None and (listed := node.numbers(name)) is not None:
        return listed.astype(dtype)
    tensor = node.attr(name) if tensor is None else tensor
    return np.zeros(0, dtype) if tensor is None else numpy_helper.to_array(tensor).astype(dtype)


def _modes(node: Node) -> Array:
    """The number of every node's comparison.

    Raises:
        UnsupportedError: if one is not known.
    """
    strings = next((attribute.strings for attribute in node.proto.attribute if attribute.name == "nodes_modes"), ())
    try:
        return np.fromiter((NAMED[string] for string in strings), np.int64, len(strings))
    except KeyError as error:
        raise node.refused(f"its nodes_modes has {error.args[0]!r}") from error


def _forest(node: Node, targets: str, count: int, real: Any) -> Forest:
    """The trees of a TreeEnsembleRegressor or -Classifier, whose weights are those of ``targets``, of ``count``."""
    trees, own = (_numbers(node, f"nodes_{name}", np.int64) for name in ("treeids", "nodeids"))
    modes = _modes(node)
    size, place = len(modes), _Places(node, trees, own)
    inner = modes != LEAF

    def led(name: str) -> Array:
        successors = np.arange(size)
        successors[inner] = place.of(trees[inner], _numbers(node, name, np.int64)[inner])
        return successors

    true, false = led("nodes_truenodeids"), led("nodes_falsenodeids")
    roots = np.flatnonzero(~_marked(size, true[inner], false[inner]))
    weights = np.zeros((size, count), np.float32)
    keys = [_numbers(node, f"{targets}_{name}", np.int64) for name in ("treeids", "nodeids", "ids")]
    np.add.at(weights, (place.of(keys[0], keys[1]), keys[2]), _numbers(node, f"{targets}_weights", np.float32))
    missing = _numbers(node, "nodes_missing_value_tracks_true", bool)
    return Forest(
        _numbers(node, "nodes_featureids", np.int64),
        _numbers(node, "nodes_values", real),
        modes,
        missing if missing.size else np.zeros(size, bool),
        true,
        false,
        roots,
        weights,
    )


class _Places:
    """Finds rows of the tables by tree and node."""

    def __init__(self, node: Node, trees: Array, own: Array) -> None:
        self._node, self._least = node, (trees.min(initial=0), own.min(initial=0))
        self._span = int(own.max(initial=0)) - int(self._least[1]) + 1
        keys = self._keys(trees, own)
        self._order = np.argsort(keys, kind="stable")
        self._keys_in_order = keys[self._order]

    def _keys(self, trees: Array, own: Array) -> Array:
        keys: Array = (trees - self._least[0]) * self._span + (own - self._least[1])
        return keys

    def of(self, trees: Array, own: Array) -> Array:
        """The rows of nodes; the last of those that are there twice.

        Raises:
            UnsupportedError: if there is no such node.
        """
        keys = self._keys(trees, own)
        positions = np.searchsorted(self._keys_in_order, keys, "right") - 1
        wrong = (positions < 0) | (self._keys_in_order[positions] != keys) | (own - self._least[1] >= self._span)
        if wrong.any() or (own < self._least[1]).any():
            at = int(np.argmax(wrong | (own < self._least[1])))
            raise self._node.refused(f"tree {trees[at]} has no node {own[at]}")
        rows: Array = self._order[positions]
        return rows


def _rows(node: Node, e: Emit) -> tuple[str, int, Any]:
    """The input as rows of floating point numbers, how many, and their NumPy type: fp64 stays fp64."""
    if node.type(0) == TensorProto.DOUBLE and len(node.shape(0)) == 2:
        return node.input(0), node.shape(0)[0], np.float64
    x, rows, _ = as_float_rows(node, e)
    return x, rows, np.float32


def _over_trees(e: Emit, kind: str, leaves: str, targets: int) -> str:
    """(N, T, C) → (N, C). Of one target as rows, which have better kernels than columns of one number."""
    if targets == 1:
        return e.reduce(kind, e.squeeze(leaves, 2), [1])
    return e.reduce(kind, leaves, [1], keepdims=False)


def _aggregated(node: Node, e: Emit, leaves: str, trees: int, targets: int, real: Any = np.float32) -> str:
    """(N, T, C) of the NumPy type ``real`` → (N, C)."""
    aggregate = node.attr("aggregate_function", "SUM")
    kind = AGGREGATES[aggregate] if isinstance(aggregate, int) else str(aggregate)
    if kind in ("MIN", "MAX"):
        return _over_trees(e, f"Reduce{kind.capitalize()}", leaves, targets)
    total = _over_trees(e, "ReduceSum", leaves, targets)
    return e.op("Div", total, e.const(np.array(trees, real))) if kind == "AVERAGE" else total


def _finished(node: Node, e: Emit, totals: str, forest: Forest) -> str:
    """``totals`` after the node's ``post_transform``, which ONNX Runtime does not apply to a single target."""
    is_probit = node.attr("post_transform", "NONE") in ("PROBIT", POST_TRANSFORMS.index("PROBIT"))
    return totals if forest.sizes()[1] == 1 and not is_probit else transformed(node, e, totals)


@rewrites("TreeEnsembleRegressor", domain=CLASSICAL)
def tree_regressor(node: Node, e: Emit) -> list[str] | None:
    """The sum, average or extreme of the leaves per target, and a base value."""
    x, rows, real = _rows(node, e)
    forest = _forest(node, "target", int(node.attr("n_targets", 1)), real)
    totals = _aggregated(node, e, forest.leaves(node, e, x, rows), *forest.sizes())
    base = _numbers(node, "base_values", np.float32)
    return [_finished(node, e, e.op("Add", totals, e.const(base)) if base.size else totals, forest)]


@rewrites("TreeEnsembleClassifier", domain=CLASSICAL)
def tree_classifier(node: Node, e: Emit) -> list[str] | None:
    """Label and scores. What the standard leaves open for two classes is as in ONNX Runtime: weights of the first class
    alone make the score of the second, and weights of both make the labels 1 and 0, whatever the model's are.
    """
    labels = class_labels(node, "classlabels_int64s")
    x, rows, real = _rows(node, e)
    forest = _forest(node, "class", len(labels), real)
    scores = _over_trees(e, "ReduceSum", forest.leaves(node, e, x, rows), len(labels))
    base = _numbers(node, "base_values", np.float32)
    if len(labels) > 2:
        scores = e.op("Add", scores, e.const(base)) if base.size else scores
        return [best_label(e, scores, labels), transformed(node, e, scores)]
    weighted = set(np.unique(_numbers(node, "class_ids", np.int64)).tolist())
    if len(labels) < 2 or base.size > 1 or (base.size and 1 in weighted):
        classes = ", ".join(map(str, sorted(weighted)))
        raise node.refused(f"{len(labels)} classes, weights of the classes {classes} and {base.size} base values")
    positive = bool((_numbers(node, "class_weights", np.float32) >= 0).all())
    if 1 in weighted:  # the label follows the second class alone
        score, least = e.slice(scores, 1, 1, 2), 0.5 if positive and len(weighted) == 1 else 0.0
        named = labels if len(weighted) == 1 else [0, 1]
        return [label_by_sign(e, score, rows, named, least), transformed(node, e, scores)]
    score = e.slice(scores, 1, 0, 1)
    score = e.op("Add", score, e.const(base)) if base.size else score
    if positive:  # a chance: that of the other class is the rest
        rest = e.op("Sub", e.const(np.float32(1)), score)
        return [label_by_sign(e, score, rows, labels, 0.5), e.concat([rest, score], 1)]
    both = e.concat([e.op("Neg", score), score], 1)
    transformed_scores = transformed(node, e, both) if str(node.attr("post_transform")) == "LOGISTIC" else both
    return [label_by_sign(e, score, rows, labels), transformed_scores]


@rewrites("TreeEnsemble", domain=CLASSICAL)
def tree_ensemble(node: Node, e: Emit) -> list[str] | None:
    """The newer form, of regressors and classifiers: inner nodes and leaves are numbered apart."""
    real = node.dtype(0).type
    splits = _numbers(node, "nodes_splits", real)
    leaf_weights = _numbers(node, "leaf_weights", np.float64)
    inner, size = len(splits), len(splits) + len(leaf_weights)
    targets = _numbers(node, "leaf_targetids", np.int64)
    weights = np.zeros((size, int(node.attr("n_targets", targets.max() + 1))), real)
    weights[inner + np.arange(len(targets)), targets] = leaf_weights

    def led(side: str) -> Array:
        ids = _numbers(node, f"nodes_{side}nodeids", np.int64)
        to_leaf = _numbers(node, f"nodes_{side}leafs", bool)
        return np.concatenate([np.where(to_leaf, ids + inner, ids), np.arange(inner, size)])

    def filled(values: Array) -> Array:
        return np.concatenate([values, np.zeros(len(targets), values.dtype)])

    missing = _numbers(node, "nodes_missing_value_tracks_true", bool)
    modes = _numbers(node, "nodes_modes", np.int64)
    forest = Forest(
        filled(_numbers(node, "nodes_featureids", np.int64)),
        filled(splits),
        np.concatenate([modes, np.full(len(targets), LEAF)]),
        filled(missing if missing.size else np.zeros(inner, bool)),
        led("true"),
        led("false"),
        _numbers(node, "tree_roots", np.int64),
        weights,
        _members(node, modes, size, real) if (modes == MEMBER).any() else None,
    )
    leaves = forest.leaves(node, e, node.input(0), node.shape(0)[0])
    return [_finished(node, e, _aggregated(node, e, leaves, *forest.sizes(), real), forest)]


def _members(node: Node, modes: Array, size: int, real: Any) -> Array:
    """``Forest.members``: the sets follow each other in the order of their nodes, a NaN behind each."""
    values = _numbers(node, "membership_values", real)
    ends = np.flatnonzero(np.isnan(values))
    sets = [part[~np.isnan(part)] for part in np.split(values, ends + 1)]
    table = np.full((size, max(1, *map(len, sets))), np.nan, real)
    for index, own in zip(np.flatnonzero(modes == MEMBER), sets, strict=False):
        table[index, : len(own)] = own
    return table
