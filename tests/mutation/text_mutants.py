"""A kernel in assembly → the same text with one mistake, of the kinds that a wrong writer makes."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import numpy as np

Line = str
Rng = np.random.Generator
Change = Callable[[Line, Rng, "Vocabulary"], Line | None]

VECTOR = re.compile(r"\b[xyz]mm(\d+)\b")
POINTER = re.compile(r"\b(r[abcd]x|r[sd]i|r(?:8|9|1[0-5]))\b")
MEMORY = re.compile(r"\[([^\]]*)\]")
NUMBER = re.compile(r"(?<![\w.])(\d+)$")

NOT_CHANGED = ("push", "pop", "ret", "vzeroupper")
"""Instructions of the calling convention; without them a kernel hardly ever returns."""

OPCODES = {
    "vaddps": "vsubps",
    "vsubps": "vaddps",
    "vmulps": "vaddps",
    "vdivps": "vmulps",
    "vmaxps": "vminps",
    "vminps": "vmaxps",
    "vfmadd231ps": "vfnmadd231ps",
    "vfnmadd231ps": "vfmadd231ps",
    "vfmadd213ps": "vfmadd231ps",
    "vfnmadd213ps": "vfmadd213ps",
    "vunpcklps": "vunpckhps",
    "vunpckhps": "vunpcklps",
    "vunpcklpd": "vunpckhpd",
    "vunpckhpd": "vunpcklpd",
    "vmovaps": "vaddps",
    "add": "sub",
    "sub": "add",
    "inc": "dec",
}
"""Instruction → one that a writer could take for it."""

JUMPS = {"jge": "jg", "jg": "jge", "jl": "jle", "jle": "jl", "jnz": "jz", "jz": "jnz", "jae": "ja", "je": "jne"}
MOVES = {"cmovg": "cmovl", "cmovl": "cmovg"}

ORDERED = ("vsubps", "vdivps", "vfmadd", "vfnmadd", "vunpck", "vshuf", "vblend", "vperm", "vcmp", "vpsub")
"""How instructions begin whose last two operands cannot be swapped."""


class Vocabulary:
    """Registers that a text uses."""

    def __init__(self, lines: list[Line]) -> None:
        text = "\n".join(lines)
        self.vectors = sorted({int(number) for number in VECTOR.findall(text)})
        self.pointers = sorted(set(POINTER.findall(text)))

    def other(self, choices: list[str], than: str, rng: Rng) -> str | None:
        """Another of ``choices``."""
        rest = [choice for choice in choices if choice != than]
        return rest[int(rng.integers(len(rest)))] if rest else None


def parts(line: Line) -> tuple[str, list[str]]:
    """An instruction's name and operands; no name for labels and directives."""
    _, _, rest = line.partition("\t")
    name, _, operands = rest.partition("\t")
    if not line.startswith("\t") or name.startswith("."):
        return "", []
    return name, [operand.strip() for operand in re.split(r",(?![^\[]*\])", operands)] if operands else []


def joined(name: str, operands: list[str]) -> Line:
    return f"\t{name}\t{', '.join(operands)}" if operands else f"\t{name}"


def _one(pattern: re.Pattern[str], text: str, rng: Rng) -> re.Match[str] | None:
    matches = list(pattern.finditer(text))
    return matches[int(rng.integers(len(matches)))] if matches else None


def _put(text: str, match: re.Match[str], new: str, group: int = 0) -> str:
    return text[: match.start(group)] + new + text[match.end(group) :]


def _vector(line: Line, rng: Rng, words: Vocabulary) -> Line | None:
    match = _one(VECTOR, line, rng)
    new = match and words.other(list(map(str, words.vectors)), match[1], rng)
    return _put(line, match, new, 1) if match and new else None


def _pointer(line: Line, rng: Rng, words: Vocabulary) -> Line | None:
    match = _one(POINTER, line, rng)
    new = match and words.other(words.pointers, match[1], rng)
    return _put(line, match, new) if match and new else None


def _offset(line: Line, rng: Rng, _: Vocabulary) -> Line | None:
    match = _one(re.compile(r"\[[^\]]*\+(\d+)\]"), line, rng)
    return _put(line, match, str(_moved(int(match[1]), rng)), 1) if match else None


def _moved(number: int, rng: Rng) -> int:
    step = int(rng.choice((4, 64)))
    return number - step if number >= step and rng.random() < 0.5 else number + step


def _stride(line: Line, rng: Rng, _: Vocabulary) -> Line | None:
    name, operands = parts(line)
    if name not in ("add", "sub", "imul", "lea") or not operands or operands[0] in ("rsp", "rbp"):
        return None
    match = NUMBER.search(operands[-1])
    if not match:
        return None
    number = int(match[1])
    new = (_moved(number, rng), 2 * number, 0)[int(rng.integers(3))]
    return joined(name, [*operands[:-1], str(new if new != number else number + 64)])


def _scale(line: Line, rng: Rng, _: Vocabulary) -> Line | None:
    match = _one(re.compile(r"\*([1248])\b"), line, rng)
    return _put(line, match, str(rng.choice([n for n in (1, 2, 4, 8) if n != int(match[1])])), 1) if match else None


def _count(line: Line, rng: Rng, _: Vocabulary) -> Line | None:
    name, operands = parts(line)
    match = NUMBER.search(operands[-1]) if name in ("mov", "cmp") and len(operands) == 2 else None
    if not match:
        return None
    number = int(match[1])
    return joined(name, [operands[0], str(number - 1 if number and rng.random() < 0.5 else number + 1)])


def _operands(line: Line, rng: Rng, _: Vocabulary) -> Line | None:
    name, operands = parts(line)
    named = [number for number, operand in enumerate(operands) if VECTOR.fullmatch(operand)]
    if not name.startswith(ORDERED) or len(named) < 2:
        return None
    first, second = named[-2:]
    operands[first], operands[second] = operands[second], operands[first]
    return joined(name, operands)


def _dropped(line: Line, rng: Rng, _: Vocabulary) -> Line | None:
    name, _operands = parts(line)
    return "" if name and name not in NOT_CHANGED else None


def _twice(line: Line, rng: Rng, _: Vocabulary) -> Line | None:
    name, _operands = parts(line)
    return f"{line}\n{line}" if name and name not in (*NOT_CHANGED, "jmp", "call") else None


def _opcode(line: Line, rng: Rng, _: Vocabulary) -> Line | None:
    name, operands = parts(line)
    new = OPCODES.get(name)
    if new is None or operands[:1] in (["rsp"], ["rbp"]):
        return None
    if name == "vmovaps":  # the other has an operand more
        operands = [operands[0], operands[-1], operands[-1]]
    return joined(new, operands)


def _jump(line: Line, rng: Rng, _: Vocabulary) -> Line | None:
    name, operands = parts(line)
    new = {**JUMPS, **MOVES}.get(name)
    return joined(new, operands) if new else None


def _mask(line: Line, rng: Rng, _: Vocabulary) -> Line | None:
    match = _one(re.compile(r"\{k[1-7]\}(\{z\})?"), line, rng)
    if match:
        return _put(line, match, "" if rng.random() < 0.6 else "{k7}")
    name, operands = parts(line)
    if name == "kmovw" and len(operands) == 2:
        return joined(name, operands) + f"\n\tkshiftrw\t{operands[0]}, {operands[0]}, 1"
    return None


def _constant(line: Line, rng: Rng, _: Vocabulary) -> Line | None:
    match = re.fullmatch(r"\t\.long\t(\d+)", line)
    if not match:
        return None
    (value,) = struct.unpack("<f", struct.pack("<I", int(match[1])))
    changed = 0.9 * value if value and np.isfinite(value) else 0.1
    (bits,) = struct.unpack("<I", struct.pack("<f", changed))
    return f"\t.long\t{bits if bits != int(match[1]) else bits + 1}"


def _table(line: Line, rng: Rng, _: Vocabulary) -> Line | None:
    match = re.fullmatch(r"\t\.byte\t(\d+(?:, \d+)+)", line)
    if not match:
        return None
    numbers = match[1].split(", ")
    return f"\t.byte\t{', '.join([*numbers[4:], *numbers[:4]])}"


CHANGES: dict[str, Change] = {
    "another register": _vector,
    "another pointer": _pointer,
    "an offset": _offset,
    "a stride": _stride,
    "an index's scale": _scale,
    "a count off by one": _count,
    "operands swapped": _operands,
    "an instruction lost": _dropped,
    "an instruction twice": _twice,
    "another instruction": _opcode,
    "another condition": _jump,
    "a mask": _mask,
    "a constant": _constant,
    "a table": _table,
}
"""Kind of mistake → how it changes a line; None where it cannot be made there."""


def places(text: str, kind: str) -> list[int]:
    """Numbers of the lines where a mistake of this kind can be made."""
    lines = text.split("\n")
    words = Vocabulary(lines)
    return [n for n, line in enumerate(lines) if CHANGES[kind](line, np.random.default_rng(0), words) is not None]


def random_mistake(text: str, rng: Rng) -> tuple[str, int, str]:
    """Any kind that fits alike, then any of its lines: the kind, the line's number and the changed text."""
    fitting = {kind: numbers for kind in CHANGES if (numbers := places(text, kind))}
    kind = list(fitting)[int(rng.integers(len(fitting)))]
    number = fitting[kind][int(rng.integers(len(fitting[kind])))]
    lines = text.split("\n")
    changed = CHANGES[kind](lines[number], rng, Vocabulary(lines))
    assert changed is not None
    return kind, number, "\n".join([*lines[:number], *([changed] if changed else []), *lines[number + 1 :]])
