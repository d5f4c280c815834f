"""Outputs of an artifact against ONNX Runtime on random inputs."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from autotune.host.dtypes import is_short_float, numpy_type
from autotune.importer.program import TensorSpec
from autotune.runtime.session import InferenceSession

RTOL, ATOL = 1e-3, 1e-5
"""The tolerances of ONNX's own suite, with the absolute one that onnxruntime uses."""

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Verdict:
    """How far outputs are from the reference's.

    Attributes:
        reference: what they were compared with.
        max_abs_err: largest |ours - theirs|.
        max_rel_err: largest |ours - theirs| / |theirs| where |theirs| is above ATOL.
        passed: same shapes and types, and every element within ATOL + RTOL·|theirs|.
        mismatch: the first output of another shape or type, or of integers that differ, in words; the errors are those
            of the other outputs.
    """

    reference: str
    max_abs_err: float
    max_rel_err: float
    passed: bool
    mismatch: str = ""

    @property
    def difference(self) -> str:
        """How far outputs are from the reference's, in words."""
        error = f"largest error {self.max_abs_err:.2g} absolute, {self.max_rel_err:.2g} relative"
        return self.mismatch or error


def random_inputs(specs: Sequence[TensorSpec], seed: int) -> Arrays:
    """Normal floats, small non-negative integers, mixed booleans."""
    rng = np.random.default_rng(seed)
    feed: Arrays = {}
    for spec in specs:
        dtype = numpy_type(spec.dtype)
        if dtype.kind == "f" or is_short_float(dtype):
            feed[spec.name] = rng.standard_normal(spec.shape).astype(dtype)
        elif dtype.kind == "b":
            feed[spec.name] = rng.random(spec.shape) < 0.5
        else:
            feed[spec.name] = rng.integers(0, 2, spec.shape).astype(dtype)
    return feed


def reference_outputs(model: onnx.ModelProto, feed: Arrays) -> tuple[str, list[NDArray[Any]]]:
    """Name of the reference and its outputs: ONNX Runtime, or ONNX's own evaluator where that is not installed."""
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime  # optional: an extra

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return f"onnxruntime {onnxruntime.__version__}", list(session.run(None, feed))
    from onnx.reference import ReferenceEvaluator  # slow to import, and only needed here

    return f"onnx.reference {onnx.__version__}", list(ReferenceEvaluator(model).run(None, feed))


def compare(reference: str, ours: list[NDArray[Any]], theirs: list[NDArray[Any]]) -> Verdict:
    """The verdict over all outputs, arrays of any shape in the same order; a NaN on one side only fails."""
    worst_abs, worst_rel, passed, mismatch = 0.0, 0.0, True, ""
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine.shape != other.shape or mine.dtype != other.dtype:
            passed = False
            mismatch = mismatch or f"output {number} is {mine.dtype}{mine.shape}, not {other.dtype}{other.shape}"
            continue
        if is_short_float(mine.dtype):
            mine, other = mine.astype(np.float32), other.astype(np.float32)
        if mine.dtype.kind not in "fc":
            wrong = int(np.count_nonzero(mine != other))
            if wrong:
                passed = False
                mismatch = mismatch or f"{wrong} of {mine.size} elements of output {number} differ"
            continue
        a, b = mine.astype(np.float64), other.astype(np.float64)
        passed &= bool(np.allclose(a, b, RTOL, ATOL, equal_nan=True))
        finite = np.isfinite(a) & np.isfinite(b)
        difference, scale = np.abs(a[finite] - b[finite]), np.abs(b[finite])
        if difference.size:
            worst_abs = max(worst_abs, float(difference.max()))
            relative = difference[scale > ATOL] / scale[scale > ATOL]
            worst_rel = max(worst_rel, float(relative.max()) if relative.size else 0.0)
    return Verdict(reference, worst_abs, worst_rel, passed, mismatch)


def compare_artifact(artifact: Path, model: onnx.ModelProto, seed: int = 0) -> Verdict:
    """Run both on the same random inputs."""
    return compare_session(InferenceSession(artifact), model, seed)


def compare_session(session: InferenceSession, model: onnx.ModelProto, seed: int = 0) -> Verdict:
    """As ``compare_artifact``, for an artifact that is open."""
    feed = session_inputs(session, seed)
    reference, theirs = reference_outputs(model, feed)
    return compare(reference, session.run(None, feed), theirs)


def session_inputs(session: InferenceSession, seed: int) -> Arrays:
    """Random values for what ``session`` takes."""
    args = session.get_inputs()
    specs = [TensorSpec(arg.name, tuple(int(size or 0) for size in arg.shape), arg.dtype) for arg in args]
    return random_inputs(specs, seed)


def complaint(artifact: Path, verdict: Verdict, seed: int) -> str:
    """The message for a verdict that did not pass."""
    return (
        f"{artifact} differs from {verdict.reference}: {verdict.difference} (allowed {ATOL} + {RTOL}·|x|); "
        f"report the model and --seed {seed}"
    )
