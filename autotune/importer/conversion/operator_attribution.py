"""Which operator stands in the way, when a pass over the whole program fails without saying."""

from __future__ import annotations

from collections.abc import Callable

from onnx import ModelProto, helper

from autotune.importer.conversion.scope import Scope
from schedules.errors import ModelError, first_line

MOST_TRIALS = 64
"""Different operators that are tried alone."""


def blame(model: ModelProto, error: Exception, attempt: Callable[[ModelProto], object]) -> ModelError:
    """The error to raise for ``error``: it names the first operator that fails alone, else all there are.

    Args:
        model: simplified; what was being imported.
        error: what the import raised.
        attempt: imports a model.
    """
    why = first_line(error, 200)
    scope = Scope(model)
    kinds = list(dict.fromkeys(node.op_type for node in model.graph.node))
    for kind in kinds[:MOST_TRIALS] if len(kinds) > 1 else []:
        node = next(node for node in model.graph.node if node.op_type == kind)
        names = [name for name in dict.fromkeys(node.input) if name]
        if any(name not in scope.shapes or name not in scope.types for name in (*names, *filter(None, node.output))):
            continue
        values = [helper.make_tensor_value_info(name, scope.types[name], scope.shapes[name]) for name in names]
        made = [helper.make_tensor_value_info(n, scope.types[n], scope.shapes[n]) for n in node.output if n]
        given = [value for value in values if value.name not in scope.tensors]
        held = [scope.tensors[name] for name in names if name in scope.tensors]
        alone = helper.make_model(helper.make_graph([node], kind, given, made, held), opset_imports=model.opset_import)
        try:
            attempt(alone)
        except Exception as other:  # that is the question
            return ModelError(
                f"operator {kind} (node {node.name!r}) cannot be built: {first_line(other, 200)}; "
                "see docs/conformance.md for what is supported, or let ONNX Runtime run it: --fallback onnxruntime"
            )
    return ModelError(f"the model cannot be imported: {why}; its operators are {', '.join(kinds)}")
