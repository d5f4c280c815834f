"""Models whose own arithmetic is coarse are verified and their mistakes found: 16-bit, quantised, crossing zero."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.transformers.float16 import convert_float_to_float16

from autotune.importer.load import load_model
from autotune.measure.local_measurer import LocalMeasurer
from autotune.validation.reference_runs import Reference
from autotune.validation.verify import compare, compare_artifact
from tests.autotune_tests.tiny import build_untuned, target
from tests.models.builder import Builder

SIZE, WIDTH = 12, 16
OFFSETS = {"crossing": 1e4, "near": 1e2}
KINDS = ("fp16", "u8", "s8", "crossing")


def resnet(classes: int = 200, seed: int = 0) -> onnx.ModelProto:
    """Two residual blocks behind a stem, pooled, and a dense layer."""
    b, rng = Builder("resnet"), np.random.default_rng(seed)

    def conv(x: str, outputs: int, inputs: int) -> str:
        weight = rng.standard_normal((outputs, inputs, 3, 3)) * np.sqrt(2 / (9 * inputs))
        bias = b.constant(rng.standard_normal(outputs).astype(np.float32) / 10)
        return b.op("Conv", x, b.constant(weight.astype(np.float32)), bias, pads=[1] * 4)

    x = b.relu(conv(b.input("image", (1, 3, SIZE, SIZE)), WIDTH, 3))
    for _ in range(2):
        x = b.relu(b.op("Add", x, conv(b.relu(conv(x, WIDTH, WIDTH)), WIDTH, WIDTH)))
    x = b.op("Flatten", b.op("MaxPool", x, kernel_shape=[4, 4], strides=[4, 4]))
    weight = rng.standard_normal((9 * WIDTH, classes)).astype(np.float32) / np.sqrt(9 * WIDTH)
    return b.model(seed, scores=b.op("Gemm", x, b.constant(weight), b.constant(np.zeros(classes, np.float32))))


def crossing(offset: float, seed: int = 0) -> onnx.ModelProto:
    """A map of differences of large numbers: its values near zero are good to the rounding of the large ones only."""
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((4, WIDTH, 3, 3))
    weights = {
        "v": rng.standard_normal((2 * WIDTH, 3, 3, 3)),
        "a": np.full(2 * WIDTH, offset),
        "w": np.concatenate([half, -half], 1),
        "b": rng.standard_normal(4),
    }
    nodes = [
        helper.make_node("Conv", ["image", "v", "a"], ["c"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "w", "b"], ["map"], "second", pads=[1] * 4),
    ]
    ends = (("image", 3), ("map", 4))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, size, SIZE, SIZE)) for name, size in ends]
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "crossing", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Images(CalibrationDataReader):
    """What ONNX Runtime's quantiser looks at."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        self._left = [rng.standard_normal((1, 3, SIZE, SIZE)).astype(np.float32) for _ in range(4)]

    def get_next(self):
        return {"image": self._left.pop()} if self._left else None


def save(kind: str, folder: Path) -> Path:
    path = folder / f"{kind}.onnx"
    onnx.save(crossing(OFFSETS[kind]) if kind in OFFSETS else resnet(), path)
    if kind == "fp16":
        onnx.save(convert_float_to_float16(onnx.load(path)), path)
    if kind in ("u8", "s8"):
        quantize_static(
            path,
            path,
            Images(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8 if kind == "u8" else QuantType.QInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arithmetic")
    return {kind: save(kind, folder) for kind in (*KINDS, "near")}


@pytest.mark.parametrize("kind", KINDS)
def test_its_artifact_passes(kind, files, tmp_path):
    with LocalMeasurer(target()) as measurer:
        out = build_untuned(files[kind], tmp_path / "out.tuned", measurer)
    reference = Reference(load_model(files[kind]))
    verdicts = [compare_artifact(out, reference, seed) for seed in range(3)]
    assert all(verdict.passed for verdict in verdicts), verdicts
    if kind == "fp16":
        assert "fp64" in [verdict.bound for verdict in verdicts]


def judged(path: Path, wrong: onnx.ModelProto, seed: int = 0):
    """The verdict over what ONNX Runtime makes of a model with a mistake, as if ours were so."""
    image = np.random.default_rng(seed).standard_normal((1, 3, SIZE, SIZE)).astype(np.float32)
    right = load_model(path)
    kind = right.graph.input[0].type.tensor_type.elem_type
    feed = {"image": image.astype(onnx.helper.tensor_dtype_to_np_dtype(kind))}
    reference = Reference(right)
    name, theirs = reference.outputs(feed)
    return compare(name, Reference(wrong).outputs(feed)[1], theirs, lambda: reference.allowance(feed))


def altered(path: Path, op: str, position: int, change) -> onnx.ModelProto:
    """The model with another input ``position`` of one ``op``, the middle one of those that have it as a weight."""
    model = load_model(path)
    weights = {weight.name: weight for weight in model.graph.initializer}
    nodes = [
        node
        for node in model.graph.node
        if node.op_type == op and len(node.input) > position and node.input[position] in weights
    ]
    node = nodes[len(nodes) // 2]
    name = f"{node.input[position]}.wrong"
    model.graph.initializer.append(
        numpy_helper.from_array(change(numpy_helper.to_array(weights[node.input[position]])), name)
    )
    node.input[position] = name
    return model


MISTAKES = {
    "zero point": ("QuantizeLinear", 2, lambda zero: (zero + 1).astype(zero.dtype)),
    "scale": ("QuantizeLinear", 1, lambda scale: scale * np.float32(1.03)),
    "scale back": ("DequantizeLinear", 1, lambda scale: scale * np.float32(1.03)),
    "saturation": ("DequantizeLinear", 0, lambda codes: np.clip(codes, -90, 90).astype(codes.dtype)),
}


@pytest.mark.parametrize("kind", ["u8", "s8"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_quantised_models_are_found(kind, mistake, files):
    verdict = judged(files[kind], altered(files[kind], *MISTAKES[mistake]))
    assert not verdict.passed
    assert verdict.bound == "fp64"


def test_another_order_of_sums_is_right(files):
    model = load_model(files["crossing"])
    order = np.random.default_rng(0).permutation(2 * WIDTH)
    for weight in model.graph.initializer:
        array = numpy_helper.to_array(weight)
        for axis in (0, 1):
            if array.ndim > axis and array.shape[axis] == 2 * WIDTH:
                weight.CopyFrom(numpy_helper.from_array(array.take(order, axis), weight.name))
    verdict = judged(files["crossing"], model)
    assert verdict.passed, verdict
    assert verdict.bound == "fp64"


def test_a_weight_array_off_by_a_thousandth_is_found(files):
    for seed in (1, 2):
        wrong = altered(files["near"], "Conv", 1, lambda weight: weight * np.float32(1.001))
        assert not judged(files["near"], wrong, seed).passed


@pytest.mark.parametrize("op", ["Conv", "Gemm"])
def test_a_weight_array_off_by_a_hundredth_is_found_in_16_bits(op, files):
    assert not judged(files["fp16"], altered(files["fp16"], op, 1, lambda weight: weight * np.float16(1.01))).passed
