"""A second input set of verification: inputs of floats that are all NaN, then all infinite.

A model that computes NaN of them must not return ordinary numbers. Where the reference's output is NaN or infinite,
ours must be so too. Nothing else is checked, so that no right artifact fails:

* one NaN among numbers is dropped by some maxima, depending on its position; NaN alone is not;
* elsewhere ours may be NaN as well, as in recurrent layers, whose activations ONNX Runtime clips;
* where ONNX Runtime with and without its optimiser differ, anything is right.

Integers keep their values: they may be indices, lengths or trip counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.host.dtypes import is_short_float

Arrays = dict[str, NDArray[Any]]

MOST_BYTES = 64 << 20
"""Larger inputs, such as caches of a decoder, are not copied and stay as they are."""


def edge_feeds(feed: Arrays) -> Iterator[tuple[str, Arrays]]:
    """Yield each change in words and the changed inputs; nothing for a model without inputs of floats."""
    names = [name for name, array in feed.items() if 0 < array.nbytes <= MOST_BYTES and _is_float(array)]
    for words, number in (("NaN", np.nan), ("infinity", np.inf)):
        if names:
            yield words, feed | {name: np.full_like(feed[name], number) for name in names}


def _is_float(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f" or is_short_float(array.dtype)


def lost(ours: Any, *theirs: Any) -> NDArray[np.bool_]:
    """Return the mask of elements that are NaN or infinite in all of ``theirs`` and finite in ``ours``.

    Empty where outputs are not floats, or differ in shape.
    """
    if not isinstance(ours, np.ndarray) or not _is_float(ours) or any(np.shape(o) != ours.shape for o in theirs):
        return np.zeros(0, np.bool_)
    mask = np.isfinite(ours.astype(np.float64))
    for other in theirs:
        mask = mask & ~np.isfinite(np.asarray(other).astype(np.float64))
    return mask
