"""Checking and timing of built libraries, inside the one worker that runs them: ``Bench``, and ``CpuBench`` for CPUs.

Every timed run meets the caches as it would in the model:

* weights were last read one inference ago, and all other weights of the model since. They are views into an arena as
  large as the model's weights (never less than ``COLD_FACTOR`` times the L2 of all threads), another stretch each run.
* activations were just written by the producer, on the same threads, in equal shares (``planes_of``). A parallel
  negation in place before each run has the same effect; it also keeps the pool's threads awake, as the kernel before
  does in the model.
* the output goes to memory that was written some kernels ago: it moves through ``COLD_FACTOR`` times the L2 of all
  threads, as memory planning reuses buffers.

A run is one call between two readings of the nanosecond clock; the call itself adds about a microsecond.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
import tvm

from autotune.host.process_limits import is_out_of_memory
from autotune.measure.dirty_registers import DirtyCalls
from autotune.measure.edge_check import ExpectedEdges, edged
from autotune.measure.kernel_builder import Lowering
from autotune.measure.measurer import symbol_of
from autotune.measure.messages import ReferenceJob, Settings, Timed, TimedAll, TimeJob
from autotune.measure.output_check import (
    Array,
    Expected,
    aligned,
    draws,
    fence,
    is_fenced,
    make_inputs,
    normal_block,
    numpy_dtype,
    poison,
)
from autotune.measure.racing import duel, race
from autotune.measure.timed_memory import ROW, WORD, Arena, Kernel, is_number, planes_of
from schedules.config import Config
from schedules.lower import EXACT, load_program, loss
from schedules.task import Task
from schedules.vocabulary.errors import named_last_line
from tuning_logs.measurement import ErrorKind

COLD_FACTOR = 2
"""Cold weights rotate through at least this many times the L2 of all threads. Heuristic, not measured."""

KEPT_TASKS = 4
"""Inputs and expected outputs of this many tasks are kept: the loop comes back to a task after others. Heuristic."""

LONG_S = 0.1
"""Seconds of an untuned kernel from which on the run that makes the right output is its time as well: kernels that are
worth anything are several times faster. VGG-19's convolutions in bf16 take 1 to 4 s each. Heuristic, not measured."""


SPILLED = "the kernel writes outside of its tensors"


class Checkable(Protocol):
    """A task's data on a device.

    Attributes:
        expected: the right outputs of all draws; None until the reference has run, and in all draws but the first.
        edges: the same on edge inputs; None as well where the reference takes longer than ``LONG_S``.
    """

    expected: Expected | None
    edges: ExpectedEdges | None


TaskData = TypeVar("TaskData", bound=Checkable)


@dataclass
class Prepared:
    """A task ready to run.

    Attributes:
        inputs: arrays of every parameter but the output; what the check runs on, never written.
        output: the output's array.
        expected, edges: as of ``Checkable``.
        live: the same parameters as the timed runs see them; activations are rewritten before each.
        cold: indices of the parameters that are cut from the arena instead.
        warm: views of the activations that the producer rewrites, and what ``planes_of`` says of each.
        edged: the same parameters with edges among the activations.
        repacked: (parameter, name of the repacking) → the weight as some configs want it.
    """

    inputs: list[Array]
    output: Array
    expected: Expected | None
    edges: ExpectedEdges | None
    live: list[Array]
    cold: list[int]
    warm: list[tuple[tvm.runtime.Tensor, int, int]]
    edged: list[Array]
    repacked: dict[tuple[int, str], Array] = field(default_factory=dict)

    def fenced(self) -> list[Array]:
        """The arrays that a checked kernel is given, but for repacked weights."""
        return [*self.inputs, *self.edged, self.output]


@dataclass(frozen=True)
class Loaded:
    """A kernel, how the check calls it, and the weights that it wants in another form: parameter → array."""

    kernel: Kernel
    checked: Kernel
    weights: dict[int, Array]


class Bench(ABC, Generic[TaskData]):
    """Checks libraries and times the right ones. A subclass says where kernels run."""

    fatal: tuple[type[Exception], ...] = ()
    """Errors after which nothing more can run in this process; they are not the candidate's and leave the bench."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._block = normal_block(settings.seed)
        self._tasks: OrderedDict[str, list[TaskData]] = OrderedDict()

    @abstractmethod
    def _fresh(self, task: Task, positive: bool, draw: int) -> TaskData:
        """A task's arguments; ``positive`` and ``draw`` as for ``make_inputs``."""

    @abstractmethod
    def _output(self, loaded: Loaded, prepared: TaskData, edges: bool) -> Array:
        """Return the output that a kernel writes over ``poison``, on the edge inputs or the ordinary ones."""

    @abstractmethod
    def _run(self, loaded: Loaded, prepared: TaskData) -> float:
        """Seconds of one run."""

    def _load(self, library: str, task: Task) -> Kernel:
        return load(library, task)

    def _checked(self, kernel: Kernel, library: str, task: Task) -> Kernel:
        """``kernel`` as the check calls it."""
        return kernel

    def _loaded(self, library: str, task: Task, weights: dict[int, Array]) -> Loaded:
        kernel = self._load(library, task)
        return Loaded(kernel, self._checked(kernel, library, task), weights)

    def _weights(self, job: TimeJob, config: Config, prepared: TaskData) -> dict[int, Array]:
        """Parameter → the weight as ``config`` wants it, for weights that are repacked before they are passed."""
        return {}

    def answer(self, job: ReferenceJob | TimeJob) -> TimedAll:
        """Do one job."""
        return self.reference(job) if isinstance(job, ReferenceJob) else self.time(job)

    def reference(self, job: ReferenceJob) -> TimedAll:
        """Run the untuned library, write its output, time it; see ``LONG_S``."""
        start = time.perf_counter()
        loaded = self._loaded(job.library, job.task, {})
        for positive in (False, True):
            prepared = self._all(job.task, positive)
            began = time.perf_counter()
            got = self._all_outputs(loaded, prepared, edges=False).copy()
            took = (time.perf_counter() - began) / len(prepared)
            if got.dtype.kind != "f" or np.isfinite(got).all():
                break
        at_edges = None if took > LONG_S else self._all_outputs(loaded, prepared, edges=True).copy()
        with open(job.output, "wb") as file:
            for array in (got, at_edges):
                np.save(file, np.empty(0) if array is None else array)
        self._keep(job.task, _with_expected(job.task, prepared, got, at_edges))
        runs = [took] if took > LONG_S else race([partial(self._run, loaded, prepared[0])], job.evaluator, None)[0]
        return TimedAll((Timed(tuple(runs), time.perf_counter() - start),), positive)

    def time(self, job: TimeJob) -> TimedAll:
        """Check every library of the job, then time the right ones, interleaved."""
        start = time.perf_counter()
        prepared = self._get(job)
        answers: list[Timed | None] = []
        kernels: list[Loaded] = []
        for library, config in zip(job.libraries, job.configs, strict=True):
            loaded = self._loaded(library, job.task, self._weights(job, config, prepared[0]))
            wrong = self._wrong(loaded, prepared, spreads=loss(config) != EXACT)
            answers.append(wrong)
            if wrong is None:
                kernels.append(loaded)
        series = iter(self._series(job, kernels, prepared[0]))
        spent = (time.perf_counter() - start) / len(job.libraries)
        return TimedAll(tuple(answer or Timed(tuple(next(series)), spent) for answer in answers))

    def _series(self, job: TimeJob, kernels: list[Loaded], prepared: TaskData) -> list[Sequence[float]]:
        """Runs of every kernel."""
        if not kernels:
            return []
        if len(kernels) > 1 or job.control is None or job.incumbent_s is None or not job.evaluator.races:
            timed = [partial(self._run, kernel, prepared) for kernel in kernels]
            return [*race(timed, job.evaluator, job.incumbent_s)]
        library, config = job.control
        control = self._loaded(library, job.task, self._weights(job, config, prepared))
        own, other = (partial(self._run, kernel, prepared) for kernel in (kernels[0], control))
        return [duel(own, other, job.evaluator, job.incumbent_s)]

    def _wrong(self, loaded: Loaded, prepared: list[TaskData], spreads: bool) -> Timed | None:
        """Why a kernel must not be timed, or None; ``spreads`` as of ``ExpectedEdges``."""
        start = time.perf_counter()
        try:
            at_edges = self._all_outputs(loaded, prepared, edges=True).copy()
            got = self._all_outputs(loaded, prepared, edges=False)
        except self.fatal:
            raise
        except Exception as error:  # whatever a candidate raises is its measurement
            no_memory = isinstance(error, MemoryError) or is_out_of_memory(str(error))
            kind: ErrorKind = "out_of_memory" if no_memory else "wrong_result"
            return Timed((), time.perf_counter() - start, kind, f"the kernel raised {named_last_line(error)}")
        assert prepared[0].expected is not None
        mismatch = prepared[0].expected.mismatch(got)
        if not mismatch and prepared[0].edges is not None:
            mismatch = prepared[0].edges.mismatch(at_edges, spreads)
        if not mismatch and not self._is_within(prepared):
            mismatch = SPILLED
        if not mismatch:
            return None
        self._tasks.popitem()  # a wrong kernel may have written to the inputs too
        return Timed((), time.perf_counter() - start, "wrong_result", mismatch)

    def _is_within(self, prepared: list[TaskData]) -> bool:
        """Return whether the last kernel wrote nothing next to its arrays, as far as that can be seen."""
        return True

    def _all_outputs(self, loaded: Loaded, prepared: list[TaskData], edges: bool) -> Array:
        """Return a kernel's outputs on all draws of activations, one after the other. The next run overwrites them."""
        if len(prepared) == 1:
            return self._output(loaded, prepared[0], edges)
        return np.stack([self._output(loaded, data, edges).copy() for data in prepared])

    def _all(self, task: Task, positive: bool) -> list[TaskData]:
        """Every draw; the first is what is timed, and holds what all are to give."""
        return [self._fresh(task, positive, draw) for draw in range(draws(task))]

    def _get(self, job: TimeJob) -> list[TaskData]:
        prepared = self._tasks.get(job.task.key)
        if prepared is None:
            with open(job.reference.output, "rb") as file:
                got, at_edges = np.load(file), np.load(file)
            prepared = self._all(job.task, job.reference.positive)
            self._keep(job.task, _with_expected(job.task, prepared, got, at_edges if at_edges.size else None))
        self._tasks.move_to_end(job.task.key)
        return prepared

    def _keep(self, task: Task, prepared: list[TaskData]) -> None:
        self._tasks[task.key] = prepared
        while len(self._tasks) > KEPT_TASKS:
            self._tasks.popitem(last=False)


def _with_expected(task: Task, prepared: list[TaskData], got: Array, at_edges: Array | None) -> list[TaskData]:
    """``prepared`` with what the reference wrote, on ordinary and on edge inputs."""
    prepared[0].expected = Expected.of(task, got)
    prepared[0].edges = None if at_edges is None else ExpectedEdges.of(task, at_edges)
    return prepared


class CpuBench(Bench[Prepared]):
    """Runs libraries on this process's thread pool.

    Args:
        settings: the measurer's.
        lowering: says which weights a config wants in another form.
        producer: what ``compile_producer`` returned.
        dirty: how the check calls kernels, where this machine runs them.
    """

    def __init__(
        self, settings: Settings, lowering: Lowering, producer: Kernel, dirty: DirtyCalls | None = None
    ) -> None:
        super().__init__(settings)
        self._dirty = dirty
        self._lowering = lowering
        self._producer = producer
        self._cold_bytes = COLD_FACTOR * settings.target.l2_bytes * settings.target.threads
        self._arena = Arena(self._block)
        self._outputs = Arena(self._block)
        self._outputs.least_bytes = self._cold_bytes
        self._open()

    def _open(self) -> None:
        """Get the threads that kernels run on."""
        cores = [str(core) for core in self._settings.cores]
        # -2: one thread per listed core. Must come before the first parallel call; the pool cannot grow later.
        tvm.get_global_func("runtime.config_threadpool")(-2, self._settings.target.threads, cores)

    def answer(self, job: ReferenceJob | TimeJob) -> TimedAll:
        """See ``Bench.answer``."""
        self._arena.least_bytes = max(job.cold_bytes, self._cold_bytes)
        return super().answer(job)

    def _checked(self, kernel: Kernel, library: str, task: Task) -> Kernel:
        return kernel if self._dirty is None else self._dirty.of(library, symbol_of(task.key))

    def _weights(self, job: TimeJob, config: Config, prepared: Prepared) -> dict[int, Array]:
        """Weights in the form a config wants them; kept, since a task's candidates want few forms."""
        weights = {}
        for index, form in self._lowering.repack(load_program(Path(job.program).read_text()), config).items():
            if (index, form.name) not in prepared.repacked:
                packed = form.apply(prepared.inputs[index])
                array = aligned(packed.shape, packed.dtype)
                array[...] = packed
                prepared.repacked[index, form.name] = array
            weights[index] = prepared.repacked[index, form.name]
        return weights

    def _run(self, loaded: Loaded, prepared: Prepared) -> float:
        """Seconds of one run."""
        kernel = loaded.kernel
        inputs = list(prepared.live)
        for index, array in loaded.weights.items():
            inputs[index] = array
        for index, view in zip(prepared.cold, self._arena.views([inputs[i] for i in prepared.cold]), strict=True):
            inputs[index] = view
        output = prepared.output
        if output.size:
            (output,) = self._outputs.views([output])
        arguments = [tvm.runtime.from_dlpack(array) for array in (*inputs, output)]
        for warm in prepared.warm:
            self._producer(*warm)
        start = time.perf_counter_ns()
        kernel(*arguments)
        return (time.perf_counter_ns() - start) * 1e-9

    def _output(self, loaded: Loaded, prepared: Prepared, edges: bool) -> Array:
        poison(prepared.output)
        self._call(loaded, prepared.edged if edges else prepared.inputs, prepared.output)
        return prepared.output

    def _is_within(self, prepared: list[Prepared]) -> bool:
        return all(is_fenced(array) for data in prepared for array in data.fenced())

    def _call(self, loaded: Loaded, inputs: list[Array], output: Array) -> None:
        arrays = [loaded.weights.get(index, array) for index, array in enumerate(inputs)]
        loaded.checked(*[tvm.runtime.from_dlpack(array) for array in (*arrays, output)])

    def _fresh(self, task: Task, positive: bool, draw: int) -> Prepared:
        inputs = make_inputs(task, self._block, self._settings.seed, positive, draw)
        output = aligned(task.shapes[-1], numpy_dtype(task.dtypes[-1]))
        large = [i for i, array in enumerate(inputs) if is_number(array.dtype) and array.size]
        cold = [i for i in large if i in task.constants]
        live = list(inputs)
        warm = []
        for i in large:
            if i not in task.constants and inputs[i].nbytes >= WORD * ROW:
                live[i] = aligned(inputs[i].shape, inputs[i].dtype)
                live[i][...] = inputs[i]
                words = live[i].reshape(-1).view(np.uint8)[: live[i].nbytes // (WORD * ROW) * WORD * ROW].view(np.int32)
                rows = tvm.runtime.from_dlpack(words.reshape(-1, ROW))
                warm.append((rows, *planes_of(live[i].shape, live[i].itemsize)))
        prepared = Prepared(inputs, output, None, None, live, cold, warm, edged(task, inputs, draw))
        for array in prepared.fenced():
            fence(array)
        return prepared


def load(library: str, task: Task) -> Kernel:
    """The task's kernel in a shared library that ``Builder`` wrote."""
    kernel: Kernel = tvm.runtime.load_module(library)[symbol_of(task.key)]
    return kernel
