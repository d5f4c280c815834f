"""``schedules.lower`` for measuring workers, but a config with a knob ``mutant`` or ``text_mutant`` gets a mistake.

The first makes one in the scheduled program, which is then compiled; the second in the text for the assembler.
"""

from __future__ import annotations

import numpy as np
from tvm import s_tir, tirx

from schedules import lower as right
from schedules.config import Config
from schedules.target import Target
from schedules.templates.common.structure import Repack
from tests.mutation.mutants import Mutant, mutate, random_mutant
from tests.mutation.text_mutants import random_mistake

LOWERING = __name__
KNOB, TEXT_KNOB = "mutant", "text_mutant"


def mutated(config: Config, number: int, knob: str = KNOB) -> Config:
    """``config`` with mistake ``number`` of all that could be made."""
    return Config(config.space, (*config.items, (knob, number)))


def split(config: Config, knob: str = KNOB) -> tuple[Config, int | None]:
    """The config without the knob, and the knob."""
    knobs = dict(config.items)
    number = knobs.pop(knob, None)
    return Config(config.space, tuple(knobs.items())), None if number is None else int(number)


def plain(config: Config) -> Config:
    """The config without a mistake."""
    return split(split(config)[0], TEXT_KNOB)[0]


def mistake(func: tirx.PrimFunc, config: Config, target: Target) -> Mutant:
    """Which mistake a mutated config stands for."""
    rest, number = split(config)
    return random_mutant(right.lower(func, rest, target).mod["main"], np.random.default_rng([5, number or 0]))


def lower(func: tirx.PrimFunc, config: Config, target: Target) -> s_tir.Schedule:
    rest, number = split(config)
    schedule = right.lower(func, rest, target)
    if number is None:
        return schedule
    scheduled = schedule.mod["main"]
    wrong = mutate(scheduled, random_mutant(scheduled, np.random.default_rng([5, number])))
    return s_tir.Schedule(wrong, debug_mask="none")


def assembly(func: tirx.PrimFunc, config: Config, target: Target, symbol: str) -> str:
    """What a run assembles, with a mistake if the config says so; a kernel with one in its program is compiled."""
    if split(config)[1] is not None:
        return ""
    rest, number = split(config, TEXT_KNOB)
    text = right.assembly(func, rest, target, symbol)
    return text if number is None or not text else text_mistake(text, number)[2]


def text_mistake(text: str, number: int) -> tuple[str, int, str]:
    """The kind of mistake ``number``, the line it is in, and the text with it."""
    return random_mistake(text, np.random.default_rng([9, number]))


def repack(func: tirx.PrimFunc, config: Config) -> dict[int, Repack]:
    return right.repack(func, plain(config))
