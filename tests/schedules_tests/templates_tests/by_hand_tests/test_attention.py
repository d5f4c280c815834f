"""Attention over a cache against NumPy: what it gives, what it appends, and what it never looks at."""

from dataclasses import replace

import numpy as np
import pytest
import tvm

from autotune.host.machine import host_target
from schedules.lower import BASELINE, normalise
from schedules.templates.by_hand.attention import cached_attention, for_threads
from schedules.templates.by_hand.attention_shape import AttentionShape
from tests.shipping import loaded_kernel

CASES = {
    "one query": (AttentionShape(1, 4, 2, 1, 16, 64), [37]),
    "an empty cache": (AttentionShape(1, 4, 2, 1, 16, 64), [0]),
    "masked, as Concat": (AttentionShape(2, 4, 2, 1, 64, 65, (1, 1, 1, 65), 64), [37, 37]),
    "masked, as a scatter": (AttentionShape(2, 4, 2, 8, 64, 64, (2, 1, 8, 64), -1), [37, 12]),
    "several queries": (AttentionShape(1, 14, 2, 5, 64, 200, scale=0.125), [70]),
    "beyond the capacity": (AttentionShape(1, 2, 2, 16, 32, 40), [30]),
    "a window, and soft caps": (AttentionShape(1, 4, 4, 3, 16, 200, window=20, softcap=5.0), [170]),
}


def arrays_of(shape: AttentionShape, starts):
    """Queries, new keys and values, caches (NaN behind what is in use), starts, mask."""
    rng = np.random.default_rng(0)
    q, *new = (
        rng.standard_normal((shape.batch, heads, shape.length, shape.size)).astype(np.float32)
        for heads in (shape.heads, shape.groups, shape.groups)
    )
    caches = rng.standard_normal((2, shape.batch, shape.groups, shape.capacity, shape.size)).astype(np.float32)
    for row, start in enumerate(starts):
        caches[:, row, :, start:] = np.nan
    least = np.finfo(np.float32).min
    mask = np.where(rng.random((*shape.mask[:3], max(1, shape.mask[3]))) < 0.3, least, 0).astype(np.float32)
    return [q, *new, *caches, np.array(starts, np.int32), mask]


def scores_of(shape: AttentionShape, row, head, keys, arrays):
    """(length, start + length) scores of one head, hidden ones far below."""
    q, mask, start = arrays[0], arrays[6], int(arrays[5][row])
    scores = q[row, head] @ keys.T * shape.scale
    if shape.softcap:
        scores = shape.softcap * np.tanh(scores / shape.softcap)
    if shape.mask[3]:
        new_at = start if shape.new_at < 0 else shape.new_at
        columns = [*range(start), *range(new_at, new_at + shape.length)]
        full = np.broadcast_to(mask, (shape.batch, shape.heads, shape.length, shape.mask[3]))
        return scores + full[row, head][:, columns]
    behind = np.arange(shape.length)[:, None] + start - np.arange(start + shape.length)[None]
    return np.where((behind >= 0) & ((shape.window == 0) | (behind < shape.window)), scores, -np.inf)


def expected(shape: AttentionShape, arrays):
    """The result, and the caches after the call."""
    q, new_k, new_v, k, v, starts, _ = arrays
    out, caches = np.zeros_like(q), [k.copy(), v.copy()]
    for row, start in enumerate(starts):
        for head in range(shape.heads):
            group = head // (shape.heads // shape.groups)
            keys = np.concatenate([k[row, group, :start], new_k[row, group]])
            scores = scores_of(shape, row, head, keys, arrays)
            weights = np.exp(scores - scores.max(1, keepdims=True))
            values = np.concatenate([v[row, group, :start], new_v[row, group]])
            out[row, head] = weights / weights.sum(1, keepdims=True) @ values
        count = min(shape.length, shape.capacity - start)
        for cache, new in zip(caches, (new_k, new_v), strict=True):
            cache[row, :, start : start + count] = new[row, :, :count]
    return out, caches


def agree(shape: AttentionShape, starts, threads):
    """Whether the kernel gives and appends what NumPy does."""
    arrays = arrays_of(shape, starts)
    out, caches = expected(shape, arrays)
    target = replace(host_target(None, None), threads=threads)
    kernel = loaded_kernel(normalise(cached_attention(shape)), BASELINE, target)
    q, new_k, new_v, *rest = arrays
    tensors = [tvm.runtime.tensor(array) for array in (q, np.stack([new_k, new_v]), *rest, np.zeros_like(out))]
    kernel(*tensors)
    np.testing.assert_allclose(tensors[-1].numpy(), out, rtol=1e-4, atol=1e-5)
    for cache, wanted in zip(tensors[2:4], caches, strict=True):
        np.testing.assert_array_equal(cache.numpy(), wanted)


@pytest.mark.parametrize("threads", [1, 7])
@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name, threads):
    agree(*CASES[name], threads)


def test_a_cache_is_split_where_there_are_more_threads_than_tiles():
    kernel = cached_attention(AttentionShape(1, 4, 1, 1, 64, 512))
    alone, many = (str(for_threads(kernel, threads)) for threads in (1, 8))
    assert "T.parallel(1)" in alone
    assert "T.parallel(8)" in many


def test_layers_of_one_shape_share_a_kernel():
    shape = AttentionShape(1, 4, 2, 1, 16, 64)
    assert cached_attention(shape) is cached_attention(replace(shape))
    assert cached_attention(shape) is not cached_attention(shape, 2)
