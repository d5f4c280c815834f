"""Tensors over memory that lies somewhere already: DLPack (v0.8), by which arrays pass between libraries.

TVM's own view of a stretch of a tensor says how far the stretch begins behind the tensor; kernels that are compiled for
whole tensors refuse that. A tensor that begins where the stretch does is what they take.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

import tvm
from numpy.typing import NDArray

CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}
"""DLDataTypeCode by the letters of a type's name."""


def copied(array: NDArray[Any], dtype: str, device: tvm.runtime.Device) -> tvm.runtime.Tensor:
    """A copy of ``array`` on ``device`` as kernels take it: they refuse words in place of short floats.

    Args:
        array: of ``dtype``, or of its bits.
        dtype: TVM's name of the type.
    """
    return tvm.runtime.empty(array.shape, dtype, device).copyfrom(array)


class _Tensor(ctypes.Structure):
    """DLManagedTensor, with the DLTensor that begins it written out."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class _Memory:
    """One stretch, as an exporter of DLPack. It owns nothing: no deleter."""

    def __init__(self, address: int, shape: Sequence[int], dtype: str, device: tvm.runtime.Device) -> None:
        letters, digits = re.fullmatch(r"([a-z]+)(\d*)", dtype).groups()  # type: ignore[union-attr]
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._device = (device.dlpack_device_type(), device.index)
        self._tensor = _Tensor(
            address, *self._device, len(shape), CODES[letters], int(digits or 8), 1, self._shape, None, 0, None, None
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **_: object) -> object:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self._tensor), b"dltensor", None)


class View:
    """A tensor at an address.

    Args:
        address: where it begins, in bytes; whoever has the memory keeps it for as long as the view is used.
        shape: its extents.
        dtype: ``float32``, ``bool``, ….
        device: whose memory it is.

    Attributes:
        tensor: what kernels take; it must not outlive the view.
    """

    def __init__(self, address: int, shape: Sequence[int], dtype: str, device: tvm.runtime.Device) -> None:
        self._memory = _Memory(address, shape, dtype, device)
        self.tensor: tvm.runtime.Tensor = tvm.runtime.from_dlpack(self._memory)
