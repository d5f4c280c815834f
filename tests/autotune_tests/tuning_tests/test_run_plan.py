"""Options are resolved in one place, and refused there if they cannot be met."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from autotune.graph.lanes import devices_of
from autotune.host.machine import host_target
from autotune.options import CONFLICTS, GIVEN, Generation, Options
from autotune.tuning import run_plan
from autotune.tuning.run_plan import plan_run
from schedules.target import Target
from schedules.vocabulary.errors import UsageError
from tests.simulated.stand_in import stand_in

MODEL = [Path("m.onnx")]

TYPED: dict[str, dict[str, Any]] = {
    "instant": {"effort": "instant"},
    "budget": {"budget_s": 5.0},
    "trials": {"trials": 3},
    "until": {"until": 0.1},
    "frozen": {"frozen": True},
    "cluster": {"cluster": "local"},
    "rpc": {"rpc": "here:1:board"},
    "processor": {"target": host_target(1)},
    "device target": {"target": Target.cuda("sm_90")},
    "absent": {"device": False},
    "groups": {"lanes": "cpu:2x1"},
    "device lane": {"lanes": "cpu,cuda:0"},
    "streams": {"objective": "throughput"},
    "balanced": {"objective": "balanced"},
    "auto": {"precision": "auto"},
    "bf16": {"precision": "bf16"},
    "numbers": {"precision": "bf16:0"},
    "fallback": {"fallback": "onnxruntime"},
    "shapes": {"shapes": ({"x": (1,)}, {"x": (2,)})},
    "generate": {"generate": Generation()},
}
"""Every option of the table, as it is given."""


def refused() -> set[frozenset[str]]:
    """The pairs of the table."""
    return {frozenset(pair) for one, other, _ in CONFLICTS for pair in product(one, other)}


def test_the_table_names_options_that_can_be_given() -> None:
    assert set(TYPED) == set(GIVEN)
    assert {name for pair in refused() for name in pair} <= set(GIVEN)
    assert {name for names in TYPED.values() for name in names} <= {field.name for field in fields(Options)}


@pytest.mark.parametrize("pair", sorted(map(sorted, refused())), ids="-".join)
def test_each_pair_of_the_table_is_refused_in_a_line_that_names_both(pair: list[str]) -> None:
    one, other = (TYPED[name] for name in pair)
    if set(one) & set(other):
        return  # one option has both values
    with pytest.raises(UsageError, match=r"^--.* does not go with --.*: .*; leave one out$") as error:
        Options(**one, **other)
    for name in pair:
        assert GIVEN[name](replace(Options(), **TYPED[name])) in str(error.value)


@pytest.mark.parametrize("pair", sorted(set(combinations(sorted(TYPED), 2)) - set(map(tuple, map(sorted, refused())))))
def test_every_other_pair_is_allowed(pair: tuple[str, str]) -> None:
    one, other = (TYPED[name] for name in pair)
    implied = {name for name in TYPED if GIVEN[name](replace(Options(), **one))} | {
        name for name in TYPED if GIVEN[name](replace(Options(), **other))
    }
    if set(one) & set(other) or any(known <= implied for known in refused()):
        return
    assert Options(**one, **other)


@pytest.fixture
def four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of four cores."""
    host = replace(host_target(1), threads=4)
    monkeypatch.setattr(run_plan, "host_target", lambda threads=None, isa=None: replace(host, threads=threads or 4))


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize(
    ("options", "threads"),
    [
        ({"objective": "latency"}, 4),
        ({"objective": "throughput"}, 1),
        ({"objective": "throughput", "streams": 2}, 2),
        ({"objective": "throughput", "streams": 3}, 1),
        ({"objective": "throughput", "streams": 8}, 1),
        ({"objective": "throughput", "streams": 1, "threads": 2}, 2),
    ],
)
def test_a_stream_gets_its_share_of_the_threads(options: dict[str, Any], threads: int) -> None:
    plan = plan_run(MODEL, Options(**options))
    assert plan.target is not None
    assert plan.target.threads == threads
    assert plan.jobs[0].target == plan.target


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({"objective": "latency", "threads": 3}, (3,)),
        ({"objective": "balanced"}, (4, 1)),
        ({"objective": "balanced", "streams": 2}, (4, 2)),
        ({"objective": "balanced", "streams": 1}, (4,)),
    ],
)
def test_balanced_is_tuned_for_all_threads_and_for_those_of_a_stream(
    options: dict[str, Any], counts: tuple[int, ...]
) -> None:
    assert plan_run(MODEL, Options(**options)).jobs[0].thread_counts == counts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "thruput"}, "--objective thruput: unknown; did you mean 'throughput'"),
        ({"streams": 2}, "--streams 2: needs --objective throughput or balanced"),
        ({"objective": "balanced", "streams": 0}, "--streams 0: needs --objective"),
    ],
)
def test_an_objective_and_its_streams_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Options(**options)


def test_a_simulated_device_is_beside_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    plan = plan_run(MODEL, Options(lanes="cpu,sim:0", threads=2))
    assert plan.target == host_target(2)
    assert plan.options.target == replace(host_target(2), threads=1)
    assert devices_of(plan.jobs[0].options.lanes)


def test_a_device_alone_is_the_target() -> None:
    device = Target.cuda("sm_90")
    plan = plan_run(MODEL, Options(lanes="cuda:0", target=device, device=False))
    assert (plan.target, plan.options.lanes) == (device, "cpu")
    with pytest.raises(UsageError, match="needs a CUDA target for cuda:0; leave --target out"):
        plan_run(MODEL, Options(lanes="cpu,cuda:0", target=host_target(1)))


def test_other_machines_say_what_they_are() -> None:
    assert plan_run(MODEL, Options(cluster="local")).target is None


def test_shapes_of_a_decoder_are_guessed() -> None:
    with pytest.raises(UsageError, match="--generate guesses the shapes"):
        plan_run(MODEL, Options(generate=Generation(), inputs={"x": (1,)}))
