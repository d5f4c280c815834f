"""ONNX Runtime on one model: opened in the first way that works, and ended where a loop does not end."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from autotune.host.dtypes import numpy_type
from autotune.host.machine import read_host
from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.onnx_model.graph_walk import walk_nodes
from autotune.importer.onnx_model.light_model import LightModel, light
from autotune.validation.arithmetic.bfloat16_models import has_bfloat16, in_fp32
from schedules.vocabulary.errors import ModelError

Arrays = dict[str, NDArray[Any]]

Model = onnx.ModelProto | LightModel

SILENT = 4
"""ONNX Runtime's level of messages: fatal ones only. An error comes as an exception."""

VNNI = {"avx512_vnni", "avx_vnni"}
"""Flags of CPUs on which ONNX Runtime's products of unsigned and signed bytes are exact."""

BFLOAT16 = numpy_type("bfloat16")
"""NumPy's type of tensors that ONNX Runtime takes as fp32."""

LOOPS_S, SLOW_LOOPS_S = 60.0, 600.0
"""Seconds after which a run of a model with loops is ended, with and without the optimiser. Heuristic, not measured."""


class UnendedError(ModelError):
    """A run of the reference that was ended because it took too long."""


class Session:
    """ONNX Runtime on one model, opened in the first way in which it opens and runs it.

    Without VNNI its fast product of unsigned and signed bytes saturates, which a reference must not. The option against
    that gives weights one zero point, which block-wise ones may not have; ONNX Runtime fails at it where two signed
    operands share one (``Attempt to replace the existing tensor``) and, while it runs, at a transposed Gemm of weights
    with a scale per row. Then VNNI or its unfused operators are as exact.

    Args:
        optimised: whether to run its optimiser, and more than one thread.

    Raises:
        ThirdPartyError: if it opens in no way.
    """

    def __init__(self, model: Model, optimised: bool) -> None:
        self._model, self._short = _in_fp32(model if isinstance(model, LightModel) else light(model), not optimised)
        self._one_thread = not optimised
        self._limit_s = (LOOPS_S if optimised else SLOW_LOOPS_S) if has_loops(self._model.proto) else math.inf
        ways = [(optimised, True)] if not any(_is_block_wise(node) for node in self._model.proto.graph.node) else []
        ways += [(optimised, False)] if optimised and VNNI & read_host().flags else []
        self._ways = [*ways, (False, False)]
        self._number = 0
        self._session: Any = None
        self._open(0)

    def run(self, feed: Arrays) -> list[NDArray[Any]]:
        """All outputs.

        Raises:
            ThirdPartyError: if it runs them in no way.
        """
        way = self._number, self._session
        try:
            return self._run(feed)
        except ThirdPartyError:
            self._number, self._session = way  # the feed is refused, which says nothing about the way
            raise

    def _run(self, feed: Arrays) -> list[NDArray[Any]]:
        try:
            with third_party():
                outputs = ended_run(
                    self._session, {name: _as_fp32(array) for name, array in feed.items()}, self._limit_s
                )
                return [array.astype(BFLOAT16) if at in self._short else array for at, array in enumerate(outputs)]
        except ThirdPartyError:
            if self._number + 1 == len(self._ways):
                raise
        self._open(self._number + 1)
        return self._run(feed)

    def _open(self, number: int) -> None:
        """Open the first way from ``number`` on that opens."""
        try:
            with third_party():
                self._session = _opened(self._model, *self._ways[number], self._one_thread)
                self._number = number
        except ThirdPartyError:
            if number + 1 == len(self._ways):
                raise
            self._open(number + 1)


def has_loops(model: onnx.ModelProto) -> bool:
    """Whether a run of ``model`` may never end."""
    bodies = (model.graph.node, *(function.node for function in model.functions))
    return any(node.op_type == "Loop" for nodes in bodies for node in walk_nodes(nodes))


def ended_run(session: Any, feed: Arrays, limit_s: float) -> list[NDArray[Any]]:
    """The outputs of a run that ends: random inputs may never meet the condition of a loop.

    Args:
        session: ONNX Runtime's.
        limit_s: infinite for a model without loops.

    Raises:
        UnendedError: if the run takes longer than ``limit_s``.
    """
    if limit_s == math.inf:
        return list(session.run(None, feed))
    import onnxruntime  # optional: an extra

    options = onnxruntime.RunOptions()
    timer = threading.Timer(limit_s, setattr, (options, "terminate", True))
    timer.daemon = True
    timer.start()
    try:
        return list(session.run(None, feed, options))
    except Exception as error:  # ONNX Runtime ends a run by an error of its own
        if options.terminate:
            raise UnendedError(
                f"ONNX Runtime did not finish within {limit_s:.0f} s, so outputs cannot be verified: "
                "a loop of the model may never end on random inputs"
            ) from error
        raise
    finally:
        timer.cancel()


def _in_fp32(model: LightModel, rounded: bool) -> tuple[LightModel, frozenset[int]]:
    """``model`` with float32 in place of bfloat16, and the numbers of its outputs that were bfloat16."""
    if not has_bfloat16(model.proto):
        return model, frozenset()
    kinds = [value.type.tensor_type.elem_type for value in model.proto.graph.output]
    short = frozenset(number for number, kind in enumerate(kinds) if kind == onnx.TensorProto.BFLOAT16)
    return light(in_fp32(model.proto, rounded), model.weights), short


def _as_fp32(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float32) if array.dtype == BFLOAT16 else array


def _opened(model: LightModel, optimised: bool, exact: bool, one_thread: bool) -> Any:
    import onnxruntime  # optional: an extra

    options = onnxruntime.SessionOptions()
    options.log_severity_level = SILENT
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if not any(node.domain or _is_block_wise(node) for node in walk_nodes(model.proto.graph.node)):
        # A second copy of the weights is worth it for many runs, not for these few. Operators of ONNX Runtime's own may
        # compute other numbers without it. MatMulNBits, also made by its optimiser of block-wise weights, multiplies
        # bytes of packed weights, else fp32.
        options.add_session_config_entry("session.disable_prepacking", "1")
    if one_thread:
        # Its sums over trees have another order for every number of threads, and labels of equal scores follow.
        options.intra_op_num_threads = 1
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in model.weights.values()]
    options.add_external_initializers([*model.weights], values)
    return onnxruntime.InferenceSession(model.proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _is_block_wise(node: onnx.NodeProto) -> bool:
    return node.op_type == "DequantizeLinear" and any(
        attribute.name == "block_size" and attribute.i for attribute in node.attribute
    )
