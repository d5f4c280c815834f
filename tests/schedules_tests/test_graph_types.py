"""Programs of ours pass; objects that look functions up or load code do not."""

from __future__ import annotations

import json

import pytest

from schedules.graph_types import check_index_map, check_program
from schedules.lower import foreign_program, normalise, program_of, task_key
from schedules.vocabulary.errors import ScheduleError
from tests.schedules_tests.cases import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_program_is_read_as_its_task(case) -> None:  # type: ignore[no-untyped-def]
    func = normalise(case.func)
    assert task_key(foreign_program(task_key(func), program_of(func))) == task_key(func)


def graph(*types: object) -> str:
    return json.dumps({"root_index": 0, "nodes": [{"type": kind, "data": "x"} for kind in types]})


@pytest.mark.parametrize(
    "text",
    [
        graph("ir.EnvFunc"),
        graph("ffi.Function"),
        graph("ffi.Module"),
        graph("tirx.PrimFunc", "runtime.Tensor"),
        graph("target.Target"),
        graph("ffi.Bytes"),
        graph("tirx.a.b"),
        graph(["ir.Var"]),
        graph(None),
        graph(),
        "{}",
        "[]",
        "7",
        "",
        "[" * 50_000,
        '{"root_index": 0, "nodes": [7]}',
        '{"root_index": 0, "nodes": {"type": "ir.Var"}}',
    ],
    ids=lambda text: text[:60],
)
def test_other_objects_are_refused_in_a_line(text: str) -> None:
    for check in (check_program, check_index_map):
        with pytest.raises(ScheduleError) as refusal:
            check(text)
        assert str(refusal.value).isprintable()


def test_a_program_of_another_task_is_refused() -> None:
    one, other = (normalise(case.func) for case in CASES[:2])
    with pytest.raises(ScheduleError, match="not the program of this task"):
        foreign_program(task_key(one), program_of(other))
