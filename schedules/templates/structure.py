"""What templates share: finding the block they are about, and the schedule steps that recur."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir, tirx

from schedules.errors import ScheduleError

REDUCE = 2  # tirx.IterVar.CommReduce
SPATIAL = 0  # tirx.IterVar.DataPar


@dataclass(frozen=True)
class Anchor:
    """The block a template is about and the numbers its space is made from.

    Attributes:
        block: the block's name.
        spatial: extents of its spatial axes, in order.
        reduction: extents of its reduction axes, in order.
        padded: whether a block named ``pad`` feeds it.
        plain: whether its data is not channel-blocked (rank 4).
        groups: convolution groups.
        epilogue: names of the blocks after it, in order.
        prologue: names of the blocks before it, in order.
        shapes: shapes of the function's parameters.
    """

    block: str
    spatial: tuple[int, ...]
    reduction: tuple[int, ...]
    padded: bool
    plain: bool
    groups: int
    epilogue: tuple[str, ...]
    prologue: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]


def blocks_in_order(func: tirx.PrimFunc) -> list[s_tir.SBlock]:
    """Every block below the root in program order."""
    found: list[s_tir.SBlock] = []
    pending: list[object] = [func.body]
    while pending:
        node = pending.pop()
        if isinstance(node, s_tir.SBlockRealize):
            if node.block.name_hint != "root":
                found.append(node.block)
            pending.append(node.block.body)
        elif isinstance(node, tirx.SeqStmt):
            pending.extend(reversed(list(node.seq)))
        elif isinstance(node, tirx.For | tirx.While | tirx.LetStmt | tirx.AttrStmt):
            pending.append(node.body)
        elif isinstance(node, tirx.IfThenElse):
            pending.extend(branch for branch in (node.else_case, node.then_case) if branch is not None)
    return found


def extents(block: s_tir.SBlock, kind: int) -> tuple[int, ...]:
    """Extents of the block's axes of one kind."""
    return tuple(int(axis.dom.extent) for axis in block.iter_vars if axis.iter_type == kind)


def parameter_shapes(func: tirx.PrimFunc) -> tuple[tuple[int, ...], ...]:
    """Shape of every parameter, in order."""
    return tuple(tuple(int(x) for x in param.ty.shape) for param in func.params)


def find_anchor(func: tirx.PrimFunc, op: str) -> Anchor | None:
    """The block marked ``tune.anchor = op``, or None."""
    blocks = blocks_in_order(func)
    names = [block.name_hint for block in blocks]
    for index, block in enumerate(blocks):
        if str(block.annotations.get("tune.anchor", "")) == op:
            return Anchor(
                block=block.name_hint,
                spatial=extents(block, SPATIAL),
                reduction=extents(block, REDUCE),
                padded="pad" in names[:index],
                plain=len(block.reads[0].source.ty.shape) == 4,
                groups=int(func.attrs.get("tune.groups", 1)) if func.attrs else 1,
                epilogue=tuple(names[index + 1 :]),
                prologue=tuple(names[:index]),
                shapes=parameter_shapes(func),
            )
    return None


def divisors(number: int) -> tuple[int, ...]:
    """Every divisor, ascending."""
    return tuple(d for d in range(1, number + 1) if number % d == 0)


def inline_epilogue(sch: s_tir.Schedule, anchor: Anchor) -> s_tir.schedule.SBlockRV | None:
    """Inline every epilogue block but the last into it; the last, or None if there is no epilogue."""
    for name in anchor.epilogue[:-1]:
        sch.compute_inline(sch.get_sblock(name))
    return sch.get_sblock(anchor.epilogue[-1]) if anchor.epilogue else None


def parallel_outer(sch: s_tir.Schedule, block: s_tir.schedule.SBlockRV, count: int) -> None:
    """Run the outermost ``count`` loops of ``block`` as one parallel loop."""
    loops = sch.get_loops(block)
    if len(loops) < count:
        raise ScheduleError(f"block has {len(loops)} loops, {count} needed to run in parallel")
    sch.parallel(sch.fuse(*loops[:count]))


def unroll_tile(sch: s_tir.Schedule, block: s_tir.schedule.SBlockRV, count: int) -> None:
    """Vectorise the innermost loop of ``block`` and unroll the ``count`` - 1 around it."""
    loops = sch.get_loops(block)
    sch.vectorize(loops[-1])
    for loop in loops[-count:-1]:
        sch.unroll(loop)
