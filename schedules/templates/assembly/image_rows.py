"""Rows of an image with their borders, copied by assembly: what a convolution's padding is."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Call

from schedules.templates.assembly.assembly_text import VECTOR_BYTES, AssemblyText
from schedules.templates.assembly.elements import OutOfScope
from schedules.templates.common.structure import Anchor, blocks_in_order, nodes_below

FLOAT = 4
"""Bytes of a number."""


@dataclass(frozen=True)
class Image:
    """A convolution's image in float32: its size, and bytes from one number to the next along each axis.

    Attributes:
        channels: one step of ci.
        channel: one step of i.
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
        lanes = 1 if anchor.plain else shape[4]
        plane = height * width * lanes * FLOAT
        channel = plane if anchor.plain else FLOAT
        pixel, channels = lanes * FLOAT, plane * inner // lanes
        return Image(height, width, shape[1] * plane, channels, width * pixel, pixel, channel)


@dataclass(frozen=True)
class BorderedRows:
    """Copies rows of the image ``given`` to rows of ``made``, which has borders of zeros.

    Attributes:
        top, left: rows and pixels before the image.
    """

    given: Image
    made: Image
    top: int
    left: int

    def all_rows(self, code: AssemblyText, source: int, target: int, offset: int) -> None:
        """Row r15 of all planes, from the tensor ``source`` to ``offset`` bytes behind the pointer ``target``."""
        made, given = self.made, self.given
        code.emit(f"mov rdi, [r11+{8 * target}]", f"imul rax, r15, {made.row}", f"lea rdi, [rdi+rax+{offset}]")
        code.emit("mov eax, r15d", "xor edx, edx", f"mov ecx, {made.height}", "div ecx")
        code.emit(f"imul rsi, rax, {given.height * given.row}", f"add rsi, [r11+{8 * source}]", f"sub edx, {self.top}")
        self.copy(code)

    def copy(self, code: AssemblyText) -> None:
        """Row edx of the plane at rsi to rdi, which ends behind it; rax and rcx end elsewhere."""
        made, given = self.made, self.given
        empty, done = code.label("empty"), code.label("done")
        code.emit("xor eax, eax", f"cmp edx, {given.height}", f"jae {empty}", "push rsi")
        code.emit(f"imul rcx, rdx, {given.row}", "add rsi, rcx")
        right = made.width - self.left - given.width
        for pixels, copied in ((self.left, False), (given.width, True), (right, False)):
            _move(code, pixels * made.pixel, copied)
        code.emit("pop rsi", f"jmp {done}")
        code.place(empty)
        _move(code, made.row, copied=False)
        code.place(done)


def _move(code: AssemblyText, count: int, copied: bool) -> None:
    """Write ``count`` bytes at rdi, from rsi or zeros (eax is zero)."""
    if not count:
        return
    if count % VECTOR_BYTES:
        code.emit(f"mov ecx, {count // FLOAT}", f"rep {'movsd' if copied else 'stosd'}")
        return
    if not copied:
        code.emit("vpxord zmm0, zmm0, zmm0")
    with code.repeated("rcx", count // VECTOR_BYTES):
        if copied:
            code.emit("vmovups zmm0, [rsi]", f"add rsi, {VECTOR_BYTES}")
        code.emit("vmovups [rdi], zmm0", f"add rdi, {VECTOR_BYTES}")


def check_image(func: tirx.PrimFunc, anchor: Anchor) -> None:
    """Raise ``OutOfScope`` unless the anchor reads a parameter in vectors of floats, padded by zeros or not at all."""
    if anchor.form is not None or {"span", "dealt"} & set(anchor.geometry) or min(anchor.data, anchor.weight) < 0:
        raise OutOfScope("numbers that are no float32, or do not lie in a row")
    if anchor.spatial[4] * FLOAT != VECTOR_BYTES:
        raise OutOfScope("vectors of another length")
    if anchor.groups > 1 and (anchor.plain or anchor.spatial[1] % anchor.groups):
        raise OutOfScope("groups that share blocks")
    if not anchor.plain and not anchor.reduction[3] == anchor.shapes[anchor.data][4] == anchor.spatial[4]:
        raise OutOfScope("channels that share vectors")
    if set(anchor.prologue) - {"pad"}:
        raise OutOfScope("an image that is computed first")
    if anchor.padded:
        pad = next(block for block in blocks_in_order(func) if block.name_hint == "pad")
        chosen = next(call for call in nodes_below(pad.body, Call) if str(call.op.name).endswith("if_then_else"))
        if not isinstance(chosen.args[2], tirx.FloatImm) or chosen.args[2].value:
            raise OutOfScope("a border that is not zero")
