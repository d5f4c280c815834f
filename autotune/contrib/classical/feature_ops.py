"""Operators that prepare features for models of scikit-learn: scalers, encoders, imputers, and choices of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from autotune.contrib.classical.scores import CLASSICAL
from autotune.importer.rewriting.emit import FLOAT, INT64, Emit, Node
from autotune.importer.rewriting.registry import rewrites

FINDS_NAN = 4
"""Version of the domain from which a LabelEncoder finds the key NaN."""


@rewrites("Scaler", domain=CLASSICAL)
def scaler(node: Node, e: Emit) -> list[str] | None:
    """(x − offset) · scale per feature, in fp32."""
    x = e.cast(node.input(0), FLOAT)
    offset, scale = (np.array(node.attr(name), np.float32) for name in ("offset", "scale"))
    return [e.op("Mul", e.op("Sub", x, e.const(offset)), e.const(scale))]


@rewrites("Normalizer", domain=CLASSICAL)
def normalizer(node: Node, e: Emit) -> list[str] | None:
    """Every row divided by its greatest element, its sum of absolutes or its length; rows of zeros stay."""
    x = e.cast(node.input(0), FLOAT)
    kind = str(node.attr("norm", "MAX"))
    reduction = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}.get(kind)
    if reduction is None:
        raise node.refused(f"its norm {kind!r} is none of MAX, L1, L2")
    norm = e.reduce(reduction, x, [-1])
    zero = e.op("Equal", norm, e.const(np.float32(0)))
    return [e.op("Div", x, e.op("Where", zero, e.const(np.float32(1)), norm))]


@rewrites("Binarizer", domain=CLASSICAL)
def binarizer(node: Node, e: Emit) -> list[str] | None:
    """1 where x is above the threshold, else 0."""
    above = e.op("Greater", node.input(0), e.like(node.attr("threshold", 0.0)))
    return [e.cast(above, node.type(0))]


@rewrites("Imputer", domain=CLASSICAL)
def imputer(node: Node, e: Emit) -> list[str] | None:
    """Replace missing elements, NaN or a value of their own, by a constant per feature."""
    x = node.input(0)
    floats, wholes = node.attr("imputed_value_floats"), node.attr("imputed_value_int64s")
    missing = node.attr("replaced_value_float" if floats else "replaced_value_int64", 0)
    is_missing = e.op("IsNaN", x) if np.isnan(missing) else e.op("Equal", x, e.like(missing))
    return [e.op("Where", is_missing, e.const(np.array(floats or wholes).astype(node.dtype(0))), x)]


@rewrites("FeatureVectorizer", domain=CLASSICAL)
def feature_vectorizer(node: Node, e: Emit) -> list[str] | None:
    """Inputs side by side, in fp32, each cut or filled with zeros to its number of columns."""
    parts = []
    for index, wanted in enumerate(node.attr("inputdimensions")):
        shape = node.shape(index)
        rows, columns = (1, *shape)[-2:] if shape else (1, 1)
        part = e.reshape(e.cast(node.input(index), FLOAT), rows, columns)
        if columns > wanted:
            part = e.slice(part, 1, 0, int(wanted))
        elif columns < wanted:
            part = e.concat([part, e.const(np.zeros((rows, int(wanted) - columns), np.float32))], 1)
        parts.append(part)
    return [e.concat(parts, 1)]


@rewrites("ArrayFeatureExtractor", domain=CLASSICAL)
def array_feature_extractor(node: Node, e: Emit) -> list[str] | None:
    """Columns by number; a vector becomes one row."""
    shape = node.shape(0)
    x = e.reshape(node.input(0), 1, *shape) if len(shape) == 1 else node.input(0)
    return [e.op("Gather", x, e.reshape(node.input(1), -1), axis=-1)]


@rewrites("OneHotEncoder", domain=CLASSICAL)
def one_hot_encoder(node: Node, e: Emit) -> list[str] | None:
    """1 in the place of the category that x is, along a new last axis."""
    categories = node.attr("cats_int64s")
    if not categories:
        raise node.refused("its categories are strings; encode them before the model")
    x = e.unsqueeze(e.cast(node.input(0), INT64), len(node.shape(0)))
    return [e.cast(e.op("Equal", x, e.const(np.array(categories, np.int64))), FLOAT)]


@rewrites("LabelEncoder", domain=CLASSICAL)
def label_encoder(node: Node, e: Emit) -> list[str] | None:
    """The value of the key that x is, else the default."""
    keys, values = _entries(node, "keys"), _entries(node, "values")
    default = node.attr("default_tensor")
    if default is None:
        field, missing = {"f": ("default_float", -0.0), "i": ("default_int64", -1)}[values.dtype.kind]
        default = np.array(node.attr(field, missing), values.dtype)
    else:
        default = numpy_helper.to_array(default).astype(values.dtype)
    kind = helper.np_dtype_to_tensor_dtype(keys.dtype)
    x = e.unsqueeze(e.cast(node.input(0), kind), len(node.shape(0)))
    hit = e.op("Equal", x, e.const(keys))
    if keys.dtype.kind == "f" and np.isnan(keys).any() and node.scope.versions[CLASSICAL] >= FINDS_NAN:
        hit = e.op("Or", hit, e.op("And", e.op("IsNaN", x), e.const(np.isnan(keys))))
    hit = e.cast(hit, TensorProto.INT32)
    looked_up = e.op("Gather", e.const(values), e.op("ArgMax", hit, axis=-1, keepdims=0), axis=0)
    any_hit = e.cast(e.reduce("ReduceMax", hit, [-1], keepdims=False), TensorProto.BOOL)
    return [e.op("Where", any_hit, looked_up, e.const(default.reshape(())))]


def _entries(node: Node, side: str) -> NDArray[Any]:
    """The keys or values of a LabelEncoder."""
    tensor = node.attr(f"{side}_tensor")
    if tensor is not None and tensor.data_type != TensorProto.STRING:
        return np.asarray(numpy_helper.to_array(tensor))
    for field, dtype in (("int64s", np.int64), ("floats", np.float32)):
        if node.attr(f"{side}_{field}"):
            return np.array(node.attr(f"{side}_{field}"), dtype)
    raise node.refused(f"its {side} are strings; encode them before or after the model")


@rewrites("TfIdfVectorizer")
def tf_idf_vectorizer(node: Node, e: Emit) -> list[str] | None:
    """Count each n-gram of the pool in each row, with up to ``max_skip_count`` elements between its parts.

    Per length and skip all windows (rows, windows, 1) are compared with all n-grams of that length, part by part.
    """
    pool = node.attr("pool_int64s")
    if not pool:
        raise node.refused("its pool is of strings; give it numbers of words")
    shape = node.shape(0)
    columns = shape[-1]
    x = e.reshape(e.cast(node.input(0), INT64), -1, columns)
    counts, starts = [], [int(start) for start in node.attr("ngram_counts")]
    for length, start, stop in zip(range(1, len(starts) + 1), starts, [*starts[1:], len(pool)], strict=True):
        grams = np.array(pool[start:stop], np.int64).reshape(-1, length)
        if len(grams):
            counts.append(_occurrences(node, e, x, grams, columns))
    places = [int(place) for place in node.attr("ngram_indexes")]
    table = np.zeros((len(places), max(places) + 1), np.float32)
    weights, mode = node.attr("weights"), str(node.attr("mode"))
    table[np.arange(len(places)), places] = weights if weights and mode != "TF" else 1
    occurrences = e.concat(counts, 1)
    occurrences = e.op("Min", occurrences, e.const(np.float32(1))) if mode == "IDF" else occurrences
    return [e.reshape(e.op("MatMul", occurrences, e.const(table)), *shape[:-1], max(places) + 1)]


def _occurrences(node: Node, e: Emit, x: str, grams: NDArray[np.int64], columns: int) -> str:
    """Return how often each of ``grams`` (n-grams, length) occurs in each row of x, as fp32 (rows, n-grams)."""
    length = grams.shape[1]
    total = e.const(np.zeros((int(np.prod(node.shape(0)[:-1])), len(grams)), np.float32))
    wanted = int(node.attr("min_gram_length")) <= length <= int(node.attr("max_gram_length"))
    for skip in range(int(node.attr("max_skip_count")) + 1 if length > 1 else 1) if wanted else ():
        windows = columns - (length - 1) * (skip + 1)
        if windows < 1:
            break
        hit = ""
        for part in range(length):
            own = e.unsqueeze(e.slice(x, 1, part * (skip + 1), part * (skip + 1) + windows), 2)
            same = e.cast(e.op("Equal", own, e.const(grams[:, part])), FLOAT)
            hit = e.op("Mul", hit, same) if hit else same
        total = e.op("Add", total, e.reduce("ReduceSum", hit, [1], keepdims=False))
    return total
