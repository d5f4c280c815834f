"""Between kernels, quantised tensors are bytes."""

import numpy as np
import onnxruntime

from tests.autotune_tests.importer_tests.built import imported, run_ours
from tests.autotune_tests.importer_tests.conversion_tests.test_integer_graph import kernels
from tests.models.builder import Builder
from tests.models.quantised import _levels, _weight


def projected():
    """A residual block whose short cut is a convolution."""
    b, rng = Builder("projected"), np.random.default_rng(0)

    def conv(x, outputs, inputs):
        return b.op("Conv", x, _weight(b, rng, outputs, inputs, 1, 1), kernel_shape=[1, 1])

    x = _levels(b, b.input("image", (1, 16, 6, 6)), 8 / 255)
    short = _levels(b, conv(x, 32, 16), 5 / 255)
    y = _levels(b, conv(_levels(b, b.relu(conv(x, 32, 16)), 5 / 255, 0), 32, 32), 5 / 255)
    made = _levels(b, b.relu(b.op("Add", y, short)), 12 / 255, 0)
    return b.model(0, result=_levels(b, conv(made, 16, 32), 5 / 255))


def test_a_short_cut_lies_in_memory_as_bytes(tmp_path):
    model = projected()
    stored = [made for name, _, made, _ in kernels(imported(model, tmp_path)) if "conv2d" in name]
    assert stored == ["uint8"] * 3 + ["float32"], "what is computed last is the model's output"


def test_results_are_the_references(tmp_path):
    model = projected()
    feed = {"image": np.random.default_rng(1).standard_normal((1, 16, 6, 6)).astype(np.float32)}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)[0]
    quantum = 5 / 255
    assert np.abs(run_ours(model, tmp_path, feed)[0] - expected).max() <= quantum * 1.001
