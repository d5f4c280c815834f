"""Tests in C of the features of the CPU that kernels may use."""

from __future__ import annotations

from autotune.artifact.directory import Artifact

REGISTERS = ("avx2", "avx512f")
"""Features with registers of their own, which the system has to support too: GCC's test looks at both."""

CPUID_BITS = {
    "1, 0, 2": {"fma": 12, "movbe": 22, "f16c": 29},
    "7, 0, 1": {"bmi1": 3, "bmi2": 8, "avx512dq": 17, "avx512ifma": 21, "avx512cd": 28, "avx512bw": 30, "avx512vl": 31},
    "7, 0, 2": {
        "avx512vbmi": 1,
        "avx512_vbmi2": 6,
        "gfni": 8,
        "avx512_vnni": 11,
        "avx512_bitalg": 12,
        "avx512_vpopcntdq": 14,
    },
    "7, 0, 3": {"amx_bf16": 22, "avx512_fp16": 23, "amx_tile": 24, "amx_int8": 25},
    "7, 1, 0": {"avx_vnni": 4, "avx512_bf16": 5, "amx_fp16": 21},
    "0x80000001, 0, 2": {"abm": 5, "sse4a": 6, "xop": 11, "fma4": 16, "tbm": 21},
}
"""Leaf and subleaf of ``cpuid``, and the number of the register → feature → its bit. Older GCCs cannot test all."""

_HWCAP = ("asimdhp", "asimddp", "asimdrdm", "asimdfhm", "fcma", "sve", "atomics", "lrcpc")
HARDWARE_BITS = {
    "x86_64": {
        **{flag: f'__builtin_cpu_supports("{flag}")' for flag in REGISTERS},
        **{flag: f"cpuid_has({where}, {bit})" for where, bits in CPUID_BITS.items() for flag, bit in bits.items()},
    },
    "aarch64": {
        **{flag: f"(getauxval(AT_HWCAP) & HWCAP_{flag.upper()})" for flag in _HWCAP},
        **{flag: f"(getauxval(AT_HWCAP2) & HWCAP2_{flag.upper()})" for flag in ("i8mm", "bf16", "sve2")},
    },
    "riscv64": {"v": "(getauxval(AT_HWCAP) & (1 << ('v' - 'a')))"},
}
"""Architecture → feature → the test of it in C."""


def cpu_needs(artifact: Artifact) -> str:
    """The macro that tests every feature of the CPU that kernels may use."""
    bits = HARDWARE_BITS.get(artifact.target.architecture, {})
    tests = {flag: bits[flag] for flag in artifact.cpu if flag in bits}
    return "#define CPU_NEEDS(need) " + " ".join(f'need({test}, "{flag}")' for flag, test in tests.items())
