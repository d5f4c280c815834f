"""Values that do not depend on the inputs are computed at import, by ONNX's reference implementation.

Shapes count as known once they are inferred, so the chains of Shape, Gather and Concat that exporters write, and the
bodies of ONNX's functions, end as constants.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper
from onnx.reference import ReferenceEvaluator

from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.onnx_model.graph_edits import replace_nodes
from autotune.importer.onnx_model.graph_walk import BODIED, RANDOM
from autotune.importer.onnx_model.scope import Array, Scope

LARGEST = 1 << 18
"""Elements of a folded constant; a larger one is computed at run time rather than stored. Heuristic, not measured."""


def made_of_constants(graph: onnx.GraphProto, constants: Collection[str]) -> set[str]:
    """Return the values of a sorted graph that depend on no input: ``constants`` and what follows from them alone."""
    fixed = set(constants)
    for node in graph.node:
        if node.op_type not in (*RANDOM, *BODIED) and all(not name or name in fixed for name in node.input):
            fixed.update(node.output)
    return fixed


REFERENCE_OPSET = {"QuantizeLinear": 19, "DequantizeLinear": 19}
"""Operator → the first opset that ONNX's reference has it of; older ones mean the same."""

logger = logging.getLogger(__name__)


def fold(model: ModelProto, largest: int = LARGEST) -> bool:
    """Replace nodes whose result is known by constants, in place; whether there were any.

    Shapes that follow from such a constant are found on the way, and what is computed of them is known too.
    """
    scope = Scope(model)
    written = Counter(name for node in model.graph.node for name in node.output)
    outputs = {value.name for value in model.graph.output}
    kept = []
    for node in model.graph.node:
        results = known_results(node, scope, largest)
        if results is None or any(name in outputs and written[name] > 1 for name in node.output):
            kept.append(node)
            scope.deduce(node)
            continue
        for name, array in results.items():
            scope.add(name, array)
    changed = len(kept) < len(model.graph.node)
    if changed:
        replace_nodes(model.graph, kept)
    return changed


def known_results(node: NodeProto, scope: Scope, largest: int = LARGEST) -> dict[str, Array] | None:
    """Output → its value, if all are known."""
    names = [str(name) for name in node.output if name]
    if node.op_type in (*RANDOM, *BODIED) or node.domain not in ("", "ai.onnx") or not names:
        return None
    if any(math.prod(scope.shapes.get(name, ())) > largest for name in names):
        return None
    first = str(node.input[0]) if node.input else ""
    if node.op_type in ("Shape", "Size") and first in scope.shapes:
        shape = scope.shapes[first]
        if node.op_type == "Size":
            return {names[0]: np.array(math.prod(shape), np.int64)}
        bounds = {a.name: a.i for a in node.attribute}
        return {names[0]: np.array(shape[bounds.get("start", 0) : bounds.get("end", len(shape))], np.int64)}
    empty = _empty(names, scope)
    if empty is not None:
        return empty
    if node.op_type == "Pow" and helper.tensor_dtype_to_np_dtype(scope.types.get(first, 0) or 1).kind in "iu":
        return None  # its rewrite is exact where NumPy's doubles are not, and is folded
    if node.op_type == "ReduceMean" and 0 in scope.shapes.get(first, ()):
        return None  # its rewrite is 0 as in ONNX Runtime, where NumPy's mean of nothing is NaN, and is folded
    feed = _feed(node, scope)
    return None if feed is None else evaluated(node, feed, scope, largest)


def _empty(names: list[str], scope: Scope) -> dict[str, Array] | None:
    """Tensors without elements need no computing."""
    arrays = {}
    for name in names:
        shape, kind = scope.shapes.get(name), scope.types.get(name)
        if shape is None or 0 not in shape or not kind or kind == onnx.TensorProto.STRING:
            return None
        arrays[name] = np.zeros(shape, helper.tensor_dtype_to_np_dtype(kind))
    return arrays


def _feed(node: NodeProto, scope: Scope) -> dict[str, Array] | None:
    """The values of all inputs, if they are known or do not matter."""
    feed: dict[str, Array] = {}
    for name in node.input:
        if not name:
            continue
        array = scope.array(name)
        shape, kind = scope.shapes.get(name), scope.types.get(name)
        if array is None and shape is not None and kind:
            irrelevant = math.prod(shape) == 0 or node.op_type == "EyeLike"
            array = np.zeros(shape, helper.tensor_dtype_to_np_dtype(kind)) if irrelevant else None
        if array is None:
            return None
        feed[name] = array
    return feed


def reference_values(
    nodes: Sequence[NodeProto], feed: Mapping[str, Array], outputs: Sequence[str], opset: int
) -> list[Any] | None:
    """Return what ONNX's reference makes of ``nodes``; None where it lacks an operator or its version.

    Args:
        feed: the values that the nodes read and do not make.
        outputs: names of the values to return.
    """
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feed.items()
    ]
    graph = helper.make_graph(nodes, "fold", inputs, list(map(helper.make_empty_tensor_value_info, outputs)))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        with third_party(), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return list(ReferenceEvaluator(model).run(None, dict(feed)))
    except ThirdPartyError as error:
        logger.debug("%s is not folded: %s", nodes[-1].name, error)
        return None


def evaluated(
    node: NodeProto, feed: Mapping[str, Array], scope: Scope, largest: int = LARGEST
) -> dict[str, Array] | None:
    """Output → its value by ONNX's reference; None where it is too large, or the reference lacks the operator."""
    names = [str(name) for name in node.output if name]
    values = reference_values([node], feed, names, max(scope.opset, REFERENCE_OPSET.get(node.op_type, 0)))
    if values is None:
        return None
    results: dict[str, Array] = {}
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, (np.ndarray, np.generic)):
            return None
        array, kind = np.asarray(value), scope.types.get(name)
        if array.dtype == object or array.dtype.kind in "US" or array.size > largest:
            return None
        if kind:
            array = array.astype(helper.tensor_dtype_to_np_dtype(kind), copy=False)
        if name in scope.shapes and scope.shapes[name] != array.shape:
            return None
        results[name] = array
    return results
