"""Checking what a caller feeds: every input of the model is there, in the right shape and type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.frame.frame import Frame
from autotune.host.dtypes import numpy_type
from autotune.interface import OpenSpec, TensorSpec
from costmodels.choices import did_you_mean
from schedules.errors import UsageError

Array = NDArray[Any]
Spec = TensorSpec | OpenSpec

STRINGS = "object"
"""NumPy's type of arrays of strings."""


class InputCheck:
    """Puts the arrays of a feed in the order of a model's inputs.

    Args:
        specs: the model's inputs. Of one with open sizes, only the type is checked.
        frame: of the artifact, which says what is a sequence.
    """

    def __init__(self, specs: Sequence[Spec], frame: Frame | None = None) -> None:
        self._frame = frame if frame is not None and frame.sequences else None
        # Types are looked up once: a model of small layers runs in less time than that takes.
        self._specs = [
            (spec, spec.name, numpy_type(spec.dtype), spec.shape if _is_closed(spec) else None) for spec in specs
        ]

    def arrays(self, feed: Mapping[str, Any]) -> list[Array]:
        """One array per input.

        Raises:
            UsageError: for a missing, unknown or misshapen input, or one of another type.
        """
        if self._frame is not None:
            feed = self._frame.elements(feed)
        if len(feed) > len(self._specs):
            self._refuse_unknown(feed)
        return [
            array
            if isinstance(array := feed.get(name), np.ndarray)
            and array.dtype == dtype
            and (shape is None or array.shape == shape)
            else self._converted(feed, spec)
            for spec, name, dtype, shape in self._specs
        ]

    def _converted(self, feed: Mapping[str, Any], spec: Spec) -> Array:
        """What was fed for ``spec``, as an array."""
        self._refuse_unknown(feed)
        closed = _is_closed(spec)
        wanted = spec.shape if closed else shape_text(spec.shape)
        if spec.name not in feed:
            raise UsageError(f"input {spec.name!r} is missing; give an array of shape {wanted} and type {spec.dtype}")
        array = np.asarray(feed[spec.name])
        if spec.dtype == STRINGS and array.dtype.kind == "U":
            array = array.astype(object)
        if (closed and array.shape != spec.shape) or str(array.dtype) != spec.dtype:
            raise UsageError(
                f"input {spec.name!r} has shape {array.shape} and type {array.dtype}, "
                f"the artifact was built for {wanted} and {spec.dtype}"
            )
        return array

    def _refuse_unknown(self, feed: Mapping[str, Any]) -> None:
        known = [spec.name for spec, *_ in self._specs]
        for name in feed:
            if name not in known:
                raise UsageError(f"the model has no input {name!r}; {did_you_mean(name, known)}its inputs are {known}")


def _is_closed(spec: Spec) -> bool:
    """Whether every size is known."""
    return all(isinstance(size, int) for size in spec.shape)


def shape_text(shape: Sequence[int | str]) -> str:
    """A shape as ``--input`` takes it: ``1x3x224x224``."""
    return "x".join(map(str, shape)) or "scalar"
