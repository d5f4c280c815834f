"""What each kind of target gets of a packed weight."""

import numpy as np
import pytest

from autotune.importer.layouts.low_bit_layouts import in_whole_tiles
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplified
from schedules.target import Target
from tests.autotune_tests.importer_tests.low_bits_tests.test_low_bit_operators import packed
from tests.autotune_tests.importer_tests.onnx_cases import written

CPU = Target("llvm", isa="avx512", threads=2)
AMX = Target.cpu("sapphirerapids", 2)
GPU = Target("cuda", arch="sm_90")
COLUMNS, DEPTH = 40, 64


def program(target, folder):
    model = load_model(written(packed((3,), COLUMNS, DEPTH, 32).model(), folder))
    return import_program(simplified(model, target), target)


def test_a_cpu_gets_whole_panels_of_bytes(tmp_path):
    levels, scale = sorted(program(CPU, tmp_path).weights, key=lambda array: array.ndim, reverse=True)
    assert (levels.shape, levels.dtype) == ((3, DEPTH // 8, 16, 4), np.uint8)
    assert (scale.shape, scale.dtype) == ((3, DEPTH // 32, 16), np.float32)
    assert not scale[-1, :, COLUMNS % 16 :].any()


def test_a_gpu_gets_floats(tmp_path):
    (weight,) = program(GPU, tmp_path).weights
    assert (weight.shape, weight.dtype) == ((DEPTH, COLUMNS), np.float32)


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
def test_one_product_is_one_kernel(target, tmp_path):
    templates = [task.template for task in program(target, tmp_path).tasks]
    assert len([name for name in templates if name in ("low_bit_matmul", "cuda_gemm")]) == 1


@pytest.mark.parametrize(
    ("rows", "level", "target", "template"),
    [
        (16, 4, AMX, "low_bit_tiles"),
        (15, 4, AMX, "low_bit_matmul"),
        (16, 1, AMX, "low_bit_panels"),
        (15, 1, CPU, "low_bit_matmul"),
        (197, 1, CPU, "low_bit_panels"),
        (16, 4, CPU, "low_bit_matmul"),
    ],
)
def test_many_rows_whose_activations_may_be_rounded_get_tiles(rows, level, target, template, tmp_path):
    model = load_model(written(packed((rows,), COLUMNS, DEPTH, 32, level=level).model(), tmp_path))
    templates = [task.template for task in import_program(simplified(model, target), target).tasks]
    assert template in templates
    assert len([name for name in templates if name.startswith("low_bit")]) == 1


@pytest.mark.parametrize(("rows", "whole"), [(17, 17), (29, 32), (128, 128), (130, 130), (197, 200), (202, 208)])
def test_many_rows_that_only_small_tiles_divide_are_padded(rows, whole):
    assert in_whole_tiles(rows) == whole
