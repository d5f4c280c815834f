"""A trace holds what a schedule needs and nothing else."""

from __future__ import annotations

import json

import pytest

from schedules.config import Config
from schedules.traces import SPACE, check_config, checked_trace, traced_config
from schedules.vocabulary.errors import ScheduleError

BLOCK = ["GetSBlock", [], ["conv2d", "main"], ["b0"]]
LOOPS = ["GetLoops", ["b0"], [], ["l1", "l2"]]


def text_of(*instructions: object, decisions: object = ()) -> str:
    return json.dumps([[BLOCK, LOOPS, *instructions], list(decisions)])  # type: ignore[call-overload]


def annotate(key: object, value: object, on: object = "l1") -> list[object]:
    return ["Annotate", [on, value], [key], []]


SOUND = (
    text_of(),
    text_of(["Split", ["l1", "v3", "None", 4], [True, False], ["l4", "l5"]], ["Parallel", ["l4"], [], []]),
    text_of(["SamplePerfectTile", ["l1"], [4, 64], ["v3"]], decisions=[[2, [1, 2, 3]]]),
    text_of(["SampleCategorical", [], [[0, 16], [0.5, 0.5]], ["v3"]], annotate("meta_schedule.unroll_explicit", "v3")),
    text_of(annotate("pragma_auto_unroll_max_step", 64), annotate("software_pipeline_stage", [0, 0, 2])),
    text_of(
        annotate("meta_schedule.tiling_structure", '"SSRSRS"', "b0"), ["Unannotate", ["l1"], ["warp_execution"], []]
    ),
    text_of(["Bind", ["l1"], ["threadIdx.x"], []], ["CacheRead", ["b0", []], [0, "shared"], ["b3"]]),
)


@pytest.mark.parametrize("text", SOUND)
def test_schedules_are_accepted(text: str) -> None:
    assert checked_trace(text) == json.loads(text)
    check_config(traced_config(text))


HOSTILE = {
    "imports LLVM": annotate("pragma_import_llvm", '"code"'),
    "imports C": annotate("pragma_import_c", '"code"'),
    "another pragma": annotate("pragma_scope_prefix", '"x"'),
    "unknown annotation": annotate("tune.geometry", '"{}"'),
    "text for a number": annotate("pragma_auto_unroll_max_step", '"module asm"'),
    "code for a word": annotate("meta_schedule.tiling_structure", '"a b"'),
    "object for a value": annotate("warp_execution", {"type": "ffi.Function"}),
    "object graph as a value": annotate("warp_execution", '{"root_index":0,"nodes":[{"type":"ir.EnvFunc"}]}'),
    "annotation of a text": annotate("warp_execution", 1, '{"root_index":0}'),
    "key that is no text": annotate(["pragma_import_llvm"], 1),
    "unknown instruction": ["CallPacked", ["l1"], ["os.system"], []],
    "unsafe type": ["UnsafeSetDType", ["b0"], [0, "handle"], []],
    "hidden access": ["UnsafeHideBufferAccess", ["b0"], ["read", [0]], []],
    "foreign scope": ["SetScope", ["b0"], [0, "global.texture"], []],
    "foreign thread": ["Bind", ["l1"], ["cpu.x"], []],
    "intrinsic with odd name": ["Tensorize", ["b0"], ["a b\n", True], []],
    "graph as an input": ["Fuse", ['{"root_index":0,"nodes":[]}'], [True], ["l9"]],
    "layout of functions": [
        "TransformLayout",
        ["b0", json.dumps({"root_index": 0, "nodes": [{"type": "ir.EnvFunc", "data": "x"}]})],
        [0, 1, None, True],
        [],
    ],
    "layout that is no graph": ["TransformLayout", ["b0", "lambda i: i"], [0, 1, None, True], []],
    "huge number": ["Split", ["l1", 10**30], [True, False], ["l4"]],
    "odd output": ["GetLoops", ["b0"], [], ["__import__"]],
    "no list": 7,
    "too short": ["GetLoops"],
    "kind that is no text": [["GetLoops"], [], [], []],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_all_else_is_refused_in_a_line(name: str) -> None:
    with pytest.raises(ScheduleError) as refusal:
        checked_trace(text_of(HOSTILE[name]))
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "[]",
        "{}",
        "[[], []",
        "[[]]",
        '[[],[["a", 1]]]',
        '[[],[[0,"code"]]]',
        "[" * 50_000,
        '"' + "x" * 600_000 + '"',
    ],
    ids=str.__len__,
)
def test_text_that_is_no_trace_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError):
        checked_trace(text)


def test_a_config_holds_a_trace_and_nothing_else() -> None:
    for items in ((), (("trace", SOUND[0]), ("more", 1)), (("code", SOUND[0]),), (("trace", 7),)):
        with pytest.raises(ScheduleError):
            check_config(Config(SPACE, items))
