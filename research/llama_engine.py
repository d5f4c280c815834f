"""llama.cpp on the weights of a generated decoder, for ``research.language``.

    CMAKE_ARGS="-DCMAKE_CXX_FLAGS='-fno-tree-dse -fno-dse'" pip install llama-cpp-python gguf

(With GCC 12 its AMX kernels end in a fault otherwise: the compiler drops what they store into the shapes of tiles.)

Weights of 4 bits in blocks of 32 become Q4_0, of 8 bits Q8_0: the same integers, with scales in 16 bits where the
model's are in 32. Others stay fp32. Only decoders with GroupQueryAttention and rotary positions are converted. What is
Llama-shaped is called a Qwen2 without biases, whose rotary positions are by halves, as here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from research.language import Array, Step
from tests.models.language import Decoder

PRODUCTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
"""Of a layer, in the model's order."""

BLOCK = 32
"""Numbers of a block of Q4_0 and Q8_0."""


def gguf_of(decoder: Decoder, model: Path, path: Path) -> Path:
    """Write ``model`` to ``path`` in llama.cpp's format.

    Raises:
        ValueError: if it is of another kind than this converts.
    """
    import gguf

    if decoder.cache != "group" or decoder.family == "gpt2" or decoder.block != BLOCK:
        raise ValueError("only decoders with GroupQueryAttention and blocks of 32 are converted")
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_context_length(decoder.positions)
    writer.add_embedding_length(decoder.width)
    writer.add_block_count(decoder.layers)
    writer.add_feed_forward_length(decoder.hidden)
    writer.add_head_count(decoder.heads)
    writer.add_head_count_kv(decoder.groups)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(decoder.vocabulary)
    writer.add_tokenizer_model("none")
    kinds = {4: gguf.GGMLQuantizationType.Q4_0, 8: gguf.GGMLQuantizationType.Q8_0}
    for name, array, packed in tensors(onnx.load(model), decoder):
        writer.add_tensor(name, array, raw_dtype=kinds[decoder.bits] if packed else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors(model: onnx.ModelProto, decoder: Decoder) -> Iterator[tuple[str, Array, bool]]:
    """(llama.cpp's name, array, whether it is in blocks) of every weight."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}

    def array(name: str) -> Array:
        return numpy_helper.to_array(weights[name])

    products = 0
    norms = [f"blk.{layer}.{kind}_norm" for layer in range(decoder.layers) for kind in ("attn", "ffn")]
    names = [f"blk.{layer}.{kind}" for layer in range(decoder.layers) for kind in PRODUCTS]
    norms, names = [*norms, "output_norm"], [*names, "output"]
    makers: dict[str, str] = {}
    for node in model.graph.node:
        own = [name for name in node.input if name in weights]
        if node.op_type == "Gather" and len(own) == 1 and weights[own[0]].dims == [decoder.vocabulary, decoder.width]:
            yield "token_embd.weight", array(own[0]), False
        elif node.op_type in ("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"):
            yield f"{norms.pop(0)}.weight", array(own[0]), False
        elif node.op_type == "MatMulNBits":
            makers[node.output[0]] = names[products]
            yield f"{names[products]}.weight", blocks(*map(array, own[:2]), decoder.bits), True
            products += 1
        elif node.op_type == "MatMul" and own:
            makers[node.output[0]] = names[products]
            yield f"{names[products]}.weight", np.ascontiguousarray(array(own[0]).T), False
            products += 1
        elif node.op_type == "Add" and node.input[0] in makers and own:
            yield f"{makers[node.input[0]]}.bias", array(own[0]), False


def blocks(levels: Array, scales: Array, bits: int) -> Array:
    """MatMulNBits's (N, blocks, bytes) and (N · blocks,) as llama.cpp's rows of a scale and a block each."""
    columns, groups = levels.shape[:2]
    if bits == 4:  # number i beside number i + 16, not beside i + 1
        numbers = np.stack([levels & 15, levels >> 4], -1).reshape(columns, groups, BLOCK)
        levels = numbers[:, :, : BLOCK // 2] | numbers[:, :, BLOCK // 2 :] << 4
    else:
        levels = levels ^ 128
    short = scales.reshape(columns, groups, 1).astype(np.float16).view(np.uint8)
    return np.concatenate([short, levels], axis=2).reshape(columns, -1)


def llama_step(decoder: Decoder, model: Path, threads: int) -> Step:
    """One call of llama.cpp; it writes ``model`` as GGUF beside it the first time."""
    import llama_cpp

    path = model.with_suffix(".gguf")
    if not path.exists():
        gguf_of(decoder, model, path)
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    loaded = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = settings.n_batch = settings.n_ubatch = settings.n_outputs_max = settings.n_outputs_max_per_seq = (
        decoder.positions
    )
    settings.n_threads = settings.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(loaded, settings)
    if not context:
        raise ValueError(f"llama.cpp cannot open {path}")
    batch = llama_cpp.llama_batch_init(decoder.positions, 0, 1)
    held: Any = (quiet, loaded)

    def step(tokens: Array, start: int) -> Array:
        assert held
        llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(context), 0, start, -1)  # what is behind
        count = batch.n_tokens = tokens.shape[1]
        for index, token in enumerate(tokens[0]):
            batch.token[index], batch.pos[index], batch.logits[index] = int(token), start + index, 1
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
        if llama_cpp.llama_decode(context, batch):
            raise ValueError("llama.cpp could not decode")
        outputs = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (count, decoder.vocabulary))
        return outputs[None]

    # ggml sets the shapes of AMX tiles once for each thread: in one that others use, they may have released them.
    thread = ThreadPoolExecutor(1)
    return lambda tokens, start: thread.submit(step, tokens, start).result()
