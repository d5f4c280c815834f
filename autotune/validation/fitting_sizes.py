"""Sizes for the open inputs of a model that does not run with the assumed ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnx import ValueInfoProto
from onnx.external_data_helper import uses_external_data

from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.kernel_passes import inputs_of
from autotune.importer.onnx_model.graph_walk import walk_nodes, walk_tensors
from autotune.importer.onnx_model.inline_weights import model_without_weights
from autotune.importer.onnx_model.input_shapes import BATCH, assumed_text, guessed_shapes
from autotune.importer.onnx_model.shapes import infer_shapes, is_fixed, is_known, shape_text, true_inputs
from autotune.runtime.segmented_executor import open_onnxruntime
from autotune.validation.arithmetic.fitting_values import fitting_feed
from autotune.validation.arithmetic.onnxruntime_session import UnendedError, ended_run, has_loops
from autotune.validation.arithmetic.reference_engines import Arrays
from autotune.validation.verify import random_inputs
from schedules.vocabulary.errors import AutotuneError, ModelError

SIZES = (256, 512, 576, 1024, 160, 320, 640, 16_000, 480, 400, 224, 384, 192, 96, 48, 32, 16, 8, 4, 2, 1, 48_000)
"""Sizes that are tried: windows of signals at 8 and 16 kHz, then sides of images, then short lengths. Heuristic."""

ROWS = (4, 2, 5, 3, 8, 6, 16)
"""Batches that are tried last: beams of a search, views, pairs. Heuristic."""

MOST_HINTS = 16
"""Constants of the model that are tried before ``SIZES``."""

MOST_ELEMENTS = 1 << 22
"""Elements of an input up to which sizes are tried."""

MOST_S = 20.0
"""Seconds after which no further size is tried. Heuristic, not measured."""

Shapes = dict[str, tuple[int, ...]]


def fitting_inputs(path: Path, others: bool = False) -> tuple[Shapes, str] | None:
    """Return a shape of every input with which ONNX Runtime runs the model at ``path``, and the line that says so.

    None if it runs the assumed sizes, so that they are not at fault, or if the model has no open size or cannot be
    opened, or if a loop of it does not end.

    Args:
        others: pass over the assumed sizes, and return None if no other runs.

    Raises:
        ModelError: if it runs none of the sizes that are tried; the line names the option to give.
    """
    model = model_without_weights(path)
    values = true_inputs(model.graph) if model is not None else []
    left = [value for value in values if not is_fixed(value.type.tensor_type)]
    if model is None or not left or not all(value.type.tensor_type.HasField("shape") for value in values):
        return None
    try:
        session = open_onnxruntime(path, 1, from_bytes=False)
    except AutotuneError:
        return None
    run = partial(_outputs, session, MOST_S if has_loops(model) else math.inf)
    end = time.monotonic() + MOST_S
    assumed = guessed_shapes(values, {})
    for number, shapes in enumerate(_candidates(model, values, assumed)):
        if time.monotonic() > end:
            break
        if others and not number:
            continue
        try:
            fits = _runs(run, model, shapes, tries_values=not number)
        except UnendedError:
            return None
        if fits:
            return (shapes, assumed_text(path.name, left, [shapes])) if number else None
    if others:
        return None
    described = ", ".join(f"{value.name!r} is {shape_text(value.type.tensor_type.shape)}" for value in left)
    raise ModelError(
        f"{path.name}: ONNX Runtime runs it with none of the sizes that were tried for its open inputs ({described}); "
        "give sizes that fit with --input NAME:SHAPE"
    )


def _runs(
    run: Callable[[Arrays], list[Any] | None], model: onnx.ModelProto, shapes: Shapes, tries_values: bool
) -> bool:
    """Return whether ONNX Runtime runs the model at ``shapes``.

    Args:
        run: as ``_outputs``.
        tries_values: also with values of ``fitting_feed``, where it refuses random ones.

    Raises:
        UnendedError: as ``_outputs``.
    """
    bound = _bound(model, shapes)
    feed = random_inputs(inputs_of(bound), 0)
    if run(feed) is not None:
        return True
    if not tries_values:
        return False
    with suppress(ModelError):  # the sizes may not fit
        infer_shapes(bound, bound.graph.name, strict=False)
    return fitting_feed(bound, feed, run) is not None


def _outputs(session: Any, limit_s: float, feed: Arrays) -> list[Any] | None:
    """Return the outputs; None if ONNX Runtime refuses ``feed``.

    Raises:
        UnendedError: if it does not finish within ``limit_s``.
    """
    try:
        with third_party():
            return ended_run(session, feed, limit_s)
    except ThirdPartyError:
        return None


def _candidates(model: onnx.ModelProto, values: Sequence[ValueInfoProto], assumed: Shapes) -> Iterator[Shapes]:
    """The assumed shapes, then those with another size in place of every open one that is no batch, then of batches."""
    yield assumed
    other_sizes = [(size, BATCH) for size in dict.fromkeys((*_hints(model), *SIZES))]
    for size, rows in [*other_sizes, *((None, rows) for rows in ROWS)]:
        shapes = {
            value.name: tuple(
                guess if is_known(dim) else rows if guess == BATCH else size or guess
                for dim, guess in zip(value.type.tensor_type.shape.dim, assumed[value.name], strict=True)
            )
            for value in values
        }
        if shapes != assumed and all(math.prod(shape) <= MOST_ELEMENTS for shape in shapes.values()):
            yield shapes


def _hints(model: onnx.ModelProto) -> list[int]:
    """Sizes that the model itself names: constants of its shapes, and windows of its convolutions."""
    attributes = (attribute for node in walk_nodes(model.graph.node) for attribute in node.attribute)
    named = [int(size) for attribute in attributes if attribute.name == "kernel_shape" for size in attribute.ints]
    for tensor in walk_tensors(model):
        is_list = tensor.data_type == onnx.TensorProto.INT64 and math.prod(tensor.dims) <= 4
        if is_list and not uses_external_data(tensor):
            named += [int(size) for size in onnx.numpy_helper.to_array(tensor).reshape(-1)]
    return [size for size in dict.fromkeys(named) if 8 <= size <= max(SIZES)][:MOST_HINTS]


def _bound(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """A copy of ``model`` whose inputs have these shapes."""
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    for value in true_inputs(bound.graph):
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            dim.dim_value = size
    return bound
