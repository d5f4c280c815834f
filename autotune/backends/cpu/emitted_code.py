"""The code of one kernel, for people."""

from __future__ import annotations

import tvm

from schedules.config import Config
from schedules.lower import load_program, lower, tvm_target
from schedules.target import Target
from schedules.templates.common.indices import exact_indices
from schedules.templates.cpu.passes import compiled

TVM_FORMS = {"llvm": "ll", "asm": "asm"}
"""Form of a kernel's code → TVM's name of it."""


def emitted(program: str, config: Config, target: Target, form: str) -> str:
    """As ``Backend.emit``."""
    func = lower(load_program(program), config, target).mod["main"]
    if form == "tir":
        return str(tvm.IRModule({"main": exact_indices(func)}).script())
    return str(compiled(func, "main", tvm_target(target)).mod.inspect_source(TVM_FORMS[form]))
