"""What was learned of a template on other tasks, before anything of this task is measured.

Notation: n = configs, d = features of a config, e = extents of the task's loops, t = trees, b = nodes of a tree.

The features of a template are an analytic model of the machine: cycles of the micro-kernel, bytes fetched, what fits
which cache. The prior says how much longer a config takes than the best one of its task, as ln of the ratio but for a
constant of the task: a quadratic form of the features, which orders configs of any size alike, and boosted trees of
what it leaves over, which are told the extents too. Both are fitted on random layers (``make prior``), no model that a
figure is claimed of among them, and ship as one file of NumPy arrays per template: loading XGBoost takes 0.6 s.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodels.cost_model import Floats
from costmodels.single_thread import single_thread
from schedules.config import Config
from schedules.space import Space

CANDIDATES = 4096
"""Most configs of a space that the quadratic form orders. Heuristic, as in ``search.searchers.adaptive``."""

FINALISTS = 128
"""How many of these the trees order: 2 ms in NumPy, and searches need no more trials than with trees for all."""

FARTHEST = 3.0
"""Standard deviations beyond which a feature counts as no farther: a quadratic form grows without bound, and layers
larger than the random ones are common."""

GUESSES = 3
"""Configs that the prior adds to a space's initial ones. Of the three it likes best the fastest was within 6 % of the
best known on five models; the first alone within 11 % (docs/lab: kernels)."""

APART = 2
"""Least knobs in which two of these differ: neighbours would tell a search the same."""


@dataclass(frozen=True)
class QuadraticForm:
    """A sum of the features and their products, each with a weight.

    Attributes:
        mean, scale: (d,) what the features are centred by and divided by.
        linear: (d,) weights of the features.
        products: (d, d) weights of their products.
    """

    mean: Floats
    scale: Floats
    linear: Floats
    products: Floats

    def values(self, features: Floats) -> Floats:
        """(n,) of ``features`` (n, d)."""
        z = np.clip((features - self.mean) / self.scale, -FARTHEST, FARTHEST)
        return np.asarray(z @ self.linear + ((z @ self.products) * z).sum(axis=1))


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
class TemplatePrior:
    """The prior of one version of one template.

    Attributes:
        space: ``name/version`` of the spaces it is of.
        isa: instruction set of the machines it was learned on.
        names: (d,) of the features.
        extents: e.
        form: the quadratic form.
        trees: what it leaves over, by ``tree_features``.
    """

    space: str
    isa: str
    names: tuple[str, ...]
    extents: int
    form: QuadraticForm
    trees: Trees

    def knows(self, space: Space, isa: str) -> bool:
        """Whether it is of ``space`` on machines with that instruction set."""
        return (self.space, self.isa, self.names, self.extents) == (
            space.identity,
            isa,
            space.feature_names,
            len(space.extents),
        )

    def slowness(self, features: Floats, extents: tuple[int, ...]) -> Floats:
        """(n,) ln of how many times longer than the best the configs of ``features`` take, but for a constant.

        The trees speak of the ``FINALISTS`` that the form likes best; the others are as much slower as the form says.
        """
        slowness = self.form.values(features)
        liked = np.argsort(slowness, kind="stable")[:FINALISTS]
        left = self.trees.values(tree_features(features[liked], extents))
        slowness += left.mean()
        slowness[liked] += left - left.mean()
        return slowness


def tree_features(features: Floats, extents: tuple[int, ...]) -> Floats:
    """(n, d + e): ``features`` (n, d) of configs, and log2 of the task's extents."""
    sizes = np.log2(np.maximum(np.asarray(extents, dtype=np.float64), 1.0))
    return np.concatenate([features, np.broadcast_to(sizes, (len(features), len(sizes)))], axis=1)


def in_turns(*sources: Iterable[Config]) -> tuple[Config, ...]:
    """The first config of each source, then the second of each, and so on, without repeats."""
    ordered = (config for turn in itertools.zip_longest(*sources) for config in turn if config is not None)
    return tuple(dict.fromkeys(ordered))


@single_thread
def likely(prior: TemplatePrior, space: Space, count: int = GUESSES) -> list[Config]:
    """Up to ``count`` configs of an enumerated ``space``, the likely fastest first, no two of them alike."""
    rows = space.rows[:: -(-len(space.rows) // CANDIDATES)]
    first = [space.row(config) for config in space.initial]
    rows = np.concatenate([np.stack(first), rows]) if first else rows
    features = space.row_features(rows)
    finalists = np.argsort(prior.form.values(features), kind="stable")[:FINALISTS]
    order = finalists[np.argsort(prior.slowness(features[finalists], space.extents), kind="stable")]
    chosen: list[NDArray[np.int32]] = []
    for row in rows[order]:
        if all(int((row != other).sum()) >= APART for other in chosen):
            chosen.append(row)
        if len(chosen) == count:
            break
    return [space.config(row) for row in chosen]
