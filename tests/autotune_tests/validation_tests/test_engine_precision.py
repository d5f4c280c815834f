"""An engine's precision is what its products multiply."""

import importlib.util

import pytest

from autotune.backends.cpu.cpu_build import build_artifact
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from autotune.options import Precision
from autotune.validation.engine_precision import artifact_precision, onnxruntime_precision
from tests.autotune_tests import tiny
from tests.models.catalog import cached
from tests.shipping import InlineMeasurer, untuned_plan


@pytest.mark.parametrize(("precision", "expected"), [("fp32", "fp32"), ("bf16", "bf16"), ("bf16:0", "bf16+fp32")])
def test_artifacts_say_what_their_kernels_read(tmp_path, precision, expected):
    path = tiny.save_tiny(tmp_path / "model.onnx")
    program = import_program(simplify(load_model(path)), tiny.target(), Precision.parse(precision))
    measurer = InlineMeasurer(tiny.target(), tmp_path)
    build_artifact(tmp_path / "out", program, untuned_plan(program, tiny.target()), path, measurer)
    assert artifact_precision(tmp_path / "out") == expected


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime is not installed")
@pytest.mark.parametrize(("name", "expected"), [("tiny_cnn", "fp32"), ("tiny_qdq", "int8")])
def test_onnxruntime_says_what_its_optimiser_left(tmp_path, name, expected):
    import onnxruntime

    path = tmp_path / "model.onnx"
    path.write_bytes(cached(name).read_bytes())
    assert expected in onnxruntime_precision(path, onnxruntime.SessionOptions())
