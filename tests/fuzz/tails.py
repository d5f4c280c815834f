"""An operator with arguments that exporters seldom write, behind a value of a model; its result is an output."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from tests.fuzz.draft import FLOAT, Draft
from tests.fuzz.grower import NoFitError


def _behind(d: Draft, kind: str, *inputs: str, dtype: int = FLOAT, outputs: int = 1, **attributes: Any) -> str:
    """A node behind its inputs, whose outputs are the model's; the first of them."""
    node = d.node(kind, *inputs, outputs=outputs, **attributes)
    d.insert(max(d.position(name) for name in inputs if name), [node])
    d.output(node.output[0], dtype)
    return node.output[0]


def _since(d: Draft, opset: int) -> None:
    if d.opset < opset:
        raise NoFitError


def _ints(d: Draft, *numbers: int) -> str:
    return d.constant(np.array(numbers, np.int64))


def _image(d: Draft) -> str:
    return str(d.pick(d.values(lambda name: len(d.shape(name)) == 4)))


def padded(d: Draft) -> None:
    """Some axes are padded, or one end is and the other cropped, in any mode."""
    _since(d, 13)
    name = d.pick(d.values(lambda name: len(d.shape(name)) >= 1))
    shape = d.shape(name)
    modes = ["constant", "edge", "reflect", *(["wrap"] if d.opset >= 19 else [])]
    mode = str(d.pick(modes))
    axes = sorted(int(axis) for axis in d.rng.permutation(len(shape))[: int(d.rng.integers(1, len(shape) + 1))])
    if d.opset < 18 or d.chance(0.3):
        axes = list(range(len(shape)))
    reach = [min(3, shape[axis] - 1) for axis in axes]
    pads = [int(d.rng.integers(-(most > 1), most + 1)) for most in (*reach, *reach)]
    value = [d.constant(np.float32(0.5))] if mode == "constant" and d.chance(0.5) else [""]
    named = [_ints(d, *(axis - d.pick((0, len(shape))) for axis in axes))] if len(axes) < len(shape) else []
    _behind(d, "Pad", name, _ints(d, *pads), *([*value, *named] if named or value != [""] else []), mode=mode)


def resized(d: Draft) -> None:
    """An image, of floats or of bytes, gets any size, by any rule."""
    _since(d, 13)
    name = _image(d)
    shape = d.shape(name)
    mode = str(d.pick(("nearest", "nearest", "linear", "cubic")))
    places = str(d.pick(("asymmetric", "asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")))
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": places}
    if mode == "nearest":
        attributes["nearest_mode"] = str(d.pick(("floor", "floor", "round_prefer_floor", "ceil")))
    if mode == "cubic" and d.chance(0.5):
        attributes["cubic_coeff_a"] = -0.5
    sizes = (*shape[:2], *(_other_size(d, size) for size in shape[2:]))
    if d.chance(0.2) and mode != "cubic":
        scaled = d.node("Mul", name, d.constant(np.float32(50)))
        short = d.node("Cast", scaled.output[0], to=TensorProto.UINT8)
        clipped = d.node("Abs", name)
        scaled.input[0] = clipped.output[0]
        if d.position(name):
            raise NoFitError  # a rounding of a computed value is ill-conditioned
        node = d.node("Resize", short.output[0], "", "", _ints(d, *sizes), **attributes)
        d.insert(0, [clipped, scaled, short, node])
        d.output(node.output[0], TensorProto.UINT8)
        return
    _behind(d, "Resize", name, "", "", _ints(d, *sizes), **attributes)


def _other_size(d: Draft, size: int) -> int:
    """Mostly one whose ratio is a small fraction: there places fall on whole numbers, or just below."""
    factor = int(d.pick([n for n in range(1, size + 1) if size % n == 0]))
    return size // factor * int(d.rng.integers(1, 3 * factor + 2))


def normalised(d: Draft) -> None:
    """A LayerNormalization over any last axes, with a scale that is broadcast."""
    _since(d, 17)
    name = d.pick(d.values(lambda name: len(d.shape(name)) >= 2 and d.shape(name)[-1] > 3))
    shape = d.shape(name)
    axis = int(d.rng.integers(1, len(shape)))
    dims = list(shape[axis:])
    kind = d.pick(("whole", "leading", "less"))
    if kind == "leading":
        dims = [1] * axis + dims
    elif kind == "less":
        dims = dims[1:] if len(dims) > 1 else dims
    inputs = [d.constant((0.5 + d.rng.random(dims)).astype(np.float32))]
    inputs += [d.constant(d.rng.standard_normal(dims).astype(np.float32))] if d.chance(0.6) else []
    _behind(d, "LayerNormalization", name, *inputs, axis=axis - d.pick((0, len(shape))), epsilon=1e-3)


def soft(d: Draft) -> None:
    """Softmax or LogSoftmax along any axis, or along the default one."""
    name = d.pick(d.values(lambda name: len(d.shape(name)) >= 1))
    axis = int(d.rng.integers(-len(d.shape(name)) if d.opset >= 11 else 0, len(d.shape(name))))
    kind = str(d.pick(("Softmax", "LogSoftmax")))
    _behind(d, kind, name, **({} if d.chance(0.3) else {"axis": axis}))
    if d.chance(0.5) and len(d.shape(name)) > 1:
        _behind(d, kind, name, axis=(axis + 1) % len(d.shape(name)))


def truncated(d: Draft) -> None:
    """An input is cast to integers and back, at times after integers are reduced."""
    name = d.pick(d.values(lambda name: d.position(name) == 0))
    scaled = d.node("Mul", name, d.constant(np.float32(7)))
    cast = d.node("Cast", scaled.output[0], to=int(d.pick((TensorProto.INT32, TensorProto.INT64))))
    nodes = [scaled, cast]
    if d.chance(0.5) and len(d.shape(name)):
        kinds = ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean", "ReduceProd", "ReduceSumSquare", "ReduceL1")
        nodes.append(d.node(str(d.pick(kinds)), cast.output[0], keepdims=d.pick((0, 1))))
    nodes.append(d.node("Cast", nodes[-1].output[0], to=FLOAT))
    d.insert(0, nodes)
    d.output(nodes[-1].output[0])


def pooled(d: Draft) -> None:
    """A pool that rounds up, counts its padding, is dilated or takes a norm."""
    name = _image(d)
    sides = d.shape(name)[2:]
    window = [int(d.rng.integers(1, min(4, side) + 1)) for side in sides]
    pads = [int(d.rng.integers(0, (size + 1) // 2)) for size in window * 2]
    attributes: dict[str, Any] = {"kernel_shape": window, "pads": pads, "strides": [d.pick((1, 2, 3)) for _ in sides]}
    kind = str(d.pick(("MaxPool", "AveragePool", "LpPool")))
    if kind == "LpPool":
        attributes["p"] = d.pick((1, 2, 3))
    if kind == "AveragePool":
        attributes["count_include_pad"] = d.pick((0, 1))
    if d.opset >= (18 if kind == "LpPool" else 10) and d.chance(0.6):
        attributes["ceil_mode"] = 1
    _behind(d, kind, name, **attributes)


def enlarged(d: Draft) -> None:
    """A ConvTranspose with groups, dilations, output padding or auto_pad."""
    name = _image(d)
    channels = d.shape(name)[1]
    groups = d.pick([n for n in (1, 2, channels) if channels % n == 0])
    window = int(d.rng.integers(1, 4))
    stride = int(d.pick((1, 2, 3)))
    weight = d.rng.standard_normal((channels, d.pick((1, 2, 3)), window, window)) / np.sqrt(channels * window)
    attributes: dict[str, Any] = {"strides": [stride] * 2, "group": groups, "dilations": [d.pick((1, 1, 2))] * 2}
    if d.chance(0.4) and window >= stride:  # else ONNX Runtime and the operator's text differ
        attributes["auto_pad"] = str(d.pick(("SAME_UPPER", "SAME_LOWER")))
    elif d.chance(0.6):
        attributes["output_padding"] = [int(d.rng.integers(0, stride)) for _ in range(2)]
    _behind(d, "ConvTranspose", name, d.constant(weight.astype(np.float32)), **attributes)


def unfolded(d: Draft) -> None:
    """The largest numbers of each window, and back where they were, in an image of any fitting size."""
    _since(d, 9)
    name = _image(d)
    shape = d.shape(name)
    if min(shape[2:]) < 3 or d.position(name):
        raise NoFitError
    pool = d.node("MaxPool", name, outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    back = d.node("MaxUnpool", *pool.output, _ints(d, *shape), kernel_shape=[2, 2], strides=[2, 2])
    d.insert(0, [pool, back])
    d.output(back.output[0])


def product(d: Draft) -> None:
    """A MatMul, Gemm or Conv without bias, a bias of any rank behind it, and perhaps a second reader of the product."""
    name = d.pick(d.values(lambda name: len(d.shape(name)) >= 2))
    *front, depth = d.shape(name)
    wide = int(d.pick((depth, 4, 16, front[-1])))
    if depth * wide > 20_000:
        raise NoFitError
    alike = [tensor.name for tensor in d.graph.initializer if list(tensor.dims) == [depth, wide]]
    alike = [each for each in alike if d.dtype(each) == FLOAT]
    made = (d.rng.standard_normal((depth, wide)) / np.sqrt(depth)).astype(np.float32)
    weight = str(d.pick(alike)) if alike and d.chance(0.7) else d.constant(made)
    first = d.node("MatMul" if len(front) > 1 or d.chance(0.5) else "Gemm", name, weight)
    whole = [*front, wide]
    _followed(d, name, first, whole)


def _followed(d: Draft, name: str, first: NodeProto, shape: list[int]) -> None:
    """``first``, which reads ``name``, and a constant along any axes of its result of ``shape``, behind that."""
    start = int(d.rng.integers(0, len(shape) + 1))
    dims = [size if d.chance(0.6) else 1 for size in shape[start:]]
    dims = [1, 1, *shape] if d.chance(0.1) else dims
    constant = d.constant((0.5 + d.rng.random(dims)).astype(np.float32))
    second = d.node(str(d.pick(("Mul", "Mul", "Add"))), first.output[0], constant)
    d.insert(d.position(name), [first, second])
    d.output(second.output[0])
    if d.chance(0.3):
        d.output(first.output[0])


def convolved(d: Draft) -> None:
    """A Conv or ConvTranspose with as many channels as columns, and a constant along any axes behind it."""
    name = _image(d)
    batch, channels, height, width = d.shape(name)
    if channels * width > 4000 or width < 2:
        raise NoFitError
    kind = str(d.pick(("Conv", "Conv", "ConvTranspose")))
    window = int(d.pick((1, 3)))
    dims = (width, channels) if kind == "Conv" else (channels, width)
    weight = d.rng.standard_normal((*dims, window, window)) / np.sqrt(channels * window**2)
    inputs = [d.constant(weight.astype(np.float32))]
    inputs += [d.constant(d.rng.standard_normal(width).astype(np.float32))] if d.chance(0.5) else []
    first = d.node(kind, name, *inputs, kernel_shape=[window] * 2, pads=[window // 2] * 4)
    _followed(d, name, first, [batch, width, height, width])
