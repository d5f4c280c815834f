"""Target: the machine a kernel is built for, as plain data."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace

from schedules.processors import INSTRUCTION_SETS, PROCESSORS, processor
from schedules.vocabulary.bounded import DAMAGE, parsed_json
from schedules.vocabulary.errors import UsageError

CUDA_ARCHS = {
    # arch: (multiprocessors, L2 bytes, shared memory that one block can get)
    "sm_80": (108, 40 << 20, 163 * 1024),  # A100
    "sm_86": (84, 6 << 20, 99 * 1024),  # A40, RTX 3090
    "sm_89": (142, 96 << 20, 99 * 1024),  # L40
    "sm_90": (132, 50 << 20, 227 * 1024),  # H100, H200
}
"""CUDA architectures that kernels are built for, with the multiprocessors, the L2 bytes and the largest shared memory
of a block on their usual device (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability")."""

CUDA_REGISTERS = 64 * 1024  # of one multiprocessor, and of one block, on all of these
CUDA_BLOCK_THREADS = 1024

_MOST = {"threads": 1 << 20, "max_threads": 1 << 20, "registers": 1 << 30}
_MOST |= dict.fromkeys(("l1_bytes", "l2_bytes", "l3_bytes", "shared_bytes"), 1 << 50)
"""Largest numbers of a target."""

_WORD = re.compile(r"[\w.+\-]{0,100}")
"""How LLVM and CUDA name processors and features."""

MOST_DEPTH = 2
"""Nesting of a target's JSON."""


@dataclass(frozen=True)
class Target:
    """The machine that code is for: what code may use and what it must fit.

    Attributes:
        kind: ``llvm`` or ``cuda``.
        isa: instruction-set level, a key of ``processors.INSTRUCTION_SETS``; empty on CUDA.
        mcpu: LLVM's name of the microarchitecture, such as ``sapphirerapids``; empty on CUDA.
        features: LLVM feature flags (``+avx512f``) given on top of ``mcpu``.
        threads: threads a kernel runs on; on CUDA the multiprocessors, which are what blocks are spread over.
        l1_bytes, l2_bytes, l3_bytes: data cache sizes, of one core for the first two, shared for the last.
        arch: CUDA architecture such as ``sm_90``; empty on a CPU.
        shared_bytes, registers, max_threads: limits of one CUDA block; 0 on a CPU.
    """

    kind: str
    isa: str = ""
    mcpu: str = ""
    features: tuple[str, ...] = ()
    threads: int = 1
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 1024 * 1024
    l3_bytes: int = 16 * 1024 * 1024
    arch: str = ""
    shared_bytes: int = 0
    registers: int = 0
    max_threads: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("llvm", "cuda"):
            raise UsageError(f"target kind is {self.kind!r}; it must be 'llvm' or 'cuda'")
        if self.kind == "llvm" and self.isa not in INSTRUCTION_SETS:
            known = ", ".join(sorted(INSTRUCTION_SETS))
            raise UsageError(f"instruction set {self.isa!r}: unknown; choose one of {known}")
        if self.threads < 1:
            raise UsageError(f"threads is {self.threads}; it must be at least 1")
        for name, most in _MOST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 <= value <= most:
                raise UsageError(f"{name} is {value}; it must be a whole number of at most {most}")
        texts = (self.mcpu, self.arch, *self.features)
        if not all(isinstance(text, str) and _WORD.fullmatch(text) for text in texts):
            raise UsageError(f"a target's mcpu, arch and features are words of LLVM's, got {ascii(texts)[:120]}")

    @property
    def vector_bytes(self) -> int:
        """Bytes of one vector register."""
        return INSTRUCTION_SETS[self.isa or "generic"].vector_bytes

    @property
    def vector_registers(self) -> int:
        """Architectural vector registers."""
        return INSTRUCTION_SETS[self.isa or "generic"].registers

    @property
    def lane_operands(self) -> bool:
        """See ``InstructionSet``."""
        return INSTRUCTION_SETS[self.isa or "generic"].lane_operands

    @property
    def broadcast_operands(self) -> bool:
        """See ``InstructionSet``."""
        return INSTRUCTION_SETS[self.isa or "generic"].broadcast_operands

    @property
    def architecture(self) -> str:
        """As the first word of LLVM's triples, such as ``aarch64``; empty where any will do, and on CUDA."""
        return INSTRUCTION_SETS[self.isa].architecture if self.isa else ""

    def lanes(self, dtype_bytes: int = 4) -> int:
        """Elements of ``dtype_bytes`` bytes in one vector register."""
        return self.vector_bytes // dtype_bytes

    @property
    def fingerprint(self) -> str:
        """Short name under which measurements of this target are kept apart from all others.

        Every field takes part except the shared cache: on rented machines its size can change while the code and
        its speed class stay the same.
        """
        fields = asdict(replace(self, l3_bytes=0))
        digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:10]
        label = self.arch if self.kind == "cuda" else f"{self.isa}-{self.mcpu or 'generic'}-{self.threads}t"
        return f"{self.kind}-{label}-{digest}"

    @staticmethod
    def cpu(name: str, threads: int) -> Target:
        """The target of a processor by LLVM's name, as ``processors.PROCESSORS`` describes it.

        Raises:
            UsageError: for a processor that is not in the table.
        """
        described = processor(name)
        if described is None:
            known = ", ".join(listed.name for listed in PROCESSORS)
            raise UsageError(f"processor {name!r}: unknown; choose one of {known}")
        caches = described.l1_bytes, described.l2_bytes, described.l3_bytes
        return Target("llvm", described.isa, name, (), threads, *caches)

    @staticmethod
    def cuda(arch: str, multiprocessors: int | None = None) -> Target:
        """The target of a CUDA device.

        Args:
            arch: such as ``sm_90``; a trailing letter (``sm_90a``) is dropped, kernels need none of its extras.
            multiprocessors: of the device at hand; None takes the architecture's usual device.

        Raises:
            UsageError: for an architecture that is not in ``CUDA_ARCHS``.
        """
        plain = arch.rstrip("af")
        if plain not in CUDA_ARCHS:
            raise UsageError(f"CUDA arch {arch!r}: not supported; choose one of {', '.join(CUDA_ARCHS)}")
        usual, l2_bytes, shared_bytes = CUDA_ARCHS[plain]
        return Target(
            kind="cuda",
            threads=multiprocessors or usual,
            l1_bytes=shared_bytes,
            l2_bytes=l2_bytes,
            l3_bytes=0,
            arch=plain,
            shared_bytes=shared_bytes,
            registers=CUDA_REGISTERS,
            max_threads=CUDA_BLOCK_THREADS,
        )

    def to_json(self) -> str:
        """One line of JSON; ``from_json`` reads it back."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Target:
        """Inverse of ``to_json``; absent fields take their defaults.

        Raises:
            UsageError: if the text is not a JSON object or names an unknown field.
        """
        try:
            data = parsed_json(text, MOST_DEPTH)
            data["features"] = tuple(data.get("features", ()))
            return Target(**data)
        except DAMAGE as error:
            known = ", ".join(Target.__dataclass_fields__)
            raise UsageError(f"not a target: {text[:120]!r} ({error}); give a JSON object with {known}") from error
