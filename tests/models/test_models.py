"""The models are alive: finite, not constant, led by their input, and the same for the same seed."""

import numpy as np
import onnx
import pytest

from tests.models import MODELS, build, catalog, random_inputs, run_reference, save
from tests.models.light import light

HEAVY = {"alexnet", "vgg19", "zfnet512", "encoder", "encoder_b8", "resnet50_b8"}
"""Hundreds of megabytes of weights, or a batch: seconds each."""

EACH = [pytest.param(name, marks=pytest.mark.slow) if name in HEAVY else name for name in MODELS]


@pytest.mark.parametrize("name", EACH)
def test_outputs_are_alive(name):
    model = build(name)
    first, again, other = (run_reference(model, random_inputs(model, seed)) for seed in (1, 1, 2))
    for output, values in first.items():
        assert np.isfinite(values).all(), output
        assert np.array_equal(values, again[output]), output
        scale = np.abs(values).max()
        assert 1e-3 < scale < 1e3, f"{output} vanishes or explodes: largest value {scale}"
        assert values.size == 1 or values.std() > 0.02 * scale, f"{output} is nearly constant"
        moved = np.abs(values - other[output]).max()
        assert moved > 0.005 * scale, f"{output} hardly depends on the input: {moved} of {scale}"


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "mobilenet_v2", "unet", "tiny_encoder", "resnet18"])
def test_no_layer_vanishes_or_explodes(name):
    model = build(name)
    values = run_reference(model, random_inputs(model), every=True)
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm", "MatMul"):
            assert 0.1 < values[node.output[0]].std() < 30, node.output[0]


def test_seed_decides_the_weights():
    one, same, other = (build("squeezenet", seed).SerializeToString() for seed in (0, 0, 1))
    assert one == same
    assert one != other


def test_every_weight_is_random():
    for tensor in build("resnet50").graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) > 1:
            assert np.unique(onnx.numpy_helper.to_array(tensor)).size > 1, tensor.name


def test_save_leaves_one_file(tmp_path):
    path = save("squeezenet", tmp_path / "deep" / "model.onnx")
    assert [file.name for file in path.parent.iterdir()] == ["model.onnx"]
    assert onnx.load(path) == build("squeezenet")


def test_cached_file_is_made_once_and_outdated_ones_go(tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "CACHE", tmp_path)
    for stale in ("tiny_mlp-00000000.onnx", "tiny_mlp-other-00000000.onnx", "mine.onnx"):
        (tmp_path / stale).touch()
    path = catalog.cached("tiny_mlp")
    stamp = path.stat().st_mtime_ns
    assert catalog.cached("tiny_mlp").stat().st_mtime_ns == stamp
    assert {file.name for file in tmp_path.iterdir()} == {path.name, "tiny_mlp-other-00000000.onnx", "mine.onnx"}


def test_the_batch_of_a_light_model_can_be_left_open():
    model = onnx.shape_inference.infer_shapes(light("squeezenet", batch="N"), strict_mode=True)
    for value in (model.graph.input[0], model.graph.output[0]):
        assert value.type.tensor_type.shape.dim[0].dim_param == "N"
