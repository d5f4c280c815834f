"""The first guesses and spaces of recurrent kernels."""

from schedules.lower import claim, normalise
from schedules.target import Target
from schedules.templates.by_hand.byte_recurrent import byte_lstm_steps
from schedules.templates.by_hand.recurrent_steps import gru_steps, lstm_steps

STEPS = 5


def test_narrow_vectors_and_bytes_have_no_tile():
    narrow, wide = (Target(kind="llvm", isa=isa, threads=1) for isa in ("avx2", "avx512"))
    spaces = [
        claim(normalise(lstm_steps(STEPS, 6, 64, False)), narrow).space,
        claim(normalise(byte_lstm_steps(STEPS, 6, 64, False)), wide).space,
    ]
    assert [{space.config(row).integer("tile") for row in space.rows} for space in spaces] == [{1}, {1}]


def test_short_steps_are_guessed_to_be_faster_on_one_thread():
    target = Target(kind="llvm", isa="avx512", threads=2)
    first = {
        hidden: claim(normalise(make(5, 1, hidden, False)), target).space.initial[0].integer("groups")
        for make in (lstm_steps, gru_steps)
        for hidden in (64, 512)
    }
    assert first == {64: 1, 512: 2}


def test_short_steps_of_bytes_are_guessed_to_be_faster_on_one_thread():
    target = Target(kind="llvm", isa="avx512", threads=2)
    spaces = {hidden: claim(normalise(byte_lstm_steps(5, 1, hidden, False)), target).space for hidden in (64, 512)}
    assert {hidden: space.initial[0].integer("groups") for hidden, space in spaces.items()} == {64: 1, 512: 2}
