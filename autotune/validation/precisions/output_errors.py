"""How far a model's outputs are from those of fp32, for artifacts, for products in bf16, and for OpenVINO's default.

The error is relative: over all elements of an output and all samples, √(Σ(y − x)² / Σx²) with x the outputs of the fp32
model on ONNX Runtime; the largest over the outputs that are floating point numbers.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.program import simplify
from autotune.options import Precision
from autotune.runtime.session import InferenceSession
from autotune.validation.arithmetic.reference_engines import Arrays
from autotune.validation.bench import write_job
from autotune.validation.bench_process import EngineProcess
from autotune.validation.reference_runs import reference_samples
from autotune.validation.short_operands import ShortOperands
from schedules.vocabulary.errors import MeasureError, ModelError

logger = logging.getLogger(__name__)

DEFAULT_ENGINE = "openvino-default"
"""The engine whose error is the bound where none is given."""

Outputs = Sequence[NDArray[Any]]


def relative_error(ours: Sequence[Outputs], theirs: Sequence[Outputs]) -> float:
    """See the module; infinite where one of ours is no number and the reference's is.

    Args:
        ours, theirs: the outputs of every sample.
    """
    worst = 0.0
    for mine, other in zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True):
        if np.asarray(other[0]).dtype.kind != "f":
            continue
        pairs = [(np.asarray(y, np.float64), np.asarray(x, np.float64)) for y, x in zip(mine, other, strict=True)]
        square = sum(float(np.square(y - x, where=np.isfinite(x), out=np.zeros_like(x)).sum()) for y, x in pairs)
        scale = sum(float(np.square(x, where=np.isfinite(x), out=np.zeros_like(x)).sum()) for _, x in pairs)
        if not math.isfinite(square):
            return math.inf
        worst = max(worst, math.sqrt(square / scale) if scale else math.inf if square else 0.0)
    return worst


class OutputErrors:
    """Errors of one model on the same inputs.

    Args:
        model: checked, in fp32, with static shapes.
        feeds: the samples (``calibration_inputs``).
    """

    def __init__(self, model: onnx.ModelProto, feeds: Sequence[Arrays]) -> None:
        self._model, self._feeds = model, feeds
        self._theirs: Sequence[Outputs] = reference_samples(model, feeds)[1]
        self._operands: ShortOperands | None = None

    def of_artifact(self, artifact: Path) -> float:
        """Return the errors of the real kernels, run as they are installed."""
        session = InferenceSession(artifact)
        return relative_error(self._run(lambda feed: session.run(None, feed)), self._theirs)

    def of_products(self, precision: Precision) -> float:
        """Return the errors, computed by ONNX Runtime, of rounding the operands of the products in ``precision``."""
        short = self._short_operands().rounded(precision, stored=False)
        return relative_error(reference_samples(short, self._feeds)[1], self._theirs)

    @property
    def products(self) -> int:
        """Products that ``of_products`` can tell apart."""
        return self._short_operands().products

    def of_openvino(self, threads: int) -> float | None:
        """Return the errors of OpenVINO's own precision; None if it is not installed or does not run the model."""
        if importlib.util.find_spec("openvino") is None:
            return None
        with tempfile.TemporaryDirectory(prefix="tune-error-") as temporary:
            folder = Path(temporary)
            write_job(folder, self._model, self._feeds[0], threads)
            try:
                with EngineProcess(DEFAULT_ENGINE, folder) as engine:
                    return relative_error(self._run(engine.outputs), self._theirs)
            except MeasureError as error:
                logger.info("%s: its error is not known: %s", DEFAULT_ENGINE, error)
                return None

    def _run(self, run: Callable[[Arrays], Outputs]) -> list[Outputs]:
        return [run(feed) for feed in self._feeds]

    def _short_operands(self) -> ShortOperands:
        if self._operands is None:
            try:
                with third_party():
                    simple = simplify(self._model)
            except (ThirdPartyError, ModelError):
                simple = self._model
            self._operands = ShortOperands(simple)
        return self._operands
