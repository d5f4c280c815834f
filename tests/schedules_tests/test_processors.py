"""The table of processors: what LLVM, archspec and the kernel say of its entries."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tvm.target import codegen

from schedules.processors import (
    AMX,
    AVX2,
    CODE_FEATURES,
    INSTRUCTION_SETS,
    PROCESSORS,
    Processor,
    best_levels,
    best_processor,
    levels_of,
    processor,
)
from schedules.target import Target
from schedules.templates.instructions.llvm_target import code_flags
from schedules.vocabulary.errors import UsageError


@pytest.mark.parametrize("entry", PROCESSORS, ids=lambda entry: entry.name)
def test_every_processor_is_one_of_llvm_and_has_what_its_level_needs(entry: Processor) -> None:
    level = INSTRUCTION_SETS[entry.isa]
    assert codegen.llvm_is_valid_cpu(entry.name, f"{level.architecture}-linux-gnu")
    assert level.flags <= entry.flags
    assert processor(entry.name) is entry
    assert best_levels(level.architecture, entry.flags)[0] == entry.isa
    target = Target.cpu(entry.name, 4)
    assert (target.isa, target.mcpu, target.architecture) == (entry.isa, entry.name, level.architecture)


def test_the_best_processor_is_one_whose_every_flag_is_there() -> None:
    best = best_processor("amx", AMX, "GenuineIntel")
    assert best is not None
    assert best.name == "sapphirerapids"
    assert best_processor("avx2", frozenset(), "") is None


def test_a_level_runs_the_code_of_those_below_it() -> None:
    assert levels_of("amx") == ("amx", "avx512", "avx2", "generic")
    assert levels_of("neon") == ("neon", "generic")


def test_levels_are_those_of_the_architecture() -> None:
    assert best_levels("x86_64", AVX2) == ("avx2", "generic")
    assert best_levels("arm64", frozenset()) == ("neon", "generic")
    assert best_levels("riscv64", frozenset({"v", "zvl256b"})) == ("rvv256", "rvv128", "rv64", "generic")
    assert best_levels("riscv64", frozenset("imafdc")) == ("rv64", "generic")
    assert best_levels("s390x", AVX2) == ("generic",)


def test_a_processor_that_is_not_in_the_table_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="'z80': unknown; choose one of graniterapids"):
        Target.cpu("z80", 1)


@pytest.mark.parametrize("entry", PROCESSORS, ids=lambda entry: entry.name)
def test_every_instruction_that_llvm_may_choose_is_in_the_table(entry: Processor) -> None:
    assert set(code_flags(Target.cpu(entry.name, 1))) <= entry.code_flags


@pytest.mark.parametrize(
    "entry", [entry for entry in PROCESSORS if entry.isa in ("amx", "avx512", "avx2")], ids=lambda e: e.name
)
def test_llvm_does_without_an_instruction_that_a_virtual_machine_hides(entry: Processor) -> None:
    whole = set(code_flags(Target.cpu(entry.name, 1)))
    for name, flag in CODE_FEATURES.items():
        if flag in whole - INSTRUCTION_SETS[entry.isa].flags:
            without = replace(Target.cpu(entry.name, 1), features=(f"-{name}",))
            assert flag not in code_flags(without)
