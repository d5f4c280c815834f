"""Tables for people."""

from autotune.cli.reply import table


def test_numbers_are_aligned_to_the_right_and_words_to_the_left():
    assert table(["name", "µs"], [["a", 1.5], ["long", 10.25], ["b", "–"]]) == [
        "name     µs",
        "a       1.5",
        "long  10.25",
        "b         –",
    ]


def test_a_table_without_rows_is_its_heads():
    assert table(["name", "µs"], []) == ["name  µs"]
