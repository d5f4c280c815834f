"""A model file parsed without the large weights inside it: each stays where it lies, as if it were external data.

Protobuf copies every byte of a file that it parses, after the file was read. Here the file is mapped, the fields of
``ModelProto.graph.initializer`` are walked as the wire format has them, and of each large ``raw_data`` only the place
is kept (``tensors.array_of`` maps it). A file of any other structure than expected is left to protobuf as a whole.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto

from autotune.importer.onnx_model.tensors import APART_BYTES, PLACE

GRAPH, INITIALISER, RAW_DATA = 7, 5, 9
"""Numbers of the fields ``ModelProto.graph``, ``GraphProto.initializer`` and ``TensorProto.raw_data``."""

EXTERNAL_DATA, DATA_LOCATION = 13, 14
"""Those of ``TensorProto`` that say that its data lies elsewhere."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types; groups, which ONNX does not have, are missing."""

LONGEST_VARINT = 10

Place = tuple[int, int]
"""Offset and length of bytes in the file."""

Field = tuple[int, int, int, int]
"""Number of a field, where it begins, where its content begins, where both end."""


class _OtherError(Exception):
    """The bytes are no message, or one that is not split here."""


def parts_without_weights(path: Path) -> tuple[bytes, frozenset[Place]] | None:
    """The serialised model at ``path`` without the large data of its initialisers, and the places of those.

    The initialisers are told that their data is external, in the file itself. None where no weight is large, or the
    file is not as a model's is; protobuf then says what is wrong with it.

    Raises:
        OSError: if the file cannot be read.
    """
    if path.stat().st_size < APART_BYTES:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        places: set[Place] = set()
        try:
            top = list(_fields(data, 0, len(data)))
            if sum(field[0] == GRAPH for field in top) != 1:  # protobuf merges several
                return None
            parts = []
            for number, begin, start, stop in top:
                if number == GRAPH:
                    graph = b"".join(_graph(data, start, stop, path, places))
                    parts += [_key(GRAPH), _varint(len(graph)), graph]
                else:
                    parts.append(data[begin:stop])
        except (_OtherError, UnicodeEncodeError):  # file names are bytes, which need not be UTF-8, as protobuf's are
            return None
    return (b"".join(parts), frozenset(places)) if places else None


def model_without_weights(path: Path) -> ModelProto | None:
    """Return the model at ``path`` without the large data of its initialisers; None if it cannot be read as one."""
    model = ModelProto()
    try:
        parts = parts_without_weights(path)
        model.ParseFromString(path.read_bytes() if parts is None else parts[0])
    except (OSError, DecodeError):
        return None
    return model


def _graph(data: mmap.mmap, start: int, stop: int, path: Path, places: set[Place]) -> Iterator[bytes]:
    """The fields of the graph between ``start`` and ``stop``; notes the places of what it leaves out."""
    copied = start
    for number, begin, inside, end in _fields(data, start, stop):
        light = _light(data, inside, end, path, places) if number == INITIALISER else None
        if light is not None:
            yield data[copied:begin]
            yield _key(INITIALISER) + _varint(len(light)) + light
            copied = end
    yield data[copied:stop]


def _light(data: mmap.mmap, start: int, stop: int, path: Path, places: set[Place]) -> bytes | None:
    """The serialised tensor between ``start`` and ``stop`` with its data left in the file; None if it is to stay."""
    if stop - start < APART_BYTES:
        return None
    fields = list(_fields(data, start, stop))
    raw = [(inside, end) for number, _, inside, end in fields if number == RAW_DATA]
    elsewhere = any(number in (EXTERNAL_DATA, DATA_LOCATION) for number, *_ in fields)
    if len(raw) != 1 or raw[0][1] - raw[0][0] < APART_BYTES or elsewhere:
        return None
    place = (raw[0][0], raw[0][1] - raw[0][0])
    places.add(place)
    told = TensorProto(data_location=TensorProto.EXTERNAL)
    for key, value in zip(PLACE, (path, *place), strict=True):
        told.external_data.add(key=key, value=str(value))
    rest = [data[begin:end] for number, begin, _, end in fields if number != RAW_DATA]
    return b"".join([*rest, told.SerializeToString()])


def _fields(data: mmap.mmap, start: int, stop: int) -> Iterator[Field]:
    """The fields of the message between ``start`` and ``stop``."""
    while start < stop:
        key, inside = _read_varint(data, start, stop)
        kind = key & 7
        if kind == BYTES:
            length, inside = _read_varint(data, inside, stop)
            end = inside + length
        elif kind == VARINT:
            _, end = _read_varint(data, inside, stop)
        elif kind in (FIXED64, FIXED32):
            end = inside + (8 if kind == FIXED64 else 4)
        else:
            raise _OtherError
        if end > stop:
            raise _OtherError
        yield key >> 3, start, inside, end
        start = end


def _read_varint(data: mmap.mmap, start: int, stop: int) -> tuple[int, int]:
    """The number at ``start``, and where it ends."""
    value = 0
    for index in range(LONGEST_VARINT):
        if start + index >= stop:
            break
        byte = data[start + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, start + index + 1
    raise _OtherError


def _key(number: int) -> bytes:
    return _varint(number << 3 | BYTES)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
