"""Common code of templates: finding the block they are about, and the schedule steps that recur."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import tvm_ffi
from numpy.typing import NDArray
from tvm import s_tir, tirx
from tvm.ir import Call, Var
from tvm.s_tir.schedule import LoopRV, SBlockRV

from schedules.space import Knob
from schedules.templates.instructions.dots import FORMS, DotForm
from schedules.vocabulary.errors import check

Code = TypeVar("Code", bound=object)

REDUCE = 2  # tirx.IterVar.CommReduce
SPATIAL = 0  # tirx.IterVar.DataPar

ITERATIONS = "tune.iterations"
"""Annotation of a block with loops of its own: how many iterations it has with them."""

AT_READER = "tune.at_reader"
"""Annotation of a block of partial sums that is computed where they are added up, in every config."""

SPARE_REGISTERS = 4
"""Vector registers that a product's sums leave for its operands. Heuristic, not measured."""

MOST_BLOCKS = 8
"""Vectors of output channels or columns in a tile. Heuristic, not measured: it bounds the size of the space."""

MOST_UNROLLED = 256
"""Multiply-adds in the unrolled body of a product's innermost loop. Heuristic: carelessly unrolled code compiles for
seconds."""

MOST_JOB_ROWS = 512
"""Rows of a matrix in one parallel job. Heuristic, not measured."""


FEW_THREADS = 2
"""Threads up to which rows of tiles are jobs enough: spaces and first guesses for more threads also divide rows."""

DOUBLED = 5.0
"""Cost of jobs that use half of the threads' time, in units of a template's weight of idle threads. By the cycles of
register tiles, one unit of a template's cost is some 5 % of a kernel's time. Heuristic, not measured."""

MANY_JOBS, MOST_PARTS = 32, 8
"""Jobs per thread that need no further division, and the most parts of a row. Heuristics, not measured."""


@dataclass(frozen=True)
class Repack:
    """How a config wants a weight that the model has packed its own way.

    Attributes:
        name: equal names on one parameter give equal arrays, so that a cache can tell.
        apply: packed array → array of the config's shape.
    """

    name: str
    apply: Callable[[NDArray[Any]], NDArray[Any]] = field(compare=False)


@dataclass(frozen=True)
class Anchor:
    """The block a template is about and the numbers its space is made from.

    Attributes:
        block: the block's name.
        spatial: extents of its spatial axes, in order.
        reduction: extents of its reduction axes, in order.
        epilogue: names of the blocks after it, in order; before them those that it does not read.
        prologue: names of the blocks that it reads, in order.
        shapes: shapes of the function's parameters.
        data, weight: indices of the parameters it reads first and second, -1 where there is none.
        geometry: arguments of the compute, such as strides and padding.
    """

    block: str
    spatial: tuple[int, ...]
    reduction: tuple[int, ...]
    epilogue: tuple[str, ...]
    prologue: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    data: int = -1
    weight: int = -1
    geometry: Mapping[str, Any] = field(default_factory=dict)

    @property
    def padded(self) -> bool:
        """Whether a block named ``pad`` feeds it."""
        return "pad" in self.prologue

    @property
    def plain(self) -> bool:
        """Whether its data is not channel-blocked."""
        return len(self.shapes[self.data]) == 4

    @property
    def form(self) -> DotForm | None:
        """Types that its products multiply, None for float32; then there is one more reduction axis, the innermost."""
        return FORMS.get(self.geometry.get("dot", ""))

    @property
    def groups(self) -> int:
        """Convolution groups."""
        return int(self.geometry.get("groups", 1))

    @property
    def padding(self) -> tuple[int, int, int, int]:
        """Top, left, bottom, right."""
        top, left, bottom, right = self.geometry.get("padding", (0, 0, 0, 0))
        return int(top), int(left), int(bottom), int(right)


@dataclass(frozen=True)
class Placed:
    """A block and the loops around it, outermost first, up to the block that it is in.

    Attributes:
        depth: blocks around it; the root counts.
    """

    realize: s_tir.SBlockRealize
    loops: tuple[tirx.For, ...]
    depth: int


def places(func: tirx.PrimFunc) -> list[Placed]:
    """Every block below the root in program order."""
    placed: list[Placed] = []
    pending: list[tuple[object, tuple[tirx.For, ...], int]] = [(func.body, (), 0)]
    while pending:
        node, loops, depth = pending.pop()
        if isinstance(node, s_tir.SBlockRealize):
            if depth:
                placed.append(Placed(node, loops, depth))
            pending.append((node.block.body, (), depth + 1))
        elif isinstance(node, tirx.For):
            pending.append((node.body, (*loops, node), depth))
        elif isinstance(node, tirx.SeqStmt):
            pending.extend((statement, loops, depth) for statement in reversed(list(node.seq)))
        elif isinstance(node, tirx.While | tirx.AttrStmt):
            pending.append((node.body, loops, depth))
        elif isinstance(node, tirx.IfThenElse):
            pending.extend((branch, loops, depth) for branch in (node.else_case, node.then_case) if branch is not None)
    return placed


def blocks_in_order(func: tirx.PrimFunc) -> list[s_tir.SBlock]:
    """Every block below the root in program order."""
    return [place.realize.block for place in places(func)]


def nodes_below(root: object, kind: type) -> list[Any]:
    """Every node of one kind below ``root``, itself included."""
    nodes: list[Any] = []
    tvm_ffi.structural_walk(root, (kind, nodes.append))  # append returns None, which means: go on
    return nodes


def is_choice(call: Call) -> bool:
    """Return whether ``call`` computes only one of two values."""
    return getattr(call.op, "name", "") == "prim.if_then_else"


def extents(block: s_tir.SBlock, kind: int) -> tuple[int, ...]:
    """Extents of the block's axes of one kind."""
    return tuple(int(axis.dom.extent) for axis in block.iter_vars if axis.iter_type == kind)


def parameter_shapes(func: tirx.PrimFunc) -> tuple[tuple[int, ...], ...]:
    """Shape of every parameter, in order."""
    return tuple(tuple(int(x) for x in param.ty.shape) for param in func.params)


def find_anchor(func: tirx.PrimFunc, op: str) -> Anchor | None:
    """The block marked ``tune.anchor = op``; None if there is none, or what follows it is larger than its result.

    A gate of one number per channel that scales a whole map is such: no tile of the gate holds the map.
    """
    blocks = blocks_in_order(func)
    names = [block.name_hint for block in blocks]
    for index, block in enumerate(blocks):
        if str(block.annotations.get("tune.anchor", "")) != op:
            continue
        if math.prod(extents(blocks[-1], SPATIAL)) > math.prod(extents(block, SPATIAL)):
            return None
        reads = [region.source for region in block.reads]
        if "pad" in names[:index]:
            reads[0] = blocks[names.index("pad")].reads[0].source
        positions = [next((at for at, param in enumerate(func.params) if param.same_as(read)), -1) for read in reads]
        feeding = _feeding(blocks[: index + 1])
        return Anchor(
            block=block.name_hint,
            spatial=extents(block, SPATIAL),
            reduction=extents(block, REDUCE),
            epilogue=(*(name for name in names[:index] if name not in feeding), *names[index + 1 :]),
            prologue=tuple(name for name in names[:index] if name in feeding),
            shapes=parameter_shapes(func),
            data=positions[0],
            weight=positions[1] if len(positions) > 1 else -1,
            geometry=json.loads(str(block.annotations.get("tune.geometry", "{}"))),
        )
    return None


def _feeding(blocks: Sequence[s_tir.SBlock]) -> set[str]:
    """Names of those of ``blocks`` that the last of them reads, directly or through others.

    A residual that is converted before it is added stands before the product; only what follows the product reads it.
    """
    *before, last = blocks
    read, feeding = [region.source for region in last.reads], set[str]()
    for block in reversed(before):
        if any(region.source.same_as(source) for region in block.writes for source in read):
            feeding.add(block.name_hint)
            read += [region.source for region in block.reads]
    return feeding


def about_last(blocks: Sequence[s_tir.SBlock], shapes: tuple[tuple[int, ...], ...]) -> Anchor:
    """The anchor of a function whose last block tells what it computes.

    Args:
        blocks: all of the function's, in program order.
        shapes: of its parameters.
    """
    *before, last = blocks
    prologue = tuple(block.name_hint for block in before)
    return Anchor(last.name_hint, extents(last, SPATIAL), extents(last, REDUCE), (), prologue, shapes)


def divisors(number: int, most: int | None = None) -> tuple[int, ...]:
    """Every divisor up to ``most``, ascending."""
    low = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    every = dict.fromkeys([*low, *(number // d for d in reversed(low))])
    return tuple(d for d in every if most is None or d <= most)


def divisors_of_any(sizes: Iterable[int], most: int) -> tuple[int, ...]:
    """Return the divisors of any of ``sizes``, up to ``most``."""
    return tuple(sorted({divisor for size in sizes for divisor in divisors(size, most)}))


def root_nests(func: tirx.PrimFunc) -> list[tirx.Stmt]:
    """The statements of the root block, in order: where nothing is fused, one nest of loops for each block."""
    body = func.body.block.body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def rooted(nests: Sequence[tirx.Stmt], allocated: Sequence[Var]) -> s_tir.SBlockRealize:
    """The body of a function that runs ``nests`` one after another, with the buffers ``allocated`` between them."""
    body = tirx.SeqStmt(nests) if len(nests) > 1 else nests[0]
    root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=allocated)
    return s_tir.SBlockRealize([], tirx.const(True, "bool"), root)


def nest_of(block: s_tir.SBlock) -> tirx.Stmt:
    """The block within a plain loop over each of its axes."""
    loops = [Var(f"i{number}", axis.var.ty.dtype) for number, axis in enumerate(block.iter_vars)]
    stmt: tirx.Stmt = s_tir.SBlockRealize(loops, tirx.const(True, "bool"), block)
    for loop, axis in zip(reversed(loops), reversed(block.iter_vars), strict=True):
        stmt = tirx.For(loop, tirx.const(0, loop.ty.dtype), axis.dom.extent, tirx.ForKind.SERIAL, stmt)
    return stmt


def renamed(code: Code, names: Mapping[Var, tirx.Expr]) -> Code:
    """``code`` with other variables, tensors among them, or values in place of those that are in ``names``."""
    changed: Code = tvm_ffi.structural_map(code, (Var, lambda var: names.get(var, var)))
    return changed


def axis_loops(sch: s_tir.Schedule, block: SBlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
    """The loops over the spatial axes of ``block`` and those over its other axes, each outermost first.

    Raises:
        ScheduleError: if a loop is not over one axis, as in sorting.
    """
    info, loops = sch.get(block), sch.get_loops(block)
    axes = len(info.iter_vars)
    check(len(loops) == axes, f"block {info.name_hint} has {len(loops)} loops for {axes} axes")
    kinds = [axis.iter_type == SPATIAL for axis in info.iter_vars]
    spatial = [loop for loop, kept in zip(loops, kinds, strict=True) if kept]
    return spatial, [loop for loop, kept in zip(loops, kinds, strict=True) if not kept]


def inline_epilogue(sch: s_tir.Schedule, anchor: Anchor) -> SBlockRV | None:
    """Inline every epilogue block but the last into it; the last, or None if there is no epilogue."""
    for name in anchor.epilogue[:-1]:
        sch.compute_inline(sch.get_sblock(name))
    return sch.get_sblock(anchor.epilogue[-1]) if anchor.epilogue else None


def parallel_outer(sch: s_tir.Schedule, block: SBlockRV, count: int) -> None:
    """Run the outermost ``count`` loops of ``block`` as one parallel loop.

    Raises:
        ScheduleError: if the block has fewer loops.
    """
    loops = sch.get_loops(block)
    check(len(loops) >= count, f"block has {len(loops)} loops, {count} needed to run in parallel")
    sch.parallel(sch.fuse(*loops[:count]))


def balance(jobs: NDArray[Any], threads: int | NDArray[Any]) -> NDArray[np.float64]:
    """Share of the threads' time that is used where equal ``jobs`` are dealt to them; 1 where all end together."""
    used: NDArray[np.float64] = jobs / (np.ceil(jobs / threads) * threads)
    return used


def idle(share: NDArray[np.float64], threads: int, cycles: NDArray[np.float64] | float = 1.0) -> NDArray[np.float64]:
    """Cost of a first guess whose jobs use ``share`` of the time of ``threads`` threads; 0 if they use all of it.

    With many threads a kernel takes ``cycles`` / ``share`` times as long as at best: jobs that keep more threads busy
    are worth smaller tiles only as far as that makes it shorter.

    Args:
        cycles: of its products, as the feature of that name says them.
    """
    cost: NDArray[np.float64] = 1 - share if threads <= FEW_THREADS else DOUBLED * np.log2(cycles / share)
    return cost


def job_parts(sizes: Sequence[int], jobs: int, threads: int) -> tuple[Knob, ...]:
    """Return the knob ``parts``: jobs that one row becomes. There is none if rows are jobs enough for ``threads``.

    Args:
        sizes: numbers that the parts may divide.
        jobs: the most jobs that rows make.
    """
    if threads <= FEW_THREADS or jobs >= MANY_JOBS * threads:
        return ()
    parts = sorted({d for size in sizes for d in divisors(size, MOST_PARTS)})
    return (Knob("parts", tuple(parts), is_feature=False),)
