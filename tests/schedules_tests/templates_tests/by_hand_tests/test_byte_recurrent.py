"""LSTMs with R in int8: exact products of bytes, and states that are quantised as ONNX Runtime does."""

import numpy as np
import pytest
import tvm

from autotune.host.machine import host_target
from schedules.lower import BASELINE, claim, lower, normalise, tvm_target
from schedules.target import Target
from schedules.templates.by_hand.byte_recurrent import byte_lstm_steps
from schedules.templates.by_hand.recurrent_steps import LANES, UNITS
from schedules.templates.cpu.passes import compiled
from tests.schedules_tests.programs import run
from tests.schedules_tests.recurrent_cases import byte_lstm

STEPS = 5


def byte_arrays(batch, chunks, shifted):
    """Arguments of a kernel whose gates are of ordinary size; the weights hold both ends of int8."""
    rng = np.random.default_rng(0)
    hidden, shape = chunks * UNITS, (chunks, 8, LANES)
    r = rng.integers(-128, 128, (chunks, hidden // 4, 8, LANES, 4)).astype(np.int8)
    r[0, 0, 0, 0], r[0, 0, 0, 1] = -128, 127
    sums = [r.sum((1, 4), dtype=np.int32)]
    if shifted:
        sums.append(rng.integers(-40, 40, shape).astype(np.int32))
    x = rng.standard_normal((STEPS, batch, *shape)).astype(np.float32)
    scale = rng.uniform(0.2, 1, shape).astype(np.float32) / (64 * hidden**0.5)
    h0, c0 = rng.standard_normal((2, batch, hidden)).astype(np.float32)
    return [x, r, scale, np.stack(sums), h0, c0]


BYTES = [
    (1, 1, False, False, 1),
    (2, 3, True, True, 1),
    (3, 2, False, True, 2),
    (4, 2, True, False, 2),
    (5, 4, False, False, 2),
]
ISAS = ["host", "avx2", "generic"]


@pytest.mark.parametrize(
    ("isa", "batch", "chunks", "backwards", "shifted", "threads"),
    [  # a change runs every shape on this machine's instructions, and every third one of the others
        pytest.param(isa, *shape, marks=[pytest.mark.slow] * (isa != "host" and index % 3 != number))
        for number, isa in enumerate(ISAS)
        for index, shape in enumerate(BYTES)
    ],
)
def test_bytes_are_multiplied_exactly(isa, batch, chunks, backwards, shifted, threads):
    target = host_target(threads) if isa == "host" else Target(kind="llvm", isa=isa, threads=threads)
    func = normalise(byte_lstm_steps(STEPS, batch, chunks * UNITS, backwards, shifted=shifted))
    arrays = byte_arrays(batch, chunks, shifted)
    claimed = claim(func, target)
    assert claimed.template == "recurrent"
    for config in (BASELINE, *claimed.space.initial):
        result = run(func, config, target, arrays)
        np.testing.assert_allclose(result, byte_lstm(*arrays, backwards), rtol=0, atol=5e-6)


def test_the_program_of_bytes_says_what_its_instructions_compute():
    """The loops that stand in the log, as TVM compiles them, and what is built of them."""
    func, target = normalise(byte_lstm_steps(STEPS, 2, 64, False, shifted=True)), host_target(1)
    assert "tune_dot" not in str(func)
    assert "tune_dot" in str(lower(func, BASELINE, target).mod)
    arrays = byte_arrays(2, 2, True)
    out = tvm.runtime.tensor(np.full((2, STEPS + 1, 2, 64), np.nan, np.float32))
    compiled(func, "main", tvm_target(target))(*map(tvm.runtime.tensor, arrays), out)
    np.testing.assert_allclose(out.numpy(), run(func, BASELINE, target, arrays), rtol=0, atol=5e-6)


def test_states_of_no_width_and_states_of_one_sign_are_quantised():
    arrays = byte_arrays(2, 1, False)
    func, target = normalise(byte_lstm_steps(STEPS, 2, UNITS, False)), host_target(1)
    for value in (0, 3, -3):
        arrays[4] = np.full_like(arrays[4], value)
        result = run(func, BASELINE, target, arrays)
        np.testing.assert_allclose(result, byte_lstm(*arrays), rtol=0, atol=5e-6)


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        (Target.cpu("znver4", 1), "vpdpbusd"),
        (Target(kind="llvm", isa="avx2", mcpu="alderlake", threads=1), "vpdpbusd"),
        (Target.cpu("haswell", 1), "vpmaddwd"),
        (Target.cpu("neoverse-n2", 1), "sudot"),
    ],
    ids=["znver4", "alderlake", "haswell", "neoverse-n2"],
)
def test_bytes_are_multiplied_by_the_processors_instruction(target, instruction):
    """Also where its vectors are shorter than those of the kernel."""
    kernel = lower(normalise(byte_lstm_steps(2, 1, 32, False)), BASELINE, target).mod["main"]
    text = str(compiled(kernel, "main", tvm_target(target)).mod.inspect_source("asm"))
    assert instruction in text
    assert "tune_dot" not in text
