"""Artifacts built for one row of an open batch that answer any batch, row by row.

The reference engine shows whether the rows of a batch change each other's results. If they do not, the artifact's
manifest says so, and a session runs its kernels once per row. The experiments are those of several sets of shapes
(``validation/independence.py``), at a batch of two. At the end the artifact is compared with the reference at
``CHECKED_ROWS``.
"""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from autotune.artifact.composite import one_part
from autotune.artifact.directory import Artifact
from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.load import load_model
from autotune.importer.onnx_model.inline_weights import model_without_weights
from autotune.importer.onnx_model.input_shapes import BATCHES, open_batches
from autotune.importer.onnx_model.open_axes import open_interface
from autotune.importer.onnx_model.shapes import dim_name, is_known, true_inputs
from autotune.interface import Interface, TensorSpec
from autotune.runtime.multi_shape_executor import MultiShapeExecutor
from autotune.validation.independence import with_independence
from autotune.validation.reference_runs import Reference
from autotune.validation.verdict import Verdict
from autotune.validation.verify import compare, random_inputs
from schedules.vocabulary.errors import AutotuneError, first_line

logger = logging.getLogger(__name__)

BATCH = "batch"
"""Name of an open batch that the model gives no name, or several."""

TRIED_ROWS, CHECKED_ROWS = 2, 3
"""Rows of the batch at which independence is tried, and at which the artifact is compared."""

KEPT_REFERENCES = 2
"""Sessions of the reference engine that are kept: experiments compare the results at two sizes again and again."""


class References:
    """The reference engine for a model at any of its sizes."""

    def __init__(self, model: Path) -> None:
        self._model = model
        self._of = lru_cache(KEPT_REFERENCES)(self._opened)

    def of(self, feed: Mapping[str, NDArray[Any]]) -> Reference:
        """The reference engine for inputs of these shapes.

        Raises:
            AutotuneError: if the model does not take them.
        """
        return self._of(tuple((name, array.shape) for name, array in feed.items() if array.ndim))

    def outputs(self, feed: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The model's outputs.

        Raises:
            AutotuneError, ThirdPartyError: if the model does not take these inputs.
        """
        return self.of(feed).run(dict(feed))[1]

    def exact(self, feed: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The model's outputs in 64 bits.

        Raises:
            AutotuneError, ThirdPartyError: as ``outputs``, and for a model that cannot be computed so.
        """
        return self.of(feed).exact(dict(feed))

    def _opened(self, shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> Reference:
        return Reference(load_model(self._model, dict(shapes)))


def any_batch(artifact: Artifact, model: Path, seed: int) -> Interface | None:
    """Return the interface with which ``artifact`` answers any batch; None if it answers that of its kernels alone.

    Args:
        model: the ONNX file that it was built from.
        seed: of the random inputs.
    """
    if artifact.frame is not None or artifact.caches or importlib.util.find_spec("onnxruntime") is None:
        return None
    graph = model_without_weights(model)
    axes = {} if graph is None else _batch_axes(graph, artifact.inputs)
    if graph is None or not axes:
        return None
    try:
        with third_party():
            interface, why = _tried(graph, axes, artifact, References(model), seed)
    except (AutotuneError, ThirdPartyError) as error:  # its batch is written into its graph, for one
        logger.debug("%s", error)
        interface, why = None, f"they do not run ({first_line(error)})"
    if why:
        logger.warning("%s: calls of other batches are refused: %s", model.name, why)
    return interface


def _tried(
    graph: onnx.ModelProto, axes: Mapping[str, int], artifact: Artifact, references: References, seed: int
) -> tuple[Interface | None, str]:
    """The interface that ``artifact`` is right with; or None, and why there is none.

    Raises:
        AutotuneError, ThirdPartyError: if the model does not run several rows.
    """
    interface = _interface(graph, axes, artifact, references, seed)
    if not interface.split:
        return None, "rows of a batch change each other's results, or an output has no row for each of them"
    verdict = check_rows(replace(artifact, interface=interface), references, seed)
    return (interface, "") if verdict.passed else (None, f"{verdict.difference} (allowed {verdict.allowed})")


def check_rows(artifact: Artifact, references: References, seed: int) -> Verdict:
    """Compare an artifact that answers any batch with the reference, at ``CHECKED_ROWS`` rows.

    Raises:
        AutotuneError: if one of them does not run them.
    """
    composite = one_part(artifact)
    inputs = composite.interface.inputs
    specs = [
        TensorSpec(spec.name, tuple(CHECKED_ROWS if isinstance(size, str) else size for size in spec.shape), spec.dtype)
        for spec in inputs
    ]
    feed = random_inputs(specs, seed)
    reference = references.of(feed)
    if any(array.dtype.kind in "iu" for array in feed.values()):  # sizes or indices
        feed = reference.fitting(feed)
    name, theirs = reference.run(feed)
    ours = MultiShapeExecutor(composite, None).run([feed[spec.name] for spec in inputs])
    verdict = compare(name, ours, theirs, lambda: reference.allowance(feed, artifact.precision))
    return replace(verdict, precision=artifact.precision)


def _batch_axes(graph: onnx.ModelProto, inputs: Sequence[TensorSpec]) -> dict[str, int]:
    """The axis of every input that is the open batch, which gets one name in ``graph``, in place.

    Exporters give each input's batch a name of its own. There are none if an input has no open batch, has it on two
    axes, or was built for another one than 1.
    """
    values = true_inputs(graph.graph)
    built = {spec.name: spec.shape for spec in inputs}
    if {value.name for value in values} != built.keys() or not all(
        v.type.tensor_type.HasField("shape") for v in values
    ):
        return {}
    first = open_batches(values)

    def is_batch(value: onnx.ValueInfoProto, axis: int, name: str) -> bool:
        return (axis == 0 and value.name in first) or re.search(BATCHES, name.lower()) is not None

    every = [
        (value, axis, dim)
        for value in values
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if not is_known(dim)
    ]
    names = {dim_name(dim) for value, axis, dim in every if is_batch(value, axis, dim_name(dim))} - {""}
    symbol = names.pop() if len(names) == 1 else BATCH
    axes: dict[str, int] = {}
    for value, axis, dim in every:
        if dim_name(dim) not in {symbol, *names} and not is_batch(value, axis, dim_name(dim)):
            continue
        if value.name in axes or built[value.name][axis] != 1:
            return {}
        axes[value.name] = axis
        dim.dim_param = symbol
    if len(axes) < len(values):
        return {}
    return axes


def _interface(
    graph: onnx.ModelProto, axes: Mapping[str, int], artifact: Artifact, references: References, seed: int
) -> Interface:
    """The interface of ``artifact`` with its batch open, which is found out to be split or not.

    Raises:
        AutotuneError, ThirdPartyError: if the model runs one row alone.
    """
    wide = [
        replace(
            spec, shape=tuple(TRIED_ROWS if axes[spec.name] == axis else size for axis, size in enumerate(spec.shape))
        )
        for spec in artifact.inputs
    ]
    results = references.outputs(random_inputs(wide, seed))
    wide_outputs = [replace(spec, shape=array.shape) for spec, array in zip(artifact.outputs, results, strict=True)]
    inputs, outputs = (
        [[(spec.name, spec.shape, spec.dtype) for spec in specs] for specs in side]
        for side in ([artifact.inputs, wide], [artifact.outputs, wide_outputs])
    )
    opened = open_interface(graph, inputs, outputs)
    return with_independence(opened, [{spec.name: spec.shape for spec in wide}], [references.outputs], seed)
