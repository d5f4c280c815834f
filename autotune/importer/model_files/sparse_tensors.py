"""Sparse initialisers and constants become dense ones, which is what everything else of the importer reads."""

from __future__ import annotations

import math

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import uses_external_data

from autotune.importer.onnx_model.graph_walk import walk_graphs, walk_nodes
from autotune.importer.onnx_model.shapes import MAX_TENSOR_BYTES
from schedules.vocabulary.errors import ModelError


def fill_sparse(model: ModelProto, name: str) -> None:
    """Write out every sparse initialiser and ``Constant`` of ``model``, in place, those of functions too.

    Args:
        name: the model's, for messages.

    Raises:
        ModelError: if a sparse tensor is malformed, external, or larger than any tensor may be.
    """
    for graph in walk_graphs(model):
        _fill_graph(graph, name)
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in walk_nodes(nodes):
            _fill_constant(node, name)


def _fill_graph(graph: GraphProto, name: str) -> None:
    graph.initializer.extend(_dense(sparse, sparse.values.name, name) for sparse in graph.sparse_initializer)
    del graph.sparse_initializer[:]


def _fill_constant(node: NodeProto, name: str) -> None:
    for attribute in node.attribute:
        if node.op_type == "Constant" and attribute.type == AttributeProto.SPARSE_TENSOR:
            dense = helper.make_attribute("value", _dense(attribute.sparse_tensor, node.output[0], name))
            attribute.CopyFrom(dense)


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
