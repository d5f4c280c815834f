"""A program as a graph of kernel calls."""

import pytest

from autotune.artifact.apply_plan import apply_plan
from autotune.artifact.plan import Choice, Plan
from autotune.backends.cpu.linking import concats_of
from autotune.graph.flattening import read_flat
from autotune.importer.guarded_import import import_model
from schedules.lower import BASELINE
from tests.autotune_tests.tiny import target
from tests.models.catalog import cached


def flat_of(name, concats=True):
    _, program = import_model(cached(name), {}, target())
    untuned = Plan(target(), tuple(Choice(task.key, BASELINE, None) for task in program.tasks))
    return program, read_flat(apply_plan(program, untuned), concats_of(program) if concats else {})


@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_branches"])
def test_calls_read_only_what_was_written_before(name):
    program, flat = flat_of(name)
    assert all(source < number for number, sources in enumerate(flat.edges) for source in sources)
    assert len(flat.outputs) == len(program.outputs)
    weights = {u.source.index for call in flat.calls for u in call.arguments if u.source.place == "weight"}
    assert weights <= set(range(len(flat.weights)))


def test_parts_of_a_concatenation_are_written_in_place():
    _, flat = flat_of("tiny_branches")
    (whole,) = flat.removed
    parts = sorted((flat.slices[part].offset, flat.calls[part].bytes) for part in flat.slices)
    assert {slot.parent for slot in flat.slices.values()} == {whole}
    ends = [offset + size for offset, size in parts]
    assert [offset for offset, _ in parts] == [0, *ends[:-1]]
    assert ends[-1] == flat.calls[whole].bytes
    assert flat_of("tiny_branches", concats=False)[1].removed == frozenset()
