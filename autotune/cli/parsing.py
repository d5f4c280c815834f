"""Options as typed: durations, bytes, shares, counts, targets and lists of names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.graph.lanes import BYTE_UNITS
from schedules.target import Target as BuildTarget
from schedules.vocabulary.bounded import MOST_DEPTH, parsed_json
from schedules.vocabulary.choices import did_you_mean
from schedules.vocabulary.errors import UsageError

NEVER = "never"
"""The value of ``--until`` that ends no run: only the budget and the trials end a run."""

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


def typed(flag: str, text: str) -> str:
    """Return the option as the user typed it."""
    return f"{flag} {shlex.quote(text)}"


def parse_seconds(text: str, flag: str = "--budget") -> float:
    """``90s``, ``5m``, ``1m30s``, ``1h``, ``2ms``, or plain seconds.

    Raises:
        UsageError: if the text is none of these, or zero.
    """
    try:
        seconds = float(text)
    except ValueError:
        match = _DURATION.fullmatch(text)
        hours, minutes, rest, thousandths = match.groups(default="0") if match and text else ("0", "0", "0", "0")
        seconds = 3600 * int(hours) + 60 * int(minutes) + float(rest) + 1e-3 * float(thousandths)
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{typed(flag, text)}: not a time above zero; write for example 90s, 5m or 1m30s")
    return seconds


def parse_bytes(text: str, flag: str) -> int:
    """``4GB`` or ``1.5MB`` → bytes.

    Raises:
        UsageError: if the text is not a size above zero.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)B", text.strip())
    size = float(match[1]) * BYTE_UNITS[match[2]] if match else 0.0
    if size < 1:
        raise UsageError(f"{typed(flag, text)}: not a size; write for example 4GB")
    return int(size)


def parse_share(text: str, flag: str) -> float:
    """``5%`` or ``0.05`` → 0.05.

    Raises:
        UsageError: if the text is not a share between 0 and 1.
    """
    try:
        share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        share = -1.0
    if not 0.0 < share < 1.0:
        raise UsageError(f"{typed(flag, text)}: not a percentage between 0 and 100; write for example 5%")
    return share


def parse_until(text: str) -> float:
    """A share as of ``parse_share``; ``never`` → 0."""
    return 0.0 if text == NEVER else parse_share(text, "--until")


def parse_weights(texts: Sequence[str]) -> dict[str, int]:
    """``["a=3", "b=1"]`` → weights by model name.

    Raises:
        UsageError: if one is not a name and a whole number of 1 or more, or names a model again.
    """
    weights: dict[str, int] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        name = name.removesuffix(".onnx")
        if not name or not number.isdecimal() or int(number) < 1:
            raise UsageError(
                f"{typed('--weight', text)}: not a model's name and a whole number; write for example --weight a=3"
            )
        if name in weights:
            raise UsageError(
                f"{typed('--weight', text)}: {name} has the weight {weights[name]} already; give one for each model"
            )
        weights[name] = int(number)
    return weights


MOST_COUNT = 1 << 20
"""Largest count that is read: more than any machine has cores, or any decoder positions."""


def parse_count(text: str, flag: str) -> int:
    """A whole number of 1 to ``MOST_COUNT``.

    Raises:
        UsageError: if the text is none.
    """
    digits = text.lstrip("0")
    if not text.isdecimal() or not 0 < len(digits) <= len(str(MOST_COUNT)) or int(digits) > MOST_COUNT:
        raise UsageError(f"{typed(flag, text)}: not a whole number from 1 to {MOST_COUNT}; write for example 4")
    return int(digits)


EXAMPLE = (
    """JSON with "isa" and "threads", such as '{"isa": "avx2"}', with "cpu" and "threads", such as """
    """'{"cpu": "neoverse-n2", "threads": 4}', or with "kind": "cuda" and "arch\""""
)


def parse_target(text: str) -> dict[str, Any]:
    """``host``, ``cuda`` or JSON → fields of ``Options``.

    A JSON object holds ``isa`` and ``threads`` of this machine; LLVM's name of any ``cpu`` with ``threads``; or
    ``"kind": "cuda"`` with ``arch`` and perhaps ``multiprocessors``.

    Raises:
        UsageError: for anything else.
    """
    if text == "host":
        return {}
    if text == "cuda":
        from autotune.backends.cuda.device import device_target

        return {"target": device_target()}
    try:
        fields = parsed_json(text, MOST_DEPTH)
    except ValueError as error:
        near = did_you_mean(text, ("host", "cuda"))
        raise UsageError(f"{typed('--target', text)}: unknown; {near}give host, cuda or {EXAMPLE}") from error
    if isinstance(fields, dict) and fields.get("kind") == "cuda":
        return {"target": _cuda_target(text, fields)}
    if isinstance(fields, dict) and set(fields) <= {"cpu", "threads"} and isinstance(fields.get("cpu"), str):
        threads = fields.get("threads", 1)
        if not isinstance(threads, int):
            raise UsageError(f"{typed('--target', text)}: give {EXAMPLE}")
        return {"target": BuildTarget.cpu(fields["cpu"], threads)}
    if not isinstance(fields, dict) or not set(fields) <= {"isa", "threads"}:
        raise UsageError(f"{typed('--target', text)}: give {EXAMPLE}")
    return fields


def _cuda_target(text: str, fields: dict[str, Any]) -> BuildTarget:
    arch, count = fields.get("arch"), fields.get("multiprocessors")
    known = set(fields) <= {"kind", "arch", "multiprocessors"} and isinstance(arch, str)
    if not known or not (count is None or (isinstance(count, int) and count > 0)):
        raise UsageError(
            f'{typed("--target", text)}: needs "arch" and at most "multiprocessors", such as '
            '{"kind": "cuda", "arch": "sm_90"}'
        )
    return BuildTarget.cuda(str(arch), count)


def split_names(text: str) -> list[str]:
    """``a,b`` → ["a", "b"]."""
    return [name.strip() for name in text.split(",") if name.strip()]


def target_and_shapes(
    target: str, threads: int | None, inputs: list[str] | None, sizes: Path | None, model: Path
) -> dict[str, Any]:
    """The fields of ``Options`` that ``--target``, ``--threads``, ``--input`` and ``--sizes`` of ``model`` are about.

    Raises:
        UsageError: if one of them cannot be read, or both of the last are given.
    """
    fields = parse_target(target)
    if threads is not None and "target" in fields and fields["target"].mcpu:
        fields["target"] = replace(fields["target"], threads=threads)
    sets: Sequence[Mapping[str, tuple[int, ...]]] = ()
    shares: tuple[float, ...] = ()
    if inputs and sizes:
        raise UsageError("--input does not go with --sizes: both say which sizes to tune for; leave one out")
    if inputs:
        from autotune.importer.onnx_model.shape_sets import shape_sets  # loads onnx

        sets = shape_sets(inputs)
    elif sizes:
        from autotune.importer.traffic import sets_for  # loads onnx

        sets, shares = zip(*sets_for(model, sizes), strict=True)
    return {
        "target": fields.get("target"),
        "isa": fields.get("isa"),
        "threads": threads if threads is not None else fields.get("threads"),
        "inputs": sets[0] if sets else {},
        "shapes": sets if len(sets) > 1 else (),
        "shares": shares if len(sets) > 1 else (),
    }
