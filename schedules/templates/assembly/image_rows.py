"""Rows of an image with their borders, copied by assembly: what a convolution's padding is."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Call

from schedules.templates.assembly.assembly_text import AssemblyText
from schedules.templates.assembly.vectors import OutOfScope, Vectors
from schedules.templates.common.structure import Anchor, blocks_in_order, is_choice, nodes_below

FLOAT = 4
"""Bytes of a number."""

STACK_BYTES = 64 * 1024
"""Most bytes of a job's own rows of the image that lie on the stack; the scheduled program's buffers do the same."""

AT_ONCE, WRITTEN_OUT = 8, 16
"""Vectors of a row that are copied one behind the other in each turn of a loop, and up to how many there is no loop.
Heuristic: a loop of one vector a turn took as long as the products of a depthwise convolution of 7 by 7."""


@dataclass(frozen=True)
class Image:
    """A convolution's image: its size, and bytes from one number to the next along each axis.

    Attributes:
        channels: one step of ci.
        channel: one step of i, which is 4 bytes: a float, or several short numbers.
    """

    height: int
    width: int
    batch: int
    channels: int
    row: int
    pixel: int
    channel: int

    @staticmethod
    def of(anchor: Anchor, height: int, width: int) -> Image:
        """The image of ``anchor`` with so many rows and pixels in a row."""
        shape, inner = anchor.shapes[anchor.data], anchor.reduction[3]
        depth = 1 if anchor.form is None else anchor.form.depth  # numbers of 4 bytes together
        steps = 1 if anchor.plain else shape[4] // depth
        plane = height * width * steps * FLOAT
        channel = plane if anchor.plain else FLOAT
        pixel, channels = steps * FLOAT, plane * inner // steps
        return Image(height, width, shape[1] * plane, channels, width * pixel, pixel, channel)


@dataclass(frozen=True)
class BorderedRows:
    """Copies rows of the image ``inner`` to rows of ``outer``, which has borders.

    Attributes:
        top, left: rows and pixels before the image.
        border: what the borders hold, as 4 bytes.
    """

    inner: Image
    outer: Image
    top: int
    left: int
    border: int = 0

    def all_rows(self, code: AssemblyText, source: int, target: int, offset: int) -> None:
        """Row r15 of all planes, from the tensor ``source`` to ``offset`` bytes behind the pointer ``target``."""
        outer, inner = self.outer, self.inner
        code.emit(f"mov rdi, [r11+{8 * target}]", f"imul rax, r15, {outer.row}", f"lea rdi, [rdi+rax+{offset}]")
        code.emit("mov eax, r15d", "xor edx, edx", f"mov ecx, {outer.height}", "div ecx")
        code.emit(f"imul rsi, rax, {inner.height * inner.row}", f"add rsi, [r11+{8 * source}]", f"sub edx, {self.top}")
        self.copy(code)

    def copy(self, code: AssemblyText) -> None:
        """Row edx of the plane at rsi to rdi, which ends behind it; rax and rcx end elsewhere."""
        outer, inner = self.outer, self.inner
        empty, done = code.label("empty"), code.label("done")
        code.emit(f"mov eax, {self.border}", f"cmp edx, {inner.height}", f"jae {empty}", "push rsi")
        code.emit(f"imul rcx, rdx, {inner.row}", "add rsi, rcx")
        right = outer.width - self.left - inner.width
        for pixels, copied in ((self.left, False), (inner.width, True), (right, False)):
            _move(code, pixels * outer.pixel, copied)
        code.emit("pop rsi", f"jmp {done}")
        code.place(empty)
        _move(code, outer.row, copied=False)
        code.place(done)


def _move_vectors(code: AssemblyText, count: int, copied: bool) -> None:
    """Write ``count`` vectors at rdi: from rsi, or v0 over and over."""
    size = code.vectors.size
    if copied:
        code.emit(
            *(f"vmovups v{register}, [rsi+{register * size}]" for register in range(count)), f"add rsi, {count * size}"
        )
    stored = range(count) if copied else [0] * count
    code.emit(
        *(f"vmovups [rdi+{at * size}], v{register}" for at, register in enumerate(stored)), f"add rdi, {count * size}"
    )


def _move(code: AssemblyText, count: int, copied: bool) -> None:
    """Write ``count`` bytes, a multiple of 4, at rdi: from rsi, or eax over and over."""
    size = code.vectors.size
    vectors, rest = divmod(count, size)
    if not copied and count:
        code.emit(*(["vpbroadcastd v0, eax"] if code.vectors.is_evex else ["vmovd xmm0, eax", "vpbroadcastd v0, xmm0"]))
    turns, left = divmod(vectors, AT_ONCE) if vectors > WRITTEN_OUT else (0, vectors)
    if turns:
        with code.repeated("rcx", turns):
            _move_vectors(code, AT_ONCE, copied)
    while left:
        _move_vectors(code, min(left, AT_ONCE), copied)
        left -= min(left, AT_ONCE)
    for part, register in ((32, "ymm0"), (16, "xmm0"), (8, "xmm0"), (4, "xmm0")):
        if not rest & part:
            continue
        move = {8: "vmovq", 4: "vmovd"}.get(part, "vmovups")
        if copied:
            code.emit(f"{move} {register}, [rsi]", f"add rsi, {part}")
        code.emit(f"{move} [rdi], {register}", f"add rdi, {part}")


def border_of(func: tirx.PrimFunc) -> int:
    """Return the content of a convolution's padding, as 4 bytes.

    Raises:
        OutOfScope: if that is no number that is known.
    """
    pad = next(block for block in blocks_in_order(func) if block.name_hint == "pad")
    chosen = next(filter(is_choice, nodes_below(pad.body, Call)))
    border, dtype = chosen.args[2], str(chosen.ty.dtype)
    if isinstance(border, tirx.IntImm) and dtype in ("uint8", "int8"):
        return (int(border.value) & 0xFF) * 0x01010101
    if isinstance(border, tirx.FloatImm | tirx.IntImm) and not border.value:
        return 0
    raise OutOfScope("a border that is not zero")


def check_image(anchor: Anchor, vectors: Vectors) -> None:
    """Raise ``OutOfScope`` unless the anchor reads a parameter whose channels lie in a row, and computes vectors."""
    if {"span", "dealt"} & set(anchor.geometry) or min(anchor.data, anchor.weight) < 0:
        raise OutOfScope("channels that do not lie in a row")
    if anchor.spatial[4] != vectors.lanes:
        raise OutOfScope("vectors of another length")
    if anchor.groups > 1 and (anchor.plain or anchor.spatial[1] % anchor.groups):
        raise OutOfScope("groups that share blocks")
    depth = 1 if anchor.form is None else anchor.form.depth
    together = 1 if anchor.plain else anchor.shapes[anchor.data][4]
    if depth > 1 if anchor.plain else anchor.reduction[3] * depth != together:
        raise OutOfScope("channels that share vectors")
    if min(anchor.padding) < 0:
        raise OutOfScope("a border that cuts the image")
    if set(anchor.prologue) - {"pad"}:
        raise OutOfScope("an image that is computed first")
