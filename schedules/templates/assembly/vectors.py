"""The vector registers of an instruction set, and how it spells what kernels are written in.

Kernels are written in AVX-512's instructions, with registers v0, v1, … of any length. AVX2 has most of them under the
same names or another; where it has none, a writer asks what its vectors can do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from schedules.target import Target
from schedules.templates.instructions.llvm_target import features_of

_REGISTER = re.compile(r"\bv(\d+)\b")


class OutOfScope(Exception):  # noqa: N818 - an answer, not an error
    """No assembly is written for this kernel; the compiler makes it."""


@dataclass(frozen=True)
class Vectors:
    """The vector registers that kernels use.

    Attributes:
        prefix: of their names.
        size: bytes of one.
        count: how many there are.
        is_evex: whether instructions are AVX-512's: they spread a number in memory over a vector (``{1to16}``), shift
            what lies in memory, store lanes narrowed, and have masks.
        names: instructions that are called otherwise, pairs of names.
    """

    prefix: str
    size: int
    count: int
    is_evex: bool
    names: tuple[tuple[str, str], ...] = ()

    @property
    def lanes(self) -> int:
        """Numbers of 4 bytes in a vector."""
        return self.size // 4

    def lower_half(self, register: int) -> str:
        """The name of the lower half of a register."""
        return f"{'ymm' if self.is_evex else 'xmm'}{register}"

    def spelt(self, text: str) -> str:
        """``text``, as ``AssemblyText`` lays it out, in the instruction set's own names."""
        text = _REGISTER.sub(rf"{self.prefix}\1", text)
        for name, own in self.names:
            text = text.replace(f"\t{name}\t", f"\t{own}\t")
        return text


AVX512 = Vectors("zmm", 64, 32, True)
AVX2 = Vectors(
    "ymm",
    32,
    16,
    False,
    (
        ("vpxord", "vpxor"),
        ("vpandd", "vpand"),
        ("vpord", "vpor"),
        ("vmovdqu32", "vmovdqu"),
        ("vrndscaleps", "vroundps"),
    ),
)


def vectors_of(target: Target) -> Vectors:
    """Those of ``target``.

    Raises:
        OutOfScope: where no kernel is written for them.
    """
    if target.broadcast_operands:  # AMX is AVX-512 with tiles
        return AVX512
    if target.isa == "avx2" and {"fma", "f16c"} <= features_of(target):
        return AVX2
    raise OutOfScope("another instruction set")
