"""Config: one full assignment of a Space, as plain ordered data."""

from __future__ import annotations

import json
from dataclasses import dataclass

from schedules.vocabulary.bounded import DAMAGE, parsed_json
from schedules.vocabulary.errors import UsageError

Value = int | str | tuple[int, ...]
"""A value of a knob. A tuple is one decision with several parts, such as a tiling."""

MOST_NUMBER = (1 << 63) - 1
"""Largest number of a config."""

MOST_DEPTH = 3
"""Nesting of a config's JSON: the config, its knobs, the parts of a tuple."""


def _frozen(value: object) -> Value:
    if isinstance(value, list | tuple):
        return tuple(_whole(part) for part in value)
    return value if isinstance(value, str) else _whole(value)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"a config value must be an int, a string or a list of ints, got {ascii(value)[:40]}")
    if abs(value) > MOST_NUMBER:
        raise UsageError(f"a config value must be at most {MOST_NUMBER}")
    return value


@dataclass(frozen=True, order=True)
class Config:
    """A frozen, ordered, hashable, JSON-able choice for every knob of the space called ``space``.

    Attributes:
        space: the space's identity, ``name/version``.
        items: (knob name, value) in the order of the space's knobs.
    """

    space: str
    items: tuple[tuple[str, Value], ...]

    def __getitem__(self, name: str) -> Value:
        for key, value in self.items:
            if key == name:
                return value
        raise KeyError(f"config of {self.space} has no knob {name!r}; it has {[k for k, _ in self.items]}")

    def integer(self, name: str) -> int:
        """The value of a knob whose choices are ints.

        Raises:
            UsageError: if it is no int.
        """
        value = self[name]
        if not isinstance(value, int):
            raise UsageError(f"knob {name!r} of {self.space} holds {value!r}, not an int")
        return value

    def to_json(self) -> str:
        """One line of JSON with a stable field order; equal configs give equal text."""
        return json.dumps({"space": self.space, "knobs": dict(self.items)}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Config:
        """Inverse of ``to_json``.

        Raises:
            UsageError: if the text is not such JSON.
        """
        try:
            data = parsed_json(text, MOST_DEPTH)
            return Config(str(data["space"]), tuple((str(k), _frozen(v)) for k, v in data["knobs"].items()))
        except DAMAGE as error:
            raise UsageError(f"not a config: {text[:120]!r} ({error}); expected what Config.to_json writes") from error
