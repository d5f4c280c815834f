"""Transformer encoders and multilayer perceptrons, from the primitives that PyTorch's exporter writes."""

from __future__ import annotations

import onnx

from tests.models.builder import INT, Builder


def attention(b: Builder, x: str, batch: int, sequence: int, width: int, heads: int) -> str:
    """softmax(QKᵀ/√d) V over ``heads`` heads of d = width/heads, then the output projection."""
    size = width // heads

    def split(y: str, order: list[int]) -> str:
        y = b.op("Reshape", y, b.ints(batch, sequence, heads, size))
        return b.op("Transpose", y, perm=order)

    query, key, value = (b.linear(x, (width, width)) for _ in range(3))
    scores = b.op("MatMul", split(query, [0, 2, 1, 3]), split(key, [0, 2, 3, 1]))
    weights = b.op("Softmax", b.op("Div", scores, b.constant(size**0.5)), axis=-1)
    context = b.op("MatMul", weights, split(value, [0, 2, 1, 3]))
    context = b.op("Reshape", b.op("Transpose", context, perm=[0, 2, 1, 3]), b.ints(batch, sequence, width))
    return b.linear(context, (width, width))


def encoder_body(b: Builder, x: str, batch: int, sequence: int, width: int, heads: int, layers: int) -> str:
    """``layers`` post-norm encoder layers (Vaswani et al., 2017) with GELU, over x (batch, sequence, width)."""
    for _ in range(layers):
        x = b.layer_norm(b.op("Add", x, attention(b, x, batch, sequence, width, heads)), width)
        y = b.linear(b.gelu(b.linear(x, (width, 4 * width))), (4 * width, width))
        x = b.layer_norm(b.op("Add", x, y), width)
    return x


def encoder(
    seed: int = 0, batch: int = 1, layers: int = 12, width: int = 768, heads: int = 12, sequence: int = 128
) -> onnx.ModelProto:
    """As large as BERT-base by default, without its embeddings."""
    b = Builder("encoder")
    x = b.input("hidden", (batch, sequence, width))
    return b.model(seed, states=encoder_body(b, x, batch, sequence, width, heads, layers))


def mt_dnn(
    seed: int = 0, batch: int = 1, layers: int = 4, width: int = 512, heads: int = 8, sequence: int = 64
) -> onnx.ModelProto:
    """One encoder over token ids, four task heads (Liu et al., "MT-DNN", ACL 2019, figure 1).

    Two heads read the first token, one ranks, one runs a GRU over all tokens as the stochastic answer network does.
    """
    b = Builder("mt_dnn")
    ids = b.input("ids", (batch, sequence), INT)
    x = b.op("Add", b.op("Gather", b.weight(1000, width), ids), b.weight(1, sequence, width))
    x = encoder_body(b, b.layer_norm(x, width), batch, sequence, width, heads, layers)
    first = b.op("Gather", x, b.constant(0), axis=1)
    label = b.op("Softmax", b.dense(b.op("Tanh", b.dense(first, (width, width))), (width, 3)), axis=-1)
    similarity = b.dense(b.op("Tanh", b.dense(first, (width, width))), (width, 1))
    rank = b.op("Sigmoid", b.dense(b.gelu(b.dense(first, (width, 2 * width))), (2 * width, 1)))
    hidden, steps = 128, b.op("Transpose", x, perm=[1, 0, 2])
    gates = (b.weight(1, 3 * hidden, width), b.weight(1, 3 * hidden, hidden), b.weight(1, 6 * hidden))
    states = b.op("GRU", steps, *gates, outputs=2, hidden_size=hidden, linear_before_reset=1)
    answer = b.dense(b.op("Reshape", f"{states}_1", b.ints(batch, hidden)), (hidden, 4))
    return b.model(seed, label=label, similarity=similarity, rank=rank, answer=answer)


def mlp(seed: int = 0, batch: int = 1, layers: int = 4, width: int = 1024) -> onnx.ModelProto:
    """``layers`` dense layers of ``width`` with ReLU between them."""
    b = Builder("mlp")
    x = b.input("features", (batch, width))
    for index in range(layers):
        x = b.dense(x, (width, width))
        x = b.relu(x) if index < layers - 1 else x
    return b.model(seed, scores=x)
