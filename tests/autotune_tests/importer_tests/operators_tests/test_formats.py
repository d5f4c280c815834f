"""Narrow formats against NumPy's own description of them."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.importer.operators.minifloat import FLOATS, INTEGERS, NARROW, STORAGE


@pytest.mark.parametrize("name", FLOATS)
def test_floats(name):
    form = FLOATS[name]
    dtype = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(name))
    info = ml_dtypes.finfo(dtype)
    word = np.uint16 if form.bits == 16 else np.uint8
    assert info.nmant == form.mantissa
    assert info.bits == form.bits or form.bits == 4
    assert np.array(form.largest, word).view(dtype) == info.max
    if form.nan is not None:
        assert np.isnan(np.array(form.nan, word).view(dtype).astype(np.float32))
    if form.infinity is not None:
        assert np.isinf(np.array(form.infinity, word).view(dtype).astype(np.float32))


def test_every_format_has_a_word():
    assert NARROW.keys() == STORAGE.keys()
    assert {name for name, form in INTEGERS.items() if form.signed} == {"INT4", "INT2"}
