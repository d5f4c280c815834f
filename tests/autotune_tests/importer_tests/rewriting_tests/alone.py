"""One rewrite alone on an ONNX graph, compared with the graph as it was, both in ONNX Runtime."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from autotune.importer.onnx_model.graph_edits import drop_unused
from autotune.importer.onnx_model.graph_walk import walk_nodes
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import OWN_DOMAIN, STANDARD_DOMAINS, true_inputs
from autotune.importer.rewriting.registry import Rewrite, replacement, rewrite_of
from schedules.vocabulary.errors import ModelError

SETTINGS = onnxruntime.SessionOptions()
SETTINGS.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
SETTINGS.log_severity_level = 4

OPSET = 21
"""A version of the standard operators that ONNX Runtime knows."""

logger = logging.getLogger(__name__)


def rewritten_alone(model: onnx.ModelProto, function: Rewrite) -> onnx.ModelProto | None:
    """A copy of ``model`` in which ``function`` alone has replaced nodes; None where it replaces none.

    Args:
        model: as ``load_model`` gives it.
    """
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for settled in (False, True):
        scope = Scope(copy, [value.name for value in copy.graph.input])
        scope.settled = settled
        replacements = [
            _made(function, node, scope) if rewrite_of(node) is function else None for node in copy.graph.node
        ]
        if any(nodes_made is not None for nodes_made in replacements):
            nodes = [
                node for old, new in zip(copy.graph.node, replacements, strict=True) for node in new or [_copied(old)]
            ]
            del copy.graph.node[:]
            copy.graph.node.extend(nodes)
            _declare_domains(copy)
            drop_unused(copy.graph)
            return copy
        copy = onnx.ModelProto.FromString(model.SerializeToString())
    return None


def _made(function: Rewrite, node: onnx.NodeProto, scope: Scope) -> list[onnx.NodeProto] | None:
    try:
        return replacement(function, node, scope)
    except ModelError:
        return None


def _copied(node: onnx.NodeProto) -> onnx.NodeProto:
    return onnx.NodeProto.FromString(node.SerializeToString())


def _declare_domains(model: onnx.ModelProto) -> None:
    known = {opset.domain for opset in model.opset_import}
    for domain in {node.domain for node in model.graph.node} - known - {*STANDARD_DOMAINS}:
        model.opset_import.append(onnx.helper.make_opsetid(domain, 1))


def has_own(model: onnx.ModelProto) -> bool:
    """Whether nodes are of operators that only the importer knows."""
    return any(node.domain == OWN_DOMAIN for node in model.graph.node)


def outputs(model: onnx.ModelProto, feed: Mapping[str, Any]) -> list[Any] | None:
    """Return the outputs of ONNX Runtime without its optimiser, else of ONNX's reference; None if neither runs it."""
    old = _of_opset(model)
    read = {value.name for value in true_inputs(model.graph)}
    arrays = {name: value for name, value in feed.items() if name in read}
    optional = any(node.op_type == "Optional" for node in old.graph.node)  # which the reference wraps in a list
    for run in (_runtime,) if optional else (_runtime, _reference):
        try:
            return run(old, arrays)
        except Exception as error:
            logger.debug("%s: %s", run.__name__, error)
    return None


def _of_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the newest opset that ONNX Runtime knows, if its operators are as old; else as it is."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for opset in copy.opset_import:
        kinds = {node.op_type for node in walk_nodes(copy.graph.node) if node.domain in STANDARD_DOMAINS}
        known = (onnx.defs.get_schema(kind, opset.version).since_version for kind in kinds)
        if opset.domain in STANDARD_DOMAINS and opset.version > OPSET and max(known, default=0) <= OPSET:
            opset.version = OPSET
    copy.ir_version = min(copy.ir_version, 10)
    return copy


def _runtime(model: onnx.ModelProto, feed: Mapping[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), SETTINGS, ["CPUExecutionProvider"])
    return list(session.run(None, dict(feed)))


def _reference(model: onnx.ModelProto, feed: Mapping[str, Any]) -> list[Any]:
    return list(ReferenceEvaluator(model).run(None, dict(feed)))


def differs(ours: Collection[Any], theirs: Collection[Any]) -> str:
    """Return the difference between two results, sequences and absent values included; empty if there is none."""
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(other, list):
            text = differs(one, other) if len(one) == len(other) else f"{len(one)} for {len(other)} tensors"
        elif other is None or one is None:
            text = "" if one is other else f"{one} for {other}"
        elif (np.shape(one), np.asarray(one).dtype) != (np.shape(other), np.asarray(other).dtype):
            text = f"{np.asarray(one).dtype}{np.shape(one)} for {np.asarray(other).dtype}{np.shape(other)}"
        else:
            text = _far(np.asarray(one), np.asarray(other))
        if text:
            return text
    return ""


def _far(one: np.ndarray, other: np.ndarray) -> str:
    if other.dtype.kind not in "fV":
        return "" if np.array_equal(one, other) else f"{one.ravel()[:4]} for {other.ravel()[:4]}"
    wide = np.float64 if other.dtype == np.float64 else np.float32
    digits = 1e-3 if other.dtype.itemsize < 4 else 1e-4
    a, b = one.astype(wide), other.astype(wide)
    most = np.abs(b[np.isfinite(b)]).max(initial=0)
    same = np.isclose(a, b, digits, digits * most / 10, equal_nan=True)
    return "" if same.all() else f"{int((~same).sum())} of {same.size} differ"
