"""The latency of the model on ONNX Runtime, shown beside a run as the latency to beat."""

from __future__ import annotations

import importlib.util
import logging
import statistics
from collections.abc import Sequence

import onnx

from autotune.events import ReferenceTimed
from autotune.importer.onnx_model.tensors import whole
from autotune.interface import TensorSpec
from autotune.validation.bench import time_alone
from autotune.validation.verify import runnable_inputs
from schedules.vocabulary.errors import MeasureError

ENGINE = "onnxruntime"

logger = logging.getLogger(__name__)


def reference_latency(
    model: onnx.ModelProto, inputs: Sequence[TensorSpec], threads: int, seed: int
) -> ReferenceTimed | None:
    """Time the model on ONNX Runtime, which takes a second or two; None if that is not installed or fails.

    Args:
        model: checked, its shapes fixed.
        inputs: of the model; they get random numbers from ``seed``.
        threads: as many as our kernels run on.
    """
    if importlib.util.find_spec(ENGINE) is None:
        return None
    try:
        times = time_alone(ENGINE, whole(model), runnable_inputs(model, inputs, seed), threads)
    except MeasureError as error:
        logger.warning("%s was not timed: %s", ENGINE, error)
        return None
    return ReferenceTimed(times.name, times.version, statistics.median(times.runs_s))
