"""Short types: kernels get NumPy's extension types (``ml_dtypes``) as unsigned integers of the same size.

TVM and DLPack do not know most of them, such as the 8-bit floats.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  # by importing it, np.dtype("bfloat16") and its relatives exist
import numpy as np
from numpy.typing import NDArray

USER_DEFINED = 2
"""NumPy's ``isbuiltin`` of types of other packages."""


def numpy_type(name: str) -> np.dtype[Any]:
    """The type that users see, by name."""
    return np.dtype(name)


def is_extension(dtype: np.dtype[Any]) -> bool:
    """Return whether ``dtype`` is none of NumPy's own; a dtype of an unpickled array is no built-in object either."""
    return dtype.isbuiltin == USER_DEFINED


def word(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which arrays of ``dtype`` are handed to kernels."""
    return np.dtype(f"uint{8 * dtype.itemsize}") if is_extension(dtype) else dtype


def as_words(array: NDArray[Any]) -> NDArray[Any]:
    """``array`` as kernels take it; the same memory."""
    return array.view(word(array.dtype)) if is_extension(array.dtype) else array


def rounded(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return float32 numbers rounded to ``dtype``: a type's name, or ``tf32``, whose halves are rounded away from 0."""
    if dtype != "tf32":
        return array.astype(numpy_type(dtype)).astype(array.dtype)
    words = array.astype(np.float32).view(np.uint32)
    kept = np.where(np.isfinite(array), (words + np.uint32(0x1000)) & np.uint32(0xFFFFE000), words)
    return kept.view(np.float32)


def is_short_float(dtype: np.dtype[Any]) -> bool:
    """Return whether ``dtype`` is one of the floating point extension types."""
    return is_extension(dtype) and "float" in dtype.name


def is_end(array: NDArray[Any]) -> bool:
    """Return whether ``array`` is one number, the least below zero or the greatest of an integer type.

    TVM takes such a number in an expression for infinity: x + least = least, and never x = least.
    """
    if array.size != 1 or array.dtype.kind not in "iu":
        return False
    info = np.iinfo(array.dtype)
    return int(array.item()) in {info.max, info.min} - {0}
