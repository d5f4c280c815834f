"""The priors in the package are of today's templates, small, and nothing for machines that they do not know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.builder.shipped_priors import FOLDER, load_prior, save_prior, shipped_prior
from autotune.importer.guarded_import import import_model
from costmodels.template_prior import QuadraticForm, TemplatePrior, Trees
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
def test_a_prior_is_of_the_template_as_it_is(path: Path) -> None:
    """One of another version would silently be passed over: then record and train anew (``make prior``)."""
    template, isa = path.stem.split("-")
    assert any(shipped_prior(space, isa) is not None for space in spaces_on(MACHINES[isa]) if space.name == template)


def test_the_priors_are_small() -> None:
    assert 0 < sum(path.stat().st_size for path in FOLDER.glob("*.npz")) <= MOST_BYTES


def test_another_machine_version_or_rank_has_none(spaces: list[Space]) -> None:
    space = next(space for space in spaces if shipped_prior(space, MACHINE.isa))
    assert shipped_prior(space, "generic") is None
    assert shipped_prior(replace(space, version=space.version + 1), MACHINE.isa) is None
    assert shipped_prior(replace(space, extents=(*space.extents, 4)), MACHINE.isa) is None
    assert shipped_prior(replace(space, extents=()), MACHINE.isa) is None


def test_a_prior_is_read_as_it_was_written(tmp_path: Path) -> None:
    form = QuadraticForm(np.zeros(2), np.ones(2), np.array([1.0, 0.0]), np.eye(2))
    trees = Trees(np.zeros((1, 3), np.int16), np.full((1, 3), 0.5, np.float32), np.ones((1, 3), np.float32))
    prior = TemplatePrior("a/1", "avx512", ("x", "y"), 1, form, trees)
    save_prior(tmp_path / "a.npz", prior)
    read, features = load_prior(tmp_path / "a.npz"), np.array([[0.2, 1.0], [3.0, 4.0]])
    assert (read.space, read.isa, read.names, read.extents) == ("a/1", "avx512", ("x", "y"), 1)
    assert np.array_equal(read.slowness(features, (4,)), prior.slowness(features, (4,)))
