"""Attention of prompts against NumPy: tiles of one and two vectors of rows, masks, windows, an empty cache."""

import pytest

from schedules.templates.by_hand.attention_shape import AttentionShape
from tests.schedules_tests.templates_tests.by_hand_tests.test_attention import agree

CASES = {
    "a prompt in tiles": (AttentionShape(2, 4, 2, 48, 32, 128), [0, 70]),
    "a prompt with a mask": (AttentionShape(1, 4, 2, 48, 64, 64, (1, 1, 48, 64), -1), [11]),
    "a prompt in a window": (AttentionShape(1, 4, 2, 64, 32, 128, window=40, softcap=5.0), [45]),
}


@pytest.mark.parametrize("threads", [1, 7])
@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name, threads):
    shape, starts = CASES[name]
    assert shape.prompt_tile
    agree(shape, starts, threads)
