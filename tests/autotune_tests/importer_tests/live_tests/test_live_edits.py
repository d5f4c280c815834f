"""Padded calls of images and signals: whatever stands behind the end, results before it are those of the call alone."""

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from autotune.frame.noise import live_name
from autotune.importer.load import followed_sizes, load_model
from autotune.importer.onnx_model.open_axes import open_interface
from autotune.interface import Interface

CHANNELS = 8
RNG = np.random.default_rng(0)
WEIGHTS = {
    "w3": (CHANNELS, CHANNELS, 3, 3),
    "w1": (CHANNELS, CHANNELS, 1, 1),
    "d3": (CHANNELS, 1, 3, 3),
    "t2": (CHANNELS, CHANNELS, 2, 2),
    "t4": (CHANNELS, CHANNELS, 4, 4),
    "s5": (CHANNELS, CHANNELS, 5),
    "b": (CHANNELS,),
    "m": (CHANNELS, CHANNELS),
    "cls": (1, 1, CHANNELS),
}

IMAGES = {
    "convolutions": """
        a = Conv<pads=[1,1,1,1]>(x, w3, b)
        r = Relu(a)
        c = Conv<pads=[1,1,1,1], strides=[2,2]>(r, w3)
        y = Conv<pads=[1,1,1,1], group=8>(c, d3)""",
    "residual": """
        a = Conv<pads=[1,1,1,1]>(x, w3, b)
        s = Add(a, x)
        c = Conv<pads=[1,1,1,1]>(s, w3)
        d = Conv(s, w1)
        y = Add(c, d)""",
    "without padding": """
        a = Conv(x, w3, b)
        c = Conv<strides=[2,2], dilations=[2,2]>(a, w3)
        y = Relu(c)""",
    "auto pad": """
        a = Conv<auto_pad="SAME_UPPER">(x, w3, b)
        y = Conv<auto_pad="SAME_LOWER">(a, t4)""",
    "max pool": """
        n = Sub(x, ten)
        a = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(n)
        y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a)""",
    "max pool, ceil": """
        n = Sub(x, ten)
        a = MaxPool<kernel_shape=[2,2], ceil_mode=1, strides=[2,2]>(n)
        y = Conv<pads=[1,1,1,1]>(a, w3, b)""",
    "average pool": """
        a = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(x)
        c = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(a)
        y = AveragePool<kernel_shape=[2,2]>(c)""",
    "squeeze and excite": """
        a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w3, b)
        g = GlobalAveragePool(a)
        s = Sigmoid(g)
        e = Mul(a, s)
        y = Conv<pads=[1,1,1,1]>(e, w3)""",
    "means": """
        a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w3, b)
        g = ReduceMean<axes=[2,3], keepdims=0>(a)
        h = ReduceMax<axes=[2,3], keepdims=0>(a)
        y = Add(g, h)""",
    "joined": """
        a = Conv<pads=[1,1,1,1]>(x, w3, b)
        c = Conv<pads=[1,1,1,1]>(x, w3)
        j = Concat<axis=1>(a, c, x)
        y = Conv<pads=[2,2,2,2]>(j, wide)""",
    "instances": """
        a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w3, b)
        n = InstanceNormalization(a, b, b)
        y = Conv<pads=[1,1,1,1]>(n, w3)""",
    "groups": """
        r = Reshape(x, grouped)
        n = InstanceNormalization(r, two, two)
        s = Shape(x)
        y = Reshape(n, s)""",
    "enlarged": """
        a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w3, b)
        e = ConvTranspose<strides=[2,2]>(a, t2)
        y = ConvTranspose<strides=[2,2], pads=[1,1,1,1]>(e, t4)""",
    "nearest": """
        e = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, , doubled)
        y = Conv<pads=[1,1,1,1]>(e, w3, b)""",
    "pad": """
        a = Conv(x, w1, b)
        p = Pad(a, border)
        c = Conv(p, w3)
        q = Pad(c, border, ten)
        y = Conv(q, w3)""",
    "linear": """
        a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w3, b)
        e = Resize<mode="linear", coordinate_transformation_mode="half_pixel">(a, , doubled)
        y = Conv<pads=[1,1,1,1]>(e, w3, b)""",
    "repeated border": """
        a = Conv(x, w1, b)
        p = Pad<mode="edge">(a, border)
        y = Conv(p, w3)""",
    "boxes": """
        a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w3, b)
        c = Conv<pads=[1,1,1,1], strides=[2,2]>(a, w3, b)
        f = Reshape(a, flat)
        g = Reshape(c, flat)
        j = Concat<axis=2>(f, g)
        s = Sigmoid(j)
        y = Transpose<perm=[0,2,1]>(s)""",
    "rows of an image": """
        a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w3, b)
        t = Transpose<perm=[0,2,3,1]>(a)
        y = Reshape(t, rows)""",
    "attention": """
        a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w3, b)
        f = Reshape(a, flat)
        t = Transpose<perm=[0,2,1]>(f)
        q = MatMul(t, m)
        k = Transpose<perm=[0,2,1]>(q)
        s = MatMul(q, k)
        p = Softmax<axis=-1>(s)
        v = MatMul(p, t)
        y = ReduceMean<axes=[1], keepdims=0>(v)""",
}

SIGNALS = {
    "strides": """
        a = Conv<strides=[5]>(x, s5, b)
        g = Gelu(a)
        c = Conv<strides=[2], pads=[2,2]>(g, s5)
        n = InstanceNormalization(c, b, b)
        y = Transpose<perm=[0,2,1]>(n)""",
    "recurrent": """
        c = Conv<strides=[2], pads=[2,2]>(x, s5, b)
        t = Transpose<perm=[2,0,1]>(c)
        h, last = GRU<hidden_size=4, direction="bidirectional", linear_before_reset=1>(t, gw, gr)
        y = Squeeze(h, three)""",
    "groups of a signal": """
        r = Reshape(x, grouped)
        n = InstanceNormalization(r, two, two)
        s = Shape(x)
        g = Reshape(n, s)
        y = Conv<pads=[2,2]>(g, s5)""",
    "a first position": """
        c = Conv<strides=[2], pads=[2,2]>(x, s5, b)
        t = Transpose<perm=[0,2,1]>(c)
        j = Concat<axis=1>(cls, t)
        q = MatMul(j, m)
        k = Transpose<perm=[0,2,1]>(j)
        s = MatMul(q, k)
        p = Softmax<axis=-1>(s)
        v = MatMul(p, j)
        y = Slice(v, zero, one, one)""",
    "the last positions": """
        c = Conv<strides=[2], pads=[2,2]>(x, s5, b)
        l = Gather<axis=2>(c, last)
        k = Gather<axis=2>(c, ends)
        m_ = ReduceMean<axes=[2], keepdims=0>(k)
        y = Add(l, m_)""",
    "strided slice": """
        e = Slice(x, zero, end, two_, two_)
        o = Slice(x, one, end, two_, two_)
        a = Conv<pads=[2,2]>(e, s5)
        c = Conv<pads=[2,2]>(o, s5)
        u = ReduceMean<axes=[2]>(a)
        w = ReduceMean<axes=[2]>(c)
        y = Add(u, w)""",
}


def model_of(body, shape, opset=17):
    body = body if "Gelu" not in body else body.replace("Gelu", "Tanh")
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[{shape}] x) => (float y) {{{body}\n}}'
    model = parser.parse_model(text.replace("float y", "float[?] y"))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    numbers = {
        "ten": np.float32(10),
        "grouped": np.array([0, 2, -1]),
        "two": np.array([1.5, 0.5], np.float32),
        "doubled": np.array([1, 1, 2, 2], np.float32),
        "border": np.array([0, 0, 1, 2, 0, 0, 2, 1]),
        "flat": np.array([0, 0, -1]),
        "rows": np.array([-1, CHANNELS]),
        "three": np.array([2]),
        "last": np.array(-1),
        "ends": np.array([-3, -1]),
        "zero": np.array([0]),
        "one": np.array([1]),
        "two_": np.array([2]),
        "end": np.array([1 << 40]),
        "wide": RNG.standard_normal((CHANNELS, 3 * CHANNELS, 5, 5)).astype(np.float32),
        "gw": RNG.standard_normal((2, 12, CHANNELS)).astype(np.float32),
        "gr": RNG.standard_normal((2, 12, 4)).astype(np.float32),
    }
    numbers |= {name: RNG.standard_normal(size).astype(np.float32) / 3 for name, size in WEIGHTS.items()}
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in numbers.items() if k in used)
    return model


def run(model, feed):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = {value.name for value in session.get_inputs()}
    return session.run(None, {name: array for name, array in feed.items() if name in wanted})[0]


def check(model, path, full, sizes, behind, tolerance=1e-5):
    """Compare padded calls with calls alone.

    Args:
        full: open size → what it is in the set of shapes.
        sizes: those of calls.
    """
    path.write_bytes(model.SerializeToString())
    (value,) = model.graph.input
    dims = [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]

    def shape(own):
        return tuple(own.get(dim, dim) for dim in dims)

    inputs = {"x": shape(full), **{live_name(name): (size,) for name, size in full.items()}}
    masked, (known, _) = load_model(path, inputs), followed_sizes(path, inputs)
    wide, narrow = (
        [
            [
                (name, one, "float32")
                for name, one in {"x": shape(own), **{live_name(n): (s,) for n, s in own.items()}}.items()
            ]
        ]
        for own in (sizes[0], sizes[1])
    )
    outputs = [
        [("y", run(model, {"x": np.zeros(shape(own), np.float32)}).shape, "float32")] for own in (sizes[0], sizes[1])
    ]
    interface = open_interface(model, [*wide, *narrow], outputs, known)
    for own in sizes:
        x = np.full(shape(full), behind, np.float32)
        x[tuple(map(slice, shape(own)))] = RNG.standard_normal(shape(own))
        live = {live_name(name): np.arange(size) < own[name] for name, size in full.items()}
        alone = run(model, {"x": np.ascontiguousarray(x[tuple(map(slice, shape(own)))])})
        padded = run(masked, {"x": x, **live})
        part = interface.cut_output(0, padded, full, own)
        assert Interface.from_data(interface.to_data()) == interface
        np.testing.assert_allclose(part, alone, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("behind", [0.0, 1e4])
@pytest.mark.parametrize("name", IMAGES)
def test_images_end_where_the_call_does(name, behind, tmp_path):
    model = model_of(IMAGES[name], "1,8,height,width")
    sizes = [{"height": h, "width": w} for h, w in ((32, 40), (31, 23), (16, 40), (9, 11))]
    check(model, tmp_path / "m.onnx", sizes[0], sizes, behind)


@pytest.mark.parametrize("behind", [0.0, 1e4])
@pytest.mark.parametrize("name", SIGNALS)
def test_signals_end_where_the_call_does(name, behind, tmp_path):
    model = model_of(SIGNALS[name], "batch,8,time")
    sizes = [{"batch": 1, "time": time} for time in (160, 159, 97, 80, 33)]
    check(model, tmp_path / "m.onnx", sizes[0], sizes, behind)
