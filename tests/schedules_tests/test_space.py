"""Spaces, configs, targets and tasks as values: what goes in comes out, and nonsense is refused at birth."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedules.config import Config
from schedules.errors import UsageError
from schedules.space import ENUMERATION_LIMIT, Columns, Knob, Space
from schedules.target import VECTOR_BYTES, Target
from schedules.task import Task

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
    assert space.size == len(space.rows) <= space.product
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
def test_neighbours_differ_in_one_knob_by_one_step(space: Space) -> None:
    for row in space.rows[:5]:
        config = space.config(row)
        for neighbour in space.neighbours(config):
            assert np.abs(space.row(neighbour) - row).sum() == 1
            assert config in space.neighbours(neighbour)


@given(spaces())
def test_features_are_finite_and_the_same_one_by_one(space: Space) -> None:
    if not space.size:
        return
    configs = [space.config(row) for row in space.rows[:10]]
    features = space.features(configs)
    assert features.shape == (len(configs), len(space.knobs))
    assert np.isfinite(features).all()
    assert np.array_equal(features, np.stack([space.encode(config) for config in configs]))


def test_derived_features_follow_the_knobs() -> None:
    space = Space("s", 1, (Knob("a", (1, 2)),), derive=lambda columns: {"double": 2 * columns["a"]})
    assert space.features([space.config([1])]).tolist() == [[1.0, 4.0]]


def test_a_product_is_sampled_and_not_listed() -> None:
    space = product_space()
    assert space.product > ENUMERATION_LIMIT
    assert space.size == space.product
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


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"space":"s","knobs":[1]}', '{"space":"s","knobs":{"a":1.5}}', "{"])
def test_text_that_is_no_config_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Config.from_json(text)


def test_a_config_answers_by_name() -> None:
    config = Config("s/1", (("tile", (2, 4)), ("order", "rows"), ("unroll", 4)))
    assert (config["tile"], config.integer("unroll")) == ((2, 4), 4)
    with pytest.raises(UsageError, match="'order' of s/1 holds 'rows', not an int"):
        config.integer("order")
    with pytest.raises(KeyError, match="no knob 'width'"):
        _ = config["width"]


targets = st.builds(
    Target,
    kind=st.just("llvm"),
    isa=st.sampled_from(sorted(VECTOR_BYTES)),
    mcpu=names,
    features=st.lists(names, max_size=2).map(tuple),
    threads=st.integers(1, 64),
    l1_bytes=st.integers(1, 2**20),
    l2_bytes=st.integers(1, 2**24),
    l3_bytes=st.integers(0, 2**30),
)


@given(targets)
def test_targets_come_back_from_text(target: Target) -> None:
    assert Target.from_json(target.to_json()) == target
    assert Target.from_json(target.to_json()).fingerprint == target.fingerprint
    assert target.lanes(4) * 4 == target.vector_bytes


@given(targets)
def test_fingerprints_tell_all_but_the_shared_cache_apart(target: Target) -> None:
    assert dataclasses.replace(target, l3_bytes=target.l3_bytes + 1).fingerprint == target.fingerprint
    for field in ("threads", "l1_bytes", "l2_bytes"):
        other = dataclasses.replace(target, **{field: getattr(target, field) + 1})
        assert other.fingerprint != target.fingerprint
    assert dataclasses.replace(target, features=(*target.features, "+x")).fingerprint != target.fingerprint


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "opencl"}, "target kind is 'opencl'"),
        ({"kind": "llvm"}, "instruction set ''"),
        ({"kind": "llvm", "isa": "mmx"}, "instruction set 'mmx' is unknown"),
        ({"kind": "llvm", "isa": "avx2", "threads": 0}, "threads is 0"),
        ({"kind": "llvm", "isa": "avx2", "wheels": 4}, "wheels"),
    ],
)
def test_impossible_targets_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Target.from_json(json.dumps(fields))


@pytest.mark.parametrize(
    "wrong", [{"key": ""}, {"dtypes": ("float32",)}, {"weight": 0}, {"flop": -1}, {"bytes": -1}], ids=str
)
def test_malformed_tasks_are_refused(wrong: dict[str, object]) -> None:
    task = Task("k", "n", "conv2d", "conv2d", ((1,), (1,)), ("float32", "float32"), constants=(), flop=1, bytes=8)
    with pytest.raises(UsageError, match="malformed task"):
        dataclasses.replace(task, **wrong)
