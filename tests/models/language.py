"""Small language models as exporters write them: decoders that generate a token at a time over a cache.

Three families (Llama: RMSNorm, rotary positions, SwiGLU, grouped queries; Qwen: as Llama, with biases on queries, keys
and values and the embedding used again for the logits; GPT-2: LayerNorm, learned positions, GELU), three ways to keep
the cache, and weights in 32, 8 or 4 bits:

    concat   what Optimum and PyTorch export: ``present = Concat(past, new)``, everything from ONNX's own operators;
             weights in few bits are block-wise DequantizeLinear → MatMul of opset 21
    scatter  a cache of fixed length, into which ScatterElements writes at ``cache_position``; else as ``concat``
    group    what onnxruntime-genai writes: GroupQueryAttention, SkipSimplifiedLayerNormalization and MatMulNBits of
             com.microsoft

Notation: b batch, s new positions, p positions in the cache before the call, t = p + s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.models.builder import INT, Builder

Family = Literal["llama", "qwen", "gpt2"]
Cache = Literal["concat", "scatter", "group"]
Array = NDArray[Any]

MICROSOFT = "com.microsoft"
LARGE = 1024
"""Bytes from which a weight goes into a file of its own beside the model, as exporters write it."""


@dataclass(frozen=True)
class Decoder:
    """What is built.

    Attributes:
        heads, groups: of queries, and of keys and values.
        hidden: width of the feed-forward layers.
        bits: of the weights of linear layers: 32 (fp32), 8 or 4, the latter two in blocks of ``block``.
        positions: most positions that there may be; length of the cache with ``scatter``.
    """

    family: Family = "llama"
    cache: Cache = "concat"
    bits: int = 32
    layers: int = 4
    width: int = 512
    heads: int = 8
    groups: int = 2
    hidden: int = 1408
    vocabulary: int = 4096
    positions: int = 2048
    block: int = 32
    seed: int = 0

    @property
    def size(self) -> int:
        """Elements of a head."""
        return self.width // self.heads

    def model(self) -> onnx.ModelProto:
        """The model with its random weights."""
        return _Writer(self).model()


HALF_BILLION = Decoder("qwen", "group", 4, 24, 896, 14, 2, 4864, 151_936)
"""Sizes of Qwen2.5-0.5B."""


def save_language(decoder: Decoder, path: Path) -> Path:
    """Write the model to ``path`` and its weights beside it, to ``path.data``: protobuf ends at 2 GB."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.data")
    beside.unlink(missing_ok=True)
    onnx.save_model(decoder.model(), path, save_as_external_data=True, location=beside.name, size_threshold=LARGE)
    return path


class _Writer:
    """Writes one decoder. Sizes stay open: ``batch_size``, ``sequence_length``, ``past_sequence_length``."""

    def __init__(self, decoder: Decoder) -> None:
        self.d = decoder
        self.b = Builder(decoder.family, opset=21)
        self.rng = np.random.default_rng(decoder.seed)
        self.grouped = decoder.cache == "group"
        self.outputs: list[onnx.ValueInfoProto] = []

    def model(self) -> onnx.ModelProto:
        d, b = self.d, self.b
        total: int | str = d.positions if d.cache == "scatter" else "total_sequence_length"
        past: int | str = d.positions if d.cache == "scatter" else "past_sequence_length"
        b.input("input_ids", ("batch_size", "sequence_length"), INT)
        b.input("attention_mask", ("batch_size", total), INT)
        if d.family == "gpt2" or not self.grouped:
            b.input("position_ids", ("batch_size", "sequence_length"), INT)
        if d.cache == "scatter":
            b.input("cache_position", ("sequence_length",), INT)
        for layer in range(d.layers):
            for kind in ("key", "value"):
                b.input(f"past_key_values.{layer}.{kind}", ("batch_size", d.groups, past, d.size))
                shape = ("batch_size", d.groups, total, d.size)
                self.outputs.append(helper.make_tensor_value_info(f"present.{layer}.{kind}", TensorProto.FLOAT, shape))
        embedding = self.normal((d.vocabulary, d.width), 1.0 if d.family != "gpt2" else 0.5)
        table = self.weight(embedding)
        x = b.op("Gather", table, "input_ids", axis=0)
        if d.family == "gpt2":
            x = b.op("Add", x, b.op("Gather", self.weight(self.normal((d.positions, d.width), 0.1)), "position_ids"))
        self.shared = self.lengths() if self.grouped else self.mask_and_angles()
        x, branch = self.layers(x)
        x = self.norm(x, branch)[0]
        # Logits of a spread near 3, as trained models have.
        scale = 3.0 / np.sqrt(d.width)
        tied = d.family != "llama" and d.bits == 32
        if tied:
            x = b.op("Mul", x, b.constant(np.float32(scale)))
            logits = b.op("MatMul", x, b.op("Transpose", table, perm=[1, 0]))
        else:
            head = embedding if d.family != "llama" else self.normal((d.vocabulary, d.width), 1.0)
            logits = self.product(x, head.T * np.float32(scale))
        return self.finished(logits)

    def layers(self, x: str) -> tuple[str, str]:
        """What every layer does to x; the sum so far, and what is still to be added to it."""
        branch = ""
        for layer in range(self.d.layers):
            y, x = self.norm(x, branch)
            y, x = self.norm(x, self.attention(y, layer))
            branch = self.feed_forward(y)
        return x, branch

    def norm(self, x: str, branch: str) -> tuple[str, str]:
        """The normalised sum of x and ``branch`` (which may be missing), and that sum."""
        b, d = self.b, self.d
        scale = b.constant(self.rng.uniform(0.8, 1.2, d.width).astype(np.float32))
        bias = b.constant(self.rng.normal(0, 0.1, d.width).astype(np.float32)) if d.family == "gpt2" else ""
        if self.grouped and branch:
            kind = "SkipLayerNormalization" if bias else "SkipSimplifiedLayerNormalization"
            y = b.op(kind, x, branch, scale, *([bias] if bias else []), outputs=4, domain=MICROSOFT, epsilon=1e-5)
            self.b.nodes[-1].output[1] = self.b.nodes[-1].output[2] = ""
            return y, f"{y}_3"
        x = b.op("Add", x, branch) if branch else x
        if bias:
            return b.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5), x
        if self.grouped:
            return b.op("SimplifiedLayerNormalization", x, scale, axis=-1, epsilon=1e-5, stash_type=1), x
        mean = b.op("ReduceMean", b.op("Pow", x, b.constant(np.float32(2))), b.ints(-1), keepdims=1)
        root = b.op("Sqrt", b.op("Add", mean, b.constant(np.float32(1e-5))))
        y = b.op("Mul", x, b.op("Div", b.constant(np.float32(1)), root))
        return b.op("Mul", scale, y), x

    def feed_forward(self, x: str) -> str:
        b, d = self.b, self.d
        if d.family == "gpt2":
            x = self.linear(x, d.width, d.hidden, bias=True)
            cube = b.op("Mul", b.constant(np.float32(0.044715)), b.op("Pow", x, b.constant(np.float32(3))))
            inner = b.op("Mul", b.constant(np.float32(np.sqrt(2 / np.pi))), b.op("Add", x, cube))
            tanh = b.op("Add", b.op("Tanh", inner), b.constant(np.float32(1)))
            x = b.op("Mul", b.op("Mul", b.constant(np.float32(0.5)), x), tanh)
            return self.linear(x, d.hidden, d.width, gain=0.5, bias=True)
        gate, up = (self.linear(x, d.width, d.hidden) for _ in range(2))
        y = b.op("Mul", b.op("Mul", gate, b.op("Sigmoid", gate)), up)
        return self.linear(y, d.hidden, d.width, gain=1.0)

    def attention(self, x: str, layer: int) -> str:
        d, width = self.d, self.d.groups * self.d.size
        bias = d.family != "llama"
        q, k, v = (self.linear(x, d.width, columns, bias=bias) for columns in (d.width, width, width))
        attended = self.group_attention(q, k, v, layer) if self.grouped else self.plain_attention(q, k, v, layer)
        return self.linear(attended, d.width, d.width, gain=0.5, bias=d.family == "gpt2")

    # The cache of onnxruntime-genai.

    def lengths(self) -> tuple[str, ...]:
        """Positions used but one, per row; positions in all; and tables of angles."""
        b, d = self.b, self.d
        used = b.op("Sub", b.op("ReduceSum", "attention_mask", b.ints(1), keepdims=0), b.ints(1))
        last = b.op("Cast", used, to=TensorProto.INT32)
        shape = b.op("Shape", "attention_mask")
        total = b.op("Cast", b.op("Gather", shape, b.constant(np.int64(1))), to=TensorProto.INT32)
        if d.family == "gpt2":
            return last, total
        angles = np.arange(d.positions)[:, None] * frequencies(d.size)
        return last, total, *(self.weight(f(angles).astype(np.float32)) for f in (np.cos, np.sin))

    def group_attention(self, q: str, k: str, v: str, layer: int) -> str:
        b, d = self.b, self.d
        past = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        attended = b.op(
            "GroupQueryAttention",
            *(q, k, v, *past, *self.shared),
            outputs=3,
            domain=MICROSOFT,
            num_heads=d.heads,
            kv_num_heads=d.groups,
            scale=d.size**-0.5,
            do_rotary=int(d.family != "gpt2"),
            rotary_interleaved=0,
            local_window_size=-1,
        )
        b.nodes[-1].output[1:] = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        return attended

    # The cache from ONNX's own operators.

    def mask_and_angles(self) -> tuple[str, ...]:
        """What is added to the scores (b, 1, s, t); cosines and sines (b, 1, s, size) unless positions are learned."""
        b, d = self.b, self.d
        total = b.op("Gather", b.op("Shape", "attention_mask"), b.constant(np.int64(1)))
        if d.cache == "scatter":
            rows = "cache_position"
        else:
            length = b.op("Gather", b.op("Shape", "input_ids"), b.constant(np.int64(1)))
            rows = b.op("Range", b.op("Sub", total, length), total, b.constant(np.int64(1)))
        columns = b.op("Range", b.constant(np.int64(0)), total, b.constant(np.int64(1)))
        causal = b.op("LessOrEqual", columns, b.op("Unsqueeze", rows, b.ints(1)))
        used = b.op("Cast", b.op("Unsqueeze", "attention_mask", b.ints(1, 2)), to=TensorProto.BOOL)
        seen = b.op("And", b.op("Unsqueeze", causal, b.ints(0, 1)), used)
        least = b.constant(np.float32(np.finfo(np.float32).min))
        mask = b.op("Where", seen, b.constant(np.float32(0)), least)
        if d.family == "gpt2":
            return (mask,)
        positions = b.op("Cast", b.op("Unsqueeze", "position_ids", b.ints(1)), to=TensorProto.FLOAT)
        table = b.constant(frequencies(d.size).astype(np.float32).reshape(1, -1, 1))
        angles = b.op("Transpose", b.op("MatMul", table, positions), perm=[0, 2, 1])
        angles = b.op("Concat", angles, angles, axis=-1)
        return mask, *(b.op("Unsqueeze", b.op(kind, angles), b.ints(1)) for kind in ("Cos", "Sin"))

    def plain_attention(self, q: str, k: str, v: str, layer: int) -> str:
        b, d = self.b, self.d
        mask, *angles = self.shared

        def split(x: str, heads: int) -> str:
            return b.op("Transpose", b.op("Reshape", x, b.ints(0, 0, heads, d.size)), perm=[0, 2, 1, 3])

        q, k, v = split(q, d.heads), split(k, d.groups), split(v, d.groups)
        if angles:
            q, k = (self.turned(x, *angles) for x in (q, k))
        k, v = (self.kept(x, layer, kind) for x, kind in ((k, "key"), (v, "value")))
        if d.heads > d.groups:
            k, v = (self.repeated(x) for x in (k, v))
        scores = b.op("MatMul", q, b.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = b.op("Add", b.op("Mul", scores, b.constant(np.float32(d.size**-0.5))), mask)
        attended = b.op("MatMul", b.op("Softmax", scores, axis=-1), v)
        return b.op("Reshape", b.op("Transpose", attended, perm=[0, 2, 1, 3]), b.ints(0, 0, d.width))

    def turned(self, x: str, cos: str, sin: str) -> str:
        """Rotary positions (J. Su et al., "RoFormer", 2021), by halves."""
        b, half = self.b, self.d.size // 2
        first = b.op("Slice", x, b.ints(0), b.ints(half), b.ints(3))
        second = b.op("Slice", x, b.ints(half), b.ints(2 * half), b.ints(3))
        swapped = b.op("Concat", b.op("Neg", second), first, axis=-1)
        return b.op("Add", b.op("Mul", x, cos), b.op("Mul", swapped, sin))

    def kept(self, new: str, layer: int, kind: str) -> str:
        """The cache with ``new`` (b, groups, s, size) in it."""
        b, d, past = self.b, self.d, f"past_key_values.{layer}.{kind}"
        if d.cache == "concat":
            b.op("Concat", past, new, axis=2)
        else:
            places = b.op("Reshape", "cache_position", b.ints(1, 1, -1, 1))
            b.op("ScatterElements", past, b.op("Expand", places, b.op("Shape", new)), new, axis=2)
        b.nodes[-1].output[0] = f"present.{layer}.{kind}"
        return f"present.{layer}.{kind}"

    def repeated(self, x: str) -> str:
        """Every group's keys or values for all of its query heads, as PyTorch's ``repeat_kv``."""
        b, d = self.b, self.d
        x = b.op("Unsqueeze", x, b.ints(2))
        x = b.op("Expand", x, b.ints(1, 1, d.heads // d.groups, 1, 1))
        shape = b.op("Shape", x)
        parts = [b.op("Slice", shape, b.ints(i), b.ints(i + 1)) for i in (0, 3)]
        return b.op("Reshape", x, b.op("Concat", parts[0], b.ints(d.heads), parts[1], b.ints(d.size), axis=0))

    # Weights.

    def normal(self, shape: tuple[int, ...], deviation: float) -> Array:
        return self.rng.standard_normal(shape, np.float32) * np.float32(deviation)

    def weight(self, values: Array) -> str:
        return self.b.constant(values)

    def linear(self, x: str, rows: int, columns: int, gain: float = 1.0, bias: bool = False) -> str:
        product = self.product(x, self.normal((rows, columns), gain / np.sqrt(rows)))
        if not bias:
            return product
        return self.b.op("Add", product, self.b.constant(self.normal((columns,), 0.1)))

    def product(self, x: str, values: Array) -> str:
        """x · values (K, N), in the bits asked for."""
        b, d = self.b, self.d
        if d.bits == 32:
            return b.op("MatMul", x, self.weight(np.ascontiguousarray(values)))
        levels, scales = in_blocks(values, d.bits, d.block)
        if self.grouped:
            inputs = (b.constant(packed(levels, d.bits, d.block)), b.constant(scales.T.reshape(-1)))
            numbers = {"K": values.shape[0], "N": values.shape[1], "bits": d.bits, "block_size": d.block}
            return b.op("MatMulNBits", x, *inputs, domain=MICROSOFT, accuracy_level=4, **numbers)
        name = f"w{len(b.weights)}"
        signed = (levels.astype(np.int16) - (1 << (d.bits - 1))).astype(np.int8)
        if d.bits == 8:
            b.weights.append(numpy_helper.from_array(signed, name))
        else:
            pairs = signed.reshape(-1, 2).astype(np.uint8) & 15
            raw = (pairs[:, 0] | pairs[:, 1] << 4).tobytes()
            b.weights.append(helper.make_tensor(name, TensorProto.INT4, signed.shape, raw, raw=True))
        wide = b.op("DequantizeLinear", name, b.constant(scales), axis=0, block_size=d.block)
        return b.op("MatMul", x, wide)

    def finished(self, logits: str) -> onnx.ModelProto:
        b = self.b
        for node in b.nodes:
            for index, name in enumerate(node.output):
                if name == logits:
                    node.output[index] = "logits"
        shape = ("batch_size", "sequence_length", self.d.vocabulary)
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape), *self.outputs]
        graph = helper.make_graph(b.nodes, b.name, b.inputs, outputs, b.weights)
        domains = [helper.make_opsetid("", b.opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=domains[: 1 + self.grouped], ir_version=10)


def frequencies(size: int, base: float = 10000.0) -> Array:
    """Radians per position of every pair of elements: (size / 2,)."""
    return np.asarray(base ** (-np.arange(0, size, 2) / size))


def in_blocks(values: Array, bits: int, block: int) -> tuple[Array, Array]:
    """``values`` (K, N) as levels around 2^(bits−1), uint8 (K, N), and a scale per block of rows (K / block, N)."""
    rows, columns = values.shape
    if rows % block:
        raise ValueError(f"{rows} rows do not divide into blocks of {block}")
    cut = values.reshape(rows // block, block, columns)
    half = 1 << (bits - 1)
    scales = np.maximum(np.abs(cut).max(axis=1), 1e-8) / (half - 1)
    levels = np.clip(np.rint(cut / scales[:, None]) + half, 0, 2 * half - 1).astype(np.uint8)
    return levels.reshape(rows, columns), scales.astype(np.float32)


def packed(levels: Array, bits: int, block: int) -> Array:
    """Levels (K, N) as MatMulNBits reads them: (N, blocks, bytes of a block), the lower half byte first."""
    turned = np.ascontiguousarray(levels.T)
    if bits == 4:
        turned = turned[:, 0::2] | turned[:, 1::2] << 4
    return turned.reshape(len(turned), -1, block * bits // 8)


LANGUAGE = {
    f"{family}_{cache}_{bits}": partial(Decoder, family, cache, bits, groups=8 if family == "gpt2" else 2)
    for family in ("llama", "qwen", "gpt2")
    for cache in ("concat", "scatter", "group")
    for bits in (32, 8, 4)
}
"""Name → decoder of 4 layers × 512; keyword arguments change its sizes."""

TINY_SIZES: dict[str, Any] = {"layers": 2, "width": 64, "heads": 4, "hidden": 96, "vocabulary": 128, "positions": 64}
"""For tests. Groups are left: 2, or as many as heads for GPT-2."""


def tiny(name: str) -> Decoder:
    """The decoder ``name`` in sizes that build in milliseconds."""
    return LANGUAGE[name](**TINY_SIZES, **({"groups": 4} if name.startswith("gpt2") else {}))
