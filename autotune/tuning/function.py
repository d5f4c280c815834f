"""``tune_function``: the tuner on one hand-written TIR function, without a model.

The function is tuned as a model's kernel would be: the templates are tried on it in order, the search is the same, the
measurements go to the same log, and every candidate's outputs are compared with those of the function as written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import tirx
from tvm.ir import IRModule

from autotune.artifact.make_plan import make_plan
from autotune.artifact.plan import Choice
from autotune.backends.cpu.libraries import open_library, set_threads
from autotune.backends.cpu.linking import link_kernels
from autotune.events import Observer, ignore
from autotune.host.compilers import check_compiler
from autotune.host.pages import KERNEL_ALIGNMENT, paged
from autotune.host.roofline import measure_roofline
from autotune.importer.kernel_passes import describe
from autotune.importer.program import Program
from autotune.measure.local_measurer import LocalMeasurer
from autotune.measure.measurer import Candidate, symbol_of
from autotune.options import Options
from autotune.tuning.existing_log import made_log
from autotune.tuning.run_plan import resolve_target
from autotune.tuning.search_program import SearchRequest, search_program
from schedules.config import Config
from schedules.lower import claim, normalise, program_of, repack, task_key
from schedules.target import Target
from schedules.task import Task
from schedules.vocabulary.errors import UsageError, first_line


@dataclass(frozen=True)
class TunedFunction:
    """A tuned function, to be called with the arguments of the one it was made from.

    Attributes:
        task: what was tuned.
        config: how it is scheduled.
        latency_s: what it was measured at in seconds; None if nothing was.
        threads: threads it runs on.
        trials: configs that the log now holds of it.
    """

    task: Task
    config: Config
    latency_s: float | None
    threads: int
    trials: int
    _func: tirx.PrimFunc = field(repr=False)
    _kernel: Any = field(repr=False)

    def __call__(self, *arrays: NDArray[Any]) -> None:
        """Run it: one array per parameter, in order, of the shapes and types of ``task``; outputs are written into.

        Arrays that are not aligned to 64 bytes are copied there and back, and where the config packs a weight in its
        own way that is done at every call: this is for trying a kernel, not for serving one.

        Raises:
            UsageError: if an array is missing or has another shape or type.
        """
        if len(arrays) != len(self.task.shapes):
            raise UsageError(f"{self.task.name} takes {len(self.task.shapes)} arrays, got {len(arrays)}")
        for number, (array, shape, dtype) in enumerate(zip(arrays, self.task.shapes, self.task.dtypes, strict=True)):
            if array.shape != shape or str(array.dtype) != dtype:
                raise UsageError(
                    f"array {number} of {self.task.name} has shape {array.shape} and type {array.dtype}; "
                    f"it takes {shape} and {dtype}"
                )
        forms = repack(self._func, self.config)
        operands = [_aligned(forms[i].apply(array) if i in forms else array) for i, array in enumerate(arrays)]
        set_threads(self.threads)
        self._kernel(*(tvm.runtime.from_dlpack(array) for array in operands))
        for number, (array, used) in enumerate(zip(arrays, operands, strict=True)):
            if used is not array and number not in forms and array.flags.writeable:
                np.copyto(array, used)


def tune_function(
    func: tirx.PrimFunc,
    options: Options | None = None,
    weights: Sequence[int] = (),
    name: str = "function",
    observe: Observer = ignore,
) -> TunedFunction:
    """Tune ``func`` on this machine's CPU.

    Args:
        func: with static shapes; its last parameter is what it writes.
        options: as for a model; ``out`` has no meaning.
        weights: indices of parameters that stay the same from call to call.
        name: what to call it.
        observe: told what happens.

    Raises:
        UsageError: if ``func`` is no PrimFunc of static shapes, or no template offers a choice for it.
        AutotuneError: as ``autotune.tune``.
    """
    options = options or Options()
    check_compiler()
    target = resolve_target(options)
    program = _program_of(func, target, tuple(weights), name)
    (task,) = program.tasks
    log = made_log(options.log)
    try:
        with LocalMeasurer(target, evaluator=options.evaluator, seed=options.seed) as measurer:
            request = SearchRequest(program, target, log, measurer, options, measure_roofline)
            outcome = search_program(request, observe)
            if outcome.interrupted:
                raise KeyboardInterrupt
            (choice,) = make_plan(program.tasks, program.spaces, target, log).choices
            kernel = _kernel(program, choice, measurer)
    finally:
        log.close()
    trials = sum(state.trials for state in outcome.after)
    return TunedFunction(task, choice.config, choice.latency_s, target.threads, trials, normalise(func), kernel)


def _program_of(func: tirx.PrimFunc, target: Target, weights: tuple[int, ...], name: str) -> Program:
    """A program of this one task."""
    if not isinstance(func, tirx.PrimFunc):
        raise UsageError(
            f"tune_function needs a TIR PrimFunc, got {type(func).__name__}; make one with TVMScript or te"
        )
    func = normalise(func)
    try:
        key, claimed = task_key(func), claim(func, target)
        task = describe(func, key, name, claimed.template, weights)
    except (TypeError, ValueError, tvm.error.TVMError) as error:
        raise UsageError(f"{name} cannot be tuned ({first_line(error)}); give every shape as a number") from error
    if not claimed.space.knobs:
        raise UsageError(f"no template offers a choice for {name}; add one")
    return Program(IRModule({}), (), (), (), (task,), {key: program_of(func)}, {key: claimed.space}, {name: key})


def _kernel(program: Program, choice: Choice, measurer: LocalMeasurer) -> Any:
    """The compiled function of ``choice``."""
    (task,) = program.tasks
    symbol = symbol_of(task.key)
    (built,) = measurer.objects([Candidate(task, program.programs[task.key], choice.config)])
    with tempfile.TemporaryDirectory(prefix="tune-function-") as folder:
        library = Path(folder) / "function.so"
        link_kernels({symbol: built}, library)
        return open_library(library)[symbol]


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    """``array`` itself if kernels can read it where it is, else an aligned copy."""
    if array.ctypes.data % KERNEL_ALIGNMENT == 0 and array.flags.c_contiguous and array.flags.writeable:
        return array
    copy = paged(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
