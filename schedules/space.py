"""Knob and Space: the choices a template offers.

Notation: d = number of knobs, n = number of configs.

A space is either *enumerated* (its constrained product is small enough to list; all our templates) or a
*product* (TVM's generic design spaces, too large to list).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from schedules.config import Config, Value
from schedules.vocabulary.errors import UsageError

Columns = Mapping[str, NDArray[np.float64]]
"""Knob name → (n,) numeric values of that knob in n configs (a non-numeric knob gives its choice's index)."""

ENUMERATION_LIMIT = 1 << 18
"""Products above this many rows are sampled, not listed: listing 2e5 rows takes some 10 ms and 8 MB."""


@dataclass(frozen=True)
class Knob:
    """One choice: a name and the values it can take, in an order in which neighbours are alike.

    Attributes:
        is_feature: whether models see the choice itself, besides the features that a template derives from it. A knob
            that only some targets have is none: what was learned on the others holds for its spaces, too.
    """

    name: str
    choices: tuple[Value, ...]
    is_feature: bool = True

    def __post_init__(self) -> None:
        if not self.choices or len(set(self.choices)) != len(self.choices):
            raise UsageError(f"knob {self.name!r} needs distinct choices, got {self.choices}")

    @cached_property
    def numeric(self) -> NDArray[np.float64]:
        """(n_choices,) number of each choice: an int itself, anything else its index."""
        if all(isinstance(choice, int) for choice in self.choices):
            return np.asarray(self.choices, dtype=np.float64)
        return np.arange(len(self.choices), dtype=np.float64)

    @cached_property
    def position(self) -> dict[Value, int]:
        """Index of each choice."""
        return {choice: index for index, choice in enumerate(self.choices)}


@dataclass(frozen=True)
class Space:
    """The configs a template offers for one task.

    Attributes:
        name, version: identity; raise the version when the meaning of a config changes.
        knobs: the choices, d of them.
        constraint: keeps the rows for which it is true; columns in, (n,) bool out. None keeps all.
        derive: analytic features from the knobs: columns in, name → (n,) numbers out. None gives none.
        initial: initial configs, worth trying before any other, best guess first.
        seeds: of a space with several algorithms one of the initial configs per algorithm. A measurement of one
            algorithm says nothing about another, so a search tries each seed, whatever other tasks recommend.
        saving: how many times less than the task's nominal multiply-adds at the machine's peak the products of the
            best config take: above 1 by an algorithm with fewer of them, without which a roofline bound would call a
            Winograd kernel faster than the machine; below 1 where no micro-kernel reaches the peak.
        extents: of the task's loops, spatial ones first, then those of sums: what tells tasks of one template apart.
        job_rows: knob that says how many rows of its first loop a job makes; empty where jobs are cut in another way.
        jobs: knob that says into how many jobs the elements are cut, as they lie; empty likewise.
    """

    name: str
    version: int
    knobs: tuple[Knob, ...]
    constraint: Callable[[Columns], NDArray[np.bool_]] | None = field(default=None, compare=False)
    derive: Callable[[Columns], Mapping[str, NDArray[np.float64]]] | None = field(default=None, compare=False)
    initial: tuple[Config, ...] = ()
    seeds: tuple[Config, ...] = ()
    saving: float = 1.0
    extents: tuple[int, ...] = ()
    job_rows: str = ""
    jobs: str = ""

    @property
    def identity(self) -> str:
        """``name/version``, as written into configs and log keys."""
        return f"{self.name}/{self.version}"

    @property
    def _product(self) -> int:
        """Number of rows before the constraint."""
        return math.prod(len(knob.choices) for knob in self.knobs)

    @property
    def enumerated(self) -> bool:
        """Whether every config can be listed."""
        return self._product <= ENUMERATION_LIMIT

    @cached_property
    def rows(self) -> NDArray[np.int32]:
        """(size, d) choice indices of every valid config of an enumerated space, in a fixed order.

        Raises:
            UsageError: if the space is too large to list.
        """
        if not self.enumerated:
            raise UsageError(f"space {self.identity} has {self._product} configs, too many to list; use sample()")
        if not self.knobs:
            return np.zeros((1, 0), dtype=np.int32)
        axes = [np.arange(len(knob.choices), dtype=np.int32) for knob in self.knobs]
        grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
        return grid[self.allowed(grid)]

    @property
    def size(self) -> int:
        """Number of valid configs (of a product space: before the constraint)."""
        return len(self.rows) if self.enumerated else self._product

    def columns(self, rows: NDArray[np.int32]) -> dict[str, NDArray[np.float64]]:
        """Numeric value per knob for ``rows`` (n, d)."""
        return {knob.name: knob.numeric[rows[:, index]] for index, knob in enumerate(self.knobs)}

    def allowed(self, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """(n,) whether each of ``rows`` (n, d) satisfies the constraint."""
        if self.constraint is None:
            return np.ones(len(rows), dtype=np.bool_)
        return np.asarray(self.constraint(self.columns(rows)), dtype=np.bool_)

    def places(self, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """(n,) where in ``self.rows`` of an enumerated space each of the valid ``rows`` (n, d) is."""
        return np.searchsorted(self._ascending, self._numbers(rows))

    @cached_property
    def _ascending(self) -> NDArray[np.int64]:
        return self._numbers(self.rows)

    def _numbers(self, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """(n,) each row as one mixed-radix number: ascending in the order of ``self.rows``."""
        numbers = np.zeros(len(rows), dtype=np.int64)
        for column, knob in enumerate(self.knobs):
            numbers = numbers * len(knob.choices) + rows[:, column]
        return numbers

    def config(self, row: Sequence[int] | NDArray[np.int32]) -> Config:
        """The config with choice indices ``row`` (d,)."""
        return Config(
            self.identity, tuple((knob.name, knob.choices[int(i)]) for knob, i in zip(self.knobs, row, strict=True))
        )

    def row(self, config: Config) -> NDArray[np.int32]:
        """(d,) choice indices of ``config``.

        Raises:
            UsageError: if it is of another space or has a value this space does not offer.
        """
        if config.space != self.identity:
            raise UsageError(f"config of {config.space} given to space {self.identity}")
        try:
            return np.array([knob.position[config[knob.name]] for knob in self.knobs], dtype=np.int32)
        except KeyError as error:
            raise UsageError(f"config {config.to_json()} is not in space {self.identity}: {error}") from error

    def contains(self, config: Config) -> bool:
        """Return whether ``config`` is a valid member of this space: of its identity, with its knobs and no others."""
        if [name for name, _ in config.items] != [knob.name for knob in self.knobs]:
            return False
        try:
            return bool(self.allowed(self.row(config)[None, :])[0])
        except UsageError:
            return False

    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        """Up to ``count`` configs, distinct in an enumerated space, drawn uniformly."""
        if self.enumerated:
            chosen = rng.choice(len(self.rows), size=min(count, len(self.rows)), replace=False)
            return [self.config(self.rows[index]) for index in chosen]
        configs: dict[Config, None] = {}
        for _ in range(20):  # a constraint so tight that 20 rounds do not fill the request deserves a short answer
            rows = np.stack([rng.integers(len(knob.choices), size=count) for knob in self.knobs], axis=1)
            for row in rows.astype(np.int32)[self.allowed(rows.astype(np.int32))]:
                configs.setdefault(self.config(row))
            if len(configs) >= count:
                break
        return list(itertools.islice(configs, count))

    def neighbours(self, config: Config) -> list[Config]:
        """Valid configs that differ from ``config`` in one knob by one step."""
        row = self.row(config)
        steps = []
        for index, knob in enumerate(self.knobs):
            for step in (-1, 1):
                moved = row.copy()
                moved[index] += step
                if 0 <= moved[index] < len(knob.choices):
                    steps.append(moved)
        if not steps:
            return []
        rows = np.stack(steps)
        return [self.config(moved) for moved in rows[self.allowed(rows)]]

    def _encode_rows(self, rows: NDArray[np.int32]) -> NDArray[np.float64]:
        """(n, f) numbers of the knobs that are features: log2 of positive numeric ones, else the choice's index."""
        columns = self.columns(rows)
        encoded = []
        for knob in self.knobs:
            if not knob.is_feature:
                continue
            column = columns[knob.name]
            encoded.append(np.log2(column) if knob.numeric.min() > 0 else column)
        return np.stack(encoded, axis=1) if encoded else np.zeros((len(rows), 0))

    def features(self, configs: Sequence[Config]) -> NDArray[np.float64]:
        """(n, f + k) encoded knobs that are features, followed by the template's k analytic features."""
        return self.row_features(np.stack([self.row(config) for config in configs]))

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """(f + k,) names of the columns of ``features``."""
        derived = () if self.derive is None else self.derive(self.columns(np.zeros((1, len(self.knobs)), np.int32)))
        return (*(knob.name for knob in self.knobs if knob.is_feature), *derived)

    def row_features(self, rows: NDArray[np.int32]) -> NDArray[np.float64]:
        """Work like ``features``, for choice indices (n, d): scores a whole space without making Config objects."""
        encoded = self._encode_rows(rows)
        if self.derive is None:
            return encoded
        derived = self.derive(self.columns(rows))
        return np.concatenate([encoded, *(np.asarray(c, dtype=np.float64)[:, None] for c in derived.values())], axis=1)


def with_small_jobs(space: Space, most: int, apart: int) -> Space:
    """Return ``space`` with only the configs whose jobs make at most ``most`` rows; ``space`` itself if it has none.

    Initial configs keep their other knobs.

    Args:
        apart: rows that belong together: those of several such groups are in one job only if it makes all of them.
    """
    knob = next((knob for knob in space.knobs if knob.name == space.job_rows), None)
    small = tuple(rows for rows in (() if knob is None else knob.choices) if isinstance(rows, int) and rows <= most)
    whole = tuple(rows for rows in small if 0 in (apart % rows, rows % apart))
    for choices in (whole, small):  # where no config makes rows that belong together, few rows are better than many
        cut = _cut(space, space.job_rows, choices)
        if cut is not space:
            return cut
    return space


def with_jobs(space: Space, count: int) -> Space:
    """Return ``space`` with only configs of ``count`` jobs; ``space`` itself if it has none."""
    return _cut(space, space.jobs, (count,))


def _cut(space: Space, name: str, small: tuple[int, ...]) -> Space:
    """Return ``space`` with only ``small`` choices of the knob ``name``; ``space`` itself if none of it is left."""
    knob = next((knob for knob in space.knobs if knob.name == name), None)
    knobs = tuple(replace(other, choices=small) if other is knob and small else other for other in space.knobs)
    cut = replace(space, knobs=knobs)

    def shrunk(config: Config) -> Iterator[Config]:
        for rows in sorted(small, reverse=True):
            values = {**dict(config.items), name: rows}
            smaller = config if config[name] in small else Config(config.space, tuple(values.items()))
            if cut.contains(smaller):
                yield smaller
                return

    initial = tuple(dict.fromkeys(itertools.chain.from_iterable(map(shrunk, space.initial))))
    seeds = tuple(dict.fromkeys(itertools.chain.from_iterable(map(shrunk, space.seeds))))
    return replace(cut, initial=initial, seeds=seeds) if initial else space
