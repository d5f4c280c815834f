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
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplified
from autotune.runtime.session import InferenceSession
from tests.conformance.integer_edges.cases import Array, Case, model_of
from tests.shipping import InlineMeasurer, untuned_plan

Outputs = list[Array]


def ours(cases: Sequence[Case], assembled: bool = True) -> list[Outputs]:
    """Every case's outputs, of one artifact that holds them all."""
    model, feed = model_of(cases)
    target = host_target(1)
    with tempfile.TemporaryDirectory(prefix="edges-") as name:
        folder = Path(name)
        path = folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        program = import_program(simplified(load_model(path), target), target)
        measurer: Any = InlineMeasurer(target, folder, assembled)
        build_artifact(folder / "out", program, untuned_plan(program, target), path, measurer)
        outputs = InferenceSession(folder / "out", threads=1).run(None, feed)
    return [[outputs.pop(0) for _ in range(case.outputs)] for case in cases]


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


def difference(case: Case, outputs: Outputs, right: Outputs) -> str:
    """What is wrong; empty if nothing is."""
    for index, (one, other) in enumerate(zip(outputs, right, strict=True)):
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
