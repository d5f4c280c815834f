"""What follows a product, element by element, as instructions on the sums of a tile.

Read from the program: every block behind the anchor computes one element of its result from elements at the same
place, from numbers per channel, and from constants. Anything else is ``OutOfScope``, and left to the compiler.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var
from tvm.ir.expr import TensorLoad

from schedules.templates.assembly.assembly_text import AssemblyText
from schedules.templates.common.structure import Anchor, blocks_in_order


class OutOfScope(Exception):  # noqa: N818 - an answer, not an error
    """No assembly is written for this kernel."""


@dataclass(frozen=True)
class Operand:
    """A tensor that is read.

    Attributes:
        parameter: its number among the kernel's.
        strides: elements from one to the next along each axis of the result; 0 where it has one for all.
    """

    parameter: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Operation:
    """An instruction, and what it is applied to."""

    name: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Sum:
    """The product's own element."""


Node = Operation | Operand | Sum | float

INSTRUCTIONS = {
    tirx.Add: "vaddps",
    tirx.Sub: "vsubps",
    tirx.Mul: "vmulps",
    tirx.Div: "vdivps",
    tirx.Max: "vmaxps",
    tirx.Min: "vminps",
}


POINTERS = ("rax", "rcx", "rdx", "r8", "rsi")
"""Registers for what the epilogue reads."""

FLOAT = 4
"""Bytes of a number."""


class Epilogue:
    """What follows an anchor of channel blocks (n, o, h, w, b), and its result.

    It finds the closure in r11, the number of the first block in r13, and bytes to the first element's place in the
    result in r14. It needs rdi and ``POINTERS``.

    Raises:
        OutOfScope: for what is not written here.
    """

    def __init__(self, func: tirx.PrimFunc, anchor: Anchor) -> None:
        self._node = read_epilogue(func, anchor)
        self._result = len(anchor.shapes) - 1
        self._operands = operands(self._node)
        if len(self._operands) > len(POINTERS):
            raise OutOfScope("more tensors than pointers")
        sizes = anchor.spatial
        dense = tuple(math.prod(sizes[at + 1 :]) if extent > 1 else 0 for at, extent in enumerate(sizes))
        self._alike = {operand: operand.strides == dense for operand in self._operands}
        for operand, alike in self._alike.items():
            if not alike and any(operand.strides[at] for at in (0, 2, 3)):
                raise OutOfScope("a tensor with one number for a row")

    def begin(self, code: AssemblyText) -> None:
        """Get the pointers of a tile."""
        for operand, pointer in zip(self._operands, POINTERS, strict=False):
            code.emit(f"mov {pointer}, [r11+{8 * operand.parameter}]")
            if self._alike[operand]:
                code.emit(f"add {pointer}, r14")
            else:
                code.emit(f"imul rdi, r13, {operand.strides[1] * FLOAT}", f"add {pointer}, rdi")
        code.emit(f"mov rdi, [r11+{8 * self._result}]", "add rdi, r14")

    def store(self, code: AssemblyText, total: int, free: Sequence[int], block: int, place: int) -> None:
        """Write the result of the sum in register ``total``, which may be overwritten.

        Args:
            free: registers that may be used.
            block: number of the element's block in the tile.
            place: bytes from the tile's first element to this one in the result.
        """
        at = {
            operand: f"{pointer}+{place if self._alike[operand] else block * operand.strides[1] * FLOAT}"
            for operand, pointer in zip(self._operands, POINTERS, strict=False)
        }
        result = write_element(code, self._node, total, free, at)
        code.emit(f"vmovups [rdi+{place}], {result}")


def read_epilogue(func: tirx.PrimFunc, anchor: Anchor) -> Node:
    """What the last block of ``func`` writes, as a function of the anchor's element.

    Raises:
        OutOfScope: for anything but element-wise arithmetic of float32.
    """
    blocks = {block.name_hint: block for block in blocks_in_order(func)}
    values: dict[Var, Node] = {blocks[anchor.block].writes[0].source: Sum()}
    last: Node = Sum()
    for name in anchor.epilogue:
        block = blocks[name]
        store = block.body
        if not isinstance(store, tirx.BufferStore) or block.init is not None:
            raise OutOfScope(f"{name} is no plain element")
        axes = [axis.var for axis in block.iter_vars]
        if not _same(store.indices, axes):
            raise OutOfScope(f"{name} writes elsewhere")
        last = _read(store.value, axes, values, list(func.params))
        values[store.buffer] = last
    return last


def _same(indices: Sequence[tirx.Expr], axes: Sequence[Var]) -> bool:
    return len(indices) == len(axes) and all(index.same_as(axis) for index, axis in zip(indices, axes, strict=True))


def _read(value: tirx.Expr, axes: Sequence[Var], known: Mapping[Var, Node], params: Sequence[Var]) -> Node:
    if str(value.ty.dtype) != "float32":
        raise OutOfScope(f"{value.ty.dtype} behind a product")
    if isinstance(value, tirx.FloatImm):
        return float(value.value)
    if isinstance(value, TensorLoad):
        if value.source in known:
            if not _same(value.indices, axes):
                raise OutOfScope("an element of another place")
            return known[value.source]
        return _operand(value, axes, params)
    for kind, name in INSTRUCTIONS.items():
        if isinstance(value, kind):
            return Operation(name, _read(value.a, axes, known, params), _read(value.b, axes, known, params))
    raise OutOfScope(f"{type(value).__name__} behind a product")


def _operand(load: TensorLoad, axes: Sequence[Var], params: Sequence[Var]) -> Operand:
    """A parameter whose axes are those of the result, some of them with one element for all."""
    number = next((at for at, param in enumerate(params) if param.same_as(load.source)), None)
    shape = [int(extent) for extent in load.source.ty.shape]
    if number is None or len(shape) != len(axes):
        raise OutOfScope("a tensor that is computed elsewhere, or has other axes")
    strides, step = [], 1
    for index, axis, extent in reversed(list(zip(load.indices, axes, shape, strict=True))):
        if not index.same_as(axis) and not (isinstance(index, tirx.IntImm) and int(index.value) == 0):
            raise OutOfScope("an element of another place")
        strides.append(step if index.same_as(axis) and extent > 1 else 0)
        step *= extent
    if strides[0] != 1:
        raise OutOfScope("one number for all lanes")
    return Operand(number, tuple(reversed(strides)))


def operands(node: Node) -> list[Operand]:
    """All tensors that ``node`` reads, each once."""
    if isinstance(node, Operation):
        return list(dict.fromkeys(operands(node.left) + operands(node.right)))
    return [node] if isinstance(node, Operand) else []


def write_element(
    code: AssemblyText, node: Node, total: int, free: Sequence[int], places: Mapping[Operand, str]
) -> str:
    """Instructions for ``node`` of the sum in register ``total``, which they may overwrite; the register of the result.

    Args:
        free: registers that may be used.
        places: memory operand of every tensor's vector.

    Raises:
        OutOfScope: if there are too few of them.
    """
    spare = list(free)
    once = _sums(node) < 2

    def taken() -> str:
        if not spare:
            raise OutOfScope("more intermediate results than registers")
        return f"zmm{spare.pop()}"

    def loaded(operand: str) -> str:
        if operand.startswith("zmm"):
            return operand
        register = taken()
        load = "vbroadcastss" if operand.endswith("{1to16}") else "vmovups"
        code.emit(f"{load} {register}, {operand.removesuffix('{1to16}')}")
        return register

    def value(part: Node) -> str:
        if isinstance(part, Sum):
            return f"zmm{total}"
        if isinstance(part, Operand):
            return f"[{places[part]}]"
        if not isinstance(part, Operation):
            return code.constant(part)
        left, right = value(part.left), value(part.right)
        if part.name in ("vaddps", "vmulps") and not left.startswith("zmm"):
            left, right = right, left
        left, of_sum = loaded(left), f"zmm{total}"
        own = [each for each in (left, right) if each.startswith("zmm") and each != of_sum]
        target = own[0] if own else of_sum if once else taken()
        code.emit(f"{part.name} {target}, {left}, {right}")
        spare.extend(int(each.removeprefix("zmm")) for each in own[1:])
        return target

    return loaded(value(node))


def _sums(node: Node) -> int:
    """How often ``node`` uses the sum."""
    return _sums(node.left) + _sums(node.right) if isinstance(node, Operation) else int(isinstance(node, Sum))
