"""Is a kernel that passed the check wrong all the same? Other inputs than those it was checked on tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from autotune.backends.cpu.libraries import set_threads
from autotune.measure.kernel_builder import Builder
from autotune.measure.kernel_timing import load
from autotune.measure.measurer import Candidate, symbol_of
from autotune.measure.messages import BuildJob
from autotune.measure.output_check import Expected, aligned, make_inputs, normal_block, numpy_dtype, poison
from schedules.lower import BASELINE, load_program, repack
from schedules.target import Target
from tests.mutation import lowering

Array = NDArray[Any]


def is_wrong(candidate: Candidate, target: Target, folder: Path) -> bool:
    """Whether the kernel differs from the untuned build by more than the check allows on any of eight other inputs.

    It runs on the threads that it was built for: on fewer, a sum that is never started meets another one's registers.
    """
    set_threads(target.threads)
    func = load_program(candidate.program)
    (folder / "program.json").write_text(candidate.program)
    builder = Builder(target, lowering)
    kernels = []
    for number, config in enumerate((BASELINE, candidate.config)):
        library = str(folder / f"oracle-{number}.so")
        symbol = symbol_of(candidate.task.key)
        built = builder.build(BuildJob(str(folder / "program.json"), config, library, symbol, timeout_s=60.0))
        assert built.error is None, built.message
        kernels.append(load(library, candidate.task))
    forms = repack(func, lowering.plain(candidate.config))
    for inputs in strong_inputs(candidate):
        outputs = []
        for kernel, wanted in zip(kernels, ({}, forms), strict=True):
            output = aligned(candidate.task.shapes[-1], numpy_dtype(candidate.task.dtypes[-1]))
            poison(output)
            arguments = [packed(array, wanted.get(index)) for index, array in enumerate(inputs)]
            kernel(*(tvm.runtime.from_dlpack(array) for array in (*arguments, output)))
            outputs.append(output)
        if Expected.of(candidate.task, outputs[0]).mismatch(outputs[1]):
            return True
    return False


def packed(array: Array, form: Any) -> Array:
    """``array`` in the form that a config wants it in, if any."""
    if form is None:
        return array
    packed = form.apply(array)
    dense = aligned(packed.shape, packed.dtype)
    dense[...] = packed
    return dense


def strong_inputs(candidate: Candidate) -> Iterator[list[Array]]:
    """Four more draws, then larger, positive, tiny and constant numbers."""
    for seed in range(1, 5):
        yield make_inputs(candidate.task, normal_block(seed), seed)
    changes = (lambda x: 8 * x, lambda x: np.abs(x) + 0.1, lambda x: 1e-2 * x, lambda x: 0 * x + 1)
    for seed, change in enumerate(changes, start=5):
        arrays = make_inputs(candidate.task, normal_block(seed), seed)
        for array in arrays:
            if array.dtype.kind == "f":
                array[...] = change(array)
        yield arrays
