"""Every form of operators that are rewritten, against ONNX Runtime. The normal suite has a sample."""

from itertools import product

import numpy as np
import pytest

from tests.autotune_tests.importer_tests.families import Case, model_of_cases, rewritten, wrong

RNG = np.random.default_rng(0)
SAMPLE = 6
"""One case in so many is in the normal suite."""


def data(*shape, dtype=np.float32):
    if np.dtype(dtype).kind in "iu":
        return RNG.integers(-9 if np.dtype(dtype).kind == "i" else 0, 99, shape).astype(dtype)
    return RNG.standard_normal(shape).astype(dtype)


def positive(*shape, dtype=np.float32):
    return (RNG.random(shape) + 0.5).astype(dtype)


NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
WHERE = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn")


def resizes():
    sizes = ((14, 32), (20, 14), (26, 64), (7, 1), (1, 5), (5, 5), (13, 6))
    for where, mode, (a, b) in product(WHERE, NEAREST, sizes):
        more = {"mode": "nearest", "nearest_mode": mode, "coordinate_transformation_mode": where}
        yield Case("Resize", [data(1, 2, a), None, None, np.array([1, 2, b])], [3], 1, 11, more)
    shapes = (
        ((1, 2, 7, 9), (1, 2, 13, 4)),
        ((1, 2, 7, 9), (1, 2, 1, 1)),
        ((6, 5), (9, 4)),
        ((1, 3, 7), (1, 3, 12)),
        ((1, 1, 3, 4, 5), (1, 1, 4, 7, 3)),
        ((1, 6, 7, 3), (1, 9, 5, 3)),
        ((1, 2, 6, 7), (1, 2, 6, 10)),
    )
    kinds = (np.float32, np.float16, np.uint8, np.int8, np.int32)
    for where, dtype, mode, (shape, out) in product(WHERE, kinds, ("linear", "cubic"), shapes):
        more = {"mode": mode, "coordinate_transformation_mode": where}
        yield Case("Resize", [data(*shape, dtype=dtype), None, None, np.array(out)], [3], 1, 11, more)
    for scale, mode in product((0.7, 1.1, 2.5, 0.31, 1.3333), ("nearest", "linear", "cubic")):
        scales = np.array([1, 1, scale, scale], np.float32)
        yield Case("Resize", [data(1, 2, 10, 9), None, scales], [2], 1, 18, {"mode": mode})
        for policy in ("not_larger", "not_smaller"):
            more = {"mode": mode, "axes": [2, 3], "keep_aspect_ratio_policy": policy}
            yield Case("Resize", [data(1, 2, 10, 9), None, None, np.array([int(10 * scale) + 1, 8])], [3], 1, 18, more)
    for mode in ("nearest", "linear"):
        mixed = np.array([1, 1, 0.5, 1.5], np.float32)
        yield Case("Resize", [data(1, 2, 10, 9), mixed], [1], 1, 10, {"mode": mode})
    for scale, mode in product((0.5, 0.6, 2.0, 3.0), ("nearest", "linear")):
        scales = [1.0, 1.0, scale, scale]
        yield Case("Resize", [data(1, 2, 10, 9), np.array(scales, np.float32)], [1], 1, 10, {"mode": mode})
        if scale >= 1:
            yield Case("Upsample", [data(1, 2, 10, 9), np.array(scales, np.float32)], [1], 1, 9, {"mode": mode})
            yield Case("Upsample", [data(1, 2, 10, 9)], [], 1, 7, {"mode": mode, "scales": scales})


def norms():
    for shape, axis in (((2, 12, 32), -1), ((2, 12, 32), 1), ((2, 12, 32), 0), ((2, 3, 4, 5), -2), ((7,), 0)):
        norm = shape[axis:]
        for scale in (norm, (1,) * (len(shape) - len(norm)) + norm, norm[-1:], (), (1,), shape):
            for bias in (None, norm, scale):
                more = [] if bias is None else [data(*bias)]
                inputs = [data(*shape), positive(*scale), *more]
                yield Case("LayerNormalization", inputs, [1, 2][: len(inputs) - 1], 1, 17, {"axis": axis})
        yield Case("LayerNormalization", [data(*shape), positive(*norm), data(*norm)], [], 3, 17, {"axis": axis})
        half = [data(*shape, dtype=np.float64), positive(*norm, dtype=np.float64), data(*norm, dtype=np.float64)]
        yield Case("LayerNormalization", half, [1, 2], 1, 17, {"axis": axis})
    for opset, axes in product((9, 13), ({}, {"axes": [0, 1, 2, 3]}, {"axes": [3]})):
        yield Case("MeanVarianceNormalization", [data(2, 3, 4, 5)], [], 1, opset, axes)
    own_shape = (3, 4, 5)
    inputs = [data(2, *own_shape), positive(*own_shape), data(*own_shape), data(*own_shape), positive(*own_shape)]
    yield Case("BatchNormalization", inputs, [1, 2, 3, 4], 1, 7, {"spatial": 0})
    for opset, shape, constants in product((7, 9, 15), ((2, 3), (2, 3, 4), (2, 3, 4, 5)), ([1, 2, 3, 4], [])):
        inputs = [data(*shape), positive(3), data(3), data(3), positive(3)]
        yield Case("BatchNormalization", inputs, constants, 1, opset, {"epsilon": 1e-2})
    for shape, groups in product(((2, 6, 5), (2, 6, 4, 5)), (1, 2, 3, 6)):
        yield Case(
            "GroupNormalization", [data(*shape), positive(groups), data(groups)], [1, 2], 1, 18, {"num_groups": groups}
        )
        yield Case("GroupNormalization", [data(*shape), positive(6), data(6)], [1, 2], 1, 21, {"num_groups": groups})


def pads_and_pools():
    pads = ([0, 3, 0, -2], [-1, 2, -2, 1], [-2, -2, 1, 0], [1, -3, 1, 4], [2, 1, 0, 0])
    for mode, pad, dtype in product(("wrap", "reflect", "edge", "constant"), pads, (np.float32, np.int32)):
        yield Case("Pad", [data(5, 6, dtype=dtype), np.array(pad)], [1], 1, 19, {"mode": mode})
    for kind, ceil in product(("MaxPool", "AveragePool", "LpPool"), (0, 1)):
        for shape, kernel, strides, pad, dilations in (
            ((1, 2, 10), [3], [2], [0, 0], [1]),
            ((1, 2, 10), [3], [3], [1, 1], [2]),
            ((1, 2, 9, 11), [3, 2], [2, 3], [0, 0, 0, 0], [1, 1]),
            ((1, 2, 9, 11), [3, 3], [3, 3], [1, 1, 1, 1], [1, 2]),
            ((1, 2, 6, 7, 8), [2, 3, 2], [2, 2, 3], [0] * 6, [1, 1, 1]),
        ):
            more = {"kernel_shape": kernel, "strides": strides, "pads": pad, "dilations": dilations, "ceil_mode": ceil}
            yield Case(kind, [data(*shape)], [], 1, 19, more)


SUMS = (
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSumExp",
    "ReduceSumSquare",
)


def reductions():
    for kind, dtype in product(SUMS, (np.float32, np.float64, np.int32, np.int64)):
        x = data(3, 4, 5, dtype=dtype)
        yield Case(kind, [x], [], 1, 11, {"axes": [1], "keepdims": 1})
        yield Case(kind, [x], [], 1, 13, {"keepdims": 0})
        yield Case(kind, [x, np.array([0, -1])], [1], 1, 18, {"keepdims": 0})
        if kind != "ReduceLogSumExp" or dtype in (np.float32, np.float64):
            yield Case(kind, [x, np.array([], np.int64)], [1], 1, 18, {"noop_with_empty_axes": 1})
    for kind, dtype, last in product(("ArgMax", "ArgMin"), (np.float32, np.uint8, np.int8, np.int32), (0, 1)):
        x = np.zeros((4, 3), dtype) if dtype == np.uint8 else data(4, 3, dtype=dtype)
        yield Case(kind, [x], [], 1, 13, {"axis": 1, "select_last_index": last})
    for dtype, (a, b) in product((np.int32, np.int64), (((3, 4), (4, 5)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)))):
        yield Case("MatMul", [data(*a, dtype=dtype), data(*b, dtype=dtype)], [], 1, 13)


def old_meanings():
    """All axes from ``axis`` on count as one below opset 13."""
    for kind, opset, axis in product(("Hardmax", "Softmax", "LogSoftmax"), (7, 11, 12, 13), (None, 0, 1, 2, -1)):
        if opset > 7 or axis != -1:
            yield Case(kind, [data(2, 3, 4)], [], 1, opset, {} if axis is None else {"axis": axis})


FP64 = ("Elu", "Selu", "ThresholdedRelu", "HardSigmoid", "LeakyRelu", "Sigmoid", "Tanh", "Softplus", "Softsign", "Celu")


FAMILIES = {family.__name__: family for family in (resizes, norms, pads_and_pools, reductions, old_meanings)}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sample_is_rewritten_right(family, tmp_path):
    assert wrong(list(FAMILIES[family]())[::SAMPLE], tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_all_are_rewritten_right(family, tmp_path):
    assert wrong(list(FAMILIES[family]()), tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_of_a_sample_are_right(family, tmp_path):
    assert wrong(list(FAMILIES[family]())[:: 4 * SAMPLE], tmp_path, built=True) == []


@pytest.mark.parametrize(
    ("points", "parts", "onesided", "inverse"),
    [(4100, 1, 1, 0), (4099, 2, 0, 0), (4099, 1, 0, 1), (8192, 1, 1, 0), (6000, 2, 0, 1), (16384, 2, 0, 0)],
)
def test_long_transforms_are_close_to_the_exact_ones(points, parts, onesided, inverse, tmp_path):
    """ONNX Runtime's own are farther away where the length is no power of two."""
    signal = data(2, points, parts)
    case = Case("DFT", [signal], [], 1, 17, {"onesided": onesided, "inverse": inverse})
    spectrum = rewritten(*model_of_cases([case]), tmp_path)[0].T
    whole = signal[..., 0] + (1j * signal[..., 1] if parts == 2 else 0)
    exact = (np.fft.ifft if inverse else np.fft.fft)(whole.astype(np.complex128))[:, : spectrum.shape[1]]
    scale = np.sqrt(np.mean(np.abs(exact) ** 2))
    assert np.abs(spectrum[..., 0] + 1j * spectrum[..., 1] - exact).max() < 2e-5 * scale


@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_last_windows_of_lp_pools_are_of_zeros_too(p, tmp_path):
    more = {"kernel_shape": [3, 2], "strides": [2, 3], "p": p}
    windows = ({"ceil_mode": 1}, {"ceil_mode": 1, "pads": [1, 0, 1, 1]}, {"auto_pad": "SAME_LOWER"})
    cases = [Case("LpPool", [data(1, 2, 8, 9)], [], 1, 18, {**more, **window}) for window in windows]
    assert wrong(cases, tmp_path, built=True) == []


def test_the_index_of_an_extreme_passes_over_nan_but_a_first_one(tmp_path):
    cases = []
    for kind, axis, dtype in product(("ArgMax", "ArgMin"), (0, 1), (np.float16, np.float32, np.float64)):
        for gaps in ([], [0, 8], [1], list(range(9))):
            x = data(9, 9, dtype=dtype)
            x[:, gaps], x[gaps, :] = np.nan, np.nan
            cases.append(Case(kind, [x], [], 1, 13, {"axis": axis, "keepdims": axis}))
    assert wrong(cases, tmp_path, built=True) == []


def test_floats_are_divided_by_zero(tmp_path):
    cases = []
    for dtype, zero, shape in product((np.float16, np.float32, np.float64), (0.0, -0.0), ((), (1,), (1, 1), (5,))):
        x = np.array([[-2, -0.0, 0, np.inf, np.nan]], dtype)
        cases.append(Case("Div", [x, np.full(shape, zero, dtype)], [1], 1, 14))
    assert wrong(cases, tmp_path, built=True) == []


def test_fp64_stays_fp64(tmp_path):
    cases = [Case(kind, [data(7, 9, dtype=np.float64)], [], 1, 18) for kind in FP64]
    for shape in ((6, 4, 3), (6, 4, 3, 2)):
        image = data(2, 4, *[9] * (len(shape) - 2), dtype=np.float64)
        cases.append(Case("Conv", [image, data(*shape, dtype=np.float64)], [1], 1, 18))
    assert wrong(cases, tmp_path, built=True, rtol=1e-9, atol=1e-10) == []


def test_unpooling_by_places_of_the_output(tmp_path):
    from onnx import helper

    from tests.autotune_tests.importer_tests.built import close, run
    from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

    nodes = [
        helper.make_node("MaxPool", ["x"], ["p", "at"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("MaxUnpool", ["p", "at", "shape"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    model = model_of(nodes, [value("x", (1, 2, 7, 9))], ["y"], {"shape": np.array([1, 2, 7, 9])})
    assert close(*run(model, tmp_path, {"x": data(1, 2, 7, 9)}))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_the_last_states_of_an_empty_sequence_are_zeros(kind, tmp_path):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    inputs = [data(4, 3, 5), data(2, gates * 6, 5), data(2, gates * 6, 6), None, np.array([4, 0, 2], np.int32)]
    states = [data(2, 3, 6)] * (2 if kind == "LSTM" else 1)
    more = {"hidden_size": 6, "direction": "bidirectional"}
    assert wrong([Case(kind, [*inputs, *states], [1, 2], 1 + len(states), 14, more)], tmp_path) == []
