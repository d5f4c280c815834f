"""Records that would run code if anything were built from them, and the file that shows it."""

from __future__ import annotations

import json
from pathlib import Path

from autotune.artifact.make_plan import UNTUNED, record_key
from autotune.importer.program import Program
from schedules.target import Target
from tuning_logs.codec import content_hash
from tuning_logs.record import RecordKey

CANARY_ASSEMBLY = (
    r".section .text.canary,\22ax\22,@progbits",
    "canary_start:",
    "mov $$2, %eax",  # open(path, O_CREAT | O_WRONLY, 0644)
    "lea canary_path(%rip), %rdi",
    "mov $$0x41, %esi",
    "mov $$0x1a4, %edx",
    "syscall",
    "ret",
    r"canary_path: .asciz \22{path}\22",
    r".section .init_array,\22aw\22",
    ".quad canary_start",
    ".text",
)
"""What runs when a library that holds it is loaded: it creates a file."""


def canary(path: Path) -> str:
    """LLVM IR that creates ``path`` as soon as the code is loaded."""
    lines = [line.replace("{path}", str(path)).replace("$$", "$") for line in CANARY_ASSEMBLY]
    return "\n".join(f'module asm "{line}"' for line in lines)


CONV2D_LOOPS = 9


def annotated(block: str, key: str, value: str, loops: int = CONV2D_LOOPS) -> str:
    """A trace that annotates the outermost of the ``loops`` loops of ``block`` with ``key``."""
    instructions = [
        ["GetSBlock", [], [block, "main"], ["b0"]],
        ["GetLoops", ["b0"], [], [f"l{number}" for number in range(1, loops + 1)]],
        ["Annotate", ["l1", f'"{value}"'], [key], []],
    ]
    return json.dumps([instructions, []], separators=(",", ":"))


def record_data(key: RecordKey, space: str, knobs: dict[str, object], latency_s: float = 1e-9) -> dict[str, object]:
    """A record as it stands in a JSONL file, of any content."""
    return {
        **vars(key),
        "config": json.dumps({"space": space, "knobs": knobs}, separators=(",", ":")),
        "latencies_s": [latency_s],
        "error": None,
        "message": "",
        "compile_s": 0.0,
        "run_s": 0.0,
        "code_hash": "",
        "trace": "",
        "when": 1.7e9,
        "host": "elsewhere",
        "seed": 0,
        "provenance": {},
    }


def line_of(kind: str, body: object) -> str:
    """A line of a JSONL file with a sound checksum."""
    return json.dumps({"kind": kind, "body": body, "digest": content_hash(body).hex()}, separators=(",", ":"))


def chain(program: Program, target: Target, path: Path) -> list[dict[str, object]]:
    """Records of the convolution of ``program``, faster than any other, whose trace would create ``path``."""
    trace = annotated("conv2d", "pragma_import_llvm", canary(path))
    task = next(task for task in program.tasks if task.template == "conv2d")
    keys = [record_key(task, space, target) for space in (UNTUNED, program.spaces[task.key])]
    return [record_data(key, "metaschedule/1", {"trace": trace}) for key in keys]
