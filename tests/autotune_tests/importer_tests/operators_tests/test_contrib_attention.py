"""ONNX Runtime's attention operators compute what ONNX Runtime computes."""

from dataclasses import replace

import numpy as np
import pytest

from autotune.importer.load import load_model
from autotune.importer.program import simplify
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.contrib_cases import Case, floats, integers
from tests.autotune_tests.importer_tests.onnx_cases import rewritten, written

I32 = np.int32
X, WEIGHTS, BIAS = floats(2, 5, 8), floats(8, 24), floats(24)
HEADS = {"num_heads": 2}


def ints(*values):
    return np.array(values, I32)


def attention(label, mask=None, past=None, bias=None, outputs=(1,), weights=WEIGHTS, vector=BIAS, **attributes):
    arrays = (X, weights, vector, mask, past, bias)
    return Case("Attention", arrays, (1, 2), {**HEADS, **attributes}, outputs, label=label)


FLAGS = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], I32)
ATTENTIONS = [
    attention("plain"),
    attention("scale", scale=0.7),
    attention("one way", unidirectional=1),
    attention("flags", FLAGS),
    attention("flags and one way", FLAGS, unidirectional=1, mask_filter_value=-1000.0),
    attention("flags of every score", integers(0, 2, 2, 5, 5, dtype=I32) | np.eye(5, dtype=I32)),
    attention("lengths", ints(3, 5)),
    attention("lengths and starts", ints(3, 5, 1, 0)),
    attention("bias of scores", bias=floats(1, 2, 5, 5)),
    attention("sizes", weights=floats(8, 28), vector=floats(28), qkv_hidden_sizes=[8, 8, 12]),
    attention("past", past=floats(2, 2, 2, 3, 4), outputs=(1, 1), unidirectional=1),
    attention("present", outputs=(1, 1)),
]
TOKENS, CODES = integers(0, 256, 2, 5, 8, dtype=np.uint8), integers(-127, 128, 8, 24, dtype=np.int8)


def quantised(label, scale, mask=None, past=None, outputs=(1,), **attributes):
    zeros = (np.uint8(120), np.zeros(scale.shape, np.int8))
    arrays = (TOKENS, CODES, BIAS, np.float32(0.02), scale, mask, *zeros, past)
    return Case("QAttention", arrays, (1, 2, 3, 4, 6, 7), {**HEADS, **attributes}, outputs, label=label)


QUANTISED = [
    quantised("per tensor", np.float32(0.01)),
    quantised("per column", np.linspace(0.005, 0.02, 24).astype(np.float32), ints(3, 5)),
    quantised("present", np.float32(0.01), outputs=(1, 1)),
    quantised("past", np.float32(0.01), past=floats(2, 2, 2, 3, 4), outputs=(1, 1), unidirectional=1),
]
Q, K, V = floats(2, 5, 8), floats(2, 7, 8), floats(2, 7, 8, seed=1)


def multi(label, *arrays, outputs=(1,), weights=(), **attributes):
    return Case("MultiHeadAttention", arrays, weights, {**HEADS, **attributes}, outputs, label=label)


MULTIPLE = [
    multi("plain", Q, K, V),
    multi("biases", Q, K, V, BIAS, weights=(3,)),
    multi("wider values", Q, K, floats(2, 7, 12), floats(28), weights=(3,)),
    multi("scale", Q, K, V, scale=0.3),
    multi("projected before", Q, floats(2, 2, 7, 4), floats(2, 2, 7, 4, seed=1)),
    multi("lengths", Q, K, V, None, ints(4, 7)),
    multi("lengths and places", Q, K, V, None, ints(4, 7, 0, 5, 10, 0, 7, 14)),
    multi("flags", Q, K, V, None, np.tril(np.ones((2, 7), I32), 4)),
    multi("flags of every score", Q, K, V, None, integers(0, 2, 2, 5, 7, dtype=I32) | np.eye(5, 7, dtype=I32)),
    multi("bias of scores", Q, K, V, None, None, floats(1, 2, 5, 7)),
    multi("one way", Q, floats(2, 5, 8, seed=2), floats(2, 5, 8, seed=1), unidirectional=1),
    multi("past", Q, Q + 1, Q + 2, None, None, None, floats(2, 2, 3, 4), floats(2, 2, 3, 4, seed=1), outputs=(1, 1, 1)),
]
ANGLES = floats(16, 4)
COS, SIN = np.cos(ANGLES), np.sin(ANGLES)
POSITIONS = np.array([[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]], np.int64)


def rotary(label, x, positions, tables=(COS, SIN), **attributes):
    return Case("RotaryEmbedding", (x, positions, *tables), (2, 3), attributes, label=label)


ROTARY = [
    rotary("unsplit", floats(2, 5, 16), POSITIONS),
    rotary("neighbours", floats(2, 5, 16), POSITIONS, interleaved=1),
    rotary("from a position", floats(2, 5, 16), np.array([3], np.int64)),
    rotary("heads first", floats(2, 3, 5, 8), POSITIONS),
    rotary("part", floats(2, 5, 24), POSITIONS, num_heads=2, rotary_embedding_dim=8),
    rotary("part, neighbours", floats(2, 5, 24), POSITIONS, num_heads=2, rotary_embedding_dim=8, interleaved=1),
]


def grouped(label, length, used, total, past=0, packed=False, outputs=(1, 1, 1), **attributes):
    """Four query heads and two of keys, of sixteen elements; inputs ``bias`` and ``sinks`` are last."""
    last = [attributes.pop(name, None) for name in ("bias", "sinks")]
    batch = len(used)
    if packed:
        x = (floats(batch, length, 128), None, None)
    else:
        x = (floats(batch, length, 64), floats(batch, length, 32), floats(batch, length, 32, seed=1))
    cache = (floats(batch, 2, past, 16), floats(batch, 2, past, 16, seed=1)) if past else (None, None)
    turned = attributes.get("do_rotary", 0)
    angles = floats(16, 8)
    tables = (np.cos(angles), np.sin(angles)) if turned else (None, None)
    arrays = (*x, *cache, ints(*used), np.array(total, I32), *tables, None, *last)
    own = {"num_heads": 4, "kv_num_heads": 2, **attributes}
    return Case("GroupQueryAttention", arrays, (6, 7, 8) if turned else (6,), own, outputs, label=label)


GROUPED = [
    grouped("prompt", 5, (4, 4), 5),
    grouped("scale", 5, (4, 4), 5, scale=0.5),
    grouped("window", 5, (4, 4), 5, local_window_size=2),
    grouped("softcap", 5, (4, 4), 5, softcap=2.0),
    grouped("packed", 5, (4, 4), 5, packed=True),
    grouped("rotary", 5, (4, 4), 5, do_rotary=1),
    grouped("rotary, neighbours", 5, (4, 4), 5, do_rotary=1, rotary_interleaved=1),
    grouped("one more", 1, (6, 6), 7, past=6),
    grouped("one more, rotary", 1, (6, 6), 7, past=6, do_rotary=1),
    grouped("in a cache of fixed size", 1, (6, 4), 7, past=8, do_rotary=1),
    grouped("in a cache of fixed size, window", 1, (6, 4), 7, past=8, local_window_size=3),
    grouped("several more", 3, (8,), 9, past=6),
    grouped("prompts of two lengths", 5, (4, 2), 5),
    grouped("smooth", 5, (4, 4), 5, smooth_softmax=1),
    grouped("bias of scores", 5, (4, 4), 5, bias=floats(1, 4, 5, 5)),
    grouped("one bias for every head", 5, (4, 4), 5, bias=floats(2, 1, 5, 5), softcap=2.0),
    grouped("bias of scores in a cache of fixed size", 1, (6, 4), 7, past=8, bias=floats(2, 1, 1, 7)),
    grouped("sinks", 5, (4, 4), 5, sinks=floats(4), local_window_size=2),
    grouped("one more, sinks", 1, (6, 6), 7, past=6, sinks=floats(4)),
]


ALL = [*ATTENTIONS, *QUANTISED, *MULTIPLE, *ROTARY, *GROUPED]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_it_computes_what_onnxruntime_computes(case, tmp_path):
    rewritten(case.model(), tmp_path, case.feed())


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (attention("rotary", do_rotary=1), "do_rotary"),
        (attention("odd mask", np.ones((2, 1, 5, 5), I32)), r"mask of shape \[2, 1, 5, 5\]"),
        (attention("no heads", num_heads=0), "num_heads is 0"),
        (multi("packed", floats(2, 5, 2, 3, 4)), "packed"),
        (grouped("scores too", 5, (4, 4), 5, outputs=(1, 1, 1, 1), qk_output=1), "qk_output"),
        (replace(grouped("length", 1, (6, 6), 7, past=6), weights=()), "total_sequence_length"),
    ],
    ids=str,
)
def test_what_is_not_supported_is_named(case, why, tmp_path):
    model = load_model(written(case.model(), tmp_path))
    with pytest.raises(ModelError, match=rf"com.microsoft::{case.kind} \(node 'one'\).*{why}"):
        simplify(model)
