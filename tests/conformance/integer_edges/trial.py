"""Cases through the product, and through ONNX Runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from autotune.backends.cpu.cpu_build import build_artifact
from autotune.host.machine import host_target
from autotune.importer.onnx_model.load import load_model
from autotune.importer.program import import_program, simplified
from autotune.measure.kernel_builder import Builder, object_of
from autotune.measure.measurer import Candidate, symbol_of
from autotune.measure.messages import BuildJob
from autotune.runtime.session import InferenceSession
from schedules import lower
from tests.conformance.integer_edges.cases import Array, Case, model_of
from tests.shipping import untuned_plan

Outputs = list[Array]


class Shipping:
    """Builds kernels in this process as a measurer's workers do.

    Args:
        builder: of the target.
        folder: for programs and libraries.
    """

    def __init__(self, builder: Builder, folder: Path) -> None:
        self._builder, self._folder = builder, folder

    def objects(self, candidates: Sequence[Candidate]) -> list[Path]:
        """As ``LocalMeasurer.objects``."""
        paths = []
        for candidate in candidates:
            symbol = symbol_of(candidate.task.key)
            program, library = self._folder / f"{symbol}.json", str(self._folder / f"{symbol}.so")
            program.write_text(candidate.program)
            built = self._builder.build(BuildJob(str(program), candidate.config, library, symbol, timeout_s=60.0))
            assert built.error is None, built.message
            paths.append(Path(object_of(library)))
        return paths


class Compiled:
    """A lowering without kernels in assembly."""

    lower, repack = staticmethod(lower.lower), staticmethod(lower.repack)

    @staticmethod
    def assembly(*given: Any) -> str:
        """None."""
        return ""


def ours(cases: Sequence[Case], assembled: bool = True) -> list[Outputs]:
    """Every case's outputs, of one artifact that holds them all."""
    model, feed = model_of(cases)
    target = host_target(1)
    with tempfile.TemporaryDirectory(prefix="edges-") as name:
        folder = Path(name)
        path = folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        program = import_program(simplified(load_model(path), target), target)
        measurer: Any = Shipping(Builder(target, lower if assembled else Compiled), folder)
        build_artifact(folder / "out", program, untuned_plan(program, target), path, measurer)
        made = InferenceSession(folder / "out", threads=1).run(None, feed)
    return [[made.pop(0) for _ in range(case.outputs)] for case in cases]


def theirs(case: Case) -> Outputs | None:
    """What is right; None where ONNX Runtime has no kernel for the types."""
    if case.want is not None:
        return list(case.want)
    model, feed = model_of([case])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except (
        onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented,
        onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph,
    ):
        return None
    return list(session.run(None, feed))


def difference(case: Case, made: Outputs, right: Outputs) -> str:
    """What is wrong; empty if nothing is."""
    for index, (one, other) in enumerate(zip(made, right, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{case.name}: output {index} is {one.dtype}{one.shape} instead of {other.dtype}{other.shape}"
        with np.errstate(invalid="ignore"):
            wrong = (one != other) & ~((one != one) & (other != other))
        if wrong.any():
            at = int(np.argmax(wrong))
            full = [x for x in case.inputs if x is not None and x.size == one.size]
            of = ", ".join(str(x.reshape(-1)[at]) for x in full)
            return (
                f"{case.name}: {int(wrong.sum())} of {wrong.size} differ, first of ({of}): "
                f"{one.reshape(-1)[at]} instead of {other.reshape(-1)[at]}"
            )
    return ""
