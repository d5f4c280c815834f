"""A whole model on ONNX Runtime, which takes every size from the first call."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from autotune.host.third_party import ThirdPartyError, foreign_runs, third_party
from autotune.interface import OpenSpec, is_name
from autotune.runtime.segmented_executor import LONGEST_REASON, open_onnxruntime
from schedules.vocabulary.errors import RunError, UsageError, last_line

Array = NDArray[Any]

TYPES = {"float": "float32", "double": "float64", "string": "object"}
"""ONNX Runtime's names of types that NumPy calls something else."""

left_behind: list[object] = []
"""Sessions of a process that this one was forked from. To end one would wait for threads that are not here."""


class WholeModel:
    """A model on ONNX Runtime, opened when it is first needed. Safe to call from several threads.

    Args:
        path: of the ONNX file.
        threads: of a run.
    """

    def __init__(self, path: Path, threads: int) -> None:
        self._path, self._threads = path, threads
        self._opening = threading.Lock()
        self._session: Any = None
        self._runs = foreign_runs()

    def specs(self) -> tuple[tuple[OpenSpec, ...], tuple[OpenSpec, ...]]:
        """Inputs and outputs of the model.

        Raises:
            InstallError, ModelError: if it cannot be opened.
            UsageError: if one is not a tensor.
        """
        session = self._opened()
        return tuple(map(self._spec, session.get_inputs())), tuple(map(self._spec, session.get_outputs()))

    def run(self, names: Sequence[str], arrays: Sequence[Array]) -> list[Array]:
        """Every output.

        Args:
            names: of the inputs, in the order of ``arrays``.

        Raises:
            InstallError, ModelError: if the model cannot be opened.
            RunError: if the run fails.
        """
        session = self._session or self._opened()
        try:
            with third_party(), self._runs:
                return list(session.run(None, dict(zip(names, arrays, strict=True))))
        except ThirdPartyError as error:
            reason = last_line(error.__cause__ or error)[:LONGEST_REASON]
            raise RunError(f"{self._path.name} failed on ONNX Runtime: {reason}") from error

    def renew(self) -> None:
        """Begin again in the child of a fork."""
        left_behind.append(self._session)
        self._opening, self._session = threading.Lock(), None

    def _opened(self) -> Any:
        with self._opening:
            if self._session is None:
                self._session = open_onnxruntime(self._path, self._threads, from_bytes=False)
        return self._session

    def _spec(self, argument: Any) -> OpenSpec:
        kind, _, rest = argument.type.partition("(")
        if kind != "tensor":
            raise UsageError(f"{self._path.name}: {argument.name!r} is not a tensor, as adapt needs; leave adapt out")
        dtype = rest.removesuffix(")")
        shape = tuple(size if isinstance(size, int) else _name(size) for size in argument.shape)
        return OpenSpec(argument.name, shape, TYPES.get(dtype, dtype))


def _name(size: str | None) -> str:
    """The name of an open size; ``?`` for one without."""
    return size if size is not None and is_name(size) else "?"
