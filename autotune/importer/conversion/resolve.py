"""A model that Relax can import: functions expanded, constants folded, loops unrolled, operators rewritten."""

from __future__ import annotations

from collections.abc import Collection

from onnx import ModelProto

from autotune.frame.frame import HostStep
from autotune.importer.conversion import operator_catalog  # noqa: F401  # fills the registry
from autotune.importer.conversion.largest_sizes import largest_sizes
from autotune.importer.conversion.packed_outputs import pack_outputs
from autotune.importer.onnx_model.graph_edits import drop_unused, tidy
from autotune.importer.onnx_model.graph_walk import name_nodes, walk_nodes
from autotune.importer.onnx_model.shapes import infer_shapes, know_domain
from autotune.importer.rewriting.folding import fold
from autotune.importer.rewriting.registry import rewrite
from schedules.vocabulary.errors import ModelError

SPARE_ROUNDS = 64
"""Rounds beyond one per node after which a model is refused: a bound on rewrites that never end, which none does. A
round folds all that is known and expands one level of functions, loops and branches."""


def resolve(model: ModelProto, inputs: Collection[str]) -> list[HostStep]:
    """Make ``model``, in place, an equivalent one of operators that can be imported.

    Args:
        model: a skeleton (``shapes.skeleton``).
        inputs: names of the true inputs; the skeleton's others are large weights.

    Returns:
        The steps that make of its outputs what they were: sequences, and sizes that depend on data.

    Raises:
        ModelError: naming the operator that stands in the way.
    """
    name = model.graph.name or "model"
    steps: list[HostStep] = []
    for value in model.graph.output:
        if value.type.WhichOneof("value") != "tensor_type":  # may become another kind, of which nothing is left
            value.type.Clear()
    refusal: ModelError | None = None
    settled = False  # whether the last round changed nothing
    know_domain(model)
    for _ in range(SPARE_ROUNDS + sum(1 for _ in walk_nodes(model.graph.node))):
        changed = False
        if not settled:
            tidy(model.graph)
            # The model itself was checked; bodies of ONNX's own functions do not always pass strict inference.
            infer_shapes(model, strict=False)
            changed = fold(model)
            drop_unused(model.graph)
        rewritten, refusal = rewrite(model, inputs, settled)
        changed |= rewritten
        tidy(model.graph)
        name_nodes(model.graph.node)
        if not changed and settled:
            cuts = largest_sizes(model, inputs)
            changed = cuts is not None
            steps += cuts or []
            if not changed and refusal is None:
                return [*steps, *pack_outputs(model)]
            if not changed and refusal is not None:
                raise refusal
        settled = not changed
    raise refusal or ModelError(f"{name}: the model does not settle; flatten its nested functions")
