"""Facts that a cubin tells of its kernels without running them: registers, shared and local memory, architecture.

A cubin is an ELF file (NVIDIA, "CUDA Binary Utilities"). Per kernel NAME it has

    .text.NAME        machine code; the upper 8 bits of the section's ``info`` are the registers per thread
    .nv.shared.NAME   static shared memory: its size is the bytes
    .nv.info          for all kernels, records (format, attribute, size, symbol, value)

    EIATTR_REGCOUNT 0x2f, EIATTR_FRAME_SIZE 0x11, EIATTR_MIN_STACK_SIZE 0x12 (as cuobjdump prints them)

A stack frame is local memory: registers that were spilled, or an array that could not be kept in registers. Either
makes a kernel slow for a reason that can be seen before it runs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from schedules.vocabulary.errors import ArtifactError

MAGIC = b"\x7fELF"
CUDA_MACHINE = 190
REGCOUNT, FRAME_SIZE, MIN_STACK_SIZE = 0x2F, 0x11, 0x12
SIZED_VALUE = 0x04  # EIFMT_SVAL: the value follows, its size in the record
RESERVED_BYTES = 1024  # of every block, the system's own; from sm_90 on it counts into the section


@dataclass(frozen=True)
class Kernel:
    """One kernel of a cubin.

    Attributes:
        registers: per thread.
        shared_bytes: static shared memory of a block.
        local_bytes: stack frame of a thread; above 0 something was spilled or indexed.
    """

    name: str
    arch: str
    registers: int
    shared_bytes: int
    local_bytes: int


@dataclass(frozen=True)
class Section:
    """One section of a cubin."""

    name: str
    kind: int
    info: int
    link: int
    data: bytes
    size: int


def inspect(cubin: bytes) -> dict[str, Kernel]:
    """Every kernel of ``cubin`` by name.

    Raises:
        ArtifactError: if it is no cubin.
    """
    sections = list(sections_of(cubin))
    arch = _arch(cubin)
    frames = _frames(sections)
    reserved = RESERVED_BYTES if int(arch[3:]) >= 90 else 0
    shared = {
        s.name.removeprefix(".nv.shared."): max(0, s.size - reserved)
        for s in sections
        if s.name.startswith(".nv.shared.")
    }
    counts = _attributes(sections, REGCOUNT)
    kernels = {}
    for section in sections:
        if not section.name.startswith(".text."):
            continue
        name = section.name.removeprefix(".text.")
        registers = counts.get(name) or section.info >> 24
        kernels[name] = Kernel(name, arch, registers, shared.get(name, 0), frames.get(name, 0))
    return kernels


def _arch(cubin: bytes) -> str:
    """``sm_NN`` from the ELF flags: the low byte until ABI version 7, the second byte from version 8 on."""
    flags = struct.unpack_from("<I", cubin, 48)[0]
    return f"sm_{(flags >> 8) & 0xFF if cubin[8] >= 8 else flags & 0xFF}"


def sections_of(elf: bytes) -> Iterator[Section]:
    """Yield every section of a cubin.

    Raises:
        ArtifactError: if it is none.
    """
    if elf[:4] != MAGIC or len(elf) < 64 or struct.unpack_from("<H", elf, 18)[0] != CUDA_MACHINE:
        raise ArtifactError("the machine code is not a cubin; build the artifact again")
    offset = struct.unpack_from("<Q", elf, 40)[0]
    size, count, names_at = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, offset + index * size) for index in range(count)]
    names = headers[names_at]
    for name_at, kind, _, _, start, length, link, info, _, _ in headers:
        begin = names[4] + name_at
        name = elf[begin : elf.index(b"\0", begin)].decode()
        data = b"" if kind == 8 else elf[start : start + length]  # 8: SHT_NOBITS, as shared memory is
        yield Section(name, kind, info, link, data, length)


def _frames(sections: list[Section]) -> dict[str, int]:
    """Kernel → bytes of its stack frame, with what it calls."""
    frames = _attributes(sections, FRAME_SIZE)
    for name, size in _attributes(sections, MIN_STACK_SIZE).items():
        frames[name] = max(size, frames.get(name, 0))
    return frames


def _attributes(sections: list[Section], wanted: int) -> dict[str, int]:
    """Kernel → its value of one attribute in the common ``.nv.info``."""
    symbols = _symbols(sections)
    by_kernel: dict[str, int] = {}
    for section in sections:
        if section.name != ".nv.info":
            continue
        position = 0
        while position + 4 <= len(section.data):
            form, attribute, size = struct.unpack_from("<BBH", section.data, position)
            position += 4
            if form != SIZED_VALUE:
                continue
            if attribute == wanted and size >= 8:
                symbol, value = struct.unpack_from("<II", section.data, position)
                if symbol < len(symbols):
                    by_kernel[symbols[symbol]] = value
            position += size
    return by_kernel


def _symbols(sections: list[Section]) -> list[str]:
    """Names of the symbol table, by index."""
    table = next((s for s in sections if s.name == ".symtab"), None)
    if table is None:
        return []
    texts = sections[table.link].data
    names = []
    for position in range(0, len(table.data), 24):
        begin = struct.unpack_from("<I", table.data, position)[0]
        names.append(texts[begin : texts.index(b"\0", begin)].decode())
    return names
