"""How many rows the kernels of attention compute together."""

from schedules.templates.by_hand.attention_shape import AttentionShape


def test_tiles_divide_the_rows_and_fit_the_registers():
    for heads, length in ((14, 1), (14, 120), (8, 1), (2, 127)):
        shape = AttentionShape(1, heads, 2, length, 64, 256)
        assert shape.rows % shape.tile == 0
        assert shape.tile * shape.size // 16 <= 28


def test_prompts_that_fill_vectors_have_tiles_of_one_head():
    tiles = {length: AttentionShape(1, 14, 2, length, 64, 256).prompt_tile for length in (1, 8, 16, 48, 127, 128)}
    assert tiles == {1: 0, 8: 0, 16: 16, 48: 16, 127: 0, 128: 32}
