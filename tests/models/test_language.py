"""The decoders are alive in ONNX Runtime, and a cache gives what the whole sequence at once gives."""

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.models.language import LANGUAGE, Decoder, in_blocks, packed, save_language, tiny

LENGTH = 12


def feed(decoder: Decoder, ids, start, stop, caches):
    """Inputs of one call at positions ``start`` to ``stop``."""
    extent = decoder.positions if decoder.cache == "scatter" else stop
    return {
        "input_ids": ids[:, start:stop],
        "attention_mask": np.repeat((np.arange(extent)[None] < stop).astype(np.int64), len(ids), 0),
        "position_ids": np.repeat(np.arange(start, stop)[None], len(ids), 0),
        "cache_position": np.arange(start, stop),
        **caches,
    }


def empty_caches(decoder: Decoder, batch: int):
    shape = (batch, decoder.groups, decoder.positions if decoder.cache == "scatter" else 0, decoder.size)
    kinds = [f"{layer}.{kind}" for layer in range(decoder.layers) for kind in ("key", "value")]
    return {f"past_key_values.{kind}": np.zeros(shape, np.float32) for kind in kinds}


def in_turns(session, decoder, ids, cuts):
    """Logits of all positions, from one call per pair of neighbouring ``cuts``."""
    caches, logits = empty_caches(decoder, len(ids)), []
    names = [output.name for output in session.get_outputs()]
    for start, stop in itertools.pairwise(cuts):
        inputs = feed(decoder, ids, start, stop, caches)
        inputs = {value.name: inputs[value.name] for value in session.get_inputs()}
        outputs = dict(zip(names, session.run(None, inputs), strict=True))
        logits.append(outputs["logits"])
        caches = {name: outputs[name.replace("past_key_values", "present")] for name in caches}
    return np.concatenate(logits, axis=1)


@pytest.mark.parametrize("name", LANGUAGE)
def test_a_cache_changes_nothing(name):
    decoder = tiny(name)
    session = onnxruntime.InferenceSession(decoder.model().SerializeToString())
    batch = 1 if decoder.cache == "group" else 2
    ids = np.random.default_rng(0).integers(0, decoder.vocabulary, (batch, LENGTH))
    whole = in_turns(session, decoder, ids, [0, LENGTH])
    turns = in_turns(session, decoder, ids, [0, 5, *range(6, LENGTH + 1)])
    assert 0.5 < whole.std() < 10
    assert np.abs(whole[:, -1] - whole[:, 0]).max() > 0.5  # led by the tokens
    # With few bits, ONNX Runtime rounds activations to 8 too: a last bit of fp32 can move one by a level.
    np.testing.assert_allclose(turns, whole, atol=2e-5 if decoder.bits == 32 else 0.05)


def test_levels_come_back():
    values = np.random.default_rng(0).standard_normal((64, 6)).astype(np.float32)
    levels, scales = in_blocks(values, 4, 32)
    back = (levels.reshape(2, 32, 6).astype(np.float32) - 8) * scales[:, None]
    assert np.abs(back.reshape(64, 6) - values).max() <= scales.max() / 2 * 1.001
    bytes_of = packed(levels, 4, 32)
    assert bytes_of.shape == (6, 2, 16)
    assert bytes_of[3, 1, 4] == levels[40, 3] | levels[41, 3] << 4


def test_blocks_must_divide():
    with pytest.raises(ValueError, match="blocks of 32"):
        in_blocks(np.zeros((40, 2), np.float32), 4, 32)


def test_weights_lie_beside_the_model(tmp_path):
    path = save_language(tiny("llama_group_4"), tmp_path / "model.onnx")
    assert path.stat().st_size < path.with_name("model.onnx.data").stat().st_size
    save_language(tiny("llama_group_4"), path)  # again, not appended
    assert onnx.load(path).SerializeToString()
