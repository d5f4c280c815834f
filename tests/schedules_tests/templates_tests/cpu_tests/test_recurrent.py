"""All steps of an LSTM or a GRU in one kernel, however its chunks are dealt to threads and whichever way it walks."""

import numpy as np
import pytest
import tvm

from autotune.host.machine import host_target
from schedules.lower import BASELINE, claim, is_scheduled, lower, normalise, tvm_target
from schedules.target import Target
from schedules.templates.cpu.passes import compiled
from schedules.templates.cpu.recurrent import LANES, UNITS, byte_lstm_steps, gru_steps, lstm_steps
from tests.schedules_tests.programs import run
from tests.schedules_tests.recurrent_cases import byte_lstm, gru, lstm

STEPS, BATCH, CHUNKS = 5, 2, 6
HIDDEN = CHUNKS * UNITS


@pytest.mark.parametrize(("threads", "batch"), [(1, 1), (1, 6), (2, 2), (4, 3)])  # 4 do not divide 6 chunks
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("make", [lstm_steps, gru_steps])
def test_it_is_right_for_any_number_of_threads(make, backwards, threads, batch):
    rng = np.random.default_rng(0)
    gates = 4 if make is lstm_steps else 3
    vectors = gates * UNITS // LANES
    x = rng.standard_normal((STEPS, batch, CHUNKS, vectors, LANES)).astype(np.float32)
    r = (rng.standard_normal((CHUNKS, HIDDEN, vectors, LANES)) / HIDDEN**0.5).astype(np.float32)
    h0, c0 = rng.standard_normal((2, batch, HIDDEN)).astype(np.float32)
    bias = rng.standard_normal((CHUNKS, 2, LANES)).astype(np.float32)
    arrays, expected = ([x, r, h0, c0], lstm) if gates == 4 else ([x, r, bias, h0], gru)
    func = normalise(make(STEPS, batch, HIDDEN, backwards))
    target = Target(kind="llvm", isa="avx512", threads=threads)
    assert is_scheduled(func)
    claimed = claim(func, target)
    assert claimed.template == "recurrent"
    configs = sorted(map(claimed.space.config, claimed.space.rows), key=lambda config: -config.integer("groups"))
    groups, tiles = ({config.integer(name) for config in configs} for name in ("groups", "tile"))
    assert groups == {1: {1}, 2: {2, 1}, 4: {6, 3, 2, 1}}[threads]
    assert tiles == {1: {1}, 2: {1, 2}, 3: {1, 3}, 6: {1, 2, 3}}[batch]
    assert claimed.space.initial[0].integer("tile") == max(tiles)
    first = lower(func, next(config for config in configs if config.integer("tile") == 1), target).mod["main"]
    tvm.ir.assert_structural_equal(first, lower(func, BASELINE, target).mod["main"])
    for config in configs:
        assert f"in T.parallel({config.integer('groups')})" in lower(func, config, target).mod["main"].script()
        result = run(func, config, target, arrays)
        np.testing.assert_allclose(result, expected(*arrays, backwards), rtol=2e-4, atol=2e-5)


def test_narrow_vectors_and_bytes_have_no_tile():
    narrow, wide = (Target(kind="llvm", isa=isa, threads=1) for isa in ("avx2", "avx512"))
    spaces = [
        claim(normalise(lstm_steps(STEPS, 6, 64, False)), narrow).space,
        claim(normalise(byte_lstm_steps(STEPS, 6, 64, False)), wide).space,
    ]
    assert [{space.config(row).integer("tile") for row in space.rows} for space in spaces] == [{1}, {1}]


def test_short_steps_are_guessed_to_be_faster_on_one_thread():
    target = Target(kind="llvm", isa="avx512", threads=2)
    first = {
        hidden: claim(normalise(make(5, 1, hidden, False)), target).space.initial[0].integer("groups")
        for make in (lstm_steps, gru_steps)
        for hidden in (64, 512)
    }
    assert first == {64: 1, 512: 2}


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


def test_short_steps_of_bytes_are_guessed_to_be_faster_on_one_thread():
    target = Target(kind="llvm", isa="avx512", threads=2)
    spaces = {hidden: claim(normalise(byte_lstm_steps(5, 1, hidden, False)), target).space for hidden in (64, 512)}
    assert {hidden: space.initial[0].integer("groups") for hidden, space in spaces.items()} == {64: 1, 512: 2}
