"""Operators that ONNX's evaluator computes wrongly, for the evaluator to use instead of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx.reference.op_run import OpRun


class LRN(OpRun):
    """x ÷ (bias + α / size · sum of x² over ``size`` channels)^β; the evaluator's own goes over the batch."""

    op_domain = ""

    def _run(
        self, x: NDArray[Any], alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int = 1
    ) -> tuple[NDArray[Any]]:
        squares = np.square(x, dtype=np.float64)
        pads = [(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (x.ndim - 2)]
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(squares, pads), size, axis=1)
        return ((x / (bias + alpha / size * windows.sum(axis=-1)) ** beta).astype(x.dtype),)
