"""The reference engine on one model: its outputs, and how far right outputs may be from them.

The reference is ONNX Runtime, or ONNX's own evaluator where that is not installed or refuses the model. The
model's own inaccuracy is found by running it in other ways that are as right, see ``Reference.allowance``.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from autotune.host.dtypes import numpy_type
from autotune.host.machine import read_host
from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.onnx_model.graph_walk import walk_nodes
from autotune.importer.onnx_model.light_model import LightModel, light
from autotune.importer.onnx_model.tensors import whole
from autotune.importer.program import simplify
from autotune.options import FP32, Precision
from autotune.validation.allowance import Allowance
from autotune.validation.arithmetic.bfloat16_models import has_bfloat16, in_fp32
from autotune.validation.arithmetic.edge_inputs import edge_feeds
from autotune.validation.short_operands import ShortOperands
from autotune.validation.widen import FLOATS, NOISE, NotWidenedError, is_short, multiplications, unrounded, widen
from schedules.vocabulary.errors import ModelError

Arrays = dict[str, NDArray[Any]]

Model = onnx.ModelProto | LightModel

WIDENED_BYTES = 512 << 20
"""Weights in 64 bits, in bytes, up to which a model is widened: some four copies are alive at a time, and ONNX Runtime
takes no model of 2 GiB from memory. ResNet-50 has 204 MB."""

WIDENED_MULTIPLICATIONS = 5 * 10**10
"""Multiplications up to which a model is widened, once its outputs are beyond the fixed tolerance. S3D has 1.8e10 and
takes 13 s in 64 bits on two busy cores. Its outputs in fp32 are 3e-5 from those: without them, right kernels are taken
for wrong ones, and the search for these takes minutes."""

EVALUATED_MULTIPLICATIONS = 10**9
"""Multiplications of a model that ONNX Runtime refuses up to which ONNX's evaluator, which is slow, takes its place.
Heuristic, not measured."""

RUNTIME = "onnxruntime"
"""The name of ONNX Runtime as a reference, before its version."""

SILENT = 4
"""ONNX Runtime's level of messages: fatal ones only. An error comes as an exception."""

VNNI = {"avx512_vnni", "avx_vnni"}
"""Flags of CPUs on which ONNX Runtime's products of unsigned and signed bytes are exact."""

DOUBLE = onnx.TensorProto.DOUBLE

BFLOAT16 = numpy_type("bfloat16")
"""NumPy's type of tensors that ONNX Runtime takes as fp32."""

EDGES_S = 2.0
"""Seconds of one run of the reference above which edge inputs are left out. Heuristic, not measured."""

LOOPS_S, SLOW_LOOPS_S = 60.0, 600.0
"""Seconds after which a run of a model with loops is ended, with and without the optimiser. Heuristic, not measured."""

NOISES = 2
"""Runs with noise of a model that quantises. Heuristic, not measured."""


class UnendedError(ModelError):
    """A run of the reference that was ended because it took too long."""


def reference_outputs(model: Model, feed: Arrays) -> tuple[str, list[NDArray[Any]]]:
    """Name of the reference and its outputs, for a model that is run once.

    Args:
        feed: input name → array.

    Raises:
        ModelError: if ONNX Runtime does not run the model.
    """
    name, (outputs,) = reference_samples(model, [feed])
    return name, outputs


def reference_samples(model: Model, feeds: Sequence[Arrays]) -> tuple[str, list[list[NDArray[Any]]]]:
    """Work like ``reference_outputs``, of every feed; the model is opened once."""
    answer = _answer(model, feeds)
    return answer.name, answer.outputs


RunReference = Callable[[Arrays], list[NDArray[Any]]]


@dataclass(frozen=True)
class Answer:
    """The outputs of a reference.

    Attributes:
        name: with its version.
        run: runs the model on other inputs; a ``ModelError`` if it refuses them.
        outputs: for every feed.
        seconds: that these took.
    """

    name: str
    run: RunReference
    outputs: list[list[NDArray[Any]]]
    seconds: float


def _answer(model: Model, feeds: Sequence[Arrays]) -> Answer:
    """Outputs of the first reference that runs the model.

    Raises:
        ModelError: the first reference's, if none does.
    """
    refusal: ModelError | None = None
    for reference in (_runtime, _evaluator) if _has_runtime() else (_evaluator,):
        try:
            name, run = reference(model)
            began = time.perf_counter()
            outputs = [run(feed) for feed in feeds]
            return Answer(name, run, outputs, time.perf_counter() - began)
        except UnendedError:
            raise  # ONNX's evaluator would not end either
        except ModelError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _runtime(model: Model) -> tuple[str, RunReference]:
    """ONNX Runtime.

    Raises:
        ModelError: if it refuses the model.
    """
    import onnxruntime  # optional: an extra

    with _refusing("ONNX Runtime"):
        session = Session(model, optimised=True)

    def run(feed: Arrays) -> list[NDArray[Any]]:
        with _refusing("ONNX Runtime"):
            return session.run(feed)

    return f"{RUNTIME} {onnxruntime.__version__}", run


def _evaluator(model: Model) -> tuple[str, RunReference]:
    """ONNX's own evaluator.

    Raises:
        ModelError: if it refuses the model, or would take long.
    """
    from onnx.reference import ReferenceEvaluator  # slow to import, and only needed here

    from autotune.validation.arithmetic.evaluator_operators import LRN  # imports the evaluator

    whole_model = model.whole() if isinstance(model, LightModel) else model
    if _has_runtime() and multiplications(whole_model) > EVALUATED_MULTIPLICATIONS:
        raise ModelError("the model is large, so ONNX's evaluator does not run it")
    with _refusing("ONNX's evaluator"):
        evaluator = ReferenceEvaluator(whole_model, new_ops=[LRN])

    def run(feed: Arrays) -> list[NDArray[Any]]:
        with _refusing("ONNX's evaluator"), np.errstate(all="ignore"):
            return list(evaluator.run(None, dict(feed)))

    return f"onnx.reference {onnx.__version__}", run


@contextmanager
def _refusing(engine: str) -> Iterator[None]:
    """Errors of ``engine`` as a ModelError."""
    try:
        with third_party():
            yield
    except ThirdPartyError as error:
        raise ModelError(f"{engine} does not run the model, so outputs cannot be verified: {error}") from error


@dataclass(frozen=True)
class Edge:
    """Outputs of the reference on edge inputs.

    Attributes:
        words: what the inputs hold.
    """

    words: str
    feed: Arrays
    outputs: list[NDArray[Any]]


class Reference:
    """The reference for a model's outputs. The answers for the last inputs are kept, for several candidates.

    Args:
        model: checked, its shapes fixed.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = _sorted(whole(model))
        self._feed: Arrays | None = None
        self._outputs: tuple[str, list[NDArray[Any]]] = ("", [])
        self._allowance: tuple[str, Allowance] | None = None
        self._edges: list[Edge] = []

    def outputs(self, feed: Arrays) -> tuple[str, list[NDArray[Any]]]:
        """Work like ``reference_outputs``."""
        if self._feed is None or not _same(self._feed, feed):
            answer = _answer(self._model, [feed])
            self._outputs = answer.name, answer.outputs[0]
            quick = answer.name.startswith(RUNTIME) and answer.seconds < EDGES_S
            self._feed, self._allowance, self._edges = feed, None, list(_edges(answer.run, feed)) if quick else []
        return self._outputs

    def edges(self, feed: Arrays) -> list[Edge]:
        """Outputs on the edge inputs made of ``feed``; none where ONNX Runtime is missing, slow, or refuses them."""
        self.outputs(feed)
        return self._edges

    def plain(self, feed: Arrays) -> list[NDArray[Any]]:
        """Outputs of ONNX Runtime without its optimiser, on one thread."""
        with third_party():
            return _run(self._model, feed, optimised=False)

    def allowance(self, feed: Arrays, precision: str = str(FP32)) -> Allowance | None:
        """Return the error of the model's own arithmetic on these inputs; None without ONNX Runtime.

        Of an artifact in a shorter precision: what rounding its products' operands is worth (``short_operands``).

        The model is run without ONNX Runtime's optimiser and on one thread, and widened to 64 bits; one that quantises,
        also with noise before its quantisers; one of 16-bit floats, also rounded to them after every operator. Where it
        cannot be widened, these two runs are compared with each other; or both with the products by packed weights in
        fp32 where those round their activations, which is farther than they are apart.
        """
        name, theirs = self.outputs(feed)
        if not name.startswith(RUNTIME):
            return None
        if self._allowance is None or self._allowance[0] != precision:
            allowance = self._own(feed, theirs) if precision == str(FP32) else self._short(feed, theirs, precision)
            self._allowance = precision, allowance
        return self._allowance[1]

    def _own(self, feed: Arrays, theirs: list[NDArray[Any]]) -> Allowance:
        plain = self.plain(feed)
        try:
            exact, *shaken = self._widened(feed)
            return Allowance(exact, (theirs, plain, *shaken))
        except NotWidenedError as error:
            if (free := unrounded(self._model)) is None:
                return Allowance(theirs, (plain,), str(error))
            return Allowance(_run(free, feed), (theirs, plain), str(error))

    def _short(self, feed: Arrays, theirs: list[NDArray[Any]], precision: str) -> Allowance:
        """The cost of shorter operands, in the operators that the importer sees; in the model's own where those have no
        kernel in ONNX Runtime.
        """
        chosen = Precision.parse(precision)
        try:
            with third_party():
                samples = [_run(model, feed) for model in _rounded(simplify(self._model), chosen)]
        except (ThirdPartyError, ModelError):
            with third_party():
                samples = [_run(model, feed) for model in _rounded(self._model, chosen)]
        return Allowance(theirs, samples, short=chosen.short)

    def _widened(self, feed: Arrays) -> list[list[NDArray[Any]]]:
        """The outputs in 64 bits: exact, with noise where the model quantises, rounded where it has 16-bit floats.

        Raises:
            NotWidenedError: if there are none.
        """
        weights = self._model.graph.initializer
        size = 8 * sum(int(np.prod(weight.dims)) for weight in weights if weight.data_type in FLOATS)
        if size > WIDENED_BYTES:
            raise NotWidenedError(f"its weights would take {size >> 20} MiB in 64 bits, above {WIDENED_BYTES >> 20}")
        if (count := multiplications(self._model)) > WIDENED_MULTIPLICATIONS:
            raise NotWidenedError(f"it has {count:.2g} multiplications, above {WIDENED_MULTIPLICATIONS:.2g}")
        outputs = []
        for rounded in (False, True) if is_short(self._model) else (False,):
            model, noisy = widen(self._model, rounded)
            double = {value.name for value in model.graph.input if value.type.tensor_type.elem_type == DOUBLE}
            wide = {name: array.astype(np.float64) if name in double else array for name, array in feed.items()}
            noises = ([0.0] * (not rounded) + [1.0] * NOISES) if noisy else []
            feeds = [{**wide, NOISE: np.array(noise)} for noise in noises] or [wide]
            try:
                with third_party():
                    session = Session(model, optimised=False)
                    outputs += [session.run(wide_feed) for wide_feed in feeds]
            except (ThirdPartyError, UnendedError) as error:
                raise NotWidenedError(f"ONNX Runtime refuses it in 64 bits: {error}") from error
        return outputs


def _edges(run: RunReference, feed: Arrays) -> Iterator[Edge]:
    for words, changed in edge_feeds(feed):
        with suppress(ModelError):
            yield Edge(words, changed, run(changed))


def _sorted(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with every ``TopK`` sorted: the order of one that is not is not said, and engines differ in it."""
    attributes = [
        attribute for node in walk_nodes(model.graph.node) if node.op_type == "TopK" for attribute in node.attribute
    ]
    if not any(attribute.name == "sorted" and attribute.i == 0 for attribute in attributes):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in walk_nodes(copy.graph.node):
        for attribute in node.attribute if node.op_type == "TopK" else ():
            attribute.i = 1 if attribute.name == "sorted" else attribute.i
    return copy


def _rounded(model: onnx.ModelProto, precision: Precision) -> Iterator[LightModel]:
    operands = ShortOperands(model)
    return (operands.rounded(precision, stored) for stored in (False, True))


def _has_runtime() -> bool:
    return importlib.util.find_spec("onnxruntime") is not None


def _run(model: Model, feed: Arrays, optimised: bool = True) -> list[NDArray[Any]]:
    return Session(model, optimised).run(feed)


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
        self._one_thread, self._limit_s = not optimised, LOOPS_S if optimised else SLOW_LOOPS_S
        self._has_loops = any(node.op_type == "Loop" for node in walk_nodes(self._model.proto.graph.node))
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
                outputs = self._ended({name: _as_fp32(array) for name, array in feed.items()})
                return [array.astype(BFLOAT16) if at in self._short else array for at, array in enumerate(outputs)]
        except ThirdPartyError:
            if self._number + 1 == len(self._ways):
                raise
        self._open(self._number + 1)
        return self._run(feed)

    def _ended(self, feed: Arrays) -> list[NDArray[Any]]:
        """The outputs of a run that ends: random inputs may never meet the condition of a loop.

        Raises:
            UnendedError: if a model with loops takes longer than its limit.
        """
        if not self._has_loops:
            return list(self._session.run(None, feed))
        import onnxruntime  # optional: an extra

        options = onnxruntime.RunOptions()
        timer = threading.Timer(self._limit_s, setattr, (options, "terminate", True))
        timer.daemon = True
        timer.start()
        try:
            return list(self._session.run(None, feed, options))
        except Exception as error:  # ONNX Runtime ends a run by an error of its own
            if options.terminate:
                raise UnendedError(
                    f"ONNX Runtime did not finish within {self._limit_s:.0f} s, so outputs cannot be verified: "
                    "a loop of the model may never end on random inputs"
                ) from error
            raise
        finally:
            timer.cancel()

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


def _same(one: Arrays, other: Arrays) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
