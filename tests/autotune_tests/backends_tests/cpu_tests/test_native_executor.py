"""The core: whatever the graph and the lanes, outputs equal those of a sequential run, and no run hangs."""

import ctypes
import os
import subprocess
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from tvm.support import cc
from tvm_ffi import libinfo

from autotune.backends.cpu.linking import CORE
from autotune.backends.cpu.native_executor import NativeExecutor
from autotune.backends.cpu.native_library import NativeLibrary
from autotune.graph.flat import Flat, FlatCall, Source, Use
from autotune.graph.lanes import cpu_lane
from autotune.graph.partition import Subgraph, partition, refine, subgraph_needs
from autotune.graph.steps import MOST_LIVE, CallJobs, LiveRows, LiveSizes, Operand, Piece, Step, Steps, arrange
from autotune.host.machine import thread_cpus
from autotune.measure.output_check import aligned
from schedules.templates.cpu.passes import ALIGNMENT
from schedules.vocabulary.errors import ArtifactError, RunError
from tests.autotune_tests.graph_tests.dags import chains, random_edges, random_flat
from tests.simulated.placed import sequential

PATIENCE_S = 60.0
DAGS = 1000
SCRATCH = (500, 6000, 20000)
LANE_SETS = (
    (cpu_lane(0, 1),),
    (cpu_lane(0, 1), cpu_lane(1, 1)),
    (cpu_lane(0, 2), cpu_lane(0, 1), cpu_lane(1, 1)),
    (cpu_lane(0, 1), cpu_lane(1, 2), cpu_lane(0, 3)),
)


@pytest.fixture
def machine(library):
    """Makes machines and ends their threads."""
    executors = []

    def make(flat, pieces, lanes, workspaces=None):
        sizes = {lane.threads for lane in lanes}
        steps = arrange(dict.fromkeys(sizes, flat), pieces, lanes, workspaces)
        cpus = thread_cpus(2)
        cores = 1 + max(lane.cores[-1] for lane in lanes)
        where = [cpus[i % len(cpus)] for i in range(cores)]
        executors.append(NativeExecutor(dict.fromkeys(sizes, library), steps, (), where))
        return executors[-1]

    yield make
    for executor in executors:
        executor.close()


def random_pieces(rng, edges, lanes):
    """A random cut of any graph: pieces of neighbours in a random order that can be run, on random lanes."""
    if rng.random() < 0.5:
        cut = partition(edges)
        if rng.random() < 0.5:
            cut = refine(cut, edges, lambda node: 1.0, 3)
        subgraphs = list(cut.subgraphs)
    else:
        ends = sorted({len(edges), *(int(end) for end in rng.integers(1, len(edges) + 1, 5))})
        spans = zip([0, *ends], ends, strict=False)
        subgraphs = [Subgraph(str(start), tuple(range(start, end))) for start, end in spans]
    needs = subgraph_needs(subgraphs, edges)
    left, order = set(range(len(subgraphs))), []
    while left:
        order.append(int(rng.choice([s for s in left if not left & set(needs[s])])))
        left.remove(order[-1])
    return [Piece(subgraphs[s].name, subgraphs[s].nodes, int(rng.integers(len(lanes)))) for s in order]


def within(seconds, work):
    """What ``work`` returns or raises; a failure if it does not end."""
    came = []

    def run():
        try:
            came.append((work(), None))
        except Exception as error:
            came.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert came, "it hangs"
    result, error = came[0]
    if error is not None:
        raise error
    return result


def tensor(rng):
    return rng.uniform(0.0, 10.0, 8)


def equal(ours, theirs):
    return len(ours) == len(theirs) and all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_arrays_that_come_again_are_read_again(machine):
    rng = np.random.default_rng(7)
    edges = random_edges(rng, 12)
    flat, lanes = random_flat(rng, edges), LANE_SETS[1]
    built = machine(flat, random_pieces(rng, edges, lanes), lanes)
    one, other = tensor(rng), tensor(rng)
    for x in (one, one, other, one):
        x[:] = tensor(rng)
        assert equal(built.run([x]), sequential(flat, x))


def test_a_thousand_graphs_run_as_in_sequence(machine):
    rng = np.random.default_rng(0)
    for number in range(DAGS):
        edges = random_edges(rng)
        lanes = LANE_SETS[number % len(LANE_SETS)]
        flat = random_flat(rng, edges)
        placed = machine(flat, random_pieces(rng, edges, lanes), lanes)
        for _ in range(2):  # the second run meets what the first left in memory
            x = tensor(rng)
            assert equal(within(PATIENCE_S, lambda m=placed, x=x: m.run([x])), sequential(flat, x)), number
        placed.close()


@pytest.mark.parametrize("planned", [False, True])
def test_workspaces_lie_where_they_were_planned_and_overwrite_nothing(machine, library, planned):
    rng = np.random.default_rng(2)
    doubles = max(SCRATCH) // 4 + max(SCRATCH) // 4 + max(SCRATCH) // 8 + 1  # as ``scratch`` asks for them
    for number in range(DAGS // 10):
        edges = random_edges(rng)
        flat = with_small_end(random_flat(rng, edges, "scratch", SCRATCH))
        lanes = LANE_SETS[number % 2]
        whole = number % 4 != 0
        pieces = [Piece("model", tuple(range(len(edges))), 0)] if whole else random_pieces(rng, edges, lanes)
        placed = machine(flat, pieces, lanes, {"scratch": 8 * doubles + 3 * 64} if planned else None)
        for _ in range(2):
            x = tensor(rng)
            assert equal(within(PATIENCE_S, lambda m=placed, x=x: m.run([x])), sequential(flat, x)), number
        assert is_lent(library, placed) == (planned and len(pieces) == 1), number
        placed.close()


def with_small_end(flat):
    """``flat`` whose last call writes little, which is copied: kernels write large outputs outside of the arena."""
    *calls, last = flat.calls
    number, small = len(calls), min(SCRATCH)
    outputs = tuple(replace(use, shape=(small,)) if use.source.index == number else use for use in flat.outputs)
    return replace(flat, calls=(*calls, replace(last, shape=(small,))), outputs=outputs)


def is_lent(library, placed):
    """Whether every workspace of the last call lies in the arena."""
    names = ("workspace", "workspace_end", "written")
    start, end, written = (ctypes.c_void_p.in_dll(library._library, name).value for name in names)
    steps = placed._steps
    arena = written - steps.calls[-1].operands[-1].index
    return arena <= start and end <= arena + steps.arena_bytes


@pytest.mark.parametrize("cpus", [(0, 1, 0), (0, 0, 0)], ids=["one each", "all on one"])
def test_a_share_of_a_loop_runs_once_whoever_runs_it(library, cpus):
    """Helpers sleep (after the longer pauses), are awake, or wait for the CPU that the leader is on."""
    calls = tuple(FlatCall("tally", (Use(Source("input", 0), (8,), "float64"),), (2,), "float64") for _ in range(40))
    uses = tuple(Use(Source("arena", number), (2,), "float64") for number in range(40))
    lanes = (cpu_lane(0, 3),)
    steps = arrange({3: Flat(calls, uses, {}, frozenset(), ())}, [Piece("all", tuple(range(40)), 0)], lanes)
    there = thread_cpus(2)
    executor = NativeExecutor({3: library}, steps, (), [there[cpu % len(there)] for cpu in cpus])
    try:
        for turn in range(300):
            if turn % 10 < 2:
                time.sleep(0.001 + 0.003 * (turn % 2))
            outputs = within(PATIENCE_S, lambda: executor.run([np.zeros(8)]))
            assert {tuple(output) for output in outputs} == {(6.0, 3.0)}, turn
    finally:
        executor.close()


def test_sixteen_callers_get_their_own_answers(machine):
    rng = np.random.default_rng(1)
    lanes = LANE_SETS[2]
    edges = chains(4, 3, 5)
    flat = random_flat(rng, edges)
    placed = machine(flat, random_pieces(rng, edges, lanes), lanes)
    feeds = [tensor(rng) for _ in range(16)]
    expected = [sequential(flat, x) for x in feeds]
    wrong, ready = [], threading.Barrier(16)

    def call(index):
        ready.wait()
        wrong.extend(index for _ in range(20) if not equal(placed.run([feeds[index]]), expected[index]))

    threads = [threading.Thread(target=call, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert wrong == []


def with_symbol(flat, numbers, symbol):
    calls = [
        type(call)(symbol if number in numbers else call.symbol, call.arguments, call.shape, call.dtype)
        for number, call in enumerate(flat.calls)
    ]
    return type(flat)(tuple(calls), flat.outputs, flat.slices, flat.removed, flat.weights)


def branches(rng, lengths, symbol, numbers):
    edges = chains(*lengths)
    flat = with_symbol(random_flat(rng, edges), numbers, symbol)
    pieces = [Piece(part.name, part.nodes, i % 2) for i, part in enumerate(partition(edges).subgraphs)]
    return flat, pieces


def test_a_failing_subgraph_is_named_and_the_next_run_is_right(machine):
    rng = np.random.default_rng(2)
    for broken in (0, 3, 6):  # in the first branch, in the second, and where they meet
        flat, pieces = branches(rng, (3, 3), "touchy", {broken})
        if broken not in (0, 3):
            flat = with_symbol(flat, {0, 3}, "touchy")
        placed = machine(flat, pieces, LANE_SETS[1])
        bad = np.full(8, -1.0)
        with pytest.raises(RunError, match=r"subgraph '0\.[01]' failed on lane cpu:[01]: .*it is negative"):
            within(PATIENCE_S, lambda m=placed, x=bad: m.run([x]))
        good = tensor(rng)
        assert equal(within(PATIENCE_S, lambda m=placed, x=good: m.run([x])), sequential(flat, good))


def test_slow_subgraphs_only_take_longer(machine):
    rng = np.random.default_rng(3)
    flat, pieces = branches(rng, (2, 6), "slow", {1, 4, 7})
    placed = machine(flat, pieces, LANE_SETS[1])
    x = tensor(rng)
    assert equal(within(PATIENCE_S, lambda: placed.run([x])), sequential(flat, x))


def test_a_cancelled_run_ends_early_and_the_next_is_right(machine):
    rng = np.random.default_rng(4)
    flat, pieces = branches(rng, (300, 300), "slow", set(range(600)))
    placed = machine(flat, pieces, LANE_SETS[1])
    x = tensor(rng)
    timer = threading.Timer(0.05, placed.halt)
    timer.start()
    with pytest.raises(RunError, match="cancelled"):
        within(PATIENCE_S, lambda: placed.run([x]))
    timer.join()
    with pytest.raises(RunError, match="cancelled"):  # also one that begins later
        placed.run([x])
    placed.resume()
    assert equal(within(PATIENCE_S, lambda: placed.run([x])), sequential(flat, x))


def test_the_timeline_respects_dependences_and_cores(machine):
    rng = np.random.default_rng(5)
    edges = chains(3, 4, 2)
    lanes = LANE_SETS[2]
    pieces = random_pieces(rng, edges, lanes)
    spans = machine(random_flat(rng, edges), pieces, lanes).timeline([tensor(rng)])
    by_name = {span.group.name: span for span in spans}
    assert list(by_name) == [piece.name for piece in pieces]
    assert all(0.0 <= span.began_s <= span.ended_s for span in spans)
    needs = subgraph_needs([Subgraph(piece.name, piece.calls) for piece in pieces], edges)
    for position, span in enumerate(spans):
        assert all(spans[source].ended_s <= span.began_s for source in needs[position])


def test_profile_tells_of_every_call_in_order(machine):
    rng = np.random.default_rng(6)
    flat, pieces = branches(rng, (2, 2), "slow", {1})
    placed = machine(flat, pieces, LANE_SETS[1])
    told = placed.profile([tensor(rng)])
    assert [symbol for symbol, _ in told] == [flat.calls[call].symbol for piece in pieces for call in piece.calls]
    assert max(told, key=lambda item: item[1])[0] == "slow"
    placed.close()


def test_closing_twice_is_safe(machine):
    rng = np.random.default_rng(7)
    flat, pieces = branches(rng, (1, 1), "mix", set())
    placed = machine(flat, pieces, LANE_SETS[1])
    placed.close()
    placed.close()


def test_a_child_of_a_fork_starts_threads_of_its_own(machine):
    rng = np.random.default_rng(8)
    flat, pieces = branches(rng, (3, 4), "mix", set())
    placed = machine(flat, pieces, LANE_SETS[2])
    x = rng.uniform(0.0, 10.0, 8)
    expected = placed.run([x])
    child = os.fork()
    if child == 0:
        os._exit(0 if equal(placed.run([x]), expected) else 1)
    ended = within(PATIENCE_S, lambda: os.waitpid(child, 0))
    assert os.waitstatus_to_exitcode(ended[1]) == 0
    assert equal(placed.run([x]), expected)


def test_an_input_of_any_alignment_is_read(machine):
    rng = np.random.default_rng(9)
    flat, pieces = branches(rng, (2, 2), "mix", set())
    placed = machine(flat, pieces, LANE_SETS[1])
    x = np.empty(8 * 8 + 4, np.uint8)[4:].view(np.float64)
    x[...] = rng.uniform(0.0, 10.0, 8)
    assert equal(placed.run([x]), sequential(flat, x))


def test_outputs_may_be_inputs_and_weights(library):
    first, held = Operand("input", 0, (8,), "float64"), Operand("weight", 0, (8,), "float64")
    weight = aligned((8,), np.dtype(np.float64))
    weight[...] = 3.0
    machine = NativeExecutor({1: library}, Steps((), (held, first), 0, (weight,)), [weight], [-1])
    x = np.arange(8.0)
    assert equal(machine.run([x]), [weight, x])
    machine.close()


def test_a_library_without_the_core_is_refused(tmp_path):
    (tmp_path / "x.cc").write_text("int nothing;")
    subprocess.run([cc.get_cc(), "-shared", str(tmp_path / "x.cc"), "-o", str(tmp_path / "x.so")], check=True)
    with pytest.raises(ArtifactError, match=r"x\.so has no tune_core_open; build the artifact again"):
        NativeLibrary(tmp_path / "x.so")


LAYOUTS = """
#include <tvm/ffi/c_api.h>
#include <type_traits>
#include "core.cc"
static_assert(sizeof(Any) == sizeof(TVMFFIAny) && offsetof(Any, pointer) == offsetof(TVMFFIAny, v_ptr));
static_assert(TENSOR == kTVMFFIDLTensorPtr && ON_CPU == kDLCPU && sizeof(Tensor) == sizeof(DLTensor));
static_assert(offsetof(Tensor, rank) == offsetof(DLTensor, ndim));
static_assert(offsetof(Tensor, code) == offsetof(DLTensor, dtype));
static_assert(offsetof(Tensor, shape) == offsetof(DLTensor, shape));
static_assert(offsetof(Tensor, byte_offset) == offsetof(DLTensor, byte_offset));
"""
ASSUMED = f"static_assert(SIZES == {MOST_LIVE} && ASSUMED == {ALIGNMENT});\n"


def test_tensors_are_laid_out_as_tvm_has_them(tmp_path):
    (tmp_path / "layouts.cc").write_text(LAYOUTS + ASSUMED)
    flags = [f"-I{CORE.parent}", f"-I{libinfo.find_include_path()}", "-std=c++17", "-fsyntax-only"]
    subprocess.run([cc.get_cc(), *flags, str(tmp_path / "layouts.cc")], check=True)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("inner", "groups", "rows", "zeroed"),
    [(1, 12, 1, False), (3, 4, 1, True), (1, 4, 1, False), (2, 3, 2, True), (12, 1, 4, False), (1, 12, 2, True)],
)
def test_jobs_of_rows_that_do_not_count_are_left_out(library, threads, inner, groups, rows, zeroed):
    size, total = 12, groups * rows
    source, result = Operand("input", 0, (size,), "float64"), Operand("arena", 0, (size,), "float64")
    jobs = CallJobs(size, inner, groups, rows, size * 8 // total if zeroed else 0)
    places = [cpu for cpu, _ in zip(thread_cpus(2) * 3, range(threads), strict=False)]
    live = LiveSizes((LiveRows("n", total, (jobs,)),))
    machine = NativeExecutor(
        {threads: library}, Steps((Step("mix", (source, result)),), (result,), 96, ()), (), places, None, live
    )
    x = np.arange(size, dtype=np.float64)
    (whole,) = machine.run([x])
    for count in range(1, total + 1):
        machine.run([x])  # what jobs that are left out would have written over
        (got,) = machine.run_live([x * 2.0], [count])
        (fresh,) = machine.run([x * 2.0])
        job = np.arange(size)
        ran = job // inner % groups < -(-count // rows)
        expected = np.where(ran, fresh, whole)
        if zeroed and count < total:
            expected[count * size // total :] = 0.0
        assert np.array_equal(got, expected), count
    machine.close()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("inner", "zeroed"), [(1, False), (1, True), (2, False)])
def test_jobs_are_left_out_along_two_sizes(library, threads, inner, zeroed):
    """24 numbers: two rows, of three parts, of four numbers or of two that two jobs make."""
    size, around = 24, 12
    source, result = Operand("input", 0, (size,), "float64"), Operand("arena", 0, (size,), "float64")
    groups = 3 if inner == 1 else 2
    rows = CallJobs(size, around, 2, 1, 96 if zeroed else 0)
    parts = CallJobs(size, around // groups if inner == 1 else inner, groups, 1, 32 if zeroed else 0, outer=2)
    live = LiveSizes((LiveRows("rows", 2, (rows,)), LiveRows("parts", groups, (parts,))))
    places = [cpu for cpu, _ in zip(thread_cpus(2), range(threads), strict=False)]
    steps = Steps((Step("mix", (source, result)),), (result,), size * 8, ())
    machine = NativeExecutor({threads: library}, steps, (), places, None, live)
    x = np.arange(size, dtype=np.float64)
    (whole,) = machine.run([x])
    (fresh,) = machine.run([x * 2.0])
    for row, part in np.ndindex(2, groups):
        machine.run([x])
        (got,) = machine.run_live([x * 2.0], [row + 1, part + 1])
        job = np.arange(size)
        ran = (job // rows.inner % 2 <= row) & (job // parts.inner % groups <= part)
        expected = np.where(ran, fresh, whole)
        if zeroed:
            expected.reshape(2, 3, 4)[row + 1 :] = 0.0
            expected.reshape(2, 3, 4)[:, part + 1 :] = 0.0
        assert np.array_equal(got, expected), (row, part)
    machine.close()


def test_cores_of_older_artifacts_are_told_of_one_size(library, monkeypatch):
    """They have ``tune_core_run_live``, and no function for several sizes."""
    source, result = Operand("input", 0, (8,), "float64"), Operand("arena", 0, (8,), "float64")
    machine = NativeExecutor({1: library}, Steps((Step("twice", (source, result)),), (result,), 64, ()), (), [-1])
    calls = []
    monkeypatch.setitem(vars(library), "run_sizes", None)
    monkeypatch.setitem(vars(library), "run_live", lambda *arguments: calls.append(arguments) or 0)
    machine.run_live([np.ones(8)], [5])
    assert [arguments[-1] for arguments in calls] == [5]
    machine.close()


def rows_machine(library, kernel, size, threads):
    """One call of ``kernel`` on (1, ``size``), with the input and a weight as outputs too."""
    source, result = Operand("input", 0, (1, size), "float64"), Operand("arena", 0, (1, size), "float64")
    weight = aligned((1, size), np.dtype(np.float64))
    weight[...] = 3.0
    held = Operand("weight", 0, (1, size), "float64")
    steps = Steps((Step(kernel, (source, result)),), (result, source, held), 8 * size + 64, (weight,))
    places = [cpu for cpu, _ in zip(thread_cpus(2) * 3, range(threads), strict=False)]
    return NativeExecutor({threads: library}, steps, [weight], places)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 5, 8])
@pytest.mark.parametrize("call", ["of the core", "of an older core"])
def test_runs_of_one_call_are_those_of_many(library, monkeypatch, threads, size, call):
    machine = rows_machine(library, "mix", size, threads)
    if call == "of an older core":
        monkeypatch.setitem(vars(library), "run_rows", None)
    rows = np.random.default_rng(size).uniform(0.0, 10.0, (7, size))
    expected = [np.concatenate(parts) for parts in zip(*(machine.run([row[None]]) for row in rows), strict=True)]
    for count in (7, 1, 2):
        got = machine.run_rows([rows[:count]], count)
        assert equal(got, [array[:count] for array in expected])
    machine.close()


def test_a_failing_run_ends_the_call_and_the_next_is_right(library):
    machine = rows_machine(library, "touchy", 4, 2)
    rows = np.random.default_rng(0).uniform(1.0, 10.0, (5, 4))
    bad = rows.copy()
    bad[3] = -1.0
    with pytest.raises(RunError, match="it is negative"):
        machine.run_rows([bad], 5)
    assert equal(machine.run_rows([rows], 5)[:1], [np.concatenate([machine.run([row[None]])[0] for row in rows])])
    machine.close()


def test_cancelling_ends_all_runs_of_a_call(library):
    machine = rows_machine(library, "slow", 4, 1)
    rows = np.zeros((60_000, 4))  # a minute
    timer = threading.Timer(0.05, machine.library.cancel, [machine.handle])
    timer.start()
    with pytest.raises(RunError, match="cancelled"):
        within(PATIENCE_S / 2, lambda: machine.run_rows([rows], len(rows)))
    timer.join()
    assert len(machine.run_rows([rows[:3]], 3)[0]) == 3
    machine.close()
