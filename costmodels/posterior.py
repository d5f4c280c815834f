"""A hierarchical Bayesian regression of configs' latencies, known before a task is tuned.

Notation: n = configs, d = features of a config, p = d + d(d + 1)/2 terms, e = extents of the task's loops, t = trees,
b = nodes of a tree, y = a config's bent gap to the best of its task (``costmodels.surrogate.bend``, as a positive
number: how much slower).

    y(x, task, machine) = c(task) + φ(x)·(w + u(machine) + v(task)) + h(x, extents) + r(x) + ε

φ are the features, an analytic model of the machine, and their products. w holds everywhere; u and v are what this
machine and this task differ by, each normal and drawn towards 0. r is a Gaussian process within a task (Matérn 5/2), ε
noise, and c a level of which nothing is known. Everything is normal, so rows of other tasks on this machine, from the
log or from this run, update w + u in closed form (``updated``). Boosted trees h take what the linear part leaves over
on all machines. A machine that nobody recorded starts from w, with the variance of u added.

Spreads are set by marginal likelihood on random layers (``research/prior.py``), no model that a figure is claimed of
among them. What ships is one file of NumPy arrays per template: loading XGBoost takes 0.6 s.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodels.cost_model import Floats
from costmodels.matern import distances, matern52
from costmodels.single_thread import single_thread
from costmodels.surrogate import bend
from schedules.config import Config
from schedules.space import Space

CANDIDATES = 4096
"""Most configs of a space that the linear part orders. Heuristic, as in ``search.searchers.adaptive``."""

FINALISTS = 128
"""How many of these the trees order: 2 ms in NumPy, and searches need no more trials than with trees for all."""

FARTHEST = 3.0
"""Standard deviations beyond which a feature counts as no farther: a quadratic form grows without bound, and layers
larger than the random ones are common."""

GUESSES = 3
"""Configs that the posterior adds to a space's initial ones. Of the three it likes best the fastest was within 3 % of
the best of 103 recorded convolutions; the first alone within 5 % (docs/lab/2026-11-28-posterior.md)."""

APART = 2
"""Least knobs in which two of these differ: neighbours would tell a search the same."""

LEVEL_VARIANCE = 1.0
"""Variance of c, in y²: some ten times the largest gap squared near the top, so that a level is taken from the rows."""


@dataclass(frozen=True)
class Basis:
    """The terms φ.

    Attributes:
        mean, scale: (d,) what the features are centred by and divided by.
    """

    mean: Floats
    scale: Floats

    def unit(self, features: Floats) -> Floats:
        """Return ``features`` (n, d) in standard deviations."""
        return np.asarray(np.clip((features - self.mean) / self.scale, -FARTHEST, FARTHEST))

    def terms(self, features: Floats) -> Floats:
        """Return (n, p): the unit features, then the products of each pair."""
        unit = self.unit(features)
        left, right = np.triu_indices(unit.shape[1])
        return np.concatenate([unit, unit[:, left] * unit[:, right]], axis=1)

    def diagonal(self, spreads: tuple[float, float]) -> Floats:
        """Return (p,) variances from the standard deviations of features' and of products' weights."""
        width = len(self.mean)
        return np.repeat(np.square(spreads), [width, width * (width + 1) // 2])


@dataclass(frozen=True)
class Spread:
    """Standard deviations, in units of y.

    Attributes:
        machine, task: of the weights of features and of products, between machines and between tasks.
        residual: of r.
        length: of r, in standard deviations of the features.
        noise: of ε.
    """

    machine: tuple[float, float]
    task: tuple[float, float]
    residual: float
    length: float
    noise: float


@dataclass(frozen=True)
class Trees:
    """A sum of regression trees, all of one depth, each in the order of a heap: node i has the children 2i+1 and 2i+2.

    Attributes:
        feature: (t, b) what a node looks at.
        threshold: (t, b) below which it goes left; infinite where the tree has ended.
        value: (t, b) of the last nodes.
    """

    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    value: NDArray[np.float32]

    def values(self, table: Floats) -> Floats:
        """(n,) of ``table`` (n, d + e), in the numbers of 32 bits that the trees were grown on."""
        numbers, trees = table.astype(np.float32), np.arange(len(self.feature))
        node = np.zeros((len(table), len(trees)), dtype=np.int64)
        rows = np.arange(len(table))[:, None]
        for _ in range(int(np.log2(self.feature.shape[1] + 1)) - 1):
            right = numbers[rows, self.feature[trees, node]] >= self.threshold[trees, node]
            node = 2 * node + 1 + right
        return np.asarray(self.value[trees, node].sum(axis=1, dtype=np.float64))


@dataclass(frozen=True)
class TaskRows:
    """The measurements of one task.

    Attributes:
        features: (n, d).
        scores: (n,) ln(1 / latency in seconds).
        extents: of the task's loops.
    """

    features: Floats
    scores: Floats
    extents: tuple[int, ...] = ()


@dataclass(frozen=True)
class TemplatePosterior:
    """The posterior of one version of one template on one machine.

    Attributes:
        space: ``name/version`` of the spaces it is of.
        names: (d,) of the features.
        extents: e.
        basis: the terms.
        weights: (p,) expected w + u.
        root: (p, p) lower triangular; root·rootᵀ is the covariance of w + u.
        spread: of everything else.
        trees: h, by ``tree_features``.
    """

    space: str
    names: tuple[str, ...]
    extents: int
    basis: Basis
    weights: Floats
    root: Floats
    spread: Spread
    trees: Trees

    def knows(self, space: Space) -> bool:
        """Return whether it is of ``space``."""
        own = self.space, self.names, self.extents
        return own == (space.identity, space.feature_names, len(space.extents))

    def linear(self, features: Floats) -> Floats:
        """Return (n,) expected y but for a constant and the trees."""
        return np.asarray(self.basis.terms(features) @ self.weights)

    def slowness(self, features: Floats, extents: tuple[int, ...]) -> Floats:
        """Return (n,) expected y of the configs of ``features`` (n, d), but for a constant of the task.

        The trees speak of the ``FINALISTS`` that the linear part likes best; the others are as much slower as it says.
        """
        slowness = self.linear(features)
        liked = np.argsort(slowness, kind="stable")[:FINALISTS]
        left = self.trees.values(tree_features(features[liked], extents))
        slowness += left.mean()
        slowness[liked] += left - left.mean()
        return slowness

    def deviation(self, features: Floats) -> Floats:
        """Return (n,) standard deviation of a measured y around the expected one, but for the level."""
        terms, spread = self.basis.terms(features), self.spread
        own = (terms**2) @ self.basis.diagonal(spread.task) + spread.residual**2 + spread.noise**2
        return np.asarray(np.sqrt(((terms @ self.root) ** 2).sum(axis=1) + own))

    @cached_property
    def _precision(self) -> Floats:
        """(p, p) inverse of the covariance."""
        inverse = np.linalg.inv(self.root)
        return np.asarray(inverse.T @ inverse)

    @single_thread
    def updated(self, tasks: Sequence[TaskRows]) -> TemplatePosterior:
        """Return the posterior after ``tasks`` on this machine; tasks of less than two rows say nothing.

        Costs at 252 terms: 7 ms of CPU time for a task of 32 rows, 36 ms for 24 such tasks (a two-core x86 machine).
        """
        told = [rows for rows in tasks if len(rows.scores) >= 2]
        if not told:
            return self
        precision = self._precision.copy()
        pull = precision @ self.weights
        for rows in told:
            more, towards = self.evidence(rows)
            precision += more
            pull += towards
        covariance = np.linalg.inv(precision)
        jitter = 1e-12 * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
        root = np.linalg.cholesky(0.5 * (covariance + covariance.T) + jitter)
        return replace(self, weights=covariance @ pull, root=root)

    def evidence(self, rows: TaskRows) -> tuple[Floats, Floats]:
        """Return φᵀV⁻¹φ (p, p) and φᵀV⁻¹(y − h) (p,) of one task's ``rows``; V is what w and u leave open."""
        terms = self.basis.terms(rows.features)
        left = -bend(rows.scores) - self.trees.values(tree_features(rows.features, rows.extents))
        solved = np.linalg.solve(self.own_covariance(rows.features), terms)
        return terms.T @ solved, solved.T @ left

    def own_covariance(self, features: Floats) -> Floats:
        """Return (n, n) the covariance of y within a task whose w + u are known: level, v, r and noise."""
        terms, unit, spread = self.basis.terms(features), self.basis.unit(features), self.spread
        alike, _ = matern52(distances(unit, unit) / spread.length)
        own = (terms * self.basis.diagonal(spread.task)) @ terms.T
        return np.asarray(LEVEL_VARIANCE + own + spread.residual**2 * alike + spread.noise**2 * np.eye(len(terms)))


BLANK_SPREAD = Spread((0.06, 0.015), (0.006, 0.003), 0.06, 2.8, 0.085)
"""Spreads for a template that nobody recorded: between machines as the weights of ``conv2d`` spread over its terms, the
rest as ``conv2d`` on a Zen 3 has them (``research/prior.py``)."""


def blank(space: Space, features: Floats) -> TemplatePosterior:
    """Return what is known of a template that nobody recorded: which terms there are, and how far weights may spread.

    Args:
        space: of a task of the template.
        features: (n, d) of some configs, which say how features are centred and scaled.
    """
    basis = Basis(features.mean(axis=0), np.maximum(features.std(axis=0), 1e-6))
    variances = basis.diagonal(BLANK_SPREAD.machine)
    no_trees = Trees(np.zeros((1, 1), np.int16), np.full((1, 1), np.inf, np.float32), np.zeros((1, 1), np.float32))
    return TemplatePosterior(
        space.identity,
        space.feature_names,
        len(space.extents),
        basis,
        np.zeros(len(variances)),
        np.diag(np.sqrt(variances)),
        BLANK_SPREAD,
        no_trees,
    )


def tree_features(features: Floats, extents: tuple[int, ...]) -> Floats:
    """(n, d + e): ``features`` (n, d) of configs, and log2 of the task's extents."""
    sizes = np.log2(np.maximum(np.asarray(extents, dtype=np.float64), 1.0))
    return np.concatenate([features, np.broadcast_to(sizes, (len(features), len(sizes)))], axis=1)


def in_turns(*sources: Iterable[Config]) -> tuple[Config, ...]:
    """The first config of each source, then the second of each, and so on, without repeats."""
    ordered = (config for turn in itertools.zip_longest(*sources) for config in turn if config is not None)
    return tuple(dict.fromkeys(ordered))


@single_thread
def likely(posterior: TemplatePosterior, space: Space, count: int = GUESSES) -> list[Config]:
    """Up to ``count`` configs of an enumerated ``space``, the likely fastest first, no two of them alike."""
    rows = space.rows[:: -(-len(space.rows) // CANDIDATES)]
    first = [space.row(config) for config in space.initial]
    rows = np.concatenate([np.stack(first), rows]) if first else rows
    features = space.row_features(rows)
    finalists = np.argsort(posterior.linear(features), kind="stable")[:FINALISTS]
    order = finalists[np.argsort(posterior.slowness(features[finalists], space.extents), kind="stable")]
    chosen: list[NDArray[np.int32]] = []
    for row in rows[order]:
        if all(int((row != other).sum()) >= APART for other in chosen):
            chosen.append(row)
        if len(chosen) == count:
            break
    return [space.config(row) for row in chosen]
