"""The code of one kernel, for people."""

from __future__ import annotations

import tvm

from autotune.host.forked_worker import ForkedWorker
from autotune.measure.kernel_builder import can_assemble
from schedules.config import Config
from schedules.graph_types import check_program
from schedules.lower import assembly, load_program, lower, tvm_target
from schedules.target import Target
from schedules.templates.common.indices import exact_indices
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions.hot_loop import hot_loop
from schedules.vocabulary.errors import ArtifactError, UsageError

TVM_FORMS = {"llvm": "ll", "asm": "asm"}
"""Form of a kernel's code → TVM's name of it."""


EMIT_S, EMIT_BYTES = 120.0, 4 << 30
"""Wall-clock seconds and memory that emitting one kernel may take. Heuristic: candidates are given less."""


def emitted(program: str, config: Config, target: Target, form: str) -> str:
    """Implement ``Backend.emit``, in a process of its own: anybody may have written the files with program and config.

    Raises:
        ArtifactError: if TVM cannot read or compile them, crashes, or does not end.
    """
    worker = ForkedWorker(lambda _: _emitted(program, config, target, form), ArtifactError, EMIT_S, EMIT_BYTES)
    try:
        text: str = worker.request(None)
    finally:
        worker.close()
    return text


def _emitted(program: str, config: Config, target: Target, form: str) -> str:
    check_program(program)
    if form == "tir":
        func = lower(load_program(program), config, target).mod["main"]
        return str(tvm.IRModule({"main": exact_indices(func)}).script())
    code = assembly(load_program(program), config, target, "main") if can_assemble(target) else ""
    if code and form == "llvm":
        raise UsageError("this kernel is written as assembly and not by LLVM; see it with --emit asm or --emit tir")
    if not code:
        func = lower(load_program(program), config, target).mod["main"]
        code = str(compiled(func, "main", tvm_target(target)).mod.inspect_source(TVM_FORMS.get(form, "asm")))
    return _hot_loop(code) if form == "loop" else code


def _hot_loop(assembly: str) -> str:
    """The innermost loop with the most products, and what it counts."""
    loop = hot_loop(assembly)
    if loop is None:
        return "no loop multiplies and adds vectors"
    counts = f"{len(loop.lines)} instructions, {loop.products} products, {loop.stack} that use the stack"
    return "\n".join([f"# {counts}", *loop.lines])
