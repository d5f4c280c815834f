"""Models built with first guesses, as a run without a trial ships them, and run, with ONNX Runtime's outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime

from autotune.backends.cpu.cpu_build import build_artifact
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplified
from autotune.runtime.session import InferenceSession
from schedules.template_sets import TEMPLATE_SETS
from tests.autotune_tests import tiny
from tests.autotune_tests.importer_tests.onnx_cases import written
from tests.shipping import InlineMeasurer, first_guesses, plan_of


def multiply_bytes_as(dtype, monkeypatch):
    """Products read activations of ``dtype``, whatever this processor multiplies best."""
    monkeypatch.setitem(TEMPLATE_SETS, "llvm", replace(TEMPLATE_SETS["llvm"], activations=lambda _: dtype))


def run(model, folder, feed):
    """Ours and ONNX Runtime's outputs."""
    ((ours, theirs),) = run_all(model, folder, [feed])
    return ours, theirs


def run_all(model, folder, feeds):
    """Ours and ONNX Runtime's outputs for each of ``feeds``, by one session each."""
    ours = build(model, folder)
    theirs = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    return [(ours.run(None, feed), theirs.run(None, feed)) for feed in feeds]


def imported(model, folder):
    """The model as fused kernels."""
    model = simplified(load_model(written(model, folder)), tiny.target())
    return import_program(model, tiny.target())


def run_ours(model, folder, feed):
    """Our outputs."""
    return build(model, folder).run(None, feed)


def build(model, folder):
    """Our session of a model; what does not depend on the feed is tested by many feeds of one."""
    program, path = imported(model, folder), folder / "model.onnx"
    measurer = InlineMeasurer(tiny.target(), folder)
    plan = plan_of(first_guesses(program, tiny.target()), tiny.target())
    build_artifact(folder / "out", program, plan, path, measurer)
    return InferenceSession(folder / "out")


def close(ours, theirs):
    return len(ours) == len(theirs) and all(
        a.shape == b.shape and a.dtype == b.dtype and np.allclose(a, b, 1e-4, 1e-5)
        for a, b in zip(ours, theirs, strict=True)
    )
