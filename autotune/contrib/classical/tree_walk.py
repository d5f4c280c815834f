"""Walking all trees of an ensemble from their roots to leaves, in one kernel."""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax, tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from autotune.importer.rewriting.registry import OPAQUE_PATTERN, Inputs, converts
from schedules.templates import scripted

COMPARISONS = {
    "BRANCH_LEQ": tirx.LE,
    "BRANCH_LT": tirx.LT,
    "BRANCH_GTE": tirx.GE,
    "BRANCH_GT": tirx.GT,
    "BRANCH_EQ": tirx.EQ,
    # TVM's ``!=`` is false of NaN, as its ``==`` is.
    "BRANCH_NEQ": lambda value, threshold: tirx.any(value < threshold, value > threshold, tirx.isnan(value)),
}
"""Mode of a node → what compares a feature with its threshold."""

MODES = (*COMPARISONS, "BRANCH_MEMBER")
"""In the order in which ``TreeEnsemble`` numbers them."""

MEMBER = MODES.index("BRANCH_MEMBER")

WALK = "WalkTrees"

TABLES = ("nodes", "threshold", "roots", "members")
"""Inputs of ``WALK`` behind the rows: (5, M) int32, a row for each of the fields below; (M,); (T,) int32; (M, K) or,
where there are no members, anything of two axes."""

FIELDS = ("feature", "true", "false", "mode", "missing")
"""Fields of a node: what it compares, where its branches lead, its mode by number, whether NaN is true."""

FEATURE, TRUE, FALSE, MODE, MISSING = range(len(FIELDS))


@converts(WALK)
def walk_trees(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Rows (N, features) and ``TABLES`` → (N, T) int32, the leaves that N rows reach in T trees.

    Args:
        attrs: ``depth`` in steps; ``modes``, the numbers of those that there are; ``missing``, whether NaN counts.
    """
    operands = [operand for operand in inputs if operand is not None]
    shapes = [tuple(int(size) for size in operand.ty.shape) for operand in operands]
    tables = dict(zip(TABLES, shapes[1:], strict=True))
    modes = [int(mode) for mode in attrs["modes"]]
    real = str(operands[0].ty.dtype)
    func = walk(shapes[0], tables, real, int(attrs["depth"]), modes, bool(attrs["missing"]))
    kernel = bb.add_func(func.without_attr("global_symbol"), "walk_trees")
    result_type = relax.TensorType((shapes[0][0], tables["roots"][0]), "int32")
    return bb.emit(relax.op.call_tir(kernel, relax.Tuple(operands), result_type))


def _branch(kinds: Sequence[int], with_nan: bool, members: int) -> Callable[..., Any]:
    """Whether a value takes a node's true branch, as an expression; arguments as of ``walk``.

    Args:
        members: numbers that a node of kind ``MEMBER`` compares with.
    """

    def hit(kind: int, value: Any, place: Any, threshold: Any, options: Any) -> Any:
        if kind != MEMBER:
            return COMPARISONS[MODES[kind]](value, threshold[place])
        return tirx.any(*(value == options[place, k] for k in range(members)))

    def taken(value: Any, place: Any, nodes: Any, threshold: Any, options: Any) -> Any:
        result = hit(kinds[0], value, place, threshold, options)
        for kind in kinds[1:]:
            other = hit(kind, value, place, threshold, options)
            result = tirx.Select(nodes[MODE, place] == kind, other, result)
        return tirx.any(result, tirx.all(tirx.isnan(value), nodes[MISSING, place] != 0)) if with_nan else result

    return taken


def walk(
    rows: tuple[int, ...],
    tables: Mapping[str, tuple[int, ...]],
    real: str,
    depth: int,
    kinds: Sequence[int],
    with_nan: bool,
) -> tirx.PrimFunc:
    """The kernel. A leaf leads to itself, so that trees of different depths take the same number of steps.

    Args:
        rows, tables: shapes.
        real: type of features and thresholds.
        depth: steps from a root to the farthest leaf.
        kinds: numbers of the modes that there are.
        with_nan: whether some nodes send NaN to the true branch.
    """
    members, taken = tables["members"], _branch(kinds, with_nan, tables["members"][1])
    count, trees = tables["nodes"][1], tables["roots"][0]

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        x: T.Buffer(rows, real),  # type: ignore[valid-type]
        nodes: T.Buffer((len(FIELDS), count), "int32"),  # type: ignore[valid-type]
        threshold: T.Buffer((count,), real),  # type: ignore[valid-type]
        roots: T.Buffer((trees,), "int32"),  # type: ignore[valid-type]
        options: T.Buffer(members, real),  # type: ignore[valid-type]
        out: T.Buffer((rows[0], trees), "int32"),  # type: ignore[valid-type]
    ):
        for n, t, s in T.grid(rows[0], trees, depth):
            with T.sblock("walk"):
                row, tree, _ = T.axis.remap("SSR", [n, t, s])
                T.reads(
                    x[row, 0 : rows[1]],
                    nodes[0 : len(FIELDS), 0:count],
                    threshold[0:count],
                    roots[tree],
                    options[0 : members[0], 0 : members[1]],
                )
                T.writes(out[row, tree])
                with T.init():
                    out[row, tree] = roots[tree]
                out[row, tree] = T.Select(
                    taken(x[row, nodes[FEATURE, out[row, tree]]], out[row, tree], nodes, threshold, options),
                    nodes[TRUE, out[row, tree]],
                    nodes[FALSE, out[row, tree]],
                )

    return kernel.with_attr("op_pattern", OPAQUE_PATTERN)
