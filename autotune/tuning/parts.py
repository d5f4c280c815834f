"""Parts of a run that are tuned one after the other: sets of shapes, or segments of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from autotune.options import Options
from autotune.validation.verify import Verdict

LEAST_S = 1.0
"""A slot takes about as long."""


class TunedPart(Protocol):
    """What tuning one part results in."""

    artifact: Path
    verified: Verdict | None
    interrupted: bool


def part_options(options: Options, share: float, out: Path, inputs: Mapping[str, tuple[int, ...]]) -> Options:
    """The options of one part.

    Args:
        share: of the whole run's budget and trials; the trials are rounded up, so that no part is left without any.
    """
    # 1/3 of 3 must not become 2 because 1/3 is a bit more than that in floating point.
    trials = None if options.trials is None else math.ceil(share * options.trials - 1e-9)
    return replace(
        options,
        out=out,
        inputs=dict(inputs),
        shapes=(),
        fallback=None,
        budget_s=max(LEAST_S, share * options.seconds),
        trials=trials,
    )
