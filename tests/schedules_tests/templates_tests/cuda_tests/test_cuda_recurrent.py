"""Recurrent layers on a GPU: every way to share a step among threads, in either direction."""

import numpy as np
import pytest
from tvm import s_tir

from autotune.backends.cuda.source import cuda_program, cuda_source
from schedules.lower import BASELINE, claim, lower, normalise
from schedules.target import Target
from schedules.templates.by_hand.recurrent_steps import LANES, UNITS, gru_steps, lstm_steps
from schedules.templates.cuda.cuda_recurrent_steps import Tile, steps_of, walk_of
from tests.schedules_tests.recurrent_cases import gru, lstm
from tests.schedules_tests.templates_tests.cuda_tests.emulator import emulate

TARGET = Target.cuda("sm_90")


def arrays(make, steps, batch, hidden):
    """Arguments of a kernel, with states that are not zero."""
    rng = np.random.default_rng(steps * hidden + batch)
    chunks, vectors = hidden // UNITS, (4 if make is lstm_steps else 3) * UNITS // LANES
    x = rng.standard_normal((steps, batch, chunks, vectors, LANES))
    r = rng.standard_normal((chunks, hidden, vectors, LANES)) / hidden**0.5
    h0, c0 = rng.standard_normal((2, batch, hidden))
    bias = rng.standard_normal((chunks, 2, LANES))
    operands = [x, r, h0, c0] if make is lstm_steps else [x, r, bias, h0]
    return [array.astype(np.float32) for array in operands]


def check(make, shape, config, backwards=False):
    """The layer of ``shape`` (steps, batch, hidden) by ``config``, from its CUDA source, against NumPy."""
    func, operands = normalise(make(*shape, backwards)), arrays(make, *shape)
    output = np.full([int(size) for size in func.params[-1].ty.shape], np.nan, np.float32)
    expected = (lstm if make is lstm_steps else gru)(*operands, backwards)
    result = emulate(lower(func, config, TARGET), TARGET, operands, output)
    np.testing.assert_allclose(result, expected, rtol=2e-4, atol=2e-5, err_msg=config.to_json())


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("make", [lstm_steps, gru_steps])
@pytest.mark.parametrize("shape", [(1, 1, 32), (3, 2, 64)])
def test_the_untuned_kernel_and_a_guess_are_right(make, backwards, shape):
    claimed = claim(normalise(make(*shape, backwards)), TARGET)
    assert claimed.template == "cuda_recurrent"
    for config in (BASELINE, claimed.space.initial[0]):
        check(make, shape, config, backwards)


@pytest.mark.parametrize(("make", "shape"), [(lstm_steps, (2, 4, 96)), (gru_steps, (3, 8, 32))])
def test_random_configs_are_right(make, shape):
    space = claim(normalise(make(*shape, False)), TARGET).space
    for row in np.random.default_rng(0).choice(len(space.rows), 4, replace=False):
        check(make, shape, space.config(space.rows[row]))


def test_a_step_is_a_launch_unless_a_block_has_all_units():
    layer = walk_of(normalise(lstm_steps(5, 1, 64, False)))
    kernels = {}
    for units in (8, 64):
        sch = s_tir.Schedule(steps_of(layer, Tile(1, units, 2, keep=False)).with_attr("global_symbol", "main"))
        kernels[units] = [launch.kernel for launch in cuda_program(sch, TARGET).launches]
    assert len(kernels[64]) == 2  # the first states, and all steps
    assert len(kernels[8]) == 6
    assert len(set(kernels[8])) == 2  # one kernel for all steps
    assert "5 in a row" in cuda_source(lower(normalise(lstm_steps(5, 1, 64, False)), BASELINE, TARGET), TARGET)


@pytest.mark.parametrize(("hidden", "entire"), [(64, True), (1024, False)])
def test_weights_that_fit_registers_are_guessed_to_stay_there(hidden, entire):
    first = claim(normalise(lstm_steps(20, 1, hidden, False)), TARGET).space.initial[0]
    assert (first.integer("units") == hidden, bool(first.integer("keep"))) == (entire, entire)
