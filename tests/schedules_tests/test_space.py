"""Spaces as values: rows, samples and features belong together, and nonsense is refused at birth."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedules.config import Config
from schedules.space import ENUMERATION_LIMIT, Columns, Knob, Space, with_jobs, with_small_jobs
from schedules.vocabulary.errors import UsageError

names = st.text(st.characters(categories=["Ll", "Nd"]), min_size=1, max_size=6)
values = st.one_of(
    st.lists(st.integers(1, 512), min_size=1, max_size=5, unique=True),
    st.lists(names, min_size=1, max_size=4, unique=True),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4, unique=True),
)


def even(columns: Columns) -> np.ndarray:
    return sum(columns.values()).astype(np.int64) % 2 == 0


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    knobs = tuple(
        Knob(name, tuple(draw(values))) for name in draw(st.lists(names, min_size=1, max_size=4, unique=True))
    )
    return Space(draw(names), draw(st.integers(1, 9)), knobs, draw(st.sampled_from([None, even])))


def product_space(knobs: int = 8, choices: int = 8) -> Space:
    return Space("wide", 1, tuple(Knob(f"k{i}", tuple(range(choices))) for i in range(knobs)))


@given(spaces())
def test_rows_and_configs_are_two_forms_of_one_thing(space: Space) -> None:
    assert space.size == len(space.rows) <= math.prod(len(knob.choices) for knob in space.knobs)
    for row in space.rows[:20]:
        config = space.config(row)
        assert space.row(config).tolist() == row.tolist()
        assert space.contains(config)
        assert Config.from_json(config.to_json()) == config


@given(spaces(), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_samples_are_distinct_members_and_repeat_with_the_seed(space: Space, count: int, seed: int) -> None:
    drawn = space.sample(count, np.random.default_rng(seed))
    assert len(drawn) == len(set(drawn)) == min(count, space.size)
    assert all(space.contains(config) for config in drawn)
    assert drawn == space.sample(count, np.random.default_rng(seed))


@given(spaces())
def test_features_are_finite_and_the_same_one_by_one(space: Space) -> None:
    if not space.size:
        return
    configs = [space.config(row) for row in space.rows[:10]]
    features = space.features(configs)
    assert features.shape == (len(configs), len(space.knobs))
    assert np.isfinite(features).all()
    assert np.array_equal(features, np.concatenate([space.features([config]) for config in configs]))


def test_a_knob_may_be_seen_by_what_is_derived_from_it_only() -> None:
    knobs = Knob("tile", (1, 2)), Knob("parts", (1, 2, 4), is_feature=False)
    space = Space("toy", 1, knobs, derive=lambda columns: {"jobs": columns["tile"] * columns["parts"]})
    assert space.feature_names == ("tile", "jobs")
    assert space.features([space.config([1, 2])]).tolist() == [[1.0, 8.0]]
    assert space.size == 6


def test_derived_features_follow_the_knobs() -> None:
    space = Space("s", 1, (Knob("a", (1, 2)),), derive=lambda columns: {"double": 2 * columns["a"]})
    assert space.features([space.config([1])]).tolist() == [[1.0, 4.0]]


def test_a_product_is_sampled_and_not_listed() -> None:
    space = product_space()
    assert space.size == math.prod(len(knob.choices) for knob in space.knobs) > ENUMERATION_LIMIT
    assert len(space.sample(50, np.random.default_rng(0))) == 50
    with pytest.raises(UsageError, match="too many to list"):
        _ = space.rows


def test_configs_of_elsewhere_are_no_members() -> None:
    space = product_space(2, 3)
    config = space.config([0, 1])
    assert not space.contains(dataclasses.replace(config, space="wide/2"))
    assert not space.contains(Config(space.identity, (("k0", 7), ("k1", 0))))
    assert not space.contains(Config(space.identity, (("k0", 1),)))
    with pytest.raises(UsageError, match="given to space wide/1"):
        space.row(dataclasses.replace(config, space="wide/2"))


@pytest.mark.parametrize("choices", [(), (1, 1)])
def test_knobs_need_distinct_choices(choices: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="needs distinct choices"):
        Knob("k", choices)


@pytest.mark.parametrize(("most", "largest"), [(64, 64), (63, 32), (8, 8)])
def test_small_jobs_leave_the_other_knobs_of_initial_configs(most: int, largest: int) -> None:
    knobs = (Knob("tm", (1, 4)), Knob("rows", (1, 2, 4, 8, 16, 32, 64)))
    whole = Space("s", 1, knobs, lambda columns: columns["rows"] % columns["tm"] == 0, job_rows="rows")
    initial = tuple(Config("s/1", (("tm", tm), ("rows", size))) for tm, size in ((4, 64), (1, 16), (4, 32)))
    small = with_small_jobs(replace(whole, initial=initial), most, 64)
    assert max(small.knobs[1].choices) == largest
    assert small.initial[0] == Config("s/1", (("tm", 4), ("rows", largest)))
    assert all(small.contains(config) for config in small.initial)
    assert {config["tm"] for config in small.initial} == {1, 4}
    assert small.identity == whole.identity


def test_elements_are_cut_into_so_many_jobs() -> None:
    whole = Space("s", 1, (Knob("vector", (1, 16)), Knob("chunks", (1, 2, 8))), jobs="chunks")
    initial = tuple(Config("s/1", (("vector", 16), ("chunks", chunks))) for chunks in (2, 8))
    cut = with_jobs(replace(whole, initial=initial), 64)
    assert cut.initial == (Config("s/1", (("vector", 16), ("chunks", 64))),)
    assert {config["chunks"] for config in cut.sample(9, np.random.default_rng(0))} == {64}


@pytest.mark.parametrize(("apart", "choices"), [(48, (1, 2, 4, 8, 16)), (8, (1, 2, 4, 8, 16, 32)), (3, (1,))])
def test_jobs_make_rows_that_belong_together(apart: int, choices: tuple[int, ...]) -> None:
    whole = Space("s", 1, (Knob("rows", (1, 2, 4, 8, 16, 32, 64)),), job_rows="rows")
    space = replace(whole, initial=(Config("s/1", (("rows", 64),)),))
    small = with_small_jobs(space, 32, apart)
    assert small.knobs[0].choices == choices
    assert small.initial == (Config("s/1", (("rows", choices[-1]),)),)


def test_spaces_without_smaller_jobs_stay() -> None:
    knobs = (Knob("tm", (4,)), Knob("rows", (2, 8)))
    space = Space("s", 1, knobs, lambda columns: columns["rows"] % columns["tm"] == 0, job_rows="rows")
    space = replace(space, initial=(Config("s/1", (("tm", 4), ("rows", 8))),))
    assert with_small_jobs(space, 1, 8) is space  # no such choice
    assert with_small_jobs(space, 2, 8) is space  # none that is valid
    assert with_small_jobs(replace(space, job_rows=""), 1, 8).knobs == knobs


@given(spaces())
def test_neighbours_differ_in_one_knob_by_one_step(space: Space) -> None:
    for row in space.rows[:5]:
        config = space.config(row)
        for neighbour in space.neighbours(config):
            assert np.abs(space.row(neighbour) - row).sum() == 1
            assert config in space.neighbours(neighbour)
