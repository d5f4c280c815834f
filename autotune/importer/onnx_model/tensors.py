"""Tensors of a model file: that they hold what they claim, and that external data stays inside the model's folder.

Large external tensors may be kept *apart*: they stay in their file, and ``array_of`` maps them. A copy of such a tensor
is a copy of its place, so a model of gigabytes passes through the importer's rewrites without gigabytes being copied.
"""

from __future__ import annotations

import math
import mmap
import warnings
import weakref
from collections.abc import Container, Iterable
from copy import deepcopy
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, ModelProto, SparseTensorProto, TensorProto, helper, numpy_helper
from onnx.checker import ValidationError
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from autotune.importer.onnx_model.graph_walk import all_nodes, walk_graphs, walk_tensors
from autotune.importer.onnx_model.shapes import MAX_TENSOR_BYTES
from schedules.vocabulary.errors import ModelError, first_line

PACKED_BITS = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}
"""Types whose elements share a byte."""


APART_BYTES = 1 << 16
"""Size from which an external initialiser may be kept apart: more than ``SKELETON_ELEMENTS`` of any type, so that no
checker and no shape inference ever meets one."""

PLACE = ("location", "offset", "length")
"""Fields of a tensor that are kept apart; its location is a whole path."""


_MAPPED: weakref.WeakValueDictionary[int, mmap.mmap] = weakref.WeakValueDictionary()
"""Address of a mapped tensor → its mapping, as long as an array lies there. Only pages of files may be left."""


def array_of(tensor: TensorProto) -> NDArray[Any]:
    """The tensor's numbers; of a tensor apart mapped from its file, to which nothing is ever written."""
    if not uses_external_data(tensor):
        return np.asarray(numpy_helper.to_array(tensor))
    if TensorProto.DataType.Name(tensor.data_type) in PACKED_BITS:
        whole = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        whole.raw_data = mapped_bytes(tensor).tobytes()
        return np.asarray(numpy_helper.to_array(whole))
    return mapped_bytes(tensor).view(helper.tensor_dtype_to_np_dtype(tensor.data_type)).reshape(tuple(tensor.dims))


def mapped_bytes(tensor: TensorProto) -> NDArray[np.uint8]:
    """The bytes of a tensor apart, where they lie in its file."""
    place = {entry.key: entry.value for entry in tensor.external_data}
    size = int(place["length"])
    mapped = np.memmap(place["location"], np.uint8, "c", int(place["offset"]), (size,))
    assert isinstance(mapped.base, mmap.mmap)
    _MAPPED[mapped.ctypes.data] = mapped.base
    return mapped.view(np.ndarray)


def leave_pages(array: NDArray[Any]) -> None:
    """Take the pages of a tensor apart out of this process's memory; reading the array maps them again."""
    if (mapping := _MAPPED.get(array.ctypes.data)) is not None:
        mapping.madvise(mmap.MADV_DONTNEED)


def fill_tensor(tensor: TensorProto, array: NDArray[Any], name: str) -> None:
    """Make ``tensor``, which is empty, the constant ``array``; appending another tensor would copy its bytes twice."""
    if array.dtype.kind not in "fiub" or array.dtype.byteorder == ">":
        tensor.CopyFrom(numpy_helper.from_array(array, name))
        return
    tensor.name, tensor.data_type = name, helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor.dims.extend(array.shape)
    tensor.raw_data = array.tobytes()


def as_uint8(tensor: TensorProto, name: str) -> TensorProto:
    """The tensor's bytes as a tensor of uint8 called ``name``; apart where the tensor is."""
    if uses_external_data(tensor):
        proto = TensorProto(name=name, data_type=TensorProto.UINT8, dims=[mapped_bytes(tensor).size])
        proto.external_data.extend(tensor.external_data)
        proto.data_location = TensorProto.EXTERNAL
        return proto
    raw = tensor.raw_data or numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data
    return TensorProto(name=name, data_type=TensorProto.UINT8, dims=[len(raw)], raw_data=raw)


def bring_in(tensors: Iterable[TensorProto]) -> None:
    """Read the data of tensors apart into them, in place."""
    for tensor in tensors:
        if uses_external_data(tensor):
            fill_external(tensor, mapped_bytes(tensor).tobytes())


def fill_external(tensor: TensorProto, data: bytes) -> None:
    """Put ``data`` into a tensor whose data lay elsewhere."""
    del tensor.external_data[:]
    tensor.ClearField("data_location")
    tensor.raw_data = data


def whole(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with all of its data, as other programs read it; itself if nothing is apart."""
    if not any(map(uses_external_data, model.graph.initializer)):
        return model
    copy = deepcopy(model)
    bring_in(copy.graph.initializer)
    return copy


def load_tensors(
    model: onnx.ModelProto,
    folder: Path,
    name: str,
    apart: bool = False,
    inside: Container[tuple[str, int, int]] = frozenset(),
) -> None:
    """Read external data into the model and check every tensor's size against its shape. Changes the model in place.

    Args:
        model: as parsed.
        folder: the model's; external data is read from nowhere else.
        name: the model's, for messages.
        apart: leave large initialisers of the main graph in their files.
        inside: locations, offsets and lengths of those in the model's own file (``inline_weights``).

    Raises:
        ModelError: if a tensor is malformed or its data is missing, too short, or outside ``folder``.
    """
    main = len(model.graph.initializer) if apart else 0  # they come first
    for index, tensor in enumerate(walk_tensors(model)):
        expected = _stored_bytes(tensor, name)
        if (place := place_of(tensor)) is not None and place in inside:
            _check_length(tensor, place[2], expected, name)
            continue
        is_apart = index < main and expected >= APART_BYTES and uses_external_data(tensor)
        if uses_external_data(tensor):
            _load_external(tensor, expected, folder, name, is_apart)
        if not is_apart:
            _check_size(tensor, expected, name)


def place_of(tensor: TensorProto) -> tuple[str, int, int] | None:
    """Return location, offset and length of external data that says all three; None of other data."""
    said = {entry.key: entry.value for entry in tensor.external_data}
    if not uses_external_data(tensor) or any(not said.get(key, "").isdecimal() for key in PLACE[1:]):
        return None
    return said.get(PLACE[0], ""), int(said[PLACE[1]]), int(said[PLACE[2]])


def _stored_bytes(tensor: TensorProto, name: str) -> int:
    """Bytes of the tensor's raw data; 0 for strings, which have none."""
    if any(dim < 0 for dim in tensor.dims):
        raise ModelError(f"{name}: tensor {tensor.name!r} has the negative shape {list(tensor.dims)}; export it again")
    try:
        label = TensorProto.DataType.Name(tensor.data_type)
        itemsize = int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    except (ValueError, KeyError) as error:
        raise ModelError(
            f"{name}: tensor {tensor.name!r} has the unknown element type {tensor.data_type}; export it again"
        ) from error
    if tensor.data_type == TensorProto.STRING:
        return 0
    bits = PACKED_BITS.get(label, 8 * itemsize)
    return (int(math.prod(tensor.dims)) * bits + 7) // 8


def _load_external(tensor: TensorProto, expected: int, folder: Path, name: str, apart: bool) -> None:
    """Move the external data of ``tensor`` into it; or, of one that is kept apart, note where it lies."""
    info = {entry.key: entry.value for entry in tensor.external_data}
    where = f"{name}: external data {info.get('location', '')!r} of tensor {tensor.name!r}"
    path = _inside(info.get("location", ""), folder, where)
    try:
        offset, length = int(info.get("offset", 0)), int(info.get("length", expected))
        size = path.stat().st_size
    except (ValueError, OSError) as error:
        raise ModelError(f"{where} cannot be read ({error}); keep the file beside the model") from error
    if length != expected or offset < 0 or offset + length > size:
        raise ModelError(
            f"{where} is damaged: bytes {offset} to {offset + length} of a file of {size}, {expected} needed; "
            "copy or export the model again"
        )
    if apart:
        del tensor.external_data[:]
        for key, value in zip(PLACE, (path, offset, length), strict=True):
            tensor.external_data.add(key=key, value=str(value))
        return
    if "length" not in info:
        tensor.external_data.add(key="length", value=str(expected))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unknown keys are ignored, which is what we want
            load_external_data_for_tensor(tensor, str(folder))
    except (OSError, ValueError, ValidationError) as error:
        raise ModelError(f"{where} cannot be read ({first_line(error)}); keep the file beside the model") from error


def _inside(location: str, folder: Path, where: str) -> Path:
    """The file at ``location``, which must be a plain one, below ``folder``, reached through no link."""
    pure = PurePosixPath(location)
    if not location or "\0" in location or "\\" in location or pure.is_absolute() or ".." in pure.parts:
        raise ModelError(f"{where} is outside the model's folder; put the file beside the model and export it again")
    root = folder.resolve()
    path = root / pure
    if any(part.is_symlink() for part in (path, *path.parents) if part != root and root in part.parents):
        raise ModelError(f"{where} is a link; put the file itself beside the model")
    if not path.is_file():
        raise ModelError(f"{where} is missing in {folder}; copy it beside the model")
    return path


def _check_size(tensor: TensorProto, expected: int, name: str) -> None:
    """Return whether the tensor's data fits its shape."""
    count = math.prod(tensor.dims)
    if tensor.HasField("raw_data"):
        held, needed = len(tensor.raw_data), expected
    else:
        held = len(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type)))
        label = TensorProto.DataType.Name(tensor.data_type)
        needed = 2 * count if label.startswith("COMPLEX") else expected if label in PACKED_BITS else count
    _check_length(tensor, held, needed, name)


def _check_length(tensor: TensorProto, held: int, needed: int, name: str) -> None:
    if held != needed:
        raise ModelError(
            f"{name}: tensor {tensor.name!r} of shape {list(tensor.dims)} needs {needed} values or bytes and holds "
            f"{held}; copy or export the model again"
        )


def fill_sparse(model: ModelProto, name: str) -> None:
    """Write out every sparse initialiser and ``Constant`` of ``model``, in place, those of functions too.

    Args:
        name: the model's, for messages.

    Raises:
        ModelError: if a sparse tensor is malformed, external, or larger than any tensor may be.
    """
    for graph in walk_graphs(model):
        graph.initializer.extend(_dense(sparse, sparse.values.name, name) for sparse in graph.sparse_initializer)
        del graph.sparse_initializer[:]
    for node in all_nodes(model):
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.type == AttributeProto.SPARSE_TENSOR:
                dense = _dense(attribute.sparse_tensor, node.output[0], name)
                attribute.CopyFrom(helper.make_attribute("value", dense))


def _dense(sparse: SparseTensorProto, title: str, name: str) -> TensorProto:
    """The tensor with its zeros; indices are places in the flat tensor, or of every axis."""
    dims, kind = list(sparse.dims), sparse.values.data_type
    where = f"{name}: sparse tensor {title!r} of shape {dims}"
    if uses_external_data(sparse.values) or uses_external_data(sparse.indices):
        raise ModelError(f"{where} keeps its data in another file, which is not supported; export it dense")
    try:
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        values, places = numpy_helper.to_array(sparse.values).reshape(-1), numpy_helper.to_array(sparse.indices)
    except (KeyError, ValueError, TypeError) as error:
        raise ModelError(f"{where} cannot be read ({error}); export it dense") from error
    if kind == TensorProto.STRING or min(dims, default=0) < 0 or math.prod(dims) * dtype.itemsize > MAX_TENSOR_BYTES:
        raise ModelError(f"{where} is of strings, of negative size or too large; export it dense")
    places = places.astype(np.int64)
    if places.ndim == 2 and places.shape == (len(values), len(dims)):
        inside = bool(((places >= 0) & (places < np.array(dims))).all())
        flat = np.ravel_multi_index(tuple(places.T), dims) if inside and len(values) else np.zeros(0, np.int64)
    else:
        flat = places.reshape(-1)
        inside = len(flat) == len(values) and bool(((flat >= 0) & (flat < math.prod(dims))).all())
    if not inside:
        raise ModelError(f"{where} has indices that do not go with its shape or values; export it dense")
    full = np.zeros(math.prod(dims), dtype)
    full[flat] = values
    return numpy_helper.from_array(full.reshape(dims), title)
