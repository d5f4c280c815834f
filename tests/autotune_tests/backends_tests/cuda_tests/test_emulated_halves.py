"""Models of bfloat16 on a GPU, every kernel run from its CUDA source on the CPU."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from autotune.importer.load import load_model
from autotune.importer.program import Program, import_program, simplified
from autotune.validation.reference_runs import Reference
from autotune.validation.verify import compare, random_inputs
from tests.autotune_tests.backends_tests.cuda_tests.test_emulated_models import TARGET, run
from tests.autotune_tests.importer_tests.onnx_cases import recurrent
from tests.models import transformer
from tests.models.catalog import build
from tests.models.halves import in_halves, islands

PRODUCTS = ("conv2d", "dense", "product")
LARGEST_VECTOR = 4096
"""Bytes of the largest bias or scale of the models here; such vectors are fp32, for they are added in fp32."""


def saved(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return load_model(path, {})


def check(model: onnx.ModelProto) -> Program:
    """Compare the outputs with those of the model without rounding, as ``tune verify`` does."""
    program = import_program(simplified(model, TARGET), TARGET)
    feed, reference = random_inputs(program.inputs, 0), Reference(model)
    name, expected = reference.outputs(feed)
    verdict = compare(name, run(program, feed), expected, lambda: reference.allowance(feed))
    assert verdict.passed, verdict
    return program


def check_stored(program: Program) -> None:
    """Products read bfloat16, weights are stored as such, and no kernel only casts."""
    products = [task for task in program.tasks if any(name in task.name for name in PRODUCTS)]
    assert products
    assert {task.dtypes[:2] for task in products} == {("bfloat16", "bfloat16")}
    assert "cuda_tensor" in {task.template for task in products}
    assert {str(w.dtype) for w in program.weights if w.nbytes > LARGEST_VECTOR} <= {"uint16"}
    operators = [re.sub(r"\d", "", task.name).removeprefix("fused_").split("_") for task in program.tasks]
    assert ["cast"] not in operators


@pytest.mark.parametrize("name", ["tiny_mlp", "tiny_cnn"])
def test_bfloat16(name: str, tmp_path: Path) -> None:
    check_stored(check(saved(in_halves(build(name)), tmp_path)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny_encoder", "tiny_grouped", "tiny_gated", "tiny_branches", "tiny_unet"])
def test_models_of_bfloat16(name: str, tmp_path: Path) -> None:
    check_stored(check(saved(in_halves(build(name)), tmp_path)))


def test_products_of_fp32_between_casts_stay_so(tmp_path: Path) -> None:
    program = check(saved(islands(), tmp_path))
    kinds = {task.template: task.dtypes[:2] for task in program.tasks if "dense" in task.name}
    assert kinds == {"cuda_tensor": ("bfloat16", "bfloat16"), "cuda_gemm": ("float32", "float32")}
    assert [str(w.dtype) for w in program.weights if w.ndim == 2].count("uint16") == 2
    assert program.products == 1


def test_large_weights_stay_in_their_file(tmp_path: Path) -> None:
    """NumPy hands no bfloat16 to TVM: it is mapped as words."""
    model = in_halves(transformer.mlp(layers=2, width=256))
    originals = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer if len(tensor.dims) == 2]
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, size_threshold=0)
    program = import_program(simplified(load_model(path, {}, apart=True), TARGET), TARGET)
    packed = [w for w in program.weights if w.ndim == 2]
    assert len(packed) == len(originals) == 2
    for ours, theirs in zip(packed, originals, strict=True):
        assert sorted(ours.reshape(-1)) == sorted(theirs.view(np.uint16).reshape(-1))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_compute_fp32(kind: str, tmp_path: Path) -> None:
    model, _ = recurrent(kind, "bidirectional", hidden=5, batch=2, steps=3)
    check(saved(in_halves(model), tmp_path))
