"""Near hits: who counts as near, in what order, and what is said of those that do not."""

from __future__ import annotations

import dataclasses
import math

import pytest

from schedules.target import Target
from tests.tuning_logs_tests.samples import failed, other_key, timed
from tuning_logs.similarity import FARTHEST, Nearness, Neighbourhood, Signature, shape_distance
from tuning_logs.sql_store import TuningLog, memory_log

SPR = Target("llvm", isa="avx512", mcpu="sapphirerapids", threads=2)
HASWELL = Target("llvm", isa="avx2", mcpu="haswell", threads=2)
ZEN4 = Target("llvm", isa="avx512", mcpu="znver4", threads=2)
HERE = other_key(target=SPR.fingerprint)


def conv(channels: int, extent: int = 14, kernel: int = 3, parameters: int = 4) -> Signature:
    data, out = (1, channels, extent, extent), (1, channels, extent, extent)
    rest = ((channels,),) * (parameters - 3)
    shapes = (data, (channels, channels, kernel, kernel), *rest, out)
    return Signature(shapes, ("float32",) * len(shapes))


def test_distance_counts_doublings() -> None:
    assert shape_distance(conv(64), conv(64)) == (0.0, "")
    assert shape_distance(conv(64), conv(128))[0] == pytest.approx(4.0)  # data, weight twice, output
    assert shape_distance(conv(64, parameters=5), conv(64))[0] == pytest.approx(0.5)
    far, words = shape_distance(conv(16, extent=112), conv(512, extent=7))
    assert math.isinf(far)
    assert f"more than {FARTHEST:.0f}" in words


def test_what_cannot_be_compared_says_so() -> None:
    half = dataclasses.replace(conv(64), dtypes=("float16",) * 4)
    assert "dtypes differ: float16" in shape_distance(half, conv(64))[1]
    flat = Signature(((64, 64), (64, 64), (64, 64)), ("float32",) * 3)
    assert "ranks differ: 2,2,2 there, 4,4,4 here" in shape_distance(flat, conv(64))[1]


def near(log: TuningLog, programs: dict[str, Signature], **options: int) -> Nearness:
    log.add_target(SPR)
    return Neighbourhood(log, programs.get, **options).near(HERE, conv(64))  # type: ignore[arg-type]


def test_neighbours_come_nearest_first_with_their_fastest_records_first() -> None:
    log = memory_log()
    log.append([timed(1, 2.0, key=other_key(task="wide", target=SPR.fingerprint))])
    close = other_key(task="close", target=SPR.fingerprint)
    log.append([timed(1, 2.0, key=close), timed(2, 1.0, key=close), failed(3, key=close), timed(2, 3.0, key=close)])
    nearness = near(log, {"wide": conv(256), "close": conv(72)})
    assert [neighbour.key.task for neighbour in nearness.used] == ["close", "wide"]
    assert [record.measurement.latency_s for record in nearness.used[0].records] == [2.0, 3.0]
    assert "doublings away" in nearness.used[0].why
    assert nearness.refused == ()
    assert len(near(log, {"wide": conv(256), "close": conv(72)}, per_task=1).used[0].records) == 1


def test_own_records_are_no_neighbours_but_the_same_task_elsewhere_is() -> None:
    log = memory_log()
    log.add_target(HASWELL)
    log.append([timed(1, 1.0, key=HERE), timed(2, 1.0, key=dataclasses.replace(HERE, target=HASWELL.fingerprint))])
    log.append([timed(3, 1.0, key=dataclasses.replace(HERE, tvm="0.26"))])
    nearness = near(log, {})  # no program is needed for the same task
    assert [neighbour.why for neighbour in nearness.used] == ["tvm 0.26", f"target {HASWELL.fingerprint}"]
    assert nearness.used[1].distance == pytest.approx(2.0)


def test_refusals_name_the_field() -> None:
    log = memory_log()
    log.add_target(HASWELL)
    log.add_target(ZEN4)
    fields = [{"target": ZEN4.fingerprint}, {"space": "conv2d/0"}, {"task": "lost"}, {"target": "unheard"}]
    log.append([timed(1, 1.0, key=dataclasses.replace(HERE, **changes)) for changes in fields])
    log.append([failed(1, key=dataclasses.replace(HERE, task="failed"))])  # nothing to learn from
    log.append([timed(1, 1.0, key=dataclasses.replace(HERE, space="matmul/1"))])  # another template
    nearness = near(log, {})
    assert nearness.used == ()
    whys = sorted(nearness.refused)
    assert [why.split(":")[0] for why in whys] == [
        "mcpu differs",
        "program unknown",
        "space differs",
        "target differs",
    ]
    assert "conv2d/0 there, conv2d/1 here" in whys[2]
    assert "4 other tasks are not used" in nearness.told()
    assert "2 more reasons" in nearness.told()


def test_few_programs_are_looked_at_and_the_richest_first() -> None:
    log = memory_log()
    for index in range(6):
        key = other_key(task=f"t{index}", target=SPR.fingerprint)
        log.append([timed(number, 1.0, key=key) for number in range(index + 1)])
    asked: list[str] = []

    def signature_of(task: str) -> Signature:
        asked.append(task)
        return conv(64)

    log.add_target(SPR)
    neighbourhood = Neighbourhood(log, signature_of, most_programs=3)
    for _ in range(2):
        nearness = neighbourhood.near(HERE, conv(64), most_tasks=2)
        assert [neighbour.key.task for neighbour in nearness.used] == ["t3", "t4"]  # equally near: by key
        assert len(nearness.refused) == 3
    assert asked == ["t5", "t4", "t3"]


def test_an_empty_log_has_nothing_to_tell() -> None:
    assert near(memory_log(), {}) == Nearness()
    assert Nearness().told() == ""
