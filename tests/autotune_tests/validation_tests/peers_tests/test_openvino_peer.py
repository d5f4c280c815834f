"""OpenVINO's precision: held to fp32, or its own choice."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import pytest

from autotune.host.machine import read_host
from autotune.validation.peers.openvino_peer import OPENVINO, OPENVINO_DEFAULT, openvino_precision
from autotune.validation.peers.peer import Work
from tests.autotune_tests.tiny import tiny_model


@pytest.mark.parametrize(
    ("layers", "floats", "precision"),
    [
        ([("Convolution", "f32"), ("Reorder", "bf16")], "f32", "fp32"),
        ([("Input", "f32"), ("Reorder", "f32"), ("FullyConnected", "bf16")], "bf16", "bf16"),
        ([("Convolution", "u8"), ("MatMul", "i8"), ("Subgraph", "f32")], "f32", "int8"),
        ([("Convolution", "u8"), ("MatMul", "bf16")], "bf16", "bf16+int8"),
        ([("Eltwise", "f16")], "f16", "fp16"),
    ],
)
def test_openvinos_precision_is_that_of_what_multiplies(
    layers: list[tuple[str, str]], floats: str, precision: str
) -> None:
    assert openvino_precision(layers, floats) == precision


@pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="OpenVINO is not installed")
def test_openvino_is_held_to_fp32_and_its_default_says_what_it_chose(tmp_path: Path) -> None:
    onnx.save(tiny_model(), tmp_path / "model.onnx")
    work = Work(tmp_path, 1, Path("a.tuned"), {"data": np.zeros((1, 16, 8, 8), np.float32)})
    assert OPENVINO.ways["openvino"](work).precision == "fp32"
    flags = read_host().flags
    expected = "bf16" if flags & {"avx512_bf16", "amx_bf16"} else "fp32"
    default = OPENVINO_DEFAULT.ways["openvino-default"](work)
    assert default.precision == expected
    default.run()
