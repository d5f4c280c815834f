"""First guesses for AArch64 reach the peak of LLVM's machine models, and keep everything in registers."""

from __future__ import annotations

import pytest

from schedules.target import Target
from tests.bench.machine_model import chosen, share, tool

SHAPES = ((64, 64, 56, 1), (512, 2048, 7, 1), (2048, 512, 7, 1), (256, 256, 14, 3))
LEAST = 0.85

needs_model = pytest.mark.skipif(tool() is None, reason="not installed: llvm-mca of LLVM 19 or newer")


@needs_model
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize(
    ("processor", "kind"),
    [
        ("neoverse-n1", "fp32"),
        ("neoverse-v1", "fp32"),
        ("neoverse-n2", "fp32"),
        ("neoverse-n1", "int8"),
        ("neoverse-v1", "int8"),
        ("neoverse-n2", "int8"),
    ],
)
def test_first_guesses_reach_the_model_s_peak(processor: str, kind: str, shape: tuple[int, int, int, int]) -> None:
    target = Target.cpu(processor, 1)
    loop = chosen(kind, shape, target)
    assert share(loop, target, shape[2]) >= LEAST
    assert loop.stack == 0
