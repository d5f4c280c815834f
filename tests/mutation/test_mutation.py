"""A sample of wrong kernels on every run; all of them with ``make mutation``."""

import numpy as np
import pytest

from autotune.host.machine import host_target
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from schedules.lower import BASELINE, load_program, lower
from tests.models import cached
from tests.mutation import text_mutants, text_trial
from tests.mutation.lowering import TEXT_KNOB, mutated, plain, split
from tests.mutation.mutants import KINDS, Mutant, mutate, places
from tests.mutation.trial import QUANTISED, Tally, run


def test_wrong_kernels_are_rejected():
    *_, tally = run(24, ["tiny_mlp"], seed=1)
    assert tally.missed == []
    assert tally.wrong >= 10


@pytest.mark.slow
def test_of_many_wrong_kernels_at_most_one_percent_passes():
    *_, tally = run(800)
    assert tally.wrong >= 500
    assert tally.share >= 0.99, tally.lines()


@pytest.mark.slow
def test_of_many_wrong_kernels_of_quantised_models_at_most_one_percent_passes():
    *_, tally = run(400, QUANTISED)
    assert tally.wrong >= 250
    assert tally.share >= 0.99, tally.lines()


@pytest.mark.slow
def test_wrong_kernels_of_a_quantised_model_are_rejected():
    *_, tally = run(24, ["tiny_cnn:u8s8"], seed=1)
    assert tally.missed == []
    assert tally.wrong >= 10


def test_every_kind_of_mistake_can_be_made_and_changes_the_program():
    target = host_target(1)
    kinds_made = set()
    for name in ("tiny_cnn", "tiny_encoder"):
        program = import_program(simplify(load_model(cached(name))), target)
        for task in program.tasks:
            configs = [BASELINE, *program.spaces[task.key].initial[:1]]
            for config in configs:
                scheduled = lower(load_program(program.programs[task.key]), config, target).mod["main"]
                for kind in KINDS:
                    if kind not in kinds_made and places(scheduled, kind):
                        wrong = mutate(scheduled, Mutant(kind, 0))
                        assert str(wrong) != str(scheduled), kind
                        kinds_made.add(kind)
    assert set(KINDS) - kinds_made <= {"sum not started", "sum saturates", "min to max", "first share lost"}


def test_wrong_kernels_in_assembly_are_rejected():
    *_, tally = text_trial.run(12, ["tiny_mlp"], graphs=0, seed=1)
    assert tally.missed == []
    assert tally.wrong >= 6


@pytest.mark.slow
def test_of_many_wrong_kernels_in_assembly_at_most_one_percent_passes():
    *_, tally = text_trial.run(600, graphs=12)
    assert tally.wrong >= 300
    assert tally.share >= 0.99, tally.lines()


TEXT = "\n".join(
    [
        ".Lloop1:",
        "\tmov\trcx, 5",
        "\tvmovups\tzmm1, [rsi+64]",
        "\tvmovups\tzmm4{k1}{z}, [rsi+rdx*4]",
        "\tvsubps\tzmm2, zmm1, zmm4",
        "\tadd\trsi, 128",
        "\tdec\trcx",
        "\tjnz\t.Lloop1",
        "\tret",
        "\t.long\t1065353216",
        "\t.byte\t0, 1, 2, 3, 4, 5, 6, 7",
    ]
)


@pytest.mark.parametrize("kind", text_mutants.CHANGES)
def test_every_kind_of_mistake_can_be_made_in_assembly_and_changes_one_line(kind):
    (first, *_) = text_mutants.places(TEXT, kind)
    words = text_mutants.Vocabulary(TEXT.split("\n"))
    for seed in range(8):
        line = TEXT.split("\n")[first]
        changed = text_mutants.CHANGES[kind](line, np.random.default_rng(seed), words)
        assert changed is not None
        assert changed != line


def test_a_mistake_in_assembly_is_always_the_same():
    kinds = set()
    for number in range(40):
        mistake = text_mutants.random_mistake(TEXT, np.random.default_rng(number))
        assert mistake == text_mutants.random_mistake(TEXT, np.random.default_rng(number))
        assert mistake[2] != TEXT
        kinds.add(mistake[0])
    assert len(kinds) > 8


def test_the_knob_comes_off_again():
    assert plain(mutated(mutated(BASELINE, 7), 9, TEXT_KNOB)) == BASELINE
    assert split(mutated(BASELINE, 9, TEXT_KNOB), TEXT_KNOB) == (BASELINE, 9)

    assert split(mutated(BASELINE, 7)) == (BASELINE, 7)
    assert split(BASELINE) == (BASELINE, None)


def test_a_tally_counts():
    tally = Tally()
    tally.rejected["wrong_result"] += 99
    tally.missed.append("one")
    tally.close += ["two", "three"]
    assert (tally.wrong, tally.share) == (100, 0.99)
    assert tally.strict_share == 99 / 102
    assert tally.lines()[-3:] == ["missed: one", "close: two", "close: three"]
