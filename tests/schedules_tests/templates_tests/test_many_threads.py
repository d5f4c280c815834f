"""Kernels for 4 to 64 threads on a machine with fewer: whatever their number, jobs cover the result once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from schedules.config import Config
from schedules.lower import BASELINE, assembly, claim
from schedules.target import Target
from schedules.templates.common.structure import FEW_THREADS, MANY_JOBS, MOST_PARTS, balance, idle, job_parts
from schedules.vocabulary.errors import ScheduleError
from search.searchers.transfer import transferred
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import Array, Case, dtypes, inputs, run, shapes
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    NARROW,
    SYMBOL,
    TARGET,
    repacked,
    run_watched,
    runs_here,
)

MANY = (4, 16, 64)
NEAR = 1.1
"""Heuristic terms beside the time may outweigh so much of it."""
DIVIDED = [case for case in CASES if case.template in ("conv2d", "depthwise", "pool")]
QUICK = ("conv2d_3x3", "conv2d_grouped", "depthwise_3x3", "pool_max")
slow = pytest.mark.slow


def sampled(cases: list[Case], quick: tuple[str, ...]) -> list[object]:
    """``cases`` as parameters, all slow but those whose names are ``quick``."""
    return [pytest.param(case, id=case.name, marks=() if case.name in quick else slow) for case in cases]


def is_right(case: Case, result: Array, arrays: list[Array]) -> bool:
    expected = case.expected(*arrays)
    if result.dtype.kind in "iu":
        return bool((result == expected).all())
    rtol = 2.0**-7 if result.dtype == "bfloat16" else 2e-4
    result, expected = result.astype(np.float32), expected.astype(np.float32)
    return np.allclose(result, expected, rtol=rtol, atol=rtol / 10)


def divided(case: Case, target: Target, count: int) -> list[Config]:
    """Some configs of each algorithm that divide rows into parts."""
    space = claim(case.func, target).space
    columns = space.columns(space.rows)
    if "parts" not in columns:
        return []
    algorithms = columns.get("algorithm", np.zeros(len(space.rows)))
    rng, configs = np.random.default_rng(len(case.name)), []
    for algorithm in np.unique(algorithms):
        rows = space.rows[(algorithms == algorithm) & (columns["parts"] > 1)]
        configs += [space.config(row) for row in rows[rng.permutation(len(rows))[:count]]]
    return configs


@pytest.mark.parametrize("case", sampled(DIVIDED, QUICK))
def test_parts_of_rows_are_right(case: Case) -> None:
    target = replace(TARGET, threads=16)
    arrays = inputs(case.func)
    for config in divided(case, target, 1 if case.name in QUICK else 4):
        try:
            result = run(case.func, config, target, arrays)
        except ScheduleError:
            continue
        assert is_right(case, result, arrays), config.to_json()


@runs_here
@pytest.mark.parametrize("target", [TARGET, NARROW], ids=["avx512", "avx2"])
@pytest.mark.parametrize("case", sampled(DIVIDED, QUICK))
def test_written_parts_of_rows_are_right_on_any_number_of_threads(case: Case, target: Target) -> None:
    arrays = inputs(case.func)
    for config in divided(case, replace(target, threads=16), 2):
        text = assembly(case.func, config, replace(target, threads=16), SYMBOL)
        for threads in (1, 3, 16, 64) if text else ():
            packed = repacked(case.func, config, arrays)
            result = run_watched(text, packed, shapes(case.func)[-1], threads, dtype=dtypes(case.func)[-1])
            assert is_right(case, result, arrays), config.to_json()


WRITTEN = ("conv2d_1x1", "conv2d_3x3", "depthwise_3x3", "matmul_rows", "elementwise_chain", "concat_channels")


@runs_here
@pytest.mark.parametrize("threads", MANY)
@pytest.mark.parametrize("case", sampled(list(CASES), WRITTEN))
def test_written_first_guesses_are_right_on_many_threads(case: Case, threads: int) -> None:
    """Kernels run on as many threads as the target says, or fewer: a session may have to do with less."""
    target, arrays = replace(TARGET, threads=threads), inputs(case.func)
    for config in (*claim(case.func, target).space.initial[:2], BASELINE):
        text = assembly(case.func, config, target, SYMBOL)
        for there in (threads, threads - 1) if text else ():
            packed = repacked(case.func, config, arrays)
            result = run_watched(text, packed, shapes(case.func)[-1], there, dtype=dtypes(case.func)[-1])
            assert is_right(case, result, arrays), config.to_json()


def test_spaces_and_guesses_for_few_threads_stay_as_they_are(golden: Callable[[str, str], None]) -> None:
    """Recorded logs are of these spaces: they may change with a new version of a space only."""
    lines = []
    for case in CASES:
        texts = []
        for base, threads in ((TARGET, 2), (NARROW, 1)):
            space = claim(case.func, replace(base, threads=threads)).space
            knobs = [(knob.name, knob.choices) for knob in space.knobs]
            configs = [config.to_json() for config in (*space.initial, *space.seeds)]
            texts.append(repr((space.identity, knobs, configs, space.size)))
        lines.append(f"{case.name} {hashlib.sha256(''.join(texts).encode()).hexdigest()[:12]}\n")
    golden("guesses.txt", "".join(lines))


def test_idle_threads_cost_what_they_take() -> None:
    shares = np.array([0.25, 0.5, 1.0])
    assert idle(shares, FEW_THREADS) == pytest.approx([0.75, 0.5, 0.0])
    many = idle(shares, FEW_THREADS + 1)
    assert many[2] == 0.0
    assert many[0] == pytest.approx(2 * many[1])  # twice as long, and twice again
    assert idle(shares, 64, 2.0)[2] == pytest.approx(idle(shares, 64)[1])  # twice the cycles, or half of the threads


def test_rows_are_divided_for_many_threads_and_few_rows_only() -> None:
    assert job_parts((14,), 10, FEW_THREADS) == ()
    assert job_parts((14,), MANY_JOBS * 16, 16) == ()
    (knob,) = job_parts((14, 5), 100, 16)
    assert knob.choices == (1, 2, 5, 7)
    assert max(knob.choices) <= MOST_PARTS


@pytest.mark.parametrize("case", sampled(DIVIDED, QUICK))
def test_models_see_the_same_features_for_any_number_of_threads(case: Case) -> None:
    """So that results for few threads, and the shipped posterior, speak of spaces for many."""
    few, many = (claim(case.func, replace(TARGET, threads=threads)).space for threads in (2, 64))
    assert few.feature_names == many.feature_names
    assert many.features([many.initial[0]]).shape == (1, len(many.feature_names))
    assert transferred(many, [few.initial[0]], 1)


@pytest.mark.parametrize("threads", MANY)
@pytest.mark.parametrize("case", sampled(DIVIDED, QUICK))
def test_a_first_guess_takes_no_longer_than_one_for_two(case: Case, threads: int) -> None:
    """A guess for many threads must gain in jobs as much as it loses in its tiles."""
    space = claim(case.func, replace(TARGET, threads=threads)).space
    few = {**dict(claim(case.func, TARGET).space.initial[0].items), "parts": 1}
    same = Config(space.identity, tuple((knob.name, few[knob.name]) for knob in space.knobs))
    assert space.contains(same)
    columns = dict(zip(space.feature_names, space.features([space.initial[0], same]).T, strict=True))
    best, before = columns.get("cycles", np.ones(2)) / columns["balance"]
    assert best <= before * NEAR


def test_balance_is_one_where_all_threads_end_together() -> None:
    assert balance(np.array([64.0, 65.0, 16.0]), 64) == pytest.approx([1.0, 65 / 128, 0.25])
