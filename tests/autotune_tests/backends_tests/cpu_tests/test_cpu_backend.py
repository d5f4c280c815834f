"""What the CPU's backend refuses, and the code it shows."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm
from tvm import te

from autotune.backends.backend_catalog import backend_of
from autotune.host.machine import host_target
from autotune.options import Options
from schedules.errors import ArtifactError
from schedules.lower import BASELINE, normalise, program_of
from schedules.target import Target


def relu() -> str:
    data = te.placeholder((64,), name="data")
    out = te.compute((64,), lambda i: te.max(data[i], tvm.tirx.const(0, "float32")), name="out")
    return program_of(normalise(te.create_prim_func([data, out])))


@pytest.mark.parametrize(
    ("form", "sign"), [("tir", "T.prim_func"), ("llvm", "define"), ("asm", ".text"), ("loop", "no loop")]
)
def test_code_is_shown_in_every_form(form: str, sign: str) -> None:
    target = host_target(1)
    assert sign in backend_of(target).emit(relu(), BASELINE, target, form)


def test_an_artifact_for_a_lower_instruction_set_runs_here() -> None:
    here = host_target(1)
    backend_of(here).check_host(here, Path("x.tuned"))
    backend_of(here).check_host(Target("llvm", isa="generic"), Path("x.tuned"))


def test_an_artifact_for_another_processor_is_refused_in_one_line() -> None:
    foreign = Target("llvm", isa="neon")
    with pytest.raises(ArtifactError, match=r"x\.tuned was built for neon and this machine has"):
        backend_of(foreign).check_host(foreign, Path("x.tuned"))


def test_lanes_are_groups_of_cores() -> None:
    target = Target("llvm", isa="avx2", threads=2)
    lanes = backend_of(target).lanes(Options(lanes="cpu:2x1"), target)
    assert [(lane.first, lane.threads, lane.device) for lane in lanes] == [(0, 1, ""), (1, 1, "")]


def test_the_measurer_is_always_needed_since_it_compiles_what_is_built() -> None:
    target = Target("llvm", isa="avx2")
    assert backend_of(target).measures(Options(frozen=True))
