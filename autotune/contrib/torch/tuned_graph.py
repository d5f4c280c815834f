"""A graph that Dynamo captured, with an artifact behind it that is built at the first call.

The first call is answered by PyTorch. It shows what kernels must not be used for: a graph that changes its inputs or
draws random numbers. It also is what the artifact's outputs are compared with. Outputs that share memory with an input,
and sizes, are computed by PyTorch at every call, since the caller may write into such an output.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.artifact.composite import read_composite
from autotune.artifact.manifest import SHAPES, kind_of
from autotune.contrib.torch.graph_files import GraphFiles, bound_graph, is_number, is_weight, open_axes, reduced_graph
from autotune.contrib.torch.module_files import numpy_of, reason_of, tensor_of
from autotune.host.third_party import ThirdPartyError, third_party
from autotune.options import NONE, Options
from autotune.runtime.adaptive.routes import rounded
from autotune.runtime.adaptive.tuned_kernels import agree
from autotune.runtime.session import InferenceSession
from autotune.tuning.tune import tune
from schedules.vocabulary.errors import AutotuneError, ModelError, UsageError, VerificationError

if TYPE_CHECKING:  # optional, and slow to import
    import torch
    from torch.fx import GraphModule

logger = logging.getLogger(__name__)

MOST_WEIGHTS = 8
"""Sets of weights that one graph gets artifacts for, as many as Dynamo compiles a function again."""

MOST_SHAPES = 8
"""Sets of shapes of one artifact; other sizes stay in PyTorch."""

STAYS = "a graph stays in PyTorch: %s"


class TunedGraph:
    """A captured graph; it is called with the arguments that Dynamo gives, weights among them.

    Modules of one class share a graph, so there is an artifact for each set of weights. Weights that were changed in
    place are noticed by their versions.

    Args:
        options: of the runs that build artifacts.
    """

    def __init__(self, graph: GraphModule, options: Options) -> None:
        self._graph, self._options = graph, options
        nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self._weights = [number for number, node in enumerate(nodes) if is_weight(node)]
        self._numbers = {number for number in self._weights if is_number(nodes[number])}
        self._bound: list[_BoundGraph] = []
        self._built = 0
        self._stays = False
        self._lock = threading.RLock()

    def __call__(self, *arguments: Any) -> Any:
        """Return the graph's outputs; none of those that kernels compute shares memory with anything."""
        for bound in self._bound:
            if bound.has_weights(arguments):
                return bound(arguments)
        if self._stays:
            return self._graph(*arguments)
        with self._lock:
            for bound in self._bound:  # another thread may have added it
                if bound.has_weights(arguments):
                    return bound(arguments)
            self._bound = [bound for bound in self._bound if bound.is_current()]
            reason, answer = "", None
            if self._built == MOST_WEIGHTS:
                reason = f"its weights were changed {MOST_WEIGHTS} times"
            else:
                self._built += 1
                bound = _BoundGraph(self._graph, self._constants(arguments), self._options, self._lock)
                answer, reason = bound.first(arguments)
            if reason:
                logger.warning(STAYS, reason)
                self._stays = True
            else:
                self._bound = [*self._bound, bound]
            return self._graph(*arguments) if answer is None else answer

    def _constants(self, arguments: Sequence[Any]) -> list[_Constant]:
        return [
            _Number(number, arguments[number].item())
            if number in self._numbers
            else _Weight(number, weakref.ref(arguments[number]), _version(arguments[number]))
            for number in self._weights
        ]


@dataclass(frozen=True)
class _Number:
    """A Python number among the arguments."""

    number: int
    value: float

    def is_in(self, arguments: Sequence[Any]) -> bool:
        """Return whether the argument has this value."""
        return bool(arguments[self.number].item() == self.value)

    def is_current(self) -> bool:
        """Return whether the value may come again."""
        return True


@dataclass(frozen=True)
class _Weight:
    """A parameter or buffer among the arguments, as it was at ``version``."""

    number: int
    reference: weakref.ref[Any]
    version: int

    def is_in(self, arguments: Sequence[Any]) -> bool:
        """Return whether the argument is this very tensor, unchanged."""
        tensor = arguments[self.number]
        return self.reference() is tensor and self.version == _version(tensor)

    def is_current(self) -> bool:
        """Return whether the tensor still exists, unchanged."""
        tensor = self.reference()
        return tensor is not None and self.version == _version(tensor)


_Constant = _Number | _Weight


class _BoundGraph:
    """A graph with one set of weights.

    Args:
        constants: arguments that are weights.
        lock: held by who builds.
    """

    def __init__(self, graph: GraphModule, constants: Sequence[_Constant], options: Options, lock: Any) -> None:
        self._graph, self._constants, self._options, self._lock = graph, constants, options, lock
        self._session: InferenceSession | None = None
        self._own: list[int] = []  # outputs that kernels compute
        self._left: list[int] = []
        self._rest: GraphModule | None = None
        self._inputs: Mapping[str, int] = {}
        self._refused = False

    def has_weights(self, arguments: Sequence[Any]) -> bool:
        """Return whether the weights in ``arguments`` are this set, unchanged."""
        return all(constant.is_in(arguments) for constant in self._constants)

    def is_current(self) -> bool:
        """Return whether the set still exists, unchanged."""
        return all(constant.is_current() for constant in self._constants)

    def __call__(self, arguments: Sequence[Any]) -> Any:
        session = self._session
        if session is None:
            return self._graph(*arguments)
        try:
            computed = self._run(session, arguments)
        except UsageError:  # sizes that the artifact does not serve
            return self._grown(arguments)
        return computed if self._rest is None else _merged(computed, self._own, self._rest(*arguments), self._left)

    def first(self, arguments: Sequence[Any]) -> tuple[Any, str]:
        """Return PyTorch's answer, and why the graph must stay there; build the artifact if nothing is in its way."""
        import torch

        probe = [_plain(value) for value in arguments]
        before, state = [_version(value) for value in probe], torch.get_rng_state()
        with torch.inference_mode(False), torch.no_grad():
            answer = self._graph(*probe)
        changed = [number for number, version in enumerate(before) if _version(probe[number]) != version]
        for number in changed:
            if probe[number] is not arguments[number]:
                arguments[number].copy_(probe[number])
        if changed:
            return answer, "it writes into an input, a weight or a buffer"
        if not torch.equal(state, torch.get_rng_state()):
            return answer, "it draws random numbers"
        self._split(probe, answer)
        self._attempt(probe, [answer[number] for number in self._own])
        return answer, ""

    def _split(self, arguments: Sequence[Any], answer: Sequence[Any]) -> None:
        """Find the outputs that kernels compute, and those that are left to PyTorch."""
        import torch

        taken = {value.untyped_storage().data_ptr() for value in arguments if isinstance(value, torch.Tensor)} - {0}
        self._own = [
            number
            for number, value in enumerate(answer)
            if isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() not in taken
        ]
        self._left = [number for number in range(len(answer)) if number not in self._own]
        self._rest = reduced_graph(self._graph, self._left) if self._left else None

    def _attempt(self, arguments: Sequence[Any], expected: Sequence[torch.Tensor]) -> None:
        """Open an artifact that gives ``expected``, or say in one line why there is none."""
        import torch

        if not expected:  # views and sizes, which cost nothing
            return
        try:
            with torch.inference_mode(False), torch.no_grad(), third_party():
                session = self._opened(arguments)
                computed = self._run(session, arguments)
        except (AutotuneError, ThirdPartyError) as error:
            logger.warning(STAYS, error if isinstance(error, AutotuneError) else reason_of(error))
            return
        if all(agree(numpy_of(one), numpy_of(two)) for one, two in zip(computed, expected, strict=True)):
            self._session = session
        else:
            logger.warning(STAYS, "the artifact's outputs differ from PyTorch's")

    def _opened(self, arguments: Sequence[Any]) -> InferenceSession:
        """The session of an artifact that serves ``arguments``, from the cache or built now.

        Raises:
            AutotuneError: if it cannot be built.
        """
        numbers = [constant.number for constant in self._constants]
        files = GraphFiles(self._graph, arguments, numbers, self._options)
        axes = open_axes(self._graph, numbers)
        self._inputs = files.inputs
        if files.artifact.is_dir():
            try:
                session = InferenceSession(files.artifact)
                self._run(session, arguments)
            except AutotuneError as error:
                logger.debug("%s is built again: %s", files.artifact, error)
            else:
                return session
        files.write(bound_graph(self._graph, arguments, numbers, self._own), axes)
        if not any(axes.values()):
            _tuned(files.model, replace(self._options, out=files.artifact))
            return InferenceSession(files.artifact)
        return self._opened_for_sizes(files, arguments, axes)

    def _opened_for_sizes(
        self, files: GraphFiles, arguments: Sequence[Any], axes: Mapping[int, Sequence[int]]
    ) -> InferenceSession:
        """Work like ``_opened``, for a graph with open sizes: they are rounded up where that serves ``arguments``.

        Raises:
            AutotuneError: if no artifact can be built, or there are shapes enough.
        """
        known = _shapes_of(files.artifact)
        if len(known) >= MOST_SHAPES:
            raise ModelError(f"there are kernels for {MOST_SHAPES} sets of shapes, and these are others")
        exact = {name: tuple(arguments[number].shape) for name, number in files.inputs.items()}
        last: AutotuneError | None = None
        for resize in (rounded, int):
            sets = [*known, files.resized(exact, axes, resize)]
            if len(sets) < 2:  # several make an artifact of open sizes
                sets.append(files.resized(sets[0], axes, lambda size: max(1, size // 2)))
            try:
                # Sizes that no kernels serve are refused by the session then, and added here.
                fallback = self._options.fallback or NONE
                _tuned(
                    files.model,
                    replace(self._options, out=files.artifact, shapes=tuple(sets), fallback=fallback),
                )
                session = InferenceSession(files.artifact)
                self._run(session, arguments)
            except AutotuneError as error:
                last = error
            else:
                return session
        assert last is not None
        raise last

    def _grown(self, arguments: Sequence[Any]) -> Any:
        """Return PyTorch's answer for sizes that are not served, and serve them from the next call on."""
        answer = self._graph(*arguments)
        with self._lock:
            if not self._refused:
                before = self._session
                self._attempt([_plain(value) for value in arguments], [answer[number] for number in self._own])
                self._refused = self._session is before
        return answer

    def _run(self, session: InferenceSession, arguments: Sequence[Any]) -> list[torch.Tensor]:
        feed = {name: numpy_of(arguments[number]) for name, number in self._inputs.items()}
        return [tensor_of(array) for array in session.run(None, feed)]


def _merged(own: Sequence[Any], places: Sequence[int], rest: Sequence[Any], others: Sequence[int]) -> list[Any]:
    """Outputs in order: those that kernels computed, and the others."""
    merged = {**dict(zip(places, own, strict=True)), **dict(zip(others, rest, strict=True))}
    return [merged[number] for number in range(len(merged))]


def _plain(value: Any) -> Any:
    """``value``, or a copy with a version of a tensor made in inference mode."""
    import torch

    if not isinstance(value, torch.Tensor) or not value.is_inference():
        return value
    with torch.inference_mode(False):
        return value.clone()


def _version(value: Any) -> int:
    """Return how often a tensor was written in place; 0 of what is no tensor, or made in inference mode."""
    import torch

    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else 0


def _shapes_of(artifact: Path) -> list[Mapping[str, tuple[int, ...]]]:
    """The sets of shapes of an artifact; none where there is no artifact."""
    try:
        return [part.shapes for part in read_composite(artifact).parts] if kind_of(artifact) == SHAPES else []
    except AutotuneError:
        return []


def _tuned(model: Path, options: Options) -> None:
    """Build the artifact.

    Raises:
        AutotuneError: as ``autotune.tune``, or if it gives wrong numbers.
    """
    result = tune(model, options)
    if result.interrupted:
        raise KeyboardInterrupt
    if result.verified is not None and not result.verified.passed:
        raise VerificationError(f"{model.name}: {result.verified.difference}")
