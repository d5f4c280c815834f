"""(PrimFunc, Config) → Schedule: templates tried in order, the generic one last.

A *program* is the JSON text of a normalised PrimFunc: it crosses process borders and is kept in the log.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import GlobalVar, IRModule
from tvm_ffi.serialization import from_json_graph_str

from schedules.config import Config
from schedules.graph_types import check_program
from schedules.space import Space, with_jobs, with_small_jobs
from schedules.target import Target
from schedules.template_sets import TEMPLATE_SETS, template_set
from schedules.templates.amx.amx_product import ALGORITHM
from schedules.templates.assembly.vectors import OutOfScope
from schedules.templates.by_hand.recurrent import OP as RECURRENT
from schedules.templates.by_hand.recurrent_steps import SCHEDULED
from schedules.templates.common.soundness import unwritten
from schedules.templates.common.structure import Anchor, Repack
from schedules.templates.cpu.conv2d import left_out
from schedules.templates.cuda.cuda_recurrent import OP as CUDA_RECURRENT
from schedules.templates.template import Template
from schedules.vocabulary.errors import ScheduleError, check, last_line

BASELINE = Config("baseline/1", ())
"""The config of the untuned program, valid for every task."""


@dataclass(frozen=True)
class Claim:
    """The template that takes a function, and its space there."""

    template: str
    space: Space


NUMBERS = "tune.numbers"
"""Attribute of a kernel before it is normalised: ``Task.numbers``."""


def normalise(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` as a stand-alone ``main`` without the attributes that differ between equal programs."""
    for name in ("global_symbol", "op_pattern", "Primitive", NUMBERS):
        if func.attrs and name in func.attrs:
            func = func.without_attr(name)
    return func.with_attr("global_symbol", "main")


_FOLDERS = re.compile(r'("type":"ir\.SourceName","data":")[^"]*/')
"""Place of the file that a function was parsed from."""


def program_of(func: tirx.PrimFunc) -> str:
    """JSON text of a normalised function, the same wherever this program is installed."""
    return _FOLDERS.sub(r"\1", str(tvm.ir.save_json(func)))


WRITTEN_HERE = f'"metadata":{{"tvm_version":"{tvm.__version__}"}}}}'
"""How a program ends that this TVM wrote."""

KEPT_PROGRAMS = 1024
"""Programs that are kept parsed, some 100 kB each: more than the tasks of any model seen. Heuristic, not measured."""


KEPT_MATCHES = 4096
"""Templates and functions whose match is kept: of a function of some templates each. Heuristic, not measured."""


@lru_cache(maxsize=KEPT_PROGRAMS)
def load_program(program: str) -> tirx.PrimFunc:
    """Inverse of ``program_of``.

    ``tvm.ir.load_json`` parses a text in Python and writes it anew, in case that an older TVM wrote it. That is left
    out where this TVM did: of SqueezeNet's 29 programs it took 260 ms, reading them 14 ms.
    """
    return from_json_graph_str(program) if program.endswith(WRITTEN_HERE) else tvm.ir.load_json(program)


def task_key(func: tirx.PrimFunc) -> str:
    """Structural hash of a normalised function, 16 hex digits; names of variables and buffers take no part."""
    return f"{tvm_ffi.structural_hash(func, map_free_vars=True):016x}"


def foreign_program(task: str, program: str) -> tirx.PrimFunc:
    """The function of a program that somebody says is of ``task``. Call it only in a process that may die.

    Raises:
        ScheduleError: if it is no program, holds what no program needs, or is another task's.
    """
    check_program(program)
    func = load_program(program)
    check(isinstance(func, tirx.PrimFunc), "it is no function")
    key = task_key(func)
    other = "" if program.endswith(WRITTEN_HERE) else "; another version of TVM wrote it"
    check(key == task, f"its hash is {key}, so it is not the program of this task{other}")
    return func


def is_scheduled(func: tirx.PrimFunc) -> bool:
    """Return whether ``func`` is scheduled by hand, for CPUs: only the templates of recurrent layers can take it."""
    return bool(func.attrs and SCHEDULED in func.attrs)


def claim(func: tirx.PrimFunc, target: Target) -> Claim:
    """The first template that matches ``func``; the empty baseline space if none does."""
    matched = _matched(func, target)
    if matched is None:
        return Claim(_unmatched(func), Space("baseline", 1, ()))
    template, anchor = matched
    extents = (*anchor.spatial, *anchor.reduction)
    return Claim(template.name, replace(template.space(anchor, target), extents=extents))


def template_name(func: tirx.PrimFunc, target: Target) -> str:
    """``claim(func, target).template``, without its space."""
    matched = _matched(func, target)
    return matched[0].name if matched else _unmatched(func)


def _unmatched(func: tirx.PrimFunc) -> str:
    """Return the name that stands for the template of a function that none matches."""
    return str(func.attrs[SCHEDULED]).split()[0] if is_scheduled(func) else "baseline"


@lru_cache(maxsize=KEPT_MATCHES)
def _anchor_of(template: Template[Any], func: tirx.PrimFunc) -> Anchor | None:
    """Return ``template.match(func)``; every candidate of a task asks for the same."""
    return template.match(func)


def _matched(func: tirx.PrimFunc, target: Target) -> tuple[Template[Any], Anchor] | None:
    for template in template_set(target).templates:
        if is_scheduled(func) and template.name not in (RECURRENT, CUDA_RECURRENT):
            continue
        anchor = _anchor_of(template, func)
        if anchor is not None:
            # Where there is nothing to compute, no tile has that size.
            return None if 0 in (*anchor.spatial, *anchor.reduction) else (template, anchor)
    return None


ROW_GROUPS, LEAST_JOB_ROWS = 8, 16
"""Jobs of a product whose calls may have fewer rows: so many groups of rows, or jobs of so many rows. A call computes
at most one group too much, in the mean 1/16 of all rows, where four groups make it 1/8. The best recorded configs with
such jobs reach 0.98 of the best of all on 71 layers of a Zen 4, and 0.97 on 52 of a Zen 3; four groups 0.99 and 0.98
(``research/layers``)."""


POSITION_ROWS = 8
"""Rows of a job where a row of the batch has several, of a sequence: those of positions behind its end are left out.
Calls of 8 x 33 positions on a set for 8 x 64 take 18.2 ms where jobs of 64 rows take 23.5, and full ones as long (a
MiniLM on a Zen 5: docs/lab/2026-11-29-two-sizes.md)."""

LEAST_ELEMENTS = 32
"""Elements of a position from which elementwise kernels have jobs of positions. Heuristic: a job takes some 10 ns."""


class Spaces(Mapping[str, Space]):
    """The spaces of all that can be tuned in ``programs``, under their keys; each is made when it is first asked for.

    It can be pickled, which spaces cannot: they hold functions.

    Args:
        open_sizes: rows of the batch, in which calls may have fewer than the programs, and positions of each, 1 where
            these are all there; none if calls have as many rows. Then jobs make few rows or positions, and those of one
            row of the batch, since those that do not count are left out.
    """

    def __init__(self, programs: Mapping[str, str], target: Target, open_sizes: tuple[int, ...] = ()) -> None:
        self._programs = programs
        self._target = target
        self._open_sizes = open_sizes
        self._made: dict[str, Space] = {}

    def __getitem__(self, key: str) -> Space:
        if key not in self._made:
            space = claim(load_program(self._programs[key]), self._target).space
            if self._open_sizes:
                space = _for_open_sizes(space, *self._open_sizes)
            self._made[key] = space
        return self._made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._programs)

    def __len__(self) -> int:
        return len(self._programs)

    def __reduce__(self) -> tuple[Any, ...]:
        return Spaces, (self._programs, self._target, self._open_sizes)


def _for_open_sizes(space: Space, batch: int, length: int) -> Space:
    """``space`` with configs of which jobs can be left out, as ``Spaces`` says."""
    if space.job_rows:
        rows, uneven = divmod(space.extents[0], batch)
        few = max(space.extents[0] // ROW_GROUPS, LEAST_JOB_ROWS)
        return with_small_jobs(space, few if length == 1 else POSITION_ROWS, space.extents[0] if uneven else rows)
    of_position, uneven = divmod(math.prod(space.extents), batch * length)
    if space.jobs and length > 1 and not uneven and of_position >= LEAST_ELEMENTS:
        return with_jobs(space, batch * max(1, length // POSITION_ROWS))
    return space


def operations(func: tirx.PrimFunc) -> int:
    """Floating point operations of one run (a multiply-add counts 2), without those that no config carries out."""
    if is_scheduled(func):  # TVM's count knows no shuffles, which only kernels written by hand have
        func = tvm_ffi.structural_map(func, (tirx.Shuffle, lambda shuffle: shuffle.vectors[0]))
    return int(s_tir.analysis.estimate_tir_flops(IRModule({GlobalVar("main"): func}))) - left_out(func)


def lower(func: tirx.PrimFunc, config: Config, target: Target) -> s_tir.Schedule:
    """Apply ``config`` to a normalised function.

    The result has the function's parameters; those that ``repack`` names have another shape.

    Raises:
        ScheduleError: if the config belongs to no template of this function or cannot be applied. Imported traces
            belong to none: nothing is built from them.
    """
    chosen = template_set(target)
    func = chosen.rename(func)
    if config == BASELINE:
        return chosen.baseline(func, target)
    template, anchor = _template_of(func, config)
    try:
        sch = s_tir.Schedule(chosen.expand(template.prepare(func, anchor, config)))
        template.apply(sch, anchor, config, target)
    except (s_tir.ScheduleError, ValueError, RuntimeError) as error:
        raise ScheduleError(f"{config.to_json()} does not apply: {last_line(error)}") from error
    block = unwritten(sch.mod["main"])
    check(block is None, f"{config.to_json()} does not apply: {block} would leave a part of its result unwritten")
    return sch


def repack(func: tirx.PrimFunc, config: Config) -> dict[int, Repack]:
    """Parameter index → transformation of the model's packed weight that ``config`` needs; mostly empty."""
    if config == BASELINE:
        return {}
    template, anchor = _template_of(func, config)
    return template.repack(anchor, config)


def assembly(func: tirx.PrimFunc, config: Config, target: Target, symbol: str) -> str:
    """Return the kernel ``symbol`` that ``lower`` makes of ``func``, in text for the system's assembler.

    A tenth of the time of a build by the compiler. Empty where the config's template does not write it: then ``lower``
    and compile.
    """
    if config == BASELINE:
        return ""
    template, anchor = _template_of(func, config)
    try:
        return template.assembly(template_set(target).rename(func), anchor, config, target, symbol)
    except OutOfScope:
        return ""


EXACT, MOST_LOSSY = 0, 4
"""Bounds of ``loss``."""


def loss(config: Config) -> int:
    """Return how much accuracy a config gives up for speed: 0 only reorders sums, else the m of Winograd's F(m, 3)."""
    value = dict(config.items).get("algorithm", EXACT)
    return value if isinstance(value, int) and value != ALGORITHM else EXACT


def _template_of(func: tirx.PrimFunc, config: Config) -> tuple[Template[Any], Anchor]:
    for template in (template for family in TEMPLATE_SETS.values() for template in family.templates):
        if config.space == f"{template.name}/{template.version}":
            anchor = _anchor_of(template, func)
            if anchor is not None:
                return template, anchor
    raise ScheduleError(f"no template of this function is called {config.space}; re-tune with this version")


def tvm_target(target: Target) -> tvm.target.Target:
    """The TVM object for ``target``."""
    return template_set(target).tvm_target(target)
