"""Small spaces and made-up measurements that the conformance suites run over."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from tuning_logs.measurement import Measurement


def _fits(columns: Columns) -> NDArray[np.bool_]:
    return columns["wide"] * columns["high"] <= 32


def _derived(columns: Columns) -> dict[str, NDArray[np.float64]]:
    return {"area": np.log2(columns["wide"] * columns["high"])}


def enumerated() -> Space:
    """Some tens of configs behind a constraint, with a tuple knob, a derived feature and two initial configs."""
    space = Space(
        "enumerated",
        1,
        (
            Knob("wide", (1, 2, 4, 7, 14, 28)),
            Knob("high", (1, 2, 4, 8)),
            Knob("order", ("rows", "columns")),
            Knob("split", ((4, 4), (2, 8))),
        ),
        constraint=_fits,
        derive=_derived,
    )
    rows = np.array([[3, 2, 0, 0], [4, 1, 1, 1]], dtype=np.int32)
    first = tuple(space.config(row) for row in rows)
    return Space(space.name, space.version, space.knobs, space.constraint, space.derive, first)


def product() -> Space:
    """A space too large to list, with a constraint."""
    knobs = tuple(Knob(f"k{index}", tuple(range(1, 9))) for index in range(8))
    return Space("product", 1, knobs, constraint=lambda columns: columns["k0"] <= columns["k1"])


def single() -> Space:
    """One config."""
    return Space("single", 1, (Knob("only", (4,)),))


def tiny() -> Space:
    """Three configs."""
    return Space("tiny", 1, (Knob("tile", (1, 2, 4)),))


def tight_product() -> Space:
    """A product space whose constraint leaves one config, which sampling hardly ever meets."""
    knobs = tuple(Knob(f"k{index}", tuple(range(8))) for index in range(7))
    return Space("tight", 1, knobs, constraint=lambda columns: sum(columns.values()) <= 0.5)


def latency_s(config: Config) -> float:
    """A smooth made-up latency: every number in the config has a best value of 4."""
    cost = 0.0
    for _, value in config.items:
        parts = value if isinstance(value, tuple) else (value,)
        cost += sum((math.log2(part + 1) - 2.3) ** 2 if isinstance(part, int) else 0.1 * len(part) for part in parts)
    return 1e-4 * (1.0 + cost)


def timed(config: Config) -> Measurement:
    """What measuring ``config`` gives."""
    return Measurement(latencies_s=(latency_s(config),), compile_s=0.05, run_s=0.03)


def constant(config: Config) -> Measurement:
    """The same latency for everything."""
    return Measurement(latencies_s=(1e-3,), compile_s=0.05, run_s=0.03)


def failed(config: Config) -> Measurement:
    """A failure for everything."""
    return Measurement(error="compile_error", message="made up", compile_s=0.05)


def mixed(config: Config) -> Measurement:
    """Fails for every third config or so, by its content."""
    return failed(config) if sum(config.to_json().encode()) % 3 == 0 else timed(config)
