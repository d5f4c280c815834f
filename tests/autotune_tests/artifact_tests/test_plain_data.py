"""Dataclasses as plain data: what was encoded is decoded, and what is none is refused."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from autotune.artifact.plain_data import decode, encode
from autotune.graph.steps import Condition, Operand, Step
from schedules.config import Config
from schedules.target import Target


@dataclass(frozen=True)
class Inner:
    name: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class Outer:
    """One of every kind of field."""

    inners: tuple[Inner, ...]
    pair: tuple[int, tuple[Inner, ...]]
    config: Config
    target: Target
    maybe: Inner | None
    seconds: float | None
    counts: dict[str, float]
    where: Path
    last: int = 7


INNER = Inner("x", (1, "rows", 3))
OUTER = Outer(
    (INNER, Inner("scalar", ())),
    (2, (INNER,)),
    Config("matmul/1", (("tile", 4), ("split", (2, 8)))),
    Target("llvm", "avx2"),
    INNER,
    None,
    {"direct": 1e-6},
    Path("folder/file"),
)


def through_json(value):
    return json.loads(json.dumps(encode(value)))


def test_what_was_encoded_is_decoded():
    assert decode(Outer, through_json(OUTER)) == OUTER
    assert decode(tuple[Inner, ...], through_json(OUTER.inners)) == OUTER.inners


def test_configs_and_targets_are_as_their_own_json_has_them():
    data = through_json(OUTER)
    assert data["config"] == json.loads(OUTER.config.to_json())
    assert data["target"] == json.loads(OUTER.target.to_json())


def test_absent_fields_take_their_defaults():
    data = through_json(OUTER)
    del data["last"]
    data["maybe"] = None
    assert decode(Outer, data).last == 7
    assert decode(Outer, data).maybe is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.pop("seconds"),
        lambda data: data.update(more=1),
        lambda data: data.update(inners=1),
        lambda data: data.update(maybe=[1]),
        lambda data: data.update(pair=[1]),
    ],
)
def test_what_is_none_is_refused(damage):
    data = through_json(OUTER)
    damage(data)
    with pytest.raises((TypeError, ValueError, AttributeError)):
        decode(Outer, data)


def test_a_sparse_field_is_absent_where_it_is_none():
    """Artifacts without it open in versions that do not know it."""
    step = Step("kernel", ())
    assert encode(step) == {"symbol": "kernel", "operands": []}
    guarded = replace(step, condition=Condition(Operand("input", 0, (1,), "bool"), when=False))
    assert decode(Step, encode(guarded)) == guarded
    assert decode(Step, encode(step)) == step
