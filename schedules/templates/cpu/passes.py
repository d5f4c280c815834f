"""The passes that make machine code of a scheduled program for a CPU.

TVM's own list is for every backend, with passes over threads, shared memory and asynchronous copies, which a CPU's
program has none of. Three things differ from it, and candidates build sooner:

- Those passes are left out, and so are the search for common subexpressions, which LLVM does too, and the mark of an
  entry function, for which LLVM would compile all that is not in a parallel job twice.
- Kernels do not check their arguments' number, types, shapes and strides: some 3 KiB of code each, a quarter of a
  build (74 ms instead of 97, mean of 20 convolutions).
- Buffers of a known size up to ``STACKED`` bytes, the sums of a register tile above all, lie on the stack. TVM puts
  there what is smaller than 1 KiB and asks the runtime for memory for the rest, once per job; and LLVM cannot keep in
  registers across a prefetch or a call what may be read by it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx.compilation_pipeline import register_tir_pipeline

from schedules.templates.common.indices import both_sides, conditions_in_order, exact_indices
from schedules.templates.common.structure import is_choice, nodes_below
from schedules.templates.instructions.bindings import bound_in_memory
from schedules.templates.instructions.blocked_sums import blocked_sums
from schedules.templates.instructions.byte_lookup import tables_in_registers
from schedules.templates.instructions.dot_passes import operands_loaded, rounded_in_hardware
from schedules.templates.instructions.dots import definitions
from schedules.templates.instructions.kept_differences import differences_kept
from schedules.templates.instructions.kept_nan import nan_kept
from schedules.templates.instructions.llvm_target import cpu_features
from schedules.templates.instructions.outer_choices import choices_in_front
from schedules.templates.instructions.rounding import rounded_in_bits
from schedules.templates.instructions.wrapped import functions_called, wrapped

CPU = "tune-cpu"
"""Name of the pipeline, for ``tvm.compile``."""

STACKED = 64 * 1024
"""Bytes of the largest buffer on the stack, of a thread's 8 MiB."""

ALIGNMENT = 16
"""Alignment of every tensor that kernels assume, in bytes: that of allocators, so inputs are read and outputs written
where the caller has them. A copy to TVM's 64 took 60 of the 104 µs of a mean of 3 MB (Zen 5). Moves of aligned vectors
take no longer for that."""

Pass = Any  # tvm.transform.Pass; TVM has no types to check against


WORKSPACE = "tune_workspace_{symbol}_"
"""How the name of a constant begins by which a kernel's code tells its workspaces; the numbers of bytes follow."""

CACHE_LINE = 64
"""Bytes to which the runtime rounds every workspace (``core.cc``)."""


def _size(alloc: tirx.AllocBuffer) -> int:
    """Bytes of a buffer; 0 where they depend on data."""
    shape = alloc.buffer.shape
    if not all(isinstance(extent, tirx.IntImm) for extent in shape):
        return 0
    lanes = tvm.DataType(str(alloc.buffer.dtype))
    return math.prod(int(extent) for extent in shape) * int(lanes.bits) * int(lanes.lanes) // 8


def _with_workspaces_told(symbol: str, func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func``, whose code tells the bytes that it asks the runtime for: once, and in every thread."""

    def asked(root: object) -> int:
        sizes = [_size(alloc) for alloc in nodes_below(root, tirx.AllocBuffer)]
        return sum(-(-size // CACHE_LINE) * CACHE_LINE for size in sizes if size > STACKED)

    jobs = [loop for loop in nodes_below(func.body, tirx.For) if loop.kind == tirx.ForKind.PARALLEL]
    per_thread = sum(asked(loop.body) for loop in jobs)  # a thread keeps those of one loop for the next
    once = asked(func.body) - per_thread
    if once + per_thread == 0:
        return func
    text = f"@{workspace_name(symbol, once, per_thread)} = hidden constant i8 0\n"
    body = tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", tvm.ir.StringImm(text), func.body)
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def workspace_name(symbol: str, once: int, per_thread: int) -> str:
    """The constant's name: the kernel asks for so many bytes once, and in every thread."""
    return f"{WORKSPACE.format(symbol=symbol)}{once}_{per_thread}"


def workspaces_told(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    """Kernels whose code tells what workspaces they ask for."""
    functions = {name: _with_workspaces_told(name.name_hint, func) for name, func in mod.functions.items()}
    return tvm.IRModule(functions, attrs=mod.attrs)


def workspaces_of(objects: bytes, symbol: str) -> tuple[int, int]:
    """(bytes once, bytes in every thread) that the kernel ``symbol`` asks the runtime for, as its object file tells."""
    match = re.search(rf"{WORKSPACE.format(symbol=re.escape(symbol))}(\d+)_(\d+)\0".encode(), objects)
    return (0, 0) if match is None else (int(match[1]), int(match[2]))


def small_buffers_on_stack(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Small buffers become ``alloca``s instead of workspaces of the runtime."""

    def mark(alloc: tirx.AllocBuffer) -> tirx.AllocBuffer:
        if not 0 < _size(alloc) <= STACKED:
            return alloc
        annotations = {**dict(alloc.annotations), "disable_lower_builtin": tirx.const(1, "int32")}
        return tirx.AllocBuffer(alloc.buffer, annotations)

    return tvm_ffi.structural_map(func, (tirx.AllocBuffer, mark))


def without_checks(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` that trusts its arguments: a session checks the model's inputs, and the rest is the program's own."""

    def trusted(_: tirx.AssertStmt) -> tirx.Stmt:
        return tirx.Evaluate(tirx.const(0, "int32"))

    return tvm_ffi.structural_map(func, (tirx.AssertStmt, trusted))


CUT = "pragma_loop_partition_hint"
"""TVM's name of the annotation that has a loop of constant extent cut."""


def cut_at_marks(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    """Kernels whose marked loops are cut at conditions. The pass knows loops by variables that narrowing replaces."""

    def is_marked(func: tirx.PrimFunc) -> bool:
        noted = (mark.attr_key for mark in nodes_below(func.body, tirx.AttrStmt))
        return CUT in noted or any(CUT in loop.annotations for loop in nodes_below(func.body, tirx.For))

    return s_tir.transform.LoopPartition()(mod) if any(map(is_marked, mod.functions.values())) else mod


def any_alignment(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` that assumes ``ALIGNMENT`` of its tensors."""

    def relaxed(mark: tirx.AttrStmt) -> tirx.AttrStmt:
        if mark.attr_key != "storage_alignment":
            return mark
        return tirx.AttrStmt(mark.node, mark.attr_key, tirx.const(ALIGNMENT, "int32"), mark.body)

    return tvm_ffi.structural_map(func, (tirx.AttrStmt, relaxed), order="post")


def with_instructions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` with the definitions of what it calls in place of instructions."""
    func = functions_called(rounded_in_hardware(operands_loaded(func)))
    if func.attrs and "target" in func.attrs:
        func = tables_in_registers(func, cpu_features(func.attrs["target"]))
    text = definitions(func)
    if not text:
        return func
    body = tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", tvm.ir.StringImm(text), func.body)
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def numbers_kept(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` whose maxima and minima keep NaN, and whose roundings to bytes are sums."""
    return rounded_in_bits(nan_kept(func))


def spelt_bf16(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Vectors of one bfloat16 as their bits: ``BF16StorageLegalize`` skips them, and fails where they are."""

    def spelt(vector: tirx.Broadcast) -> tirx.Expr:
        if str(vector.value.ty) != "bfloat16":
            return vector
        bits = tirx.Broadcast(tirx.reinterpret("uint16", vector.value), vector.lanes)
        return tirx.reinterpret(str(vector.ty), bits)

    return tvm_ffi.structural_map(func, (tirx.Broadcast, spelt))


def booleans_loaded(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Vectors of truth values as comparisons of the bytes that hold them.

    ``StorageRewrite`` loads such vectors as bytes wherever all accesses of a buffer are vectors. It fails where a copy,
    a choice or a logical operator reads them. A number made of them is right as it is.
    """

    def compared(node: tirx.Cast | TensorLoad) -> tirx.Expr:
        if isinstance(node, tirx.Cast):
            inner = node.value
            return tirx.Cast(node.ty, inner.value) if isinstance(inner, tirx.Cast) and _is_compared(inner) else node
        kind = node.ty.dtype
        return tirx.Cast(node.ty, node) if str(kind).startswith("bool") and kind.lanes > 1 else node

    return tvm_ffi.structural_map(func, ((tirx.Cast, TensorLoad), compared))


def _is_compared(cast: tirx.Cast) -> bool:
    """Return whether ``cast`` makes a load of truth values a comparison."""
    return isinstance(cast.value, TensorLoad) and str(cast.ty) == str(cast.value.ty)


def spelt_booleans(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Vectors of truth values as numbers by a choice: LLVM's writer bounds what is bound to a variable, and fails at a
    comparison of vectors in it (``IntImm can only take scalar``).
    """

    def spelt(cast: tirx.Cast) -> tirx.Expr:
        kind = cast.value.ty.dtype
        if not str(kind).startswith("bool") or kind.lanes == 1 or str(cast.ty) == str(cast.value.ty):
            return cast
        return tirx.Select(cast.value, tirx.const(1, cast.ty.dtype), tirx.const(0, cast.ty.dtype))

    return tvm_ffi.structural_map(func, (tirx.Cast, spelt))


def vectorised(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    """``VectorizeLoop``, with vectors of the length that schedules give them.

    For a target with RISC-V's vectors TVM would make each of them one of unknown length, of which tiles cannot be made;
    so it does not learn here that the target has them. LLVM does.
    """
    whole = (tirx.For, _bound_in_one_loop)
    mod = tvm.IRModule({name: tvm_ffi.structural_map(func, whole) for name, func in mod.functions.items()}, mod.attrs)
    targets = {name: func.attrs["target"] for name, func in mod.functions.items() if "target" in func.attrs}
    known = {name: target for name, target in targets.items() if "riscv64" in str(target.attrs.get("mtriple", ""))}
    plain = {name: tvm.target.Target({"kind": "llvm", "mtriple": "riscv64-linux-gnu"}) for name in known}
    widened = tirx.transform.VectorizeLoop(True)(_with_targets(mod, plain))
    apart = (tirx.For, _branches_apart)
    functions = {name: tvm_ffi.structural_map(func, apart) for name, func in widened.functions.items()}
    return _with_targets(tvm.IRModule(functions, attrs=widened.attrs), known)


def _bound_in_one_loop(loop: tirx.For) -> tirx.For:
    """A vector as a loop if a variable of its body is bound to a call that has no vector form.

    ``VectorizeLoop`` makes a loop of that binding alone, behind which the variable holds the last lane. An index of
    an extreme binds the number and its index, and fusion may put any operator in there.
    """
    if loop.kind != tirx.ForKind.VECTORIZED:
        return loop
    calls = (call for bind in nodes_below(loop.body, tirx.Bind) for call in nodes_below(bind.value, tvm.ir.Call))
    if all(_has_vector_form(call) for call in calls):
        return loop
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body, None, loop.annotations)


def _has_vector_form(call: tvm.ir.Call) -> bool:
    known = isinstance(call.op, tvm.ir.Op)
    return known and (call.op.name == "tirx.reinterpret" or bool(call.op.get_attr("TVectorizable")))


SCALAR = ".s"
"""How TVM names the variable of a loop that it makes of a vector whose lanes take different branches."""


def _branches_apart(loop: tirx.For) -> tirx.For:
    """A loop over such lanes unrolled, so that each keeps the one branch that it takes.

    LLVM 22 vectorises the loop itself and computes wrong numbers where the branches read at divisions and remainders of
    the lane, as a rotary embedding of heads of 8 numbers does.
    """
    if not str(loop.loop_var.name).endswith(SCALAR) or not isinstance(loop.extent, tirx.IntImm):
        return loop
    choices = filter(is_choice, nodes_below(loop.body, tvm.ir.Call))
    lane = loop.loop_var
    if not any(var.same_as(lane) for call in choices for var in nodes_below(call.args[0], tirx.Var)):
        return loop
    return tirx.For(lane, loop.min, loop.extent, tirx.ForKind.UNROLLED, loop.body, None, loop.annotations)


def _with_targets(mod: tvm.IRModule, targets: dict[Any, tvm.target.Target]) -> tvm.IRModule:
    if not targets:
        return mod
    functions = {
        name: func.with_attr("target", targets[name]) if name in targets else func
        for name, func in mod.functions.items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs)


def _of_kernels(change: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> Pass:
    """The pass that changes every kernel by itself."""

    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return tvm.IRModule({name: change(func) for name, func in mod.functions.items()}, attrs=mod.attrs)

    return tvm.transform.module_pass(run, opt_level=0, name=change.__name__)


def _lowered(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    old, new = s_tir.transform, tirx.transform
    steps = [
        old.CanonicalizeLoop(),
        old.LowerInitBlock(),
        old.PlanAndUpdateBufferAllocationLocation(),
        old.ConvertBlocksToOpaque(),
        old.CompactBufferAllocation(),
        old.LowerMatchBuffer(),
        old.StmtSimplify(),
        old.AnnotateIrregularLoop(),
        old.LowerOpaqueBlock(),
        _of_kernels(blocked_sums),
        new.FlattenBuffer(),
        new.BF16ComputeLegalize(),
        _of_kernels(choices_in_front),
        tvm.transform.module_pass(cut_at_marks, opt_level=0, name="CutAtMarks"),
        new.NarrowDataType(32),
        _of_kernels(numbers_kept),
        old.LoopPartition(),
        new.ConvertSSA(),
        tvm.transform.module_pass(vectorised, opt_level=0, name="Vectorised"),
        _of_kernels(booleans_loaded),
        new.StorageRewrite(),
        old.HoistIfThenElse(),
        new.UnrollLoop(),
        old.RenormalizeSplitPattern(),
        new.StmtSimplify(),
        new.RemoveNoOp(),
        old.RewriteUnsafeSelect(),
        _of_kernels(conditions_in_order),
        new.FP8ComputeLegalize(),
        new.VerifyMemory(),
        new.SplitHostDevice(),
        new.MakePackedAPI(),
        _of_kernels(without_checks),
        _of_kernels(any_alignment),
        new.FP8StorageLegalize(),
        _of_kernels(with_instructions),
        _of_kernels(spelt_booleans),
        _of_kernels(spelt_bf16),
        new.BF16StorageLegalize(),
    ]
    return tvm.transform.Sequential(steps)(mod)


def _finalised() -> Pass:
    told = tvm.transform.module_pass(workspaces_told, opt_level=0, name="WorkspacesTold")
    steps = [
        _of_kernels(bound_in_memory),
        told,
        _of_kernels(small_buffers_on_stack),
        tirx.transform.LowerTVMBuiltin(),
        tirx.transform.LowerIntrin(),
    ]
    return tvm.transform.Sequential(steps)


def _pipeline() -> tuple[Pass, Callable[[], Pass], Callable[[], Pass]]:
    lowered = tvm.transform.module_pass(_lowered, opt_level=0, name="TuneCpu")
    return lowered, _finalised, s_tir.pipeline.finalize_device_passes


register_tir_pipeline(CPU, _pipeline)


def compiled(func: tirx.PrimFunc, symbol: str, target: tvm.target.Target) -> tvm.runtime.Executable:
    """The scheduled ``func`` as a CPU's code under the name ``symbol``.

    Raises:
        RuntimeError and its like, of TVM or LLVM, for what they cannot compile.
    """
    func = both_sides(exact_indices(differences_kept(wrapped(func))))
    module = tvm.IRModule({symbol: func.with_attr("global_symbol", symbol)})
    return tvm.compile(module, target=target, tir_pipeline=CPU)
