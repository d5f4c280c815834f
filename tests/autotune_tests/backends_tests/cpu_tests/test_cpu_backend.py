"""What the CPU's backend refuses, and the code it shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tvm
from tvm import te

from autotune.artifact.directory import Artifact
from autotune.backends.backend_catalog import backend_of
from autotune.backends.cpu import cpu_backend
from autotune.host import machine
from autotune.host.machine import host_target, read_host
from autotune.options import Options
from schedules.lower import BASELINE, normalise, program_of
from schedules.processors import AMX, AVX512, processor
from schedules.target import Target
from schedules.templates.instructions.llvm_target import code_flags
from schedules.vocabulary.errors import ArtifactError


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


def artifact_for(target: Target, cpu: tuple[str, ...] | None = None) -> Artifact:
    """An artifact of nothing, whose code may use the features ``cpu``."""
    return Artifact(Path("x.tuned"), target, (), (), (), None, "", {}, cpu=code_flags(target) if cpu is None else cpu)


def check(artifact: Artifact) -> None:
    backend_of(artifact.target).check_host(artifact)


def test_an_artifact_for_a_lower_instruction_set_runs_here() -> None:
    check(artifact_for(host_target(1)))
    check(artifact_for(Target("llvm", isa="generic")))


def test_an_artifact_for_another_processor_is_refused_in_one_line() -> None:
    with pytest.raises(ArtifactError, match=r"x\.tuned was built for neon and this machine has"):
        check(artifact_for(Target("llvm", isa="neon")))


SKYLAKE_X = replace(
    read_host(), architecture="x86_64", vendor="GenuineIntel", flags=AVX512 | {"movbe", "abm"}, model="Skylake-X"
)


def test_code_for_zen_4_is_refused_on_a_skylake_x_of_the_same_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_backend, "read_host", lambda: SKYLAKE_X)
    check(artifact_for(Target.cpu("skylake-avx512", 2)))
    with pytest.raises(ArtifactError) as caught:
        check(artifact_for(Target.cpu("znver4", 2)))
    message = str(caught.value)
    assert message.startswith("x.tuned was built for znver4, and this machine lacks avx512_bf16, avx512_bitalg")
    assert "avx512_vnni" in message
    assert message.endswith("tune it on this machine")
    assert "\n" not in message


@pytest.mark.parametrize("flag", sorted(code_flags(Target.cpu("znver4", 1))))
def test_each_missing_feature_is_named(monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    needed = code_flags(Target.cpu("znver4", 1))
    generic = replace(SKYLAKE_X, flags=frozenset(needed) - {flag})
    monkeypatch.setattr(cpu_backend, "read_host", lambda: generic)
    with pytest.raises(ArtifactError, match=rf"this machine lacks {flag}; "):
        check(artifact_for(Target("llvm", isa="generic"), needed))


def test_tiles_that_the_system_does_not_permit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = code_flags(Target.cpu("sapphirerapids", 1))
    host = replace(SKYLAKE_X, flags=frozenset(needed) | AMX)
    monkeypatch.setattr(machine, "_may_use_tiles", lambda: False)
    assert machine.missing_features(needed, host) == ["AMX tiles, which the system does not permit"]
    monkeypatch.setattr(machine, "_may_use_tiles", lambda: True)
    assert machine.missing_features(needed, host) == []


@pytest.mark.parametrize("name", ["znver4", "skylake-avx512", "haswell", "sapphirerapids"])
def test_a_machine_runs_what_is_built_for_it_though_it_hides_instructions(name: str) -> None:
    """The kernel of a virtual machine reports less than LLVM takes for granted of the processor's name."""
    entry = processor(name)
    assert entry is not None
    for hidden in entry.code_flags - entry.flags:
        flags = (entry.flags | entry.code_flags) - {hidden}
        host = replace(SKYLAKE_X, vendor=entry.vendor or "GenuineIntel", flags=flags)
        target = host_target(1, host=host)
        assert target.mcpu == name
        assert set(code_flags(target)) <= flags


def test_lanes_are_groups_of_cores() -> None:
    target = Target("llvm", isa="avx2", threads=2)
    lanes = backend_of(target).lanes(Options(lanes="cpu:2x1"), target)
    assert [(lane.first, lane.threads, lane.device) for lane in lanes] == [(0, 1, ""), (1, 1, "")]


def test_the_measurer_is_always_needed_since_it_compiles_what_is_built() -> None:
    target = Target("llvm", isa="avx2")
    assert backend_of(target).measures(Options(frozen=True))
