"""Opcodes of GPU kernels, and how much of a kernel's loop are products on tensor cores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.backends.cuda.cubin import sections_of

TENSOR_OPCODES = frozenset({0x23C, 0x237})
"""HMMA and IMMA, products on tensor cores: the low 12 bits of an instruction, from sm_80 on."""

BARRIER_OPCODE = 0xB1D


def opcodes(cubin: bytes) -> dict[str, NDArray[np.uint16]]:
    """Return the opcodes of every kernel of ``cubin``, in order: (instructions,) each.

    Raises:
        ArtifactError: if it is no cubin.
    """
    return {
        section.name.removeprefix(".text."): (np.frombuffer(section.data, "<u8")[::2] & 0xFFF).astype(np.uint16)
        for section in sections_of(cubin)
        if section.name.startswith(".text.")
    }


def tensor_share(codes: NDArray[np.uint16]) -> float:
    """Return the share of tensor cores' instructions in the loop of a kernel that has one, 0 without.

    The loop is taken to begin behind the last barrier before the first of them, and to end with the last.
    """
    (tensor,) = np.nonzero(np.isin(codes, list(TENSOR_OPCODES)))
    if not len(tensor):
        return 0.0
    (barriers,) = np.nonzero(codes[: tensor[0]] == BARRIER_OPCODE)
    begin = barriers[-1] + 1 if len(barriers) else 0
    return len(tensor) / float(tensor[-1] + 1 - begin)
