"""The space of ``cuda_map``: its initial configs are members, and make launches that the device can run."""

from __future__ import annotations

from schedules.lower import claim, lower
from schedules.target import Target
from tests.schedules_tests.templates_tests.cuda_tests.cases import CASES

TARGET = Target.cuda("sm_90")
FUNC = next(case.func for case in CASES if case.name == "pool_max")


def test_initial_configs_are_members_and_apply() -> None:
    claimed = claim(FUNC, TARGET)
    assert claimed.template == "cuda_map"
    assert claimed.space.initial
    for config in claimed.space.initial[:2]:
        assert claimed.space.contains(config)
        assert 'thread="blockIdx.x"' in str(lower(FUNC, config, TARGET).mod.script())


def test_a_smaller_device_offers_no_more() -> None:
    assert claim(FUNC, Target.cuda("sm_86")).space.size <= claim(FUNC, TARGET).space.size
