"""The reference engines: ONNX Runtime, and ONNX's own evaluator where that is missing or refuses the model."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.onnx_model.light_model import LightModel
from autotune.validation.arithmetic.evaluator_cost import evaluation_s
from autotune.validation.arithmetic.onnxruntime_session import Model, Session, UnendedError
from schedules.vocabulary.errors import ModelError

Arrays = dict[str, NDArray[Any]]

EVALUATED_S = 60.0
"""Seconds up to which ONNX's evaluator, which is slow, runs a model that ONNX Runtime refuses. Heuristic."""

RUNTIME = "onnxruntime"
"""The name of ONNX Runtime as a reference, before its version."""

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


def unrefused(run: RunReference, feed: Arrays) -> list[NDArray[Any]] | None:
    """The outputs of ``run``; None if it refuses ``feed``."""
    try:
        return run(feed)
    except UnendedError:
        raise
    except ModelError:
        return None


def answer_of(model: Model, feeds: Sequence[Arrays]) -> Answer:
    """Outputs of the first reference that runs the model.

    Raises:
        ModelError: the first reference's, if none does.
    """
    refusal: ModelError | None = None
    for reference in references():
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


def references() -> tuple[Callable[[Model], tuple[str, RunReference]], ...]:
    """Openers of the references, best first."""
    return (_runtime, _evaluator) if _has_runtime() else (_evaluator,)


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
    if _has_runtime() and (seconds := evaluation_s(whole_model)) > EVALUATED_S:
        raise ModelError(f"ONNX's evaluator would take about {seconds:.0f} s, above {EVALUATED_S:.0f}, for the model")
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


def _has_runtime() -> bool:
    return importlib.util.find_spec("onnxruntime") is not None
