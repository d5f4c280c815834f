"""A second input set of verification: ordinary inputs with one NaN, and with infinities.

A model that computes NaN of them must not return ordinary numbers. Where the reference's output is NaN or infinite,
ours must be so too. Nothing else is checked, so that no right artifact fails:

* elsewhere ours may be NaN as well, as in the tiles of a Winograd convolution around such an element;
* where ONNX Runtime with and without its optimiser differ, anything is right.

Integers keep their values: they may be indices, lengths or trip counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.host.dtypes import is_short_float

Arrays = dict[str, NDArray[Any]]

MOST_BYTES = 64 << 20
"""Larger inputs, such as caches of a decoder, are not copied and stay as they are."""

PLACE = 0.618
"""Where an input is changed, as a share of its elements: within an image, a sequence and a batch. Heuristic."""


def edge_feeds(feed: Arrays) -> Iterator[tuple[str, Arrays]]:
    """What is changed, in words, and the changed inputs; nothing for a model without inputs of floats."""
    names = [name for name, array in feed.items() if 0 < array.nbytes <= MOST_BYTES and _is_float(array)]
    for words, numbers in (("NaN", [np.nan]), ("infinity", [np.inf, -np.inf])):
        if names:
            yield words, feed | {name: _changed(feed[name], numbers) for name in names}


def _is_float(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f" or is_short_float(array.dtype)


def _changed(array: NDArray[Any], numbers: Sequence[float]) -> NDArray[Any]:
    copy = array.copy()
    for place, number in enumerate(numbers):
        copy.reshape(-1)[int(array.size * PLACE * (place + 1)) % array.size] = number
    return copy


def lost(ours: Any, theirs: Any) -> NDArray[np.bool_]:
    """Where ``theirs`` is NaN or infinite and ``ours`` is not; nowhere in outputs that are no tensors of floats."""
    if not isinstance(ours, np.ndarray) or not _is_float(ours) or np.shape(theirs) != ours.shape:
        return np.zeros(0, np.bool_)
    return np.isfinite(ours.astype(np.float64)) & ~np.isfinite(np.asarray(theirs).astype(np.float64))
