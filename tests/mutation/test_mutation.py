"""A sample of wrong kernels on every run; all of them with ``make mutation``."""

import pytest

from autotune.host.machine import host_target
from autotune.importer.onnx_model.load import load_model
from autotune.importer.onnx_model.simplify import simplify
from autotune.importer.program import import_program
from schedules.lower import BASELINE, load_program, lower
from tests.models import cached
from tests.mutation.lowering import mutated, split
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
    made = set()
    for name in ("tiny_cnn", "tiny_encoder"):
        program = import_program(simplify(load_model(cached(name))), target)
        for task in program.tasks:
            configs = [BASELINE, *program.spaces[task.key].initial[:1]]
            for config in configs:
                scheduled = lower(load_program(program.programs[task.key]), config, target).mod["main"]
                for kind in KINDS:
                    if kind not in made and places(scheduled, kind):
                        wrong = mutate(scheduled, Mutant(kind, 0))
                        assert str(wrong) != str(scheduled), kind
                        made.add(kind)
    assert set(KINDS) - made <= {"sum not started", "sum saturates", "min to max", "first share lost"}


def test_the_knob_comes_off_again():
    assert split(mutated(BASELINE, 7)) == (BASELINE, 7)
    assert split(BASELINE) == (BASELINE, None)


def test_a_tally_counts():
    tally = Tally()
    tally.rejected["wrong_result"] += 99
    tally.missed.append("one")
    assert (tally.wrong, tally.share) == (100, 0.99)
