"""One interface for ``InferenceSession`` to artifacts of one set of shapes, of several, and of segments."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.backends.executor import Executor
from autotune.runtime.inputs import Spec

Array = NDArray[Any]
Arrays = Sequence[Array]


class ArtifactExecutor(Executor):
    """Runs an artifact on arrays, one per input of the model and in that order, one call at a time.

    Attributes:
        inputs, outputs: of the model.
        provenance: where the artifact comes from.
        threads: that kernels run on.
    """

    inputs: Sequence[Spec]
    outputs: Sequence[Spec]
    provenance: Mapping[str, Any]
    threads: int


class LazyExecutor(ArtifactExecutor):
    """Runs an artifact of parts that are opened when they are first needed."""

    def __init__(self) -> None:
        self._opened: dict[Hashable, Any] = {}
        self._halted = False

    @property
    def parts(self) -> Sequence[Executor]:
        """Implement ``Executor.parts``: those that were opened."""
        return list(self._opened.values())

    def halt(self) -> None:
        """Implement ``Executor.halt``, also for what is opened later."""
        self._halted = True
        super().halt()

    def resume(self) -> None:
        """Implement ``Executor.resume``."""
        self._halted = False
        super().resume()

    def _keep(self, key: Hashable, executor: Executor) -> None:
        """Take in a part that was opened."""
        self._opened[key] = executor
        if self._halted:  # while it was opened
            executor.halt()


def owned(outputs: Sequence[Any], arrays: Arrays) -> list[Any]:
    """``outputs``, arrays or lists of some, each in memory of its own: neither an input's nor another output's.

    A model may hand an input through, also as two outputs, and whoever writes into one of them means that one.
    """
    taken = list(arrays)

    def own(output: Any) -> Any:
        if isinstance(output, list):
            return [own(inner) for inner in output]
        if any(np.may_share_memory(output, other) for other in taken):
            output = output.copy()
        taken.append(output)
        return output

    return [own(output) for output in outputs]
