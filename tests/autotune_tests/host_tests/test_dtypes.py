"""Short types are handed to kernels as words of the same size."""

import pickle

import numpy as np
import pytest

from autotune.host.dtypes import as_words, is_short_float, numpy_type, word


@pytest.mark.parametrize(
    ("name", "words", "short"),
    [
        ("float32", "float32", False),
        ("int8", "int8", False),
        ("bfloat16", "uint16", True),
        ("float8_e4m3fn", "uint8", True),
        ("int4", "uint8", False),
    ],
)
def test_types_and_their_words(name, words, short):
    dtype = numpy_type(name)
    unpickled = pickle.loads(pickle.dumps(np.zeros(1, dtype))).dtype  # no built-in object, though it equals one
    for each in (dtype, unpickled):
        assert word(each) == np.dtype(words)
        assert is_short_float(each) == short


def test_words_are_the_same_memory():
    array = np.ones(3, numpy_type("bfloat16"))
    words = as_words(array)
    assert words.tolist() == [0x3F80] * 3
    words[0] = 0
    assert float(array[0]) == 0.0
    plain = np.ones(3, np.float32)
    assert as_words(plain) is plain
