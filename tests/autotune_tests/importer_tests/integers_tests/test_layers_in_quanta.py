"""Every layer of a quantised model is within one quantum of ONNX Runtime's, on what ONNX Runtime made before it."""

import numpy as np
import onnx
import pytest

import autotune
from autotune.options import INSTANT, Options
from tests.models.catalog import build
from tests.models.quantised import quantise
from tests.models.quantised_layers import READ, cut_at_quantised, layer_inputs, layer_quanta


def save(name, kind, path):
    """A quantised model at ``path``."""
    if kind == "as_is":
        onnx.save(build(name), path)
    else:
        quantise(build(name), kind, path)
    return onnx.load(path)


@pytest.mark.parametrize(
    ("name", "kind", "layers"),
    [("qdq_cnn", "as_is", 5), ("tiny_qdq", "as_is", 5), ("tiny_cnn", "u8s8", 5), ("tiny_cnn", "s8s8", 5)],
)
def test_every_layer_is_within_one_quantum(name, kind, layers, tmp_path):
    model = save(name, kind, tmp_path / "whole.onnx")
    cut = cut_at_quantised(model)
    onnx.save(cut, tmp_path / "layers.onnx")
    out = tmp_path / "layers.tuned"
    autotune.tune(tmp_path / "layers.onnx", Options(out=out, effort=INSTANT, log=tmp_path / "t.db"))
    (image,) = model.graph.input
    shape = [dim.dim_value for dim in image.type.tensor_type.shape.dim]
    rng = np.random.default_rng(3)
    feed = layer_inputs(model, {image.name: rng.standard_normal(shape).astype(np.float32)})
    assert sum(key.endswith(READ) for key in feed) >= layers
    session = autotune.InferenceSession(out)
    ours = dict(zip((arg.name for arg in session.get_outputs()), session.run(None, feed), strict=True))
    quanta = layer_quanta(cut, feed, ours)
    assert len(quanta) >= layers
    assert max(one.most for one in quanta) <= 1
    assert sum(one.differing for one in quanta) <= 0.01 * sum(one.elements for one in quanta)


def test_a_wrong_layer_is_seen(tmp_path):
    """Outputs that are shifted by two quanta in one layer."""
    model = save("qdq_cnn", "as_is", tmp_path / "whole.onnx")
    cut = cut_at_quantised(model)
    (image,) = model.graph.input
    shape = [dim.dim_value for dim in image.type.tensor_type.shape.dim]
    feed = layer_inputs(model, {image.name: np.zeros(shape, np.float32)})
    right = {name.removesuffix(READ): array for name, array in feed.items() if name.endswith(READ)}
    assert {one.most for one in layer_quanta(cut, feed, right)} == {0}
    name = next(iter(right))
    assert max(one.most for one in layer_quanta(cut, feed, {**right, name: right[name] + 2})) == 2
