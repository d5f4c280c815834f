"""Programs that a tuning log holds, read in a process of their own: anybody may have written them.

A program belongs to the task whose key is its hash. One whose hash is another is refused wherever it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.host.forked_worker import ForkedWorker
from autotune.importer.kernel_passes import describe
from schedules.config import Config
from schedules.lower import claim, foreign_program
from schedules.space import Columns, Space
from schedules.target import Target
from schedules.vocabulary.errors import AutotuneError, LogError, ScheduleError, last_line
from tuning_logs.record import RecordKey
from tuning_logs.similarity import Signature


@dataclass(frozen=True)
class KnownFeatures:
    """The analytic features of a few configs, as ``Space.derive`` gives them: a space's own functions do not pickle.

    Attributes:
        names: of the features.
        rows: the numbers of a config's knobs → its features; configs that are not in it have zeros.
    """

    names: tuple[str, ...]
    rows: Mapping[tuple[float, ...], tuple[float, ...]] = field(hash=False)

    def __call__(self, columns: Columns) -> dict[str, NDArray[np.float64]]:
        """See ``Space.derive``."""
        nothing = (0.0,) * len(self.names)
        features = [self.rows.get(tuple(map(float, row)), nothing) for row in zip(*columns.values(), strict=True)]
        table = np.array(features, dtype=np.float64).reshape(len(features), len(self.names))
        return {name: table[:, index] for index, name in enumerate(self.names)}


class ForeignPrograms(AbstractContextManager["ForeignPrograms"]):
    """Reads programs in a fork, which starts with the first one."""

    def __init__(self) -> None:
        self._worker = ForkedWorker(lambda request: request[0](*request[1]), LogError)

    def __exit__(self, *exc: object) -> None:
        self._worker.close()

    def refusal(self, task: str, program: str) -> str:
        """Why ``program`` is not the one of ``task``; empty if it is."""
        return self._tried(_check, task, program)[1]

    def signature(self, task: str, program: str) -> Signature | None:
        """The signature of the program of ``task``, or None if it is not that."""
        signature: Signature | None = self._tried(_signature, task, program)[0]
        return signature

    def space(
        self, key: RecordKey, program: str, target: Target, configs: Sequence[Config]
    ) -> tuple[Space, frozenset[Config]] | None:
        """The space of ``key``, and those of ``configs`` that it contains.

        None if the program is not the task's, or has another space. The constraint is left out, and features are those
        of ``configs`` alone.
        """
        space: tuple[Space, frozenset[Config]] | None = self._tried(_space, key, program, target, tuple(configs))[0]
        return space

    def _tried(self, work: Callable[..., Any], *content: object) -> tuple[Any, str]:
        """Return the result of ``work`` on ``content``, and why there is none."""
        try:
            return self._worker.request((work, content)), ""
        except AutotuneError as error:
            return None, last_line(error)[:300]


def _check(task: str, program: str) -> None:
    foreign_program(task, program)


def _signature(task: str, program: str) -> Signature:
    described = describe(foreign_program(task, program), "-", "-", "-", ())
    return Signature(described.shapes, described.dtypes)


def _space(
    key: RecordKey, program: str, target: Target, configs: tuple[Config, ...]
) -> tuple[Space, frozenset[Config]]:
    space = claim(foreign_program(key.task, program), target).space
    if space.identity != key.space:
        raise ScheduleError(f"its space is {space.identity}, not {key.space}")
    valid = frozenset(config for config in configs if space.contains(config))
    if space.derive is None:
        return replace(space, constraint=None), valid
    columns = space.columns(np.array([space.row(config) for config in valid], np.int32).reshape(-1, len(space.knobs)))
    derived = {name: np.asarray(values, dtype=np.float64) for name, values in space.derive(columns).items()}
    keys = zip(*(map(float, column) for column in columns.values()), strict=True)
    table = dict(zip(keys, zip(*(map(float, column) for column in derived.values()), strict=True), strict=True))
    return replace(space, constraint=None, derive=KnownFeatures(tuple(derived), table)), valid
