"""Bounds hold, and what is within them is read as it was written."""

import gzip
import zlib

import pytest

from schedules.vocabulary.bounded import GZIP, parsed_json, unpacked


def test_json_is_read_up_to_its_depth() -> None:
    assert parsed_json('{"a": [1]}', 2) == {"a": [1]}
    assert parsed_json(b"7", 0) == 7
    with pytest.raises(ValueError, match="nested more than 2 levels"):
        parsed_json('{"a": [{}]}', 2)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, b"\xff", "", "1" * 5000])
def test_what_is_not_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed_json(text)


def test_compressed_bytes_are_read_up_to_their_bound() -> None:
    assert unpacked(zlib.compress(b"abc" * 10), most_bytes=30) == b"abc" * 10
    assert unpacked(gzip.compress(b"abc", mtime=0), GZIP) == b"abc"
    with pytest.raises(ValueError, match="become more than"):
        unpacked(zlib.compress(bytes(31)), most_bytes=30)


@pytest.mark.parametrize("raw", [b"", b"x", zlib.compress(b"abc")[:-1], gzip.compress(b"abc", mtime=0)])
def test_damaged_bytes_are_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match="compressed bytes"):
        unpacked(raw)
