"""Schedule traces as data: which instructions and annotations one from elsewhere may hold.

A trace is ``[instructions, decisions]``; an instruction is ``[kind, inputs, attributes, outputs]``, a decision
``[number of the instruction, what was drawn]``. TVM replays far more than a schedule needs: annotations that link
foreign code, texts that it parses as programs, types and scopes that it takes as said. So a trace is read against a
list of what may be in it, before TVM sees it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from schedules.config import Config
from schedules.graph_types import check_index_map
from schedules.vocabulary.bounded import parsed_json
from schedules.vocabulary.errors import ScheduleError, check

SPACE = "metaschedule/1"
"""Space of the configs that are traces; no search draws from it, and nothing is built from it: they are imported."""

TRACE = "trace"
"""The only knob of such a config."""

MOST_BYTES, MOST_INSTRUCTIONS, MOST_DEPTH = 1 << 19, 4096, 8
"""Bounds of a trace. TVM's own have some hundred instructions and take kilobytes."""

MOST_NUMBER = 1 << 40
"""Largest number in a trace: loops of a tensor program are far shorter."""

NOTHING = "None"
"""How a trace writes an input that is left to TVM."""

_VALUE = re.compile(r"[a-z]\d{1,9}")
"""How a trace names what an earlier instruction gave."""
_NAME = re.compile(r"[\w.\-]{1,200}")
_TEXT = re.compile(r'"[\w.\-]{0,100}"')

_SCOPES = frozenset(
    {"", "global", "local", "shared", "shared.dyn", "warp", "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator"}
    | {"m16n8k8.matrixA", "m16n8k8.matrixB", "m16n8k8.matrixC"}
)
_THREADS = frozenset(f"{name}.{axis}" for name in ("blockIdx", "threadIdx", "vthread") for axis in "xyz") | {"vthread"}


def _number(value: object) -> bool:
    return isinstance(value, int) and abs(value) <= MOST_NUMBER


def _numbers(value: object) -> bool:
    return isinstance(value, list) and all(_number(item) or isinstance(item, float) for item in value)


def _name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _scope(value: object) -> bool:
    return isinstance(value, str) and value in _SCOPES


def _thread(value: object) -> bool:
    return isinstance(value, str) and value in _THREADS


def _counted(value: object) -> bool:
    """A number, or what a sampling instruction gave."""
    return _number(value) or (isinstance(value, str) and _VALUE.fullmatch(value) is not None)


def _text(value: object) -> bool:
    return isinstance(value, str) and _TEXT.fullmatch(value) is not None


def _list(value: object) -> bool:
    return isinstance(value, list) and all(_number(item) or _text(item) for item in value)


_LAYOUTS = ("TransformLayout", "TransformBlockLayout")
"""Instructions with a map of indices, a text of its own, as their second input."""

Rule = Callable[[object], bool]

_INSTRUCTIONS: Mapping[str, tuple[Rule, ...]] = {
    "GetSBlock": (_name, _name),
    **dict.fromkeys(("GetLoops", "GetChildBlocks", "GetProducers", "GetConsumers", "GetOutputBlocks"), ()),
    **dict.fromkeys(("ComputeInline", "ReverseComputeInline", "DecomposeReduction", "AddUnitLoop"), ()),
    **dict.fromkeys(("Parallel", "Vectorize", "Unroll", "Reorder", "EnterPostproc", "SampleComputeLocation"), ()),
    **dict.fromkeys(("Merge", "DecomposePadding"), ()),
    "Bind": (_thread,),
    "Split": (_number, _number),
    "Fuse": (_number,),
    **dict.fromkeys(("ComputeAt", "ReverseComputeAt"), (_number, _number)),
    **dict.fromkeys(("CacheRead", "CacheWrite", "SetScope"), (_number, _scope)),
    **dict.fromkeys(("PadEinsum", "ReorderBlockIterVar"), (_numbers,)),
    "ReIndex": (_number, _number),
    "RFactor": (_number,),
    "StorageAlign": (_number,) * 4,
    "Blockize": (_number,),
    "Tensorize": (_name, _number),
    "SampleCategorical": (_numbers, _numbers),
    "SamplePerfectTile": (_number, _number),
    "SamplePartitionedTile": (_number,) * 3,
}
"""Kind of instruction → what each of its attributes may be."""

_ANNOTATIONS: Mapping[str, Rule] = {
    **dict.fromkeys(("pragma_auto_unroll_max_step", "pragma_unroll_explicit", "warp_execution"), _counted),
    **dict.fromkeys(("software_pipeline_stage", "software_pipeline_order", "software_pipeline_async_stages"), _list),
    **dict.fromkeys(("double_buffer_scope", "tirx.manifest_shared_memory_local_stage"), _counted),
    "meta_schedule.tiling_structure": _text,
    "meta_schedule.auto_tensorize": _text,
    "meta_schedule.auto_tensorize_init": _text,
    "meta_schedule.layout_free_placeholders": _list,
    **{
        f"meta_schedule.{name}": _counted
        for name in ("parallel", "vectorize", "unroll_explicit", "unroll_implicit", "cooperative_fetch")
    },
    **{
        f"meta_schedule.{name}": _counted
        for name in ("random_compute_producer", "thread_extent_low_inclusive", "thread_extent_high_inclusive")
    },
}
"""Annotation → what its value may be. ``pragma_import_llvm`` and ``pragma_import_c``, which link code, are not here."""


def traced_config(trace: str) -> Config:
    """The config that stands for ``trace``."""
    return Config(SPACE, ((TRACE, trace),))


def check_config(config: Config) -> None:
    """Check a config of ``SPACE``.

    Raises:
        ScheduleError: if it is no trace, or its trace holds more than it may.
    """
    check([name for name, _ in config.items] == [TRACE], f"a config of {SPACE} has one knob, {TRACE}")
    checked_trace(str(config[TRACE]))


def checked_trace(text: str) -> list[object]:
    """The data of a trace.

    Raises:
        ScheduleError: if it is no trace, or holds more than it may.
    """
    check(len(text) <= MOST_BYTES, f"the trace has more than {MOST_BYTES} characters")
    try:
        data = parsed_json(text, MOST_DEPTH)
    except ValueError as error:
        raise ScheduleError(f"the trace is not JSON: {error}") from error
    check(
        isinstance(data, list) and len(data) == 2 and all(isinstance(part, list) for part in data),
        "the trace does not consist of instructions and decisions",
    )
    instructions, decisions = data
    check(len(instructions) <= MOST_INSTRUCTIONS, f"the trace has more than {MOST_INSTRUCTIONS} instructions")
    for instruction in instructions:
        _check_instruction(instruction)
    for decision in decisions:
        fits = isinstance(decision, list) and len(decision) == 2 and _number(decision[0])
        check(fits and (_number(decision[1]) or _numbers(decision[1])), "the trace has a decision that is no number")
    checked: list[object] = data
    return checked


def _check_instruction(instruction: object) -> None:
    check(isinstance(instruction, list) and len(instruction) == 4, "the trace has an instruction of another form")
    assert isinstance(instruction, list)
    kind, inputs, attributes, outputs = instruction
    check(isinstance(kind, str), "the trace has an instruction without a name")
    lists = all(isinstance(part, list) for part in (inputs, attributes, outputs))
    check(lists, f"{_shown(kind)} is not an instruction")
    check(all(isinstance(name, str) and _VALUE.fullmatch(name) for name in outputs), f"{_shown(kind)} names odd values")
    if kind in ("Annotate", "Unannotate"):
        _check_annotation(kind, inputs, attributes)
        return
    if kind in _LAYOUTS:
        _check_layout(kind, inputs, attributes)
        return
    rules = _INSTRUCTIONS.get(kind)
    check(rules is not None, f"the instruction {_shown(kind)} is not accepted in a trace from elsewhere")
    assert rules is not None
    fits = len(attributes) == len(rules) and all(rule(item) for rule, item in zip(rules, attributes, strict=True))
    check(fits, f"the instruction {kind} has attributes that are not accepted in a trace from elsewhere")
    flat = [item for value in inputs for item in (value if isinstance(value, list) else [value])]
    values = all(item in (None, NOTHING) or _counted(item) for item in flat)
    check(values, f"the instruction {kind} has inputs that are not values")


def _check_layout(kind: str, inputs: list[object], attributes: list[object]) -> None:
    check(len(inputs) == 2 and _counted(inputs[0]) and isinstance(inputs[1], str), f"{kind} has another form")
    check(all(item is None or _number(item) for item in attributes), f"{kind} has attributes that are not accepted")
    try:
        check_index_map(str(inputs[1]))
    except ScheduleError as error:
        raise ScheduleError(f"the instruction {kind} is not accepted in a trace from elsewhere: {error}") from error


def _check_annotation(kind: str, inputs: list[object], attributes: list[object]) -> None:
    check(len(attributes) == 1 and len(inputs) == (2 if kind == "Annotate" else 1), f"{kind} has another form")
    rule = _ANNOTATIONS.get(attributes[0]) if isinstance(attributes[0], str) else None
    check(rule is not None, f"the annotation {_shown(attributes[0])} is not accepted in a trace from elsewhere")
    assert rule is not None
    check(isinstance(inputs[0], str) and _VALUE.fullmatch(inputs[0]), f"{kind} is given no block or loop")
    check(
        len(inputs) == 1 or rule(inputs[1]),
        f"the annotation {attributes[0]} has a value that is not accepted in a trace from elsewhere",
    )


def _shown(value: object) -> str:
    """``value`` in a message: short, in one line, without odd characters."""
    return ascii(value)[:60]
