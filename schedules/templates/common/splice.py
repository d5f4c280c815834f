"""Replacing the anchor of a fused function by another algorithm, its epilogue kept.

    [pad, conv2d, bias, relu]   →   [stages of the new algorithm …, bias, relu]

The function is cut behind its anchor, the new stages and the epilogue become two functions, and TVM's FuseTIR joins
them again: buffers are renamed by the compiler's own pass, not by us.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax, s_tir, tirx
from tvm.ir import IRModule, Var

from schedules.templates.common.structure import blocks_in_order, root_nests, rooted
from schedules.vocabulary.errors import check


def long(*sizes: int) -> list[tirx.IntImm]:
    """``sizes`` as 64-bit integers, the type of extents in the graph: TVM joins buffers only if these types agree."""
    return [tirx.IntImm("int64", size) for size in sizes]


def replace_anchor(func: tirx.PrimFunc, anchor: str, stages: tirx.PrimFunc, data: int, weight: int) -> tirx.PrimFunc:
    """``func`` with the block ``anchor`` and what is before it for its sake replaced by ``stages``.

    Args:
        func: a normalised fused function with one output, its last parameter.
        anchor: name of the block to replace, a direct child of the root; what only it reads goes with it.
        stages: a function (data, new weight, result) whose result has the anchor's output shape.
        weight: index of the parameter of ``func`` that ``stages``' weight takes the place of.
        data: index of the parameter that ``stages`` reads first.

    Returns:
        A function with ``func``'s parameters, the weight's shape changed.
    """
    blocks = blocks_in_order(func)
    names = [block.name_hint for block in blocks]
    position = names.index(anchor)
    nests = root_nests(func)
    check(len(nests) == len(names), f"{anchor} is not at the root of its function")
    if position == len(names) - 1:
        return _in_order(stages, data, weight)
    produced = blocks[position].writes[0].source
    rest = [param for index, param in enumerate(func.params) if index != weight]  # the epilogue may read data too
    behind = _read_behind(blocks, position)
    written = [blocks[index].writes[0].source for index in behind]
    kept = [buffer for buffer in func.body.block.alloc_buffers if any(buffer.same_as(output) for output in written)]
    epilogue = _function([produced, *rest], [nests[index] for index in behind], kept)
    return _fuse(func, stages, epilogue, data, weight)


def _read_behind(blocks: Sequence[s_tir.SBlock], position: int) -> list[int]:
    """Blocks behind that at ``position``, and those before it that they read: of an addend that is converted, say."""
    behind = list(range(position + 1, len(blocks)))
    for index in reversed(range(position)):
        result = blocks[index].writes[0].source
        if any(region.source.same_as(result) for later in behind for region in blocks[later].reads):
            behind.insert(0, index)
    return behind


def _in_order(stages: tirx.PrimFunc, data: int, weight: int) -> tirx.PrimFunc:
    """``stages`` as a whole function, its parameters where those that they replace were."""
    source, packed, result = stages.params
    params = [source, packed, result] if data < weight else [packed, source, result]
    return tirx.PrimFunc(params, stages.body, stages.ret_type, stages.attrs).with_attr("global_symbol", "main")


def _function(params: list[Var], nests: list[tirx.Stmt], allocated: list[Var]) -> tirx.PrimFunc:
    return tirx.PrimFunc(params, rooted(nests, allocated)).with_attr("tirx.noalias", True).with_attr("s_tir", True)


def _tensor(name: str, buffer: Var) -> relax.Var:
    shape = [int(extent) for extent in buffer.ty.shape]
    return relax.Var(name, relax.TensorType(shape, str(buffer.ty.dtype)))


def _fuse(func: tirx.PrimFunc, stages: tirx.PrimFunc, epilogue: tirx.PrimFunc, data: int, weight: int) -> tirx.PrimFunc:
    builder = relax.BlockBuilder()
    sources = [stages.params[1] if index == weight else param for index, param in enumerate(func.params[:-1])]
    inputs = [_tensor(f"p{index}", source) for index, source in enumerate(sources)]
    first = builder.add_func(stages.without_attr("global_symbol"), "stages")
    second = builder.add_func(epilogue, "epilogue")
    result, output = _tensor("r", stages.params[-1]), _tensor("o", func.params[-1])
    with builder.function("fused", inputs, attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            middle = builder.emit(relax.call_tir(first, [inputs[data], inputs[weight]], result.ty))
            others = [value for index, value in enumerate(inputs) if index != weight]
            out = builder.emit_output(relax.call_tir(second, [middle, *others], output.ty))
        builder.emit_func_output(out)
    fused = next(gvar for gvar in builder.get().get_global_vars() if gvar.name_hint == "fused")
    inputs = [_tensor(f"q{index}", source) for index, source in enumerate(sources)]
    with builder.function("main", inputs):
        with builder.dataflow():
            out = builder.emit_output(relax.Call(fused, inputs))
        builder.emit_func_output(out)
    module: IRModule = relax.transform.FuseTIR()(builder.finalize())
    joined = next(
        f for gvar, f in module.functions.items() if isinstance(f, tirx.PrimFunc) and "fused" in gvar.name_hint
    )
    for name in ("op_pattern", "global_symbol"):
        if joined.attrs and name in joined.attrs:
            joined = joined.without_attr(name)
    return joined.with_attr("global_symbol", "main")
