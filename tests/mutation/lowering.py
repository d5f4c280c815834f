"""``schedules.lower`` for measuring workers, but a config with a knob ``mutant`` gets a mistake."""

from __future__ import annotations

import numpy as np
from tvm import s_tir, tirx

from schedules import lower as right
from schedules.config import Config
from schedules.target import Target
from schedules.templates.common.structure import Repack
from tests.mutation.mutants import Mutant, mutate, random_mutant

LOWERING = __name__
KNOB = "mutant"


def mutated(config: Config, number: int) -> Config:
    """``config`` with mistake ``number`` of all that could be made."""
    return Config(config.space, (*config.items, (KNOB, number)))


def split(config: Config) -> tuple[Config, int | None]:
    """The config without the knob, and the knob."""
    knobs = dict(config.items)
    number = knobs.pop(KNOB, None)
    return Config(config.space, tuple(knobs.items())), None if number is None else int(number)


def mistake(func: tirx.PrimFunc, config: Config, target: Target) -> Mutant:
    """Which mistake a mutated config stands for."""
    plain, number = split(config)
    return random_mutant(right.lower(func, plain, target).mod["main"], np.random.default_rng([5, number or 0]))


def lower(func: tirx.PrimFunc, config: Config, target: Target) -> s_tir.Schedule:
    plain, number = split(config)
    schedule = right.lower(func, plain, target)
    if number is None:
        return schedule
    scheduled = schedule.mod["main"]
    wrong = mutate(scheduled, random_mutant(scheduled, np.random.default_rng([5, number])))
    return s_tir.Schedule(wrong, debug_mask="none")


def assembly(func: tirx.PrimFunc, config: Config, target: Target, symbol: str) -> str:
    """Every kernel is scheduled and compiled."""
    return ""


def repack(func: tirx.PrimFunc, config: Config) -> dict[int, Repack]:
    return right.repack(func, split(config)[0])
