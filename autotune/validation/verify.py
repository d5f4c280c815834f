"""Outputs of an artifact against ONNX Runtime on random inputs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from autotune.artifact.manifest import CACHES
from autotune.frame.noise import draw, noise_of
from autotune.host.dtypes import is_short_float, numpy_type
from autotune.host.third_party import ThirdPartyError
from autotune.interface import TensorSpec
from autotune.options import FP32
from autotune.runtime.session import InferenceSession
from autotune.validation.allowance import ATOL, RTOL, Allowance
from autotune.validation.arithmetic.edge_inputs import lost
from autotune.validation.arithmetic.reference_engines import Arrays
from autotune.validation.arithmetic.row_order import rows_in_order
from autotune.validation.reference_runs import Reference
from autotune.validation.verdict import Verdict
from schedules.vocabulary.errors import AutotuneError, ModelError

logger = logging.getLogger(__name__)

DECODER_INPUTS: dict[str, Callable[[Sequence[int]], NDArray[Any]]] = {
    "attention_mask": np.ones,
    "position_ids": lambda shape: np.broadcast_to(np.arange(shape[-1]), shape),
    "cache_position": lambda shape: np.arange(shape[-1]),
}
"""Inputs of decoders with caches that random values would make no sense of, by the names that exporters give them."""


WORDS = ("a", "b", "", "two words", "Straße")
"""Texts that inputs of strings are filled with."""


def random_inputs(specs: Sequence[TensorSpec], seed: int) -> Arrays:
    """Normal floats, bytes of all values, as images have, integers 0 and 1, mixed booleans, a few strings.

    Integers and booleans of two axes or more may be masks, so no row of them is all zeros: what a model gives where
    nothing counts depends on how much there is of it.
    """
    rng = np.random.default_rng(seed)
    feed: Arrays = {}
    decodes = any(spec.name.startswith("past") and len(spec.shape) == 4 for spec in specs)
    for spec in specs:
        if decodes and spec.name in DECODER_INPUTS:
            feed[spec.name] = DECODER_INPUTS[spec.name](spec.shape).astype(spec.dtype)
            continue
        dtype = numpy_type(spec.dtype)
        if (noise := noise_of(spec.name)) is not None:
            feed[spec.name] = draw(noise.kind, rng, spec.shape, spec.dtype)
        elif dtype.kind == "O":
            feed[spec.name] = np.array(WORDS, object)[rng.integers(0, len(WORDS), spec.shape)]
        elif dtype.kind == "f" or is_short_float(dtype):
            feed[spec.name] = rng.standard_normal(spec.shape).astype(dtype)
        elif dtype.kind == "b":
            feed[spec.name] = _with_ones(rng.random(spec.shape) < 0.5)
        elif dtype in (np.uint8, np.int8):
            feed[spec.name] = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, spec.shape, dtype, endpoint=True)
        else:
            feed[spec.name] = _with_ones(rng.integers(0, 2, spec.shape).astype(dtype))
    return feed


def runnable_inputs(model: onnx.ModelProto | None, specs: Sequence[TensorSpec], seed: int) -> Arrays:
    """``random_inputs``, with values that the reference runs in inputs that are sizes or indices.

    Args:
        model: its shapes fixed; None if it is not read, which leaves the values random.
    """
    feed = random_inputs(specs, seed)
    if model is None or not any(array.dtype in (np.int32, np.int64, object) for array in feed.values()):
        return feed
    try:
        return Reference(model).fitting(feed, logging.DEBUG)
    except ModelError as error:
        logger.debug("%s", error)
        return feed


def _with_ones(array: NDArray[Any]) -> NDArray[Any]:
    if array.ndim > 1:
        array[..., :1] = 1
    return array


def compare(
    reference: str,
    ours: list[NDArray[Any]],
    theirs: list[NDArray[Any]],
    allowance: Callable[[], Allowance | None] = lambda: None,
) -> Verdict:
    """The verdict over all outputs, arrays of any shape in the same order; a NaN on one side only fails.

    Of an output that is a sequence, the elements are compared, and that there are as many.

    Args:
        allowance: asked if an output is beyond the fixed tolerance.
    """
    verdict = _Comparison(allowance)
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if isinstance(mine, list) or isinstance(other, list):
            verdict.add_sequence(number, mine, other)
        else:
            verdict.add(number, mine, other)
    return verdict.verdict(reference)


class _Comparison:
    """Outputs as they are compared, one after the other."""

    def __init__(self, allowance: Callable[[], Allowance | None]) -> None:
        self._ask = allowance
        self._allowance: Allowance | None = None
        self._passed, self._mismatch = True, ""
        self._worst_abs, self._worst_rel, self._worst_rms = 0.0, 0.0, 0.0

    def add_sequence(self, number: int, mine: Any, other: Any) -> None:
        """Compare output ``number``, of which a side is a list of arrays."""
        if not (isinstance(mine, list) and isinstance(other, list) and len(mine) == len(other)):
            self._fail(f"output {number} is a sequence of another length, or no sequence on one side")
            return
        self._ask = lambda: None  # bounds are per output, not per element
        for one, two in zip(mine, other, strict=True):
            self.add(number, one, two)

    def add(self, number: int, mine: NDArray[Any], other: NDArray[Any]) -> None:
        """Compare output ``number``."""
        if mine.shape != other.shape or mine.dtype != other.dtype:
            self._fail(f"output {number} is {mine.dtype}{mine.shape}, not {other.dtype}{other.shape}")
            return
        if is_short_float(mine.dtype):
            mine, other = mine.astype(np.float32), other.astype(np.float32)
        if mine.dtype.kind not in "fc":
            wrong = int(np.count_nonzero(mine != other))
            if wrong and not self._accepts(number, mine):
                self._fail(f"{wrong} of {mine.size} elements of output {number} differ")
            return
        a, b = mine.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        if not np.allclose(a, b, RTOL, ATOL, equal_nan=True) and not self._accepts(number, mine):
            self._passed = False
            odd = int(np.count_nonzero(~finite & (a != b) & ~(np.isnan(a) & np.isnan(b))))
            if odd:
                self._fail(f"{odd} of {a.size} elements of output {number} are NaN or infinite on one side alone")
        difference, scale = np.abs(a[finite] - b[finite]), np.abs(b[finite])
        if difference.size:
            self._worst_abs = max(self._worst_abs, float(difference.max()))
            relative = difference[scale > ATOL] / scale[scale > ATOL]
            self._worst_rel = max(self._worst_rel, float(relative.max()) if relative.size else 0.0)
            if norm := float(np.sqrt(np.mean(scale**2))):
                self._worst_rms = max(self._worst_rms, float(np.sqrt(np.mean(difference**2))) / norm)

    def verdict(self, reference: str) -> Verdict:
        """Over all that were added."""
        verdict = Verdict(
            reference,
            self._worst_abs,
            self._worst_rel,
            self._passed,
            self._mismatch,
            rms_rel_err=self._worst_rms,
        )
        if self._allowance is None:
            return verdict
        return replace(
            verdict, bound=self._allowance.bound, allowed=f"{verdict.allowed}, {self._allowance.words(reference)}"
        )

    def _accepts(self, number: int, mine: NDArray[Any]) -> bool:
        self._allowance = self._allowance or self._ask()
        return self._allowance is not None and self._allowance.accepts(number, mine)

    def _fail(self, mismatch: str) -> None:
        self._passed = False
        self._mismatch = self._mismatch or mismatch


def compare_artifact(artifact: Path, reference: Reference, seed: int = 0) -> Verdict:
    """Run both on the same random inputs."""
    return compare_session(InferenceSession(artifact), reference, seed)


def compare_session(session: InferenceSession, reference: Reference, seed: int = 0) -> Verdict:
    """Work like ``compare_artifact``, for an artifact that is open; with both values of booleans of one element."""
    feed = reference.fitting(session_inputs(session, seed))
    verdict = compare_outputs(session, reference, feed)
    switched = {name: ~array for name, array in feed.items() if array.dtype == bool and array.size == 1}
    if not switched or not verdict.passed:
        return verdict
    try:
        other = compare_outputs(session, reference, {**feed, **switched})
    except ModelError as error:  # the other branch of an If may not run at these sizes
        logger.debug("not compared with %s switched: %s", ", ".join(switched), error)
        return verdict
    return max(verdict, other, key=lambda one: (not one.passed, one.max_abs_err))


def compare_outputs(session: InferenceSession, reference: Reference, feed: Arrays) -> Verdict:
    """Work like ``compare_session``, on these inputs."""
    name, theirs = reference.outputs(feed)
    meta = session.get_modelmeta().custom_metadata_map
    precision = meta.get("precision", str(FP32))
    together = _rows_together(session, theirs)

    def allowance() -> Allowance | None:
        unordered = reference.allowance(feed, precision)
        return None if unordered is None else _in_order(unordered, theirs, together)

    ours = rows_in_order(session.run(None, feed), theirs, together)
    verdict = compare(name, ours, theirs, allowance)
    # Kernels that write caches in place do not read masked positions, whose NaN the reference multiplies by 0.
    if verdict.passed and not together and not int(meta.get(CACHES, 0)):
        mismatch = _edge_mismatch(session, reference, feed)
        verdict = replace(verdict, passed=not mismatch, mismatch=mismatch)
    return replace(verdict, precision=precision)


def _edge_mismatch(session: InferenceSession, reference: Reference, feed: Arrays) -> str:
    """Return where an artifact makes numbers of what is NaN or infinite in the reference; empty if nowhere."""
    for edge in reference.edges(feed):
        ours = session.run(None, edge.feed)
        wrong = [lost(mine, other) for mine, other in zip(ours, edge.outputs, strict=True)]
        if any(mask.any() for mask in wrong):
            try:
                plain = reference.plain(edge.feed)
            except (
                ThirdPartyError,
                AutotuneError,
            ):  # nothing says whether ONNX Runtime's optimiser made the difference
                continue
            wrong = [lost(*arrays) for arrays in zip(ours, edge.outputs, plain, strict=True)]
        for number, mask in enumerate(wrong):
            if count := int(np.count_nonzero(mask)):
                return (
                    f"{count} of {mask.size} elements of output {number} are numbers where the reference gives NaN "
                    f"or infinity, of inputs with {edge.words}"
                )
    return ""


def _rows_together(session: InferenceSession, outputs: Sequence[Any]) -> list[list[int]]:
    """Numbers of outputs of as many rows, where that depends on data."""
    groups: dict[int, list[int]] = {}
    open_sizes = {size for spec in session.get_inputs() for size in spec.shape if isinstance(size, str)}
    for number, (spec, output) in enumerate(zip(session.get_outputs(), outputs, strict=True)):
        if (
            isinstance(output, np.ndarray)
            and spec.shape
            and not isinstance(spec.shape[0], int)
            and spec.shape[0] not in open_sizes
        ):
            groups.setdefault(len(output), []).append(number)
    return list(groups.values())


def _in_order(allowance: Allowance, theirs: Sequence[Any], together: Sequence[Sequence[int]]) -> Allowance:
    """An allowance of what differs beside the order of rows: two boxes in each other's place are no distance."""
    exact = rows_in_order(allowance.exact, theirs, together)
    return replace(
        allowance, exact=exact, samples=[rows_in_order(outputs, exact, together) for outputs in allowance.samples]
    )


def session_specs(session: InferenceSession) -> list[TensorSpec]:
    """Return the inputs of ``session`` as its kernels take them: an open batch is one row, what depends on data 0."""
    args = [*session.get_inputs(), *session.get_overridable_initializers()]
    return [TensorSpec(arg.name, tuple(map(_size, arg.shape)), arg.dtype) for arg in args]


def _size(size: int | str | None) -> int:
    return 1 if isinstance(size, str) else size or 0


def session_inputs(session: InferenceSession, seed: int) -> Arrays:
    """Random values for what ``session`` takes."""
    return random_inputs(session_specs(session), seed)


def complaint(artifact: Path, verdict: Verdict, seed: int) -> str:
    """The message for a verdict that did not pass, after which nothing else is tried."""
    return f"{difference(artifact, verdict)}; report the model and --seed {seed}"


def difference(artifact: Path, verdict: Verdict) -> str:
    """By how much the outputs of an artifact that did not pass differ, and how much is allowed."""
    return f"{artifact} differs from {verdict.reference}: {verdict.difference} (allowed {verdict.allowed})"
