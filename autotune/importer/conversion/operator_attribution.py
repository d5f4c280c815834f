"""The operator at which an import fails, where a pass over the whole program does not say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onnx import ModelProto, NodeProto

from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.onnx_model.segments import Cutter
from schedules.vocabulary.errors import AutotuneError, ModelError, UnsupportedError, first_line

MOST_TRIALS = 64
"""Different operators that are imported alone. A bound on the seconds before an error is shown; heuristic, not
measured."""


def attributed(model: ModelProto, error: Exception, attempt: Callable[[ModelProto], object]) -> ModelError:
    """The error to raise for ``error``: it names the first operator that fails alone, else all there are.

    Args:
        model: simplified; what was being imported.
        error: what the import raised.
        attempt: imports a model.
    """
    names = list(dict.fromkeys(node.op_type for node in model.graph.node))
    for node, alone in kinds_alone(model) if len(names) > 1 else ():
        try:
            with third_party():
                attempt(alone)
        except (AutotuneError, ThirdPartyError) as other:
            return UnsupportedError(
                f"operator {node.op_type} (node {node.name!r}) cannot be built: {first_line(other, 200)}; "
                "export the model without it"
            )
    return UnsupportedError(
        f"the model cannot be imported: {first_line(error, 200)}; its operators are {', '.join(names)}"
    )


def kinds_alone(model: ModelProto) -> Iterator[tuple[NodeProto, ModelProto]]:
    """The first node of each operator of ``model``, and a model of that node alone; at most ``MOST_TRIALS``."""
    kinds = {node.op_type: node for node in reversed(model.graph.node)}
    cutter = Cutter(model)
    for name in list(dict.fromkeys(node.op_type for node in model.graph.node))[:MOST_TRIALS]:
        if cutter.is_static(kinds[name]):
            yield kinds[name], cutter.part([kinds[name]])
