"""The reference engine on one model: its outputs, and how far right outputs may be from them.

The reference is ONNX Runtime, or ONNX's own evaluator where that is not installed or refuses the model. The
model's own inaccuracy is found by running it in other ways that are as right, see ``Reference.allowance``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.conversion.flat_model import without_functions
from autotune.importer.onnx_model.graph_walk import walk_nodes
from autotune.importer.onnx_model.light_model import LightModel
from autotune.importer.onnx_model.tensors import whole
from autotune.importer.program import simplify
from autotune.options import FP32, Precision
from autotune.validation.allowance import Allowance
from autotune.validation.arithmetic.edge_inputs import edge_feeds
from autotune.validation.arithmetic.fitting_values import (
    assumed_values,
    fitting_feed,
    is_filled,
)
from autotune.validation.arithmetic.model_work import multiplications
from autotune.validation.arithmetic.onnxruntime_session import Model, Session, UnendedError
from autotune.validation.arithmetic.quantised_operators import unrounded
from autotune.validation.arithmetic.reference_engines import (
    RUNTIME,
    Arrays,
    RunReference,
    answer_of,
    references,
    unrefused,
)
from autotune.validation.arithmetic.wide_types import FLOATS
from autotune.validation.short_operands import ShortOperands
from autotune.validation.widen import NOISE, NotWidenedError, is_short, widen
from schedules.vocabulary.errors import ModelError

logger = logging.getLogger(__name__)

WIDENED_BYTES = 512 << 20
"""Weights in 64 bits, in bytes, up to which a model is widened: some four copies are alive at a time, and ONNX Runtime
takes no model of 2 GiB from memory. ResNet-50 has 204 MB."""

WIDENED_MULTIPLICATIONS = 5 * 10**10
"""Multiplications up to which a model is widened, once its outputs are beyond the fixed tolerance. S3D has 1.8e10 and
takes 13 s in 64 bits on two busy cores. Its outputs in fp32 are 3e-5 from those: without them, right kernels are taken
for wrong ones, and the search for these takes minutes."""

DOUBLE = onnx.TensorProto.DOUBLE

EDGES_S = 2.0
"""Seconds of one run of the reference above which edge inputs are left out. Heuristic, not measured."""

NOISES = 2
"""Runs with noise of a model that quantises. Heuristic, not measured."""


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
    answer = answer_of(model, feeds)
    return answer.name, answer.outputs


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
        self._model = _sorted(_flat(whole(model)))
        self._feed: Arrays | None = None
        self._outputs: tuple[str, list[NDArray[Any]]] = ("", [])
        self._allowance: tuple[str, Allowance] | None = None
        self._edges: list[Edge] = []
        self._fitting: Arrays = {}
        self._engine: tuple[str, RunReference] | None = None
        self._exact: _Wide | None = None

    def run(self, feed: Arrays) -> tuple[str, list[NDArray[Any]]]:
        """Work like ``outputs``, for many inputs of which nothing else is asked: the engine stays open."""
        if self._engine is None:
            answer = answer_of(self._model, [feed])
            self._engine = answer.name, answer.run
            return answer.name, answer.outputs[0]
        name, run = self._engine
        return name, run(feed)

    def outputs(self, feed: Arrays) -> tuple[str, list[NDArray[Any]]]:
        """Work like ``reference_outputs``."""
        if self._feed is None or not _same(self._feed, feed):
            answer = answer_of(self._model, [feed])
            self._outputs = answer.name, answer.outputs[0]
            quick = answer.name.startswith(RUNTIME) and answer.seconds < EDGES_S
            self._feed, self._allowance, self._edges = feed, None, list(_edges(answer.run, feed)) if quick else []
        return self._outputs

    def fitting(self, feed: Arrays, level: int = logging.WARNING) -> Arrays:
        """``feed``, with other values of inputs that may be sizes or indices where the reference refuses random ones.

        Likewise where an output is empty, as of a length of 0.

        Args:
            level: of the message that says so.

        Raises:
            ModelError: if it refuses every value that is tried.
        """
        feed = {**feed, **self._fitting}
        other = self._other_values(feed)
        if other is None:
            return feed
        logger.log(level, "%s", assumed_values(feed, other))
        self._fitting = {name: array for name, array in other.items() if array is not feed[name]}
        return other

    def _other_values(self, feed: Arrays) -> Arrays | None:
        """Return the values that ``fitting`` returns instead of ``feed``; None to keep ``feed``."""
        refusal: ModelError | None = None
        try:
            if is_filled(self.outputs(feed)[1]) or not is_filled([*feed.values()]):
                return None
        except UnendedError:
            raise
        except ModelError as error:
            refusal = error
        try:
            other = self._tried_values(feed, runs=refusal is None)
        except UnendedError as error:  # no other reference would end either
            refusal, other = error if refusal is not None else None, None
        if other is None and refusal is not None:
            raise refusal
        return other

    def _tried_values(self, feed: Arrays, runs: bool) -> Arrays | None:
        """Return the first values that a reference runs; None if none does.

        Args:
            runs: whether a reference runs ``feed``, so that only values with a result are better. Only the first one is
                asked for them.

        Raises:
            UnendedError: if a loop of the model does not end on values that are tried.
        """
        for reference in references()[:1] if runs else references():
            try:
                _, run = reference(self._model)
            except ModelError:
                continue
            if (other := fitting_feed(self._model, feed, partial(unrefused, run), runs)) is not None:
                return other
        return None

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

    def exact(self, feed: Arrays) -> list[NDArray[Any]]:
        """Outputs in 64 bits, for many inputs of which nothing else is asked: the engine stays open.

        Raises:
            NotWidenedError: if there are none.
        """
        if self._exact is None:
            self._check_widens()
            self._exact = _Wide(self._model, rounded=False)
        return self._exact.outputs(feed, noise=0.0)

    def _widened(self, feed: Arrays) -> list[list[NDArray[Any]]]:
        """The outputs in 64 bits: exact, with noise where the model quantises, rounded where it has 16-bit floats.

        Raises:
            NotWidenedError: if there are none.
        """
        self._check_widens()
        outputs = []
        for rounded in (False, True) if is_short(self._model) else (False,):
            wide = _Wide(self._model, rounded)
            noises = [0.0] * (not rounded) + [1.0] * NOISES if wide.noisy else [0.0]
            outputs += [wide.outputs(feed, noise) for noise in noises]
        return outputs

    def _check_widens(self) -> None:
        """Raise ``NotWidenedError`` if the model is too large for 64 bits."""
        weights = self._model.graph.initializer
        size = 8 * sum(int(np.prod(weight.dims)) for weight in weights if weight.data_type in FLOATS)
        if size > WIDENED_BYTES:
            raise NotWidenedError(f"its weights would take {size >> 20} MiB in 64 bits, above {WIDENED_BYTES >> 20}")
        if (count := multiplications(self._model)) > WIDENED_MULTIPLICATIONS:
            raise NotWidenedError(f"it has {count:.2g} multiplications, above {WIDENED_MULTIPLICATIONS:.2g}")


class _Wide:
    """A model in 64 bits, opened.

    Args:
        rounded: whether to round to its 16-bit floats after every operator.

    Attributes:
        noisy: whether it quantises: only then does noise change its outputs.

    Raises:
        NotWidenedError: if ONNX Runtime refuses it.
    """

    def __init__(self, model: onnx.ModelProto, rounded: bool) -> None:
        wide, self.noisy = widen(model, rounded)
        self._double = {value.name for value in wide.graph.input if value.type.tensor_type.elem_type == DOUBLE}
        with _widening():
            self._session = Session(wide, optimised=False)

    def outputs(self, feed: Arrays, noise: float) -> list[NDArray[Any]]:
        """The outputs for ``feed``.

        Raises:
            NotWidenedError: if ONNX Runtime does not run it.
        """
        wide = {name: array.astype(np.float64) if name in self._double else array for name, array in feed.items()}
        with _widening():
            return self._session.run({**wide, NOISE: np.array(noise)} if self.noisy else wide)


@contextmanager
def _widening() -> Iterator[None]:
    """Errors of ONNX Runtime as a NotWidenedError."""
    try:
        with third_party():
            yield
    except (ThirdPartyError, UnendedError) as error:
        raise NotWidenedError(f"ONNX Runtime refuses it in 64 bits: {error}") from error


def _edges(run: RunReference, feed: Arrays) -> Iterator[Edge]:
    for words, changed in edge_feeds(feed):
        with suppress(ModelError):
            yield Edge(words, changed, run(changed))


def _flat(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` without functions, whose values have no types, where ONNX's inliner can expand them."""
    try:
        return without_functions(model)
    except ModelError:
        return model


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


def _run(model: Model, feed: Arrays, optimised: bool = True) -> list[NDArray[Any]]:
    return Session(model, optimised).run(feed)


def _same(one: Arrays, other: Arrays) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
