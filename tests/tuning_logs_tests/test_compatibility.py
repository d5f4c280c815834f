"""Which machine's records may teach another something."""

from __future__ import annotations

import dataclasses

import pytest

from schedules.target import Target
from tuning_logs.compatibility import incompatibility, isa_of, remoteness

SPR = Target("llvm", isa="avx512", mcpu="sapphirerapids", threads=2)
HASWELL = Target("llvm", isa="avx2", mcpu="haswell", threads=2)
ZEN4 = Target("llvm", isa="avx512", mcpu="znver4", threads=2)


@pytest.mark.parametrize(
    ("there", "here", "words"),
    [
        (SPR, SPR, ""),
        (HASWELL, SPR, ""),  # what runs on an ancestor runs here
        (SPR, HASWELL, "isa differs: avx512 there, avx2 here"),
        (dataclasses.replace(SPR, isa="avx2"), HASWELL, "mcpu differs: sapphirerapids there, which haswell here"),
        (dataclasses.replace(SPR, mcpu="skylake-avx512"), SPR, ""),
        (dataclasses.replace(SPR, mcpu="icelake-server"), SPR, ""),
        (SPR, dataclasses.replace(SPR, mcpu="cascadelake"), "mcpu differs"),
        (SPR, dataclasses.replace(SPR, mcpu="graniterapids", isa="amx"), ""),
        (ZEN4, SPR, "mcpu differs: znver4 there"),  # neither descends from the other
        (dataclasses.replace(HASWELL, mcpu="znver2"), ZEN4, ""),
        (dataclasses.replace(SPR, mcpu="madeup"), SPR, "mcpu differs"),
        (dataclasses.replace(SPR, mcpu="madeup"), dataclasses.replace(SPR, mcpu="madeup", threads=4), ""),
        (Target("llvm", isa="generic"), SPR, ""),
        (Target("llvm", isa="generic"), Target("llvm", isa="neon"), ""),
        (Target("llvm", isa="neon"), SPR, "isa differs: neon there"),
        (dataclasses.replace(SPR, features=("+amx-bf16",)), SPR, "features differ: +amx-bf16"),
        (Target("cuda", arch="sm_90"), SPR, "kind differs: cuda there, llvm here"),
        (Target("cuda", arch="sm_90"), Target("cuda", arch="sm_90", max_threads=9), ""),
        (Target("cuda", arch="sm_80"), Target("cuda", arch="sm_90"), "arch differs"),
    ],
)
def test_compatible_machines_follow_archspec(there: Target, here: Target, words: str) -> None:
    reason = incompatibility(there, here)
    assert (reason == "") == (words == "")
    assert words in reason


@pytest.mark.parametrize(
    ("mcpu", "isa"),
    [
        ("sapphirerapids", "amx"),
        ("skylake-avx512", "avx512"),
        ("znver4", "avx512"),
        ("znver2", "avx2"),
        ("haswell", "avx2"),
        ("nehalem", "generic"),
        ("neoverse-n1", "neon"),
        ("madeup", "generic"),
        ("", "generic"),
    ],
)
def test_archspec_knows_the_level_of_a_cpu(mcpu: str, isa: str) -> None:
    assert isa_of(mcpu) == isa


def test_remoteness_is_nothing_for_the_same_machine_and_grows() -> None:
    assert remoteness(SPR, SPR) == 0
    assert remoteness(SPR, dataclasses.replace(SPR, l3_bytes=1)) == 0  # no part of the fingerprint
    other = dataclasses.replace(SPR, l2_bytes=1)
    assert 0 < remoteness(other, SPR) < remoteness(dataclasses.replace(other, threads=4), SPR)
