"""The kernels that background tuning made, and which requests they serve."""

from __future__ import annotations

import numpy as np

from autotune.frame.noise import is_live
from autotune.host.dtypes import is_short_float
from autotune.runtime.adaptive.routes import Shapes
from autotune.runtime.artifact_executor import Array
from autotune.runtime.serving import Serving
from schedules.vocabulary.errors import UsageError

MOST_SIZES = 4096
"""Different sizes whose requests are counted one by one."""

RELATIVE, ABSOLUTE = 1e-2, 1e-3
"""Largest difference between kernels and ONNX Runtime on a live request, relative to a value and to the largest one.
An artifact was verified by narrower bounds when it was built; this finds gross faults."""


class TunedKernels:
    """An open artifact, and which sizes it serves."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self._serves: dict[Shapes, bool] = {}
        names = [spec.name for spec in serving.first.inputs]
        self._own_names = [name for name in names if not is_live(name)]
        self._is_complete = len(self._own_names) == len(names)

    def completed(self, arrays: list[Array]) -> list[Array]:
        """Return ``arrays`` with the inputs that say which positions count, as kernels take them.

        Raises:
            UsageError, ValueError: if they are not the model's.
        """
        if self._is_complete:
            return arrays
        return self.serving.check.arrays(dict(zip(self._own_names, arrays, strict=True)))

    def serves(self, shapes: Shapes, arrays: list[Array]) -> bool:
        """Return whether it was tuned for ``arrays``, whose shapes are ``shapes``."""
        known = self._serves.get(shapes)
        if known is None:
            known = self._is_served(arrays)
            if len(self._serves) < MOST_SIZES:
                self._serves[shapes] = known
        return known

    def _is_served(self, arrays: list[Array]) -> bool:
        first = self.serving.first
        try:
            arrays = self.completed(arrays)
            feed = {spec.name: array for spec, array in zip(first.inputs, arrays, strict=True)}
            self.serving.check.arrays(feed)
            first.check(arrays)
        except (UsageError, ValueError):
            return False
        return True


def agree(outputs: Array, wanted: Array) -> bool:
    """Return whether two outputs have one shape and type and close values; integers are equal."""
    if outputs.shape != wanted.shape or outputs.dtype != wanted.dtype:
        return False
    if is_short_float(wanted.dtype):  # NumPy cannot compare them
        outputs, wanted = outputs.astype(np.float32), wanted.astype(np.float32)
    if wanted.dtype.kind not in "fc":
        return bool(np.array_equal(outputs, wanted))
    finite = np.isfinite(wanted)
    largest = float(np.abs(wanted[finite]).max(initial=0.0))
    return bool(np.allclose(outputs, wanted, RELATIVE, ABSOLUTE * largest, equal_nan=True))
