"""Seed → a real graph with a few changes."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
from onnx import ModelProto

from tests.fuzz import changes, tails, wraps
from tests.fuzz.changes import Change
from tests.fuzz.draft import Draft, finished
from tests.fuzz.engine import Sample
from tests.fuzz.grower import NoFitError
from tests.fuzz.sources import random_sample

CHANGES: dict[Change, float] = {
    changes.second_reader: 2,
    changes.shown: 2,
    changes.shared_result: 2,
    changes.scaled: 5,
    changes.pair: 4,
    changes.twins: 2,
    changes.two_clips: 1,
    changes.emptied: 2,
    changes.swapped: 1,
    changes.counted_from_the_end: 1,
    changes.other_rank: 3,
    changes.moved_constant: 3,
    changes.one_constant: 1,
    changes.in_double: 2,
    changes.collided: 3,
    changes.other_opset: 3,
    changes.dead: 0.5,
    tails.padded: 1.5,
    tails.resized: 2.5,
    tails.normalised: 1,
    tails.soft: 1,
    tails.truncated: 1,
    tails.pooled: 1.5,
    tails.enlarged: 1,
    tails.unfolded: 0.5,
    tails.product: 3,
    tails.convolved: 3,
    wraps.in_if: 2,
    wraps.in_loop: 2,
    wraps.in_function: 3,
}
"""Change → how often it is tried."""

COUNTS = (1, 1, 2, 2, 3, 4)
TRIES = 12


def mutated_sample(seed: int) -> Sample:
    """The sample of ``seed``, always the same one."""
    for attempt in range(TRIES):
        rng = np.random.default_rng([13, seed, attempt])
        with contextlib.suppress(NoFitError):
            return _changed(random_sample(rng), rng)
    raise NoFitError


def _changed(sample: Sample, rng: np.random.Generator) -> Sample:
    """``sample`` after some changes; those that do not fit are left out.

    Raises:
        NoFitError: if none fits.
    """
    shares = np.array(list(CHANGES.values()))
    shares /= shares.sum()
    wanted, made = int(rng.choice(COUNTS)), []
    for change in rng.choice(np.array(list(CHANGES), object), size=4 * wanted, p=shares):
        if len(made) == wanted:
            break
        model = ModelProto()
        model.CopyFrom(sample.model)
        draft = Draft(model, rng, None if sample.feed is None else dict(sample.feed))
        try:
            change(draft)
            sample = Sample(finished(draft), draft.feed, sample.changes)
        except NoFitError:
            continue
        made.append(change.__name__)
    if not made:
        raise NoFitError
    return replace(sample, changes=(*sample.changes, *made))
