"""Candidates that misbehave, for tests: a ``lowering`` in which one knob says how.

The program is y = 2 x over 4096 floats; its untuned build is right.
"""

from __future__ import annotations

import time

from tvm import s_tir, te, tirx
from tvm.script import from_source

from autotune.measure.measurer import Candidate
from schedules.config import Config
from schedules.lower import BASELINE, normalise, program_of, task_key
from schedules.lower import lower as real
from schedules.lower import repack as real_repack
from schedules.target import Target
from schedules.task import Task
from schedules.templates.common.structure import Repack
from schedules.vocabulary.errors import ScheduleError

LOWERING = __name__
SIZE = 4096

HEADER = """
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def main(X: T.Buffer((4096,), "float32"), Y: T.Buffer((4096,), "float32")):
"""

BODIES = {
    "right": """
    for i in range(4096):
        Y[i] = X[i] * T.float32(2)
""",
    "right otherwise": """
    for i in range(4096):
        Y[4095 - i] = X[4095 - i] + X[4095 - i]
""",
    "wrong": """
    for i in range(4096):
        Y[i] = X[i] * T.float32(2.01)
""",
    "incomplete": """
    for i in range(4095):
        Y[i] = X[i] * T.float32(2)
""",
    "nan": """
    for i in range(4096):
        Y[i] = X[i] * T.float32(2) + T.if_then_else(i == 7, T.float32("nan"), T.float32(0))
""",
    "drops NaN": """
    for i in range(4096):
        Y[i] = T.if_then_else(T.isnan(X[i]), T.float32(0), X[i] * T.float32(2))
""",
    "drops infinity": """
    for i in range(4096):
        Y[i] = T.if_then_else(T.isinf(X[i]), T.float32(0), X[i] * T.float32(2))
""",
    "overflows": """
    for i in range(4096):
        Y[i] = X[i] * X[i] * T.float32(2) / X[i]
""",
    "too far": """
    for i in range(4112):
        Y[i] = X[T.min(i, 4095)] * T.float32(2)
""",
    "reads too far": """
    for i in range(4096):
        Y[i] = X[i] * T.float32(2) + T.if_then_else(i == 4095, X[i + 1], T.float32(0))
""",
    "segfault": """
    for i in range(4096):
        Y[i + 100000000000] = X[i]
""",
    "run forever": """
    Y[0] = T.float32(0)
    while Y[0] < T.float32(1):
        Y[1] = Y[1] + T.float32(1)
""",
    "eat memory at run": """
    big = T.alloc_buffer((8000000000,), "float32")
    for i in range(8000000000):
        big[i] = X[i % 4096]
    for i in range(4096):
        Y[i] = big[T.int64(i) * T.int64(1000000)]
""",
}


def lower(func: tirx.PrimFunc, config: Config, target: Target) -> s_tir.Schedule:
    """Apply a ``fault/1`` config, or any other as usual."""
    if config.space != "fault/1":
        return real(func, config, target)
    kind = str(config["kind"])
    if kind == "illegal":
        raise ScheduleError("tile 3 does not divide 4096; choose a divisor")
    if kind == "broken template":
        raise IndexError("list index out of range")
    if kind == "compile forever":
        while True:
            time.sleep(0.01)
    if kind == "eat memory at compile":
        hoard = []
        while True:
            hoard.append(bytearray(1 << 28))
    if kind == "unknown intrinsic":
        source = HEADER + "    T.evaluate(T.call_llvm_intrin('void', 'llvm.prefetch.p0', X.data))\n"
    else:
        source = HEADER + BODIES[kind]
    return s_tir.Schedule(from_source(source))


def assembly(func: tirx.PrimFunc, config: Config, target: Target, symbol: str) -> str:
    """Every kernel is scheduled and compiled."""
    return ""


def repack(func: tirx.PrimFunc, config: Config) -> dict[int, Repack]:
    """No misbehaving config wants other weights."""
    return {} if config.space == "fault/1" else real_repack(func, config)


def config_of(kind: str) -> Config:
    """The config that misbehaves in this way."""
    return Config("fault/1", (("kind", kind),))


def doubling() -> tuple[Task, str]:
    """The task and its program."""
    x = te.placeholder((SIZE,), name="X")
    func = normalise(te.create_prim_func([x, te.compute((SIZE,), lambda i: x[i] * 2.0, name="Y")]))
    task = Task(task_key(func), "double", "fault", "multiply", ((SIZE,), (SIZE,)), ("float32",) * 2, (), SIZE, 8 * SIZE)
    return task, program_of(func)


def candidate(kind: str) -> Candidate:
    """The candidate that misbehaves in this way; ``baseline`` is the untuned build."""
    task, program = doubling()
    return Candidate(task, program, BASELINE if kind == "baseline" else config_of(kind))
