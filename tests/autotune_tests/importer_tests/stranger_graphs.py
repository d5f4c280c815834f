"""Small graphs after public reports about other importers and compilers of ONNX: constructs rather than cases.

Graphs are in ONNX's text format. Inputs that a feed leaves out are random.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

Feed = Mapping[str, object]


@dataclass(frozen=True)
class Graph:
    """A graph and its inputs.

    Attributes:
        text: inputs, outputs and nodes, in ONNX's text format.
        feeds: inputs that decide what the graph does.
        weights: shapes of random initialisers.
        functions: functions of the domain ``local``, as text.
    """

    text: str
    feeds: Sequence[Feed] = ({}, {})
    weights: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    functions: str = ""
    opset: int = 17

    def model(self, name: str) -> onnx.ModelProto:
        """The model, its outputs with the shapes that ONNX infers."""
        opsets = f'"" : {self.opset}' + (', "local" : 1' if self.functions else "")
        proto = parser.parse_model(f"<ir_version: 8, opset_import: [{opsets}]> g {self.text} {self.functions}")
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        for key, shape in self.weights.items():
            values = rng.standard_normal(shape) / np.sqrt(shape[0])
            proto.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), key))
        return proto

    def inputs(self, name: str) -> list[dict[str, np.ndarray]]:
        """Every feed, completed by random values."""
        rng, whole_feeds = np.random.default_rng(zlib.crc32(name.encode())), []
        for feed in self.feeds:
            whole = {}
            for value in self.model(name).graph.input:
                tensor = value.type.tensor_type
                dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
                shape = [dim.dim_value for dim in tensor.shape.dim]
                drawn = (
                    rng.standard_normal(shape) if tensor.elem_type == TensorProto.FLOAT else rng.integers(0, 2, shape)
                )
                whole[value.name] = np.asarray(feed.get(value.name, drawn), dtype)
            whole_feeds.append(whole)
        return whole_feeds


MASKS = tuple({"m": np.array(bits)} for bits in ([1, 0, 1, 1, 0, 0], [0, 0, 0, 1, 0, 0], [1, 1, 1, 1, 1, 1]))
BOTH = ({"p": True}, {"p": False})

CONTROL = {
    "branches of branches share names": Graph(
        """(float[4] x, bool p, bool q) => (float[4] y) { y = If(p)<
        then_branch = t () => (float[4] a) { u = Exp(x) a = If(q)<
            then_branch = t2 () => (float[4] b) { b = Add(u, x) },
            else_branch = e2 () => (float[4] b) { b = Sub(u, x) }> },
        else_branch = e () => (float[4] a) { u = Neg(x) a = If(q)<
            then_branch = t3 () => (float[4] b) { b = Mul(u, x) },
            else_branch = e3 () => (float[4] b) { b = Max(u, x) }> }> }""",
        tuple({"p": bool(i & 1), "q": bool(i & 2)} for i in range(4)),
    ),
    "a loop in a branch in a loop reads all around it": Graph(
        """(float[3,4] x, float[4] bias, bool p) => (float[3,4] y) <int64 three = {3}, bool yes = {1}> {
        scale = ReduceMean<keepdims=1>(x)
        y = Loop<body = outer (int64 i, bool c, float[3,4] v) => (bool c2, float[3,4] v3) {
            c2 = Identity(c) g = Gather(x, i)
            v3 = If(p)<then_branch = t () => (float[3,4] a) { two = Constant<value=int64 {2}>()
                a = Loop<body = inner (int64 j, bool d, float[3,4] w) => (bool d2, float[3,4] w2) {
                    d2 = Identity(d) k = Add(g, bias) w1 = Add(w, k) w2 = Mul(w1, scale) }>(two, yes, v) },
              else_branch = e () => (float[3,4] a2) { r = Sub(v, g) a2 = Sub(r, bias) }> }>(three, yes, x) }""",
        BOTH,
    ),
    "branches of other lengths": Graph(
        """(float[6,3] x, bool p) => (float[N,3] y, float[3] z)
        <int64[1] k0 = {0}, int64[1] k2 = {2}, int64[1] k5 = {5}> {
        y = If(p)<then_branch = t () => (float[2,3] a) { a = Slice(x, k0, k2, k0) },
            else_branch = e () => (float[5,3] b) { b = Slice(x, k0, k5, k0) }>
        z = ReduceMean<axes=[0], keepdims=0>(y) }""",
        BOTH,
    ),
    "tokens until the last one": Graph(
        """(float[1,6] h0) => (int64[N] tokens, float[1,6] h) <int64 most = {9}, bool yes = {1}, int64 eos = {2}> {
        h, tokens = Loop<body = b (int64 i, bool c, float[1,6] s) => (bool go, float[1,6] s2, int64 token) {
            l = MatMul(s, wo) a = ArgMax<axis=1, keepdims=0>(l) token = Squeeze(a) e = Gather(words, token)
            r = MatMul(s, wh) t = Add(r, e) s2 = Tanh(t) last = Equal(token, eos) go = Not(last) }>(most, yes, h0) }""",
        ({}, {}, {}),
        {"wo": (6, 5), "wh": (6, 6), "words": (5, 6)},
    ),
    "a condition that turns in every iteration": Graph(
        """(float[3] x, bool p) => (float[3] y, bool q) <int64 n = {3}, bool yes = {1}> {
        y, q = Loop<body = b (int64 i, bool c, float[3] v, bool s) => (bool c2, float[3] v2, bool s2) {
            c2 = Identity(c) s2 = Not(s) a = Mul(v, v) v2 = Where(s, a, v) }>(n, yes, x, p) }""",
        BOTH,
    ),
    "nothing but an input": Graph("(float[2,3] x) => (float[2,3] x) { }"),
    "bags of embeddings": Graph(
        """(int64[7] ids, int64[3] offsets) => (float[3,4] y)
        <bool yes = {1}, int64[1] ax = {0}, int64 one = {1}> {
        count = Shape(offsets) n = Squeeze(count) whole = Shape(ids) ends = Concat<axis=0>(offsets, whole)
        y = Loop<body = b (int64 i, bool c) => (bool c2, float[4] o) {
            c2 = Identity(c) s = Gather(ends, i) j = Add(i, one) t = Gather(ends, j) s1 = Unsqueeze(s, ax)
            t1 = Unsqueeze(t, ax) part = Slice(ids, s1, t1, ax) rows = Gather(table, part)
            o = ReduceSum<keepdims=0>(rows, ax) }>(n, yes) }""",
        ({"offsets": [0, 2, 5]}, {"offsets": [0, 0, 6]}),
        {"table": (9, 4)},
    ),
    "scans forwards and backwards along other axes": Graph(
        """(float[2] s0, float[3,4,2] a, float[4,3,2] b) => (float[2] s, float[U,V] o1, float[W,X] o2)
        <int64[1] first = {0}> {
        s, o1, o2 = Scan<num_scan_inputs=2, scan_input_axes=[1,0], scan_input_directions=[1,0], scan_output_axes=[0,1],
            scan_output_directions=[1,0],
            body = step (float[2] v, float[3,2] p, float[3,2] q) => (float[2] v2, float[2] r1, float[3] r2) {
                w = Add(p, q) r = ReduceSum<keepdims=0>(w, first) v2 = Add(v, r) r1 = Mul(v2, v)
                r2 = ReduceMax<axes=[1], keepdims=0>(w) }>(s0, a, b) }""",
    ),
    "an element of a sequence by a computed position": Graph(
        """(float[4,3] x, int64 k) => (float[1,3] y) { s = SplitToSequence<axis=0>(x) e = SequenceAt(s, k)
        y = Exp(e) }""",
        ({"k": 2}, {"k": -1}),
    ),
    "a body for every element of a sequence": Graph(
        """(float[3,4] a, float[2,4] b, float[4] w) => (float[5,4] y) {
        s = SequenceConstruct(a, b)
        t = SequenceMap<body = each (float[K,4] e) => (float[K,4] o) { m = Mul(e, w) o = Relu(m) }>(s)
        y = ConcatFromSequence<axis=0>(t) }"""
    ),
}

SIZES = {
    "a count is how many elements are asked for": Graph(
        """(float[2,9] x, float[9] w) => (float[2,K] v, int64[2,K] i) <float zero = {0.0}> {
        g = Greater(w, zero) n = Cast<to=7>(g) k = ReduceSum<keepdims=1>(n) v, i = TopK<largest=0>(x, k) }""",
        ({}, {"w": -np.ones(9)}, {"w": np.ones(9)}),
    ),
    "chosen rows are normalised": Graph(
        "(float[6,8] x, bool[6] m) => (float[N,8] y) { s = Compress<axis=0>(x, m) y = LayerNormalization(s, g, b) }",
        MASKS,
        {"g": (8,), "b": (8,)},
    ),
    "chosen rows from last to first": Graph(
        """(float[6,2] x, bool[6] m) => (float[N,2] y)
        <int64[1] last = {-1}, int64[1] end = {-9223372036854775807}, int64[1] axis = {0}> {
        s = Compress<axis=0>(x, m) y = Slice(s, last, end, axis, last) }""",
        MASKS,
    ),
    "activations of chosen rows": Graph(
        """(float[6,2] x, bool[6] m) => (float[N,2] y, float[2] z) <int64[1] axis = {0}> {
        s = Compress<axis=0>(x, m) a = Erf(s) b = Sin(a) c = HardSwish(b) d = Elu(c) e = Sign(s) f = Softplus(d)
        y = Mul(f, e) z = ReduceSum<keepdims=0>(y, axis) }""",
        MASKS,
    ),
    "the mean of what a mask leaves": Graph(
        """(float[3,6,4] x, int64[3] length) => (float[3,4] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] a0 = {0}, int64[1] a1 = {1}, int64[1] a2 = {2}> {
        s = Shape(x) t = Gather(s, one) r = Range(zero, t, one) r2 = Unsqueeze(r, a0) l2 = Unsqueeze(length, a1)
        m = Less(r2, l2) mf = Cast<to=1>(m) m3 = Unsqueeze(mf, a2) xm = Mul(x, m3) sum = ReduceSum<keepdims=0>(xm, a1)
        lf = Cast<to=1>(l2) y = Div(sum, lf) }""",
        ({"length": [1, 6, 3]},),
    ),
    "means of segments": Graph(
        """(float[9,3] x, int64[9] seg) => (float[4,3] y)
        <int64[2] shape = {4,3}, int64[1] a1 = {1}, int64[2] rows = {9,3}, float one = {1.0}> {
        zeros = ConstantOfShape(shape) s1 = Unsqueeze(seg, a1) s2 = Expand(s1, rows)
        sum = ScatterElements<axis=0, reduction="add">(zeros, s2, x) ones = ConstantOfShape<value=float[1] {1.0}>(rows)
        n = ScatterElements<axis=0, reduction="add">(zeros, s2, ones) n1 = Max(n, one) y = Div(sum, n1) }""",
        ({"seg": [0, 0, 1, 3, 3, 3, 1, 0, 0]},),
    ),
}

IMAGES = {
    "regions that are computed are cut out": Graph(
        """(float[1,2,8,8] x, float[4] box) => (float[1,2,5,4] y)
        <float[2] zeros = {0.0, 0.0}, float[2] ones = {1.0, 1.0}, int64[4] size = {1,2,5,4}, int64[2] halves = {2,2}> {
        a, b = Split<axis=0>(box, halves) roi = Concat<axis=0>(zeros, a, ones, b)
        y = Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=2.5>
            (x, roi, , size) }""",
        ({"box": [0.1, 0.2, 0.8, 0.7]}, {"box": [-0.1, 0.2, 1.2, 0.5]}, {"box": [0.9, 0.5, 0.2, 0.5]}),
    ),
    "a grid for a batch of one, as large as the image": Graph(
        """(float[1,3,6,7] x, float[1,2,3] theta) => (float[1,3,6,7] y) {
        s = Shape(x) g = AffineGrid<align_corners=1>(theta, s)
        y = GridSample<mode="linear", align_corners=1>(x, g) }""",
        ({"theta": [[[0.9, 0.1, 0.05], [-0.2, 0.8, 0.1]]]},),
        opset=20,
    ),
}

FUNCTIONS = {
    "defaults and references of attributes": Graph(
        "(float[2,3] x) => (float[2,3] y) { a = local.outer<k=2.5>(x) b = local.inner(a) y = local.outer(b) }",
        functions="""
        <domain: "local", opset_import: ["" : 17, "local" : 1]>
        outer <k: float = -1.5> (v) => (o) { p = local.inner<s: float = @k>(v) o = Tanh(p) }
        <domain: "local", opset_import: ["" : 17]>
        inner <s: float = 0.5> (v) => (o) { c = Constant<value_float: float = @s>() o = Mul(v, c) }""",
    ),
    "an older version of the operators": Graph(
        "(float[2,3,4] x) => (float[2,3,4] y) { y = local.f(x) }",
        functions='<domain: "local", opset_import: ["" : 14]> f (v) => (o) { o = Softmax<axis=1>(v) }',
    ),
    "a branch that reads around it": Graph(
        "(float[2,3] x, bool p) => (float[2,3] y) { y = local.pick(x, p) }",
        BOTH,
        functions="""<domain: "local", opset_import: ["" : 17]>
        pick (v, c) => (o) { t = Exp(v) o = If(c)<then_branch = a () => (r1) { r1 = Add(t, v) },
            else_branch = b () => (r2) { r2 = Sub(t, v) }> }""",
    ),
}

EXPORTED = {
    "an image resized like another one": Graph(
        """(float[1,5,7,3] x, float[1,9,8,2] like) => (float[1,H,W,3] y)
        <int64[1] one = {1}, int64[1] three = {3}, int64[1] zero = {0}, int64[1] two = {2}> {
        t = Transpose<perm=[0,3,1,2]>(x) s = Shape(like) hw = Slice(s, one, three, zero) st = Shape(t)
        nc = Slice(st, zero, two, zero) sizes = Concat<axis=0>(nc, hw) r = Resize<mode="linear">(t, , , sizes)
        y = Transpose<perm=[0,2,3,1]>(r) }""",
    ),
    "a dilation written as batches": Graph(
        """(float[1,6,6,2] x) => (float[1,6,6,3] y)
        <int64[8] p = {0,2,2,0,0,2,2,0}, int64[6] s1 = {1,5,2,5,2,2}, int64[4] s2 = {4,5,5,2},
         int64[6] s3 = {2,2,1,3,3,3}, int64[4] s4 = {1,6,6,3}> {
        a = Pad(x, p) b = Reshape(a, s1) c = Transpose<perm=[2,4,0,1,3,5]>(b) d = Reshape(c, s2)
        e = Transpose<perm=[0,3,1,2]>(d) g = Conv(e, w) h = Transpose<perm=[0,2,3,1]>(g) i = Reshape(h, s3)
        j = Transpose<perm=[2,3,0,4,1,5]>(i) y = Reshape(j, s4) }""",
        weights={"w": (3, 2, 3, 3)},
    ),
    "masked sequences read backwards": Graph(
        """(float[6,2,3] x, int32[2] lengths) => (float[6,1,2,4] y, float[1,2,4] h) { l = Cast<to=7>(lengths)
        r = ReverseSequence<batch_axis=1, time_axis=0>(x, l)
        y, h = GRU<hidden_size=4, linear_before_reset=1>(r, w, u, , lengths) }""",
        ({"lengths": [6, 3]}, {"lengths": [1, 6]}),
        {"w": (1, 12, 3), "u": (1, 12, 4)},
    ),
    "boxes of classes with their scores": Graph(
        """(float[1,4,4] boxes, float[1,2,4] scores) => (float[K,6] y)
        <int64 most = {3}, float iou = {0.5}, float low = {0.2}, int64[1] zero = {0}, int64[1] one = {1},
         int64[1] two = {2}, int64[1] flat = {-1}> {
        n = NonMaxSuppression(boxes, scores, most, iou, low) c = Gather<axis=1>(n, one) b = Gather<axis=1>(n, two)
        cb = Concat<axis=1>(c, b) s = Squeeze(scores, zero) sc = GatherND(s, cb) bf = Reshape(b, flat)
        bx = Gather<axis=1>(boxes, bf) by = Squeeze(bx, zero) cf = Cast<to=1>(c) su = Unsqueeze(sc, one)
        y = Concat<axis=1>(cf, su, by) }""",
        tuple(
            {
                "boxes": [[[0, 0, 1, 1], [0, 0, 0.9, 1], [2, 2, 3, 3], [a, a, 4, 4]]],
                "scores": [[[0.9, 0.8, 0.7, 0.1]] * 2],
            }
            for a in (0.0, 3.0)
        ),
    ),
    "axes counted from the end": Graph(
        """(float[2,3,4] x, int64[2] i)
        => (float[2,3,1,4] a, int64[2,4] b, float[2,2,4] c, float[2,3] d, float[4,3,4] e)
        <int64[1] m2 = {-2}, int64[1] m1 = {-1}> { a = Unsqueeze(x, m2)
        b = ArgMax<axis=-2, keepdims=0, select_last_index=1>(x) c = Gather<axis=-2>(x, i)
        d = ReduceSum<keepdims=0>(x, m1) e = Concat<axis=-3>(x, x) }""",
        ({"i": [-1, 0]},),
    ),
    "a sequence of length zero": Graph(
        """(float[2,0] x, float[3,4] t, int64[0] i) => (float[2,0] y, float[0,4] g, float[0,4] u) {
        y = Softmax<axis=0>(x) g = Gather(t, i) u = Exp(g) }""",
        ({},),
    ),
}

GRAPHS = {**CONTROL, **SIZES, **IMAGES, **FUNCTIONS, **EXPORTED}
