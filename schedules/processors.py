"""Instruction sets and processors as data: a new CPU is one entry of ``PROCESSORS``, and nothing else names it.

Names are LLVM's, as ``-mcpu`` takes them. Flags are the Linux kernel's (``/proc/cpuinfo``; of RISC-V the extensions in
its line ``isa``). Registers are those of 128 bits and more; SVE is not used, since its length is not known when a
kernel is built. RISC-V's vectors are used at the length that a processor has at least (LLVM's ``zvl128b`` and so on).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

AVX2 = frozenset({"avx2", "fma", "bmi1", "bmi2", "f16c"})
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
ICE_LAKE = AVX512 | {"avx512_vnni", "avx512_vbmi2", "avx512_vpopcntdq", "gfni", "vaes", "vpclmulqdq", "clwb"}
AMX = ICE_LAKE | {"amx_tile", "amx_bf16", "amx_int8", "avx512_bf16", "avx512_fp16"}
DOTS = frozenset({"asimd", "asimddp", "asimdhp", "atomics", "lrcpc"})
ARM_MATRIX = DOTS | {"i8mm", "bf16"}
ARM_V2 = ARM_MATRIX | {"sve2", "flagm2", "dgh"}
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class InstructionSet:
    """A level of instructions that code may use.

    Attributes:
        architecture: as the first word of LLVM's triples; empty for code without vectors, which any has.
        vector_bytes: of one vector register.
        registers: vector registers of the architecture.
        flags: that the kernel reports of every processor of this level.
        runs: the level below, whose code processors of this level run as well.
        features: that LLVM must be told of where no processor is named, because the architecture's name promises less.
        abi: how functions are called, where the architecture has several ways.
        lane_operands: whether a multiply-add takes a number from one lane of a register, so that numbers which lie
            together are loaded as one vector. Else it is loaded by itself, or by the multiply-add.
        broadcast_operands: whether an fp32 multiply-add can load a number into all lanes itself.
    """

    architecture: str
    vector_bytes: int
    registers: int
    flags: frozenset[str] = frozenset()
    runs: str = "generic"
    features: tuple[str, ...] = ()
    abi: str = ""
    lane_operands: bool = False
    broadcast_operands: bool = False


RV64 = ("+m", "+a", "+f", "+d", "+c")


INSTRUCTION_SETS = {
    "amx": InstructionSet("x86_64", 64, 32, AMX, "avx512", broadcast_operands=True),
    "avx512": InstructionSet("x86_64", 64, 32, AVX512, "avx2", broadcast_operands=True),
    "avx2": InstructionSet("x86_64", 32, 16, AVX2),
    "neon": InstructionSet("aarch64", 16, 32, lane_operands=True),
    "rvv512": InstructionSet(
        "riscv64", 64, 32, frozenset({"v", "zvl512b"}), "rvv256", (*RV64, "+v", "+zvl512b"), "lp64d"
    ),
    "rvv256": InstructionSet(
        "riscv64", 32, 32, frozenset({"v", "zvl256b"}), "rvv128", (*RV64, "+v", "+zvl256b"), "lp64d"
    ),
    "rvv128": InstructionSet("riscv64", 16, 32, frozenset({"v"}), "rv64", (*RV64, "+v"), "lp64d"),
    "rv64": InstructionSet("riscv64", 16, 32, features=RV64, abi="lp64d"),
    "generic": InstructionSet("", 16, 32, runs=""),
}
"""Level → what it is; of one architecture best first. ``amx`` is AVX-512 plus AMX tiles. ``rv64`` has no vectors: LLVM
makes of one of 16 bytes four numbers."""

ARCHITECTURES = {"arm64": "aarch64", "amd64": "x86_64"}
"""Other names of architectures → LLVM's."""


CODE_FEATURES = {
    **{name: name for name in ("avx2", "fma", "bmi2", "f16c", "movbe", "sse4a", "gfni", "xop", "fma4", "tbm")},
    "bmi": "bmi1",
    "lzcnt": "abm",
    "avxvnni": "avx_vnni",
    **{f"avx512{name}": f"avx512{name}" for name in ("f", "bw", "cd", "dq", "vl", "ifma", "vbmi")},
    **{f"avx512{name}": f"avx512_{name}" for name in ("vnni", "vbmi2", "vpopcntdq", "bitalg", "bf16", "fp16")},
    **{f"amx-{name}": f"amx_{name}" for name in ("tile", "int8", "bf16", "fp16")},
    "dotprod": "asimddp",
    "fullfp16": "asimdhp",
    "fp16fml": "asimdfhm",
    "rdm": "asimdrdm",
    "complxnum": "fcma",
    "lse": "atomics",
    "rcpc": "lrcpc",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "sve": "sve",
    "sve2": "sve2",
    **{name: name for name in ("v", "zvl256b", "zvl512b", "zicond")},
}
"""LLVM's names of instructions that a compiler chooses by itself → the kernel's. Instructions that only intrinsics
give, such as AES, are left out, and those that every processor of a level has, such as SSE4."""


@dataclass(frozen=True)
class Ports:
    """The work that one core can begin in a cycle, in whole vectors of its level.

    Attributes:
        products: name of a multiply-add (``fma`` for fp32, else as ``dots.py`` calls it) → how many begin in a cycle,
            and the cycles until the next can add to the same sum. What is not in it is not known.
        loads: of vectors, or of one number into all lanes.
        width: micro-operations that are renamed; a load that is an operand of another instruction is none.
        window: micro-operations that wait for others at once (the reorder buffer), not of one cycle.
    """

    products: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    loads: float = math.inf
    width: float = math.inf
    window: float = math.inf


@dataclass(frozen=True)
class Processor:
    """A microarchitecture that LLVM has a model of.

    Attributes:
        name: LLVM's.
        isa: the best level that its code may use, a key of ``INSTRUCTION_SETS``.
        flags: that LLVM takes for granted; a name newer than the flags show would let it emit instructions that a CPU
            refuses.
        vendor: as the kernel says it; empty for any.
        l1_bytes, l2_bytes, l3_bytes: data caches of one core, and the shared one of a usual machine (vendors' data
            sheets), for kernels that are built elsewhere.
        ports: what a core begins in a cycle; nothing is known of it by default.
    """

    name: str
    isa: str
    flags: frozenset[str]
    vendor: str = ""
    l1_bytes: int = 32 * KIB
    l2_bytes: int = MIB
    l3_bytes: int = 16 * MIB
    ports: Ports = Ports()

    @property
    def code_flags(self) -> frozenset[str]:
        """Flags of all instructions that LLVM may choose for it."""
        return (self.flags | ALSO.get(self.name, frozenset())) & frozenset(CODE_FEATURES.values())


# Vendors' optimisation manuals; Intel's servers have two units for 512 bits, Zen 4 has one, in halves. Where LLVM's
# models say otherwise, and why we do not: tests/emulation/test_machine_model.py.
HASWELL = Ports({"fma": (2, 5)}, 2, 4, 192)
SKYLAKE_X = Ports({"fma": (2, 4), "vpdpbusd": (2, 5)}, 2, 4, 224)
SUNNY_COVE = Ports({"fma": (2, 4), "vpdpbusd": (2, 5)}, 2, 5, 352)
GOLDEN_COVE = Ports({"fma": (2, 4), "vpdpbusd": (2, 5), "vdpbf16ps": (1, 8)}, 3, 6, 512)
ZEN_2 = Ports({"fma": (2, 5)}, 2, 6, 224)
ZEN_3 = Ports({"fma": (2, 4)}, 2, 6, 256)
ZEN_4 = Ports({"fma": (1, 4), "vpdpbusd": (1, 4), "vdpbf16ps": (1, 6)}, 2, 6, 320)
ZEN_5 = Ports({"fma": (2, 4), "vpdpbusd": (2, 4), "vdpbf16ps": (2, 6)}, 2, 8, 448)
# A sum is passed on to the next product before it is written: the second of the latencies in Arm's guides.
NEOVERSE_N1 = Ports({"fma": (2, 2), "sdot": (2, 1)}, 2, 4, 128)
BYTES_AND_BF16 = {"sdot": 1, "usdot": 1, "bfdot": 2, "usmmla": 1, "bfmmla": 3}
NEOVERSE_V = Ports({"fma": (4, 2), **{name: (4, cycles) for name, cycles in BYTES_AND_BF16.items()}}, 3, 8, 320)
NEOVERSE_N2 = Ports({"fma": (2, 2), **{name: (2, cycles) for name, cycles in BYTES_AND_BF16.items()}}, 3, 5, 160)
CORTEX_A72 = Ports({"fma": (1, 3)}, 1, 3, 128)

AMD = "AuthenticAMD"
ZEN4 = ICE_LAKE | {"avx512_bf16", "clzero"}
PROCESSORS = (
    Processor("graniterapids", "amx", AMX | {"amx_fp16"}, "", 48 * KIB, 2 * MIB, 432 * MIB, GOLDEN_COVE),
    Processor("sapphirerapids", "amx", AMX, "", 48 * KIB, 2 * MIB, 60 * MIB, GOLDEN_COVE),
    Processor("znver5", "avx512", ZEN4 | {"avx_vnni", "movdiri", "movdir64b"}, AMD, 48 * KIB, MIB, 32 * MIB, ZEN_5),
    Processor("znver4", "avx512", ZEN4, AMD, 32 * KIB, MIB, 32 * MIB, ZEN_4),
    Processor("icelake-server", "avx512", ICE_LAKE | {"sha_ni"}, "", 48 * KIB, 1280 * KIB, 48 * MIB, SUNNY_COVE),
    Processor("cascadelake", "avx512", AVX512 | {"avx512_vnni", "clwb"}, "", 32 * KIB, MIB, 32 * MIB, SKYLAKE_X),
    Processor("skylake-avx512", "avx512", AVX512, "", 32 * KIB, MIB, 32 * MIB, SKYLAKE_X),
    Processor("znver3", "avx2", AVX2 | {"clzero", "vaes", "sha_ni"}, AMD, 32 * KIB, 512 * KIB, 32 * MIB, ZEN_3),
    Processor("znver2", "avx2", AVX2 | {"clzero", "clwb", "sha_ni"}, AMD, 32 * KIB, 512 * KIB, 16 * MIB, ZEN_2),
    Processor("haswell", "avx2", AVX2, "", 32 * KIB, 256 * KIB, 8 * MIB, HASWELL),
    Processor("neoverse-v2", "neon", ARM_V2, "", 64 * KIB, 2 * MIB, 32 * MIB, NEOVERSE_V),
    Processor("neoverse-n2", "neon", ARM_MATRIX | {"sve2", "flagm2"}, "", 64 * KIB, MIB, 32 * MIB, NEOVERSE_N2),
    Processor("neoverse-v1", "neon", ARM_MATRIX | {"sve"}, "", 64 * KIB, MIB, 32 * MIB, NEOVERSE_V),
    Processor("neoverse-n1", "neon", DOTS, "", 64 * KIB, MIB, 32 * MIB, NEOVERSE_N1),
    Processor("sifive-x280", "rvv512", frozenset({"v", "zvl256b", "zvl512b"}), "", 32 * KIB, 512 * KIB, 4 * MIB),
    Processor("spacemit-x60", "rvv256", frozenset({"v", "zvl256b", "zicond"}), "", 32 * KIB, 512 * KIB, 512 * KIB),
    Processor("sifive-u74", "rv64", frozenset(), "", 32 * KIB, 2 * MIB, 2 * MIB),
    Processor("cortex-a72", "neon", frozenset({"asimd"}), "", 32 * KIB, 512 * KIB, 8 * MIB, CORTEX_A72),
)
"""Best first within a level."""


_HASWELL = frozenset({"abm", "movbe"})
_ICE_LAKE = _HASWELL | {"avx512ifma", "avx512vbmi", "avx512_bitalg"}
_NEOVERSE = frozenset({"asimdrdm", "asimdfhm", "fcma"})
ALSO = {
    **dict.fromkeys(("haswell", "skylake-avx512", "cascadelake"), _HASWELL),
    **dict.fromkeys(("znver2", "znver3"), _HASWELL | {"sse4a"}),
    **dict.fromkeys(("znver4", "znver5"), _ICE_LAKE | {"sse4a"}),
    **dict.fromkeys(("sapphirerapids", "graniterapids"), _ICE_LAKE | {"avx_vnni"}),
    "icelake-server": _ICE_LAKE,
    "neoverse-n1": frozenset({"asimdrdm"}),
    "neoverse-v1": _NEOVERSE,
    **dict.fromkeys(("neoverse-n2", "neoverse-v2"), _NEOVERSE | {"sve"}),
}
"""Processor → flags of further instructions that LLVM may choose. A virtual machine may hide some, and LLVM is told to
do without those; a processor's ``flags`` tell it from others."""


def levels_of(isa: str) -> tuple[str, ...]:
    """The levels whose code a processor of level ``isa`` runs, best first."""
    levels: list[str] = []
    while isa:
        levels.append(isa)
        isa = INSTRUCTION_SETS[isa].runs
    return tuple(levels)


def processor(name: str) -> Processor | None:
    """The entry of LLVM's ``name``; None for one that is not in the table."""
    return next((entry for entry in PROCESSORS if entry.name == name), None)


def best_processor(isa: str, flags: frozenset[str], vendor: str) -> Processor | None:
    """The best of level ``isa`` whose every flag is among ``flags``; None where none fits."""
    fitting = (p for p in PROCESSORS if p.isa == isa and p.flags <= flags and p.vendor in ("", vendor))
    return next(fitting, None)


def best_levels(architecture: str, flags: frozenset[str]) -> tuple[str, ...]:
    """The levels that code may use on such a machine, best first.

    Args:
        architecture: as the kernel or LLVM names it.
        flags: as the kernel names them.
    """
    here = ARCHITECTURES.get(architecture, architecture)
    return tuple(
        name for name, level in INSTRUCTION_SETS.items() if level.architecture in ("", here) and level.flags <= flags
    )
