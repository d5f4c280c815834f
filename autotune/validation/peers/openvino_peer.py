"""OpenVINO as a peer: held to fp32, or in the precision that it chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from numpy.typing import NDArray

from autotune.validation.peers.peer import Engine, Peer, Work

MULTIPLYING = frozenset(
    {"Convolution", "Deconvolution", "FullyConnected", "MatMul", "RNNCell", "RNNSeq", "ScaledDotProductAttention"}
)
"""OpenVINO's layers that multiply matrices, in which a model spends its time."""

PRECISIONS = {"f32": "fp32", "f16": "fp16", "i8": "int8", "u8": "int8"}
"""OpenVINO's names of precisions → ours, where they differ."""


def _openvino(work: Work) -> Engine:
    return _compiled_by_openvino(work, {"INFERENCE_PRECISION_HINT": "f32"})


def _openvino_default(work: Work) -> Engine:
    return _compiled_by_openvino(work, {})


def _openvino_throughput(work: Work) -> Engine:
    return _compiled_by_openvino(work, {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "THROUGHPUT"})


def _compiled_by_openvino(work: Work, settings: Mapping[str, Any]) -> Engine:
    import openvino

    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": work.threads, **settings}
    compiled = openvino.Core().compile_model(work.model, "CPU", settings)
    request = compiled.create_infer_request()
    info = [operator.get_rt_info() for operator in compiled.get_runtime_model().get_ops()]
    layers = [(str(layer["layerType"].astype(str)), str(layer["runtimePrecision"].astype(str))) for layer in info]
    precision = openvino_precision(layers, compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
    version = openvino.__version__.partition("-")[0]

    def clients(count: int) -> list[Callable[[], object]]:
        return [partial(_infer, compiled.create_infer_request(), work.feed) for _ in range(count)]

    return Engine(version, precision, lambda: request.infer(work.feed, share_inputs=True, share_outputs=True), clients)


def _infer(request: Any, feed: Mapping[str, NDArray[Any]]) -> object:
    """One asynchronous request of OpenVINO's, awaited."""
    request.start_async(feed, share_inputs=True)
    request.wait()
    return request.results


def openvino_precision(layers: Iterable[tuple[str, str]], floats: str) -> str:
    """The precision that OpenVINO computes a compiled model in, such as ``bf16`` or ``bf16+int8``.

    Args:
        layers: (type, precision) of every layer, by OpenVINO's names. Only those that multiply count: what moves and
            converts data at the borders of a model is in fp32 whatever the others are.
        floats: the precision of its floating point numbers, for a model without such layers.
    """
    used = {precision for kind, precision in layers if kind in MULTIPLYING} or {floats}
    return "+".join(sorted({PRECISIONS.get(precision, precision) for precision in used}))


OPENVINO = Peer(
    "openvino", {"openvino": _openvino}, {"openvino-throughput": _openvino_throughput, "openvino": _openvino}
)

OPENVINO_DEFAULT = Peer("openvino", {"openvino-default": _openvino_default})
