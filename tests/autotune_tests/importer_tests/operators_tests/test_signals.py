"""Fourier transforms as products with constant matrices."""

import numpy as np
import pytest
from onnx import helper

from tests.autotune_tests.importer_tests.onnx_cases import model_of, rewritten, value

RNG = np.random.default_rng(0)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("parts", "attributes"), [(1, {}), (1, {"onesided": 1}), (2, {}), (2, {"inverse": 1})])
def test_dft(tmp_path, parts, attributes):
    model = model_of([helper.make_node("DFT", ["x"], ["y"], axis=1, **attributes)], [value("x", (2, 10, parts))], ["y"])
    assert "DFT" not in rewritten(model, tmp_path, {"x": array(2, 10, parts)})


def test_stft_reads_frames(tmp_path):
    weights = {"step": np.array(4), "window": np.hanning(8).astype(np.float32)}
    model = model_of(
        [helper.make_node("STFT", ["x", "step", "window"], ["y"])], [value("x", (1, 32, 1))], ["y"], weights
    )
    assert "STFT" not in rewritten(model, tmp_path, {"x": array(1, 32, 1)})
