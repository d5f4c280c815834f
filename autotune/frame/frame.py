"""The frame of a model around its kernels: sequences, strings, and results whose size depends on data.

Kernels take tensors of numbers and fixed sizes. A frame says how what a user feeds becomes such tensors, and how what
the kernels make becomes what the model's outputs are; its steps are few, and run in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.contributions import contribution
from autotune.interface import OpenSpec, TensorSpec
from schedules.vocabulary.errors import RunError, UsageError

Array = NDArray[Any]
Attributes = Mapping[str, Any]
HostOperator = Callable[[Sequence[Any], Attributes], list[Any]]
"""(inputs, None for those left out; attributes of the step) → outputs, in NumPy."""


def pack(inputs: Sequence[Any], _attributes: Attributes) -> list[Any]:
    """A sequence of its inputs."""
    return [list(inputs)]


def cut(inputs: Sequence[Any], attributes: Attributes) -> list[Any]:
    """The first ``length`` elements of x along ``axis``; x was made in its largest size."""
    x, length = inputs
    keep = [slice(None)] * x.ndim
    keep[int(attributes["axis"])] = slice(0, int(length))
    return [np.ascontiguousarray(x[tuple(keep)])]


HOST_OPERATORS: Mapping[str, HostOperator] = {"Pack": pack, "Cut": cut}
"""Operators of steps; those on strings are a contribution's."""


def host_operator(kind: str) -> HostOperator:
    """Return the operator of steps of ``kind``.

    Raises:
        InstallError: if it computes with strings and their contribution is not installed.
    """
    if kind in HOST_OPERATORS:
        return HOST_OPERATORS[kind]
    operators: Mapping[str, HostOperator] = contribution("string_operators", f"operator {kind} on strings")
    return operators[kind]


@dataclass(frozen=True)
class HostStep:
    """One operation on values by name.

    Attributes:
        kind: a name that ``host_operator`` knows.
        attributes: plain data.
    """

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Frame:
    """The steps around the kernels.

    Attributes:
        inputs: what a session takes; the elements of a sequence one by one. Strings have the type ``object``.
        outputs: what a session gives; a size that depends on data is ``?``, a sequence has the type ``sequence`` and
            the number of its elements as its shape.
        sequences: input that is a sequence → its number of elements, which are inputs called ``name[0]`` and so on.
        before, after: the steps, in order.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[OpenSpec, ...]
    sequences: dict[str, int] = field(default_factory=dict)
    before: tuple[HostStep, ...] = ()
    after: tuple[HostStep, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Frame:
        """Inverse of ``to_data``, whose tuples may have become lists."""

        def steps(field: str) -> tuple[HostStep, ...]:
            return tuple(
                HostStep(str(s["kind"]), tuple(s["inputs"]), tuple(s["outputs"]), dict(s["attributes"]))
                for s in data[field]
            )

        return Frame(
            tuple(TensorSpec(str(s["name"]), tuple(s["shape"]), str(s["dtype"])) for s in data["inputs"]),
            tuple(OpenSpec(str(s["name"]), tuple(s["shape"]), str(s["dtype"])) for s in data["outputs"]),
            {str(name): int(count) for name, count in data["sequences"].items()},
            steps("before"),
            steps("after"),
        )

    def run(self, steps: Sequence[HostStep], values: dict[str, Any]) -> None:
        """Add what ``steps``, the frame's, make of ``values`` to them.

        Raises:
            RunError: naming the step that fails.
        """
        for step in steps:
            inputs = [values[name] if name else None for name in step.inputs]
            try:
                outputs = host_operator(step.kind)(inputs, step.attributes)
            except (ValueError, TypeError, LookupError) as error:
                raise RunError(f"{step.kind}, which makes {step.outputs[0]!r}, failed: {error}") from error
            values.update(zip(step.outputs, outputs, strict=False))

    def elements(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """``feed`` with sequences taken apart.

        Raises:
            RunError: if a sequence has another number of elements than the artifact was built for.
            UsageError: if a value for a sequence is none.
        """
        flat = dict(feed)
        for name, count in self.sequences.items():
            if name in flat:
                value = flat.pop(name)
                try:
                    elements = [] if value is None else list(value)
                except TypeError as error:
                    raise UsageError(f"input {name!r} is a sequence; give a list of {count} arrays") from error
                if len(elements) != count:
                    raise RunError(f"input {name!r} has {len(elements)} elements; the artifact was built for {count}")
                flat.update({element(name, index): item for index, item in enumerate(elements)})
        return flat


def element(name: str, index: int) -> str:
    """Name of an element of a sequence."""
    return f"{name}[{index}]"
