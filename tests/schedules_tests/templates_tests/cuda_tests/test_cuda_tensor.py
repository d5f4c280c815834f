"""The space of ``cuda_tensor``: its initial configs are members, and make launches that the device can run."""

from __future__ import annotations

from schedules.lower import claim, lower
from schedules.target import Target
from tests.schedules_tests.templates_tests.cuda_tests.cases import CASES, TENSOR

TARGET = Target.cuda("sm_90")
FUNC = next(case.func for case in (*CASES, *TENSOR) if case.name == "float16_conv_1x1")


def test_initial_configs_are_members_and_apply() -> None:
    claimed = claim(FUNC, TARGET)
    assert claimed.template == "cuda_tensor"
    assert claimed.space.initial
    for config in claimed.space.initial[:2]:
        assert claimed.space.contains(config)
        assert 'thread="blockIdx.x"' in str(lower(FUNC, config, TARGET).mod.script())


def test_a_smaller_device_offers_no_more() -> None:
    assert claim(FUNC, Target.cuda("sm_86")).space.size <= claim(FUNC, TARGET).space.size
