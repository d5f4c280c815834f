"""Every schedule of the walk goes each tree's own way, whatever it does in parallel or at once."""

import numpy as np
import pytest

from autotune.contrib.classical.tree_walk import MODES, TABLES, walk
from schedules.lower import BASELINE, claim, normalise
from schedules.target import Target
from tests.schedules_tests.programs import run

TARGET = Target(kind="llvm", isa="avx2", threads=2)
DEPTH, FEATURES = 5, 3
COMPARED = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)


def forest(rng, trees):
    """Tables of full trees of ``DEPTH`` steps, node after node by level; a quarter of the nodes are leaves early."""
    nodes = 2 ** (DEPTH + 1) - 1
    inner = nodes // 2
    own = np.arange(nodes)
    leaf = (own >= inner) | (rng.random((trees, nodes)) < 0.25)
    leaf[:, 0] = False
    start = nodes * np.arange(trees)[:, None]
    count = trees * nodes
    tables = {
        "feature": rng.integers(0, FEATURES, count),
        "threshold": rng.integers(-2, 3, count).astype(np.float32),
        "true": np.where(leaf, start + own, start + 2 * own + 1).reshape(-1),
        "false": np.where(leaf, start + own, start + 2 * own + 2).reshape(-1),
        "roots": start[:, 0],
        "modes": rng.integers(0, len(MODES), count),
        "missing": rng.random(count) < 0.5,
        "members": np.where(rng.random((count, 2)) < 0.5, np.nan, rng.integers(-2, 3, (count, 2))).astype(np.float32),
    }
    return {name: table.astype(np.int32) if table.dtype == np.int64 else table for name, table in tables.items()}


def walked(x, tables, kinds, with_nan):
    """(rows, trees) by NumPy, a step at a time."""
    place = np.tile(tables["roots"], (len(x), 1))
    for _ in range(DEPTH):
        value = np.take_along_axis(x, tables["feature"][place], 1)
        hits = [compare(value, tables["threshold"][place]) for compare in COMPARED]
        hits.append((value[..., None] == tables["members"][place]).any(-1))
        mode = tables["modes"][place] if len(kinds) > 1 else np.full(place.shape, kinds[0])
        taken = np.choose(mode, hits)
        if with_nan:
            taken |= np.isnan(value) & tables["missing"][place]
        place = np.where(taken, tables["true"][place], tables["false"][place])
    return place


@pytest.mark.parametrize("kinds", [[0], [1], list(range(len(MODES)))], ids=["LEQ", "LT", "every mode"])
@pytest.mark.parametrize("with_nan", [False, True])
def test_any_config_reaches_the_leaves(kinds, with_nan):
    rng = np.random.default_rng(4)
    rows, trees = 64, 5
    tables = forest(rng, trees)
    x = rng.integers(-2, 3, (rows, FEATURES)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan
    fields = [tables[name] for name in ("feature", "true", "false", "modes", "missing")]
    by_name = {"nodes": np.stack([field.astype(np.int32) for field in fields])}
    by_name |= {name: tables[name] for name in TABLES if name != "nodes"}
    shapes = {name: by_name[name].shape for name in TABLES}
    func = normalise(walk(x.shape, shapes, "float32", DEPTH, kinds, with_nan))
    claimed = claim(func, TARGET)
    assert claimed.space.name == "generic"
    expected = walked(x, tables, kinds, with_nan)
    assert len(np.unique(expected)) > 5 * trees
    arrays = [x, *(by_name[name] for name in TABLES)]
    for config in (BASELINE, *claimed.space.sample(4, rng)):
        assert np.array_equal(run(func, config, TARGET, arrays), expected), config.to_json()
