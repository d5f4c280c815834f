"""Tensor-core steps: registered once per type, under names of their own."""

from __future__ import annotations

import pytest
import tvm

from schedules.templates.cuda.cuda_wmma import intrinsics


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_step_is_registered(dtype: str) -> None:
    steps = intrinsics(dtype)
    assert sorted(steps) == ["fill", "load_a", "load_b", "store", "sync"]
    for name in steps.values():
        assert name.endswith(dtype)
        assert tvm.s_tir.TensorIntrin.get(name) is not None
