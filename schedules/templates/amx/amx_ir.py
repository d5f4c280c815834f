"""Products of matrices in AMX tile registers, as LLVM functions that are inlined where they are called.

A tile register holds up to 16 rows of 64 bytes. One instruction multiplies a tile of numbers (m rows of 64 bytes) by a
tile of weights (16 rows of 16 columns, the Q numbers of a column together) and adds to a tile of sums (m rows of 16).
The registers are fixed here, for LLVM allocates no tiles of variable shape well (llvm-project#110190):

    tiles 0–3          sums, of p tiles of numbers by o tiles of weights: p·o ≤ 4
    tiles 4, 5 / 6, 7  numbers (m rows) / weights (16 rows), loaded for one step of the sum

    tune_amx_begin_<m>()                                                 the shapes of the tiles, for this thread
    tune_amx_zero_<p>x<o>()                                              sums = 0
    tune_amx_add_<form>_<p>x<o>(numbers, from, next, pitch, weights, next)   sums += numbers · weights
    tune_amx_store_<p>x<o>(to, from, next tile, next column)             sums to memory, rows of 64 bytes
    tune_amx_ahead_<n>(weights, from)                                    n lines of 64 bytes are fetched into L2
    tune_amx_end()

Steps are in bytes. The system lets a process use tiles once it has asked; ``begin`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SYMBOL = re.compile(r"tune_amx_(begin|zero|add|ahead|store|end)(?:_(bf16|u8s8))?(?:_(\d+))?(?:x(\d+))?")

PRODUCTS = {"bf16": "tdpbf16ps", "u8s8": "tdpbusd"}
"""Form of ``dots`` → instruction."""

FEATURES = {"bf16": {"amx-tile", "amx-bf16"}, "u8s8": {"amx-tile", "amx-int8"}}
"""Form → as LLVM calls what the processor needs."""

MOST_ROWS = 16
"""Rows of a tile, and columns of sums: 64 bytes of 4."""

ROW_BYTES = 64

MOST_SUMS = 4
"""Tiles of sums; the other four are for operands."""

NUMBERS, WEIGHTS = (4, 5), (6, 7)

BEGIN = """
@{symbol}_shapes = linkonce_odr constant [64 x i8] {shapes}, align 64
@{symbol}_asked = linkonce_odr global i8 0
define linkonce_odr i32 @{symbol}() alwaysinline {{
  %asked = load i8, ptr @{symbol}_asked
  %known = icmp ne i8 %asked, 0
  br i1 %known, label %begin, label %ask
ask:
  %r = call i64 asm sideeffect "syscall",
    "={{rax}},{{rax}},{{rdi}},{{rsi}},~{{rcx}},~{{r11}},~{{memory}}"(i64 158, i64 4131, i64 18)
  store i8 1, ptr @{symbol}_asked
  br label %begin
begin:
  call void @llvm.x86.ldtilecfg(ptr @{symbol}_shapes)
  ret i32 0
}}
"""
"""The first time asks with Linux's ``arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)``, for all threads of the process. A
constructor would do, but TVM's JIT does not find one."""

FUNCTION = """
define linkonce_odr i32 @{symbol}({parameters}) alwaysinline {{
{body}
  ret i32 0
}}
"""

DECLARED = {
    "begin": "declare void @llvm.x86.ldtilecfg(ptr)",
    "end": "declare void @llvm.x86.tilerelease()",
    "zero": "declare void @llvm.x86.tilezero(i8 immarg)",
    "store": "declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)",
    "ahead": "declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)",
    "add": "declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)",
}


def definitions(called: Iterable[str]) -> list[str]:
    """Texts in LLVM's language for those of the ``called`` functions that are described here."""
    matches = [match for match in map(SYMBOL.fullmatch, sorted(set(called))) if match]
    declared = dict.fromkeys(DECLARED[match[1]] for match in matches)
    declared |= {
        f"declare void @llvm.x86.{PRODUCTS[match[2]]}(i8 immarg, i8 immarg, i8 immarg)": None
        for match in matches
        if match[2]
    }
    texts = [_definition(match) for match in matches]
    return [*declared, *texts]


def _definition(match: re.Match[str]) -> str:
    symbol, (kind, form, first, second) = match[0], match.groups()
    if kind == "begin":
        return BEGIN.format(symbol=symbol, shapes=_shapes(int(first)))
    if kind == "end":
        return FUNCTION.format(symbol=symbol, parameters="", body="  call void @llvm.x86.tilerelease()")
    if kind == "ahead":
        lines = ["  %base = getelementptr i8, ptr %w, i32 %from"]
        for line in range(int(first)):
            more, address = _at(f"l{line}", "%base", "%next", line)
            lines += [*more, f"  call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 2, i32 1)"]
        return FUNCTION.format(symbol=symbol, parameters="ptr %w, i32 %from, i32 %next", body="\n".join(lines))
    rows, columns = int(first), int(second)
    if kind == "zero":
        lines = [f"  call void @llvm.x86.tilezero(i8 {tile})" for tile in range(rows * columns)]
        return FUNCTION.format(symbol=symbol, parameters="", body="\n".join(lines))
    if kind == "store":
        return FUNCTION.format(
            symbol=symbol, parameters="ptr %to, i32 %from, i32 %next, i32 %column", body=_store(rows, columns)
        )
    parameters = "ptr %x, i32 %from, i32 %next, i32 %pitch, ptr %w, i32 %column"
    return FUNCTION.format(symbol=symbol, parameters=parameters, body=_add(PRODUCTS[form], rows, columns))


def _shapes(rows: int) -> str:
    """The 64 bytes of ``ldtilecfg``: palette 1; from byte 16 bytes of a row, from byte 48 rows of each tile."""
    text = bytearray(64)
    text[0] = 1
    for tile in range(8):
        text[16 + 2 * tile] = ROW_BYTES
        text[48 + tile] = MOST_ROWS if tile in WEIGHTS else rows
    return "[" + ", ".join(f"i8 {byte}" for byte in text) + "]"


def _at(name: str, base: str, step: str, count: int) -> tuple[list[str], str]:
    """Lines that compute ``base`` + ``count`` · ``step`` bytes, and its name."""
    if not count:
        return [], base
    return [
        f"  %{name}o = mul i32 {step}, {count}",
        f"  %{name} = getelementptr i8, ptr {base}, i32 %{name}o",
    ], f"%{name}"


def _add(product: str, rows: int, columns: int) -> str:
    """The order keeps two operands apart from those that are being multiplied, so that loads run ahead."""
    lines, loaded = ["  %x0 = getelementptr i8, ptr %x, i32 %from", "  %pitchl = zext i32 %pitch to i64"], set[str]()

    def operand(kind: str, at: int) -> int:
        base, step, pitch, tiles = (
            ("%x0", "%next", "%pitchl", NUMBERS) if kind == "a" else ("%w", "%column", "64", WEIGHTS)
        )
        tile = tiles[at % 2]
        if f"{kind}{at}" not in loaded:
            more, address = _at(f"{kind}{at}", base, step, at)
            lines.extend([*more, f"  call void @llvm.x86.tileloadd64(i8 {tile}, ptr {address}, i64 {pitch})"])
            loaded.add(f"{kind}{at}")
        return tile

    for row in range(rows):
        for column in range(columns):
            numbers, weights = operand("a", row), operand("b", column)
            lines.append(f"  call void @llvm.x86.{product}(i8 {row * columns + column}, i8 {numbers}, i8 {weights})")
    return "\n".join(lines)


def _store(rows: int, columns: int) -> str:
    lines = ["  %base = getelementptr i8, ptr %to, i32 %from"]
    for column in range(columns):
        more, base = _at(f"c{column}", "%base", "%column", column)
        lines += more
        for row in range(rows):
            more, address = _at(f"c{column}r{row}", base, "%next", row)
            lines += [*more, f"  call void @llvm.x86.tilestored64(i8 {row * columns + column}, ptr {address}, i64 64)"]
    return "\n".join(lines)
