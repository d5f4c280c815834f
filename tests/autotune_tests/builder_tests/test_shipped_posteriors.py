"""The posteriors in the package are of today's templates, small, and wider for machines that nobody recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.builder.shipped_posteriors import FOLDER, UNRECORDED, load_posteriors, save_posteriors, shipped_posterior
from autotune.importer.guarded_import import import_model
from costmodels.posterior import Basis, Spread, TemplatePosterior, Trees
from schedules.space import Space
from schedules.target import Target
from tests.models.catalog import cached

MACHINE = Target("llvm", isa="avx512", mcpu="znver4", threads=2)
MACHINES = {"avx512": MACHINE, "avx2": Target("llvm", isa="avx2", mcpu="znver3", threads=2)}
MOST_BYTES = 2_000_000


@pytest.fixture(scope="module")
def spaces() -> list[Space]:
    """Those of two small networks on the first machine."""
    return spaces_on(MACHINE)


def spaces_on(machine: Target) -> list[Space]:
    """Those of a small convolutional network and of a small chain of linear layers."""
    programs = [import_model(cached(name), {}, machine)[1] for name in ("tiny_cnn", "tiny_mlp")]
    return [space for program in programs for space in program.spaces.values()]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.npz")), ids=lambda path: path.stem)
@pytest.mark.parametrize("isa", sorted(MACHINES))
def test_a_posterior_is_of_the_template_as_it_is(path: Path, isa: str) -> None:
    """One of another version would silently be passed over: then record and train anew (``make prior``)."""
    assert isa in load_posteriors(path)
    assert any(shipped_posterior(space, isa) for space in spaces_on(MACHINES[isa]) if space.name == path.stem)


def test_the_posteriors_are_small() -> None:
    assert 0 < sum(path.stat().st_size for path in FOLDER.glob("*.npz")) <= MOST_BYTES


def test_another_version_or_rank_has_none(spaces: list[Space]) -> None:
    space = next(space for space in spaces if shipped_posterior(space, MACHINE.isa))
    assert shipped_posterior(replace(space, version=space.version + 1), MACHINE.isa) is None
    assert shipped_posterior(replace(space, extents=(*space.extents, 4)), MACHINE.isa) is None
    assert shipped_posterior(replace(space, extents=()), MACHINE.isa) is None


def test_a_machine_that_nobody_recorded_has_what_the_others_share_with_more_doubt(spaces: list[Space]) -> None:
    space = next(space for space in spaces if shipped_posterior(space, MACHINE.isa))
    recorded, foreign = shipped_posterior(space, MACHINE.isa), shipped_posterior(space, "neon")
    assert recorded is not None
    assert foreign is not None
    features = space.row_features(space.rows)
    assert (foreign.deviation(features) > recorded.deviation(features)).mean() > 0.9


def test_posteriors_are_read_as_they_were_written(tmp_path: Path) -> None:
    trees = Trees(np.zeros((1, 3), np.int16), np.full((1, 3), 0.5, np.float32), np.ones((1, 3), np.float32))
    spread, basis = Spread((0.5, 0.25), (0.125, 0.5), 1.0, 2.0, 3.0), Basis(np.zeros(2), np.ones(2))
    one = TemplatePosterior("a/1", ("x", "y"), 1, basis, np.arange(5.0), np.tri(5), spread, trees)
    save_posteriors(tmp_path / "a.npz", {"avx2": one, UNRECORDED: replace(one, weights=np.zeros(5))})
    read, features = load_posteriors(tmp_path / "a.npz"), np.array([[0.2, 1.0], [3.0, 4.0]])
    assert [*read] == ["avx2", UNRECORDED]
    assert (read["avx2"].space, read["avx2"].names, read["avx2"].extents) == ("a/1", ("x", "y"), 1)
    assert read["avx2"].spread == spread
    assert np.array_equal(read["avx2"].slowness(features, (4,)), one.slowness(features, (4,)))
    assert np.array_equal(read["avx2"].deviation(features), one.deviation(features))
    assert not read[UNRECORDED].linear(features).any()


def test_an_unrecorded_level_has_what_is_known_of_the_one_below_with_vectors_as_long(spaces: list[Space]) -> None:
    space = next(space for space in spaces if shipped_posterior(space, MACHINE.isa))
    assert shipped_posterior(space, "amx") is shipped_posterior(space, "avx512")
    assert shipped_posterior(space, "neon") is shipped_posterior(space, "no such level") is not None
