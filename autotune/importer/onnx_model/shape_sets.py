"""``--input`` with ranges, or given several times: the sets of input shapes that one artifact is built for."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence

from autotune.importer.onnx_model.input_shapes import parse_input
from schedules.vocabulary.errors import UsageError

Shape = tuple[int, ...]

MOST_SETS = 12
"""Sets of shapes that one artifact may hold: each is tuned, built and verified. Heuristic, not measured."""

STEPS = 8.0
"""Ratio of a range's ends from which it gets two sizes between them. Heuristic, not measured."""

_CHOICE = re.compile(r"\{([^{}]*)\}")


def shape_sets(texts: Sequence[str]) -> tuple[Mapping[str, Shape], ...]:
    """The sets of shapes that the ``--input`` options ask for; one set if no size is open, none without options.

    A dimension may be ``{224..512}``, of which some sizes are taken, or ``{1,8,32}``. Dimensions written alike move
    together; different ones are combined. An input given several times has so many shapes; the inputs' first shapes
    make the first set, and so on, and an input with one shape has it in every set.

    Raises:
        UsageError: if a text has another form, inputs have different numbers of shapes, or there are too many sets.
    """
    shapes: dict[str, list[Shape]] = {}
    for text in texts:
        for name, shape in _expanded(text):
            if shape not in shapes.setdefault(name, []):
                shapes[name].append(shape)
    counts = {name: len(options) for name, options in shapes.items() if len(options) > 1}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise UsageError(f"--input: inputs have different numbers of shapes ({told}); give each input one per set")
    count = max(counts.values(), default=1 if shapes else 0)
    if count > MOST_SETS:
        raise UsageError(f"--input asks for {count} sets of shapes, more than {MOST_SETS}; name fewer sizes")
    return tuple({name: options[index % len(options)] for name, options in shapes.items()} for index in range(count))


def _expanded(text: str) -> list[tuple[str, Shape]]:
    """Every shape that one option stands for."""
    name, colon, dims = text.rpartition(":")
    choices = list(dict.fromkeys(_CHOICE.findall(dims)))
    sizes = [_sizes(choice, text) for choice in choices]
    expanded = []
    for picked in itertools.product(*sizes):
        plain = dims
        for choice, size in zip(choices, picked, strict=True):
            plain = plain.replace("{" + choice + "}", str(size))
        expanded.append(parse_input(name + colon + plain))
    return expanded


def _sizes(choice: str, text: str) -> list[int]:
    first, dots, last = choice.partition("..")
    parts = [first, last] if dots else choice.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(
            f"--input {text!r}: {{{choice}}} is not a range or a list of sizes; write {{224..512}} or {{1,8,32}}"
        )
    numbers = [int(part) for part in parts]
    if not dots:
        return numbers
    if numbers[0] > numbers[1]:
        raise UsageError(f"--input {text!r}: {{{choice}}} ends before it begins; write {{{numbers[1]}..{numbers[0]}}}")
    return range_sizes(*numbers)


def range_sizes(low: int, high: int) -> list[int]:
    """Both ends and sizes between them, evenly by ratio, multiples of what divides both ends.

    Four sizes for ends a factor of eight or more apart, three from a factor of two on, else two.
    """
    if low == high:
        return [low]
    ratio = high / low
    count = 4 if ratio >= STEPS else 3 if ratio >= 2 else 2
    unit = math.gcd(low, high)
    inner = [unit * round(low * ratio ** (index / (count - 1)) / unit) for index in range(1, count - 1)]
    return sorted({low, *inner, high})
