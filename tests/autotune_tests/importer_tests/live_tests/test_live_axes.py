"""Axes that follow open sizes: behind strides, reshapes and concatenations, and at sizes that models refuse."""

import numpy as np
import pytest
from onnx import helper, numpy_helper, parser

from autotune.importer.live.live_axes import followed_axes, is_open
from autotune.importer.load import load_model
from autotune.interface import Extent, Growth, Joined, axis_size, axis_symbols

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[batch,4,n] x) => (float[a,b,c] y) {
    c = Conv<strides=[2], pads=[1,1]>(x, w)
    d = Conv<strides=[2], pads=[1,1]>(c, w)
    r = Reshape(d, parts)
    t = Transpose<perm=[0,2,1]>(d)
    f = Reshape(t, rows)
    s = Slice(x, one, many, two)
    j = Concat<axis=2>(c, d)
    k = Concat<axis=2>(one_position, c)
    u = ConvTranspose<strides=[2]>(d, v)
    y = Identity(j)
}"""


@pytest.fixture(scope="module")
def axes(tmp_path_factory):
    model = parser.parse_model(TEXT)
    names = {name for node in model.graph.node for name in node.output} - {"y"}
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in sorted(names))
    numbers = {"parts": [0, 2, -1], "rows": [-1, 4], "one": [1], "many": [1 << 30], "two": [2]}
    arrays = {name: np.array(values) for name, values in numbers.items()}
    arrays |= {name: np.ones(shape, np.float32) for name, shape in (("w", (4, 4, 3)), ("v", (4, 4, 2)))}
    arrays["one_position"] = np.zeros((1, 4, 1), np.float32)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    path = tmp_path_factory.mktemp("axes") / "m.onnx"
    path.write_bytes(model.SerializeToString())
    shapes = (("x", ("batch", 4, "n")),)

    def load(sizes):
        return load_model(path, {"x": (sizes["batch"], 4, sizes["n"])})

    return followed_axes(load, shapes, {"batch": 1, "n": 64})


@pytest.mark.parametrize(("value", "last"), [("c", 5), ("d", 3), ("s", 8), ("k", 6), ("u", 6)])
def test_the_last_axis_follows(axes, value, last):
    (part,) = axes[value][-1]
    assert part.symbol == "n"
    assert part.of({"n": 9}) == last


def test_a_reshape_puts_parts_together(axes):
    assert axes["r"][2] == (2, Extent("n", Growth(((1, 3, 4),))))
    assert axis_symbols(axes["f"][0]) == ["batch", "n"]


def test_a_size_that_is_alike_at_all_looks_may_follow(axes):
    assert axes["x"][0] == axes["c"][0] == (Extent("batch"),)  # a concatenation holds this model to a batch of 1


def test_one_behind_the_other(axes):
    (joined,) = axes["j"][2]
    assert isinstance(joined, Joined)
    assert axis_size(axes["j"][2], {"n": 9}) == 5 + 3
    assert is_open(axes["j"][2])
    assert not is_open(axes["j"][1])
