"""The simulated device: its memory, engines, clock and failures, and programs placed on it."""

import threading

import numpy as np
import pytest

from autotune.backends.device_interface import DeviceLostError, OutOfMemoryError, Room
from autotune.graph.lanes import HOST, cpu_lane
from autotune.graph.placement import Link
from autotune.graph.steps import Piece
from schedules.vocabulary.errors import RunError
from tests.autotune_tests.backends_tests.cpu_tests.conftest import library
from tests.autotune_tests.backends_tests.cpu_tests.test_native_executor import (
    PATIENCE_S,
    equal,
    random_pieces,
    tensor,
    within,
)
from tests.autotune_tests.graph_tests.dags import chains, random_edges, random_flat
from tests.simulated.clock import Clock, ManualClock
from tests.simulated.placed import Mixing, Placed, device_lane, sequential
from tests.simulated.software_device import SoftwareDevice, Speeds

assert library  # a fixture

DAGS = 1000
NO_TIME = Speeds(Link(), Link())
LANE_SETS = (
    (cpu_lane(0, 1), device_lane(1)),
    (cpu_lane(0, 2), device_lane(2)),
    (cpu_lane(0, 1), cpu_lane(1, 1), device_lane(2), device_lane(3, 1)),
)


def test_each_engine_takes_its_time_by_the_devices_clock():
    clock = ManualClock()
    device = SoftwareDevice("sim:0", Room(1000), Speeds(Link(1.0, 100.0), Link(2.0, 50.0)), clock)
    device.upload(np.arange(100, dtype=np.uint8), 0)
    back = np.zeros(100, np.uint8)
    device.download(0, back)
    device.occupy(lambda: None, 5.0)
    assert back.tolist() == list(range(100))
    assert [(o.way, o.bytes, o.ended - o.began) for o in device.operations] == [
        ((HOST, "sim:0"), 100, 2.0),
        (("sim:0", HOST), 100, 4.0),
        (None, 0, 5.0),
    ]


def test_copies_that_are_slow_are():
    device = SoftwareDevice("sim:0", Room(10), Speeds(Link(1.0), copy_factor=3.0), ManualClock())
    device.upload(np.zeros(10, np.uint8), 0)
    assert device.clock.now() == 3.0


def test_what_does_not_fit_is_refused_with_both_sizes():
    with pytest.raises(OutOfMemoryError, match=r"sim:0 has 100 bytes left of 100 and .* takes 101"):
        SoftwareDevice("sim:0", Room(101), Speeds(memory_bytes=100))
    with pytest.raises(OutOfMemoryError, match="of 50"):
        SoftwareDevice("sim:0", Room(60, limit_bytes=50))


class Interrupting(Mixing):
    """As ``Mixing``, but Ctrl-C comes while it runs its first program."""

    left = 1

    def program(self, part):
        program = super().program(part)
        real = program.run

        def run(inputs, outputs):
            real(inputs, outputs)
            if Interrupting.left:
                Interrupting.left -= 1
                raise KeyboardInterrupt

        program.run = run
        return program


def test_ctrl_c_in_a_device_s_call_is_raised_by_the_run_and_not_lost(library):
    rng = np.random.default_rng(21)
    flat, placed = chain_on([1] * 6, 5, library, rng, device=Interrupting)
    x = tensor(rng)
    with pytest.raises(KeyboardInterrupt):
        placed.machine.run([x])
    assert equal(within(PATIENCE_S, lambda: placed.machine.run([x])), sequential(flat, x))
    placed.machine.close()


def test_a_lost_device_fails_for_good():
    device = SoftwareDevice("sim:0", Room(10), Speeds(lost_after=1), ManualClock())
    device.upload(np.zeros(4, np.uint8), 0)
    for _ in range(2):
        with pytest.raises(DeviceLostError, match="sim:0 is lost"):
            device.download(0, np.zeros(4, np.uint8))


def test_engines_work_at_the_same_time():
    """A copy ends while a kernel runs that began before it."""
    device = SoftwareDevice("sim:0", Room(10), NO_TIME, Clock())
    inside, copied = threading.Event(), threading.Event()

    def kernel():
        inside.set()
        assert copied.wait(PATIENCE_S)

    runs = threading.Thread(target=device.occupy, args=(kernel,))
    runs.start()
    assert inside.wait(PATIENCE_S)
    device.upload(np.zeros(10, np.uint8), 0)
    copied.set()
    runs.join(PATIENCE_S)
    upload, kernel_run = device.operations
    assert (upload.way, kernel_run.way) == ((HOST, "sim:0"), None)
    assert kernel_run.began <= upload.began <= upload.ended <= kernel_run.ended


def least_copies(placed):
    """(value, memory) pairs that cannot do without a copy: each at most once."""
    return len({(transfer.value, transfer.way[1]) for transfer in placed.merged.transfers})


@pytest.mark.slow
def test_a_thousand_graphs_with_devices_run_as_in_sequence(library):
    rng = np.random.default_rng(10)
    for number in range(DAGS):
        edges = random_edges(rng)
        lanes = LANE_SETS[number % len(LANE_SETS)]
        flat = random_flat(rng, edges)
        placed = Placed(library, flat, random_pieces(rng, edges, lanes), lanes, speeds=NO_TIME)
        for _ in range(2):
            x = tensor(rng)
            ran = within(PATIENCE_S, lambda p=placed, x=x: p.machine.run([x]))
            assert equal(ran, sequential(flat, x)), number
        copies = [operation for operation in placed.operations if operation.way is not None]
        assert len(copies) == 2 * len(placed.merged.transfers) == 2 * least_copies(placed)
        placed.machine.close()


DIRECT = (("sim:0", "sim:1"), ("sim:1", "sim:0"))


@pytest.mark.parametrize("direct", [(), DIRECT])
def test_graphs_on_groups_of_cores_and_two_devices_run_as_in_sequence(library, direct):
    rng = np.random.default_rng(22)
    lanes, past = LANE_SETS[2], 0
    for number in range(60):
        edges = random_edges(rng)
        flat = random_flat(rng, edges)
        placed = Placed(library, flat, random_pieces(rng, edges, lanes), lanes, speeds=NO_TIME, direct=direct)
        x = tensor(rng)
        assert equal(within(PATIENCE_S, lambda p=placed, x=x: p.machine.run([x])), sequential(flat, x)), number
        ways = [operation.way for operation in placed.operations if operation.way is not None]
        assert len(ways) == len(placed.merged.transfers)
        past += sum(HOST not in way for way in ways)
        placed.machine.close()
    assert (past > 0) == bool(direct)


def test_a_device_is_reached_past_the_host_only_where_that_is_said():
    one, other = (SoftwareDevice(name, Room(16), NO_TIME, ManualClock()) for name in ("sim:0", "sim:1"))
    assert not one.reaches(other)
    one.change(peer=Link(2.0))
    assert one.reaches(other)
    other.upload(np.arange(4, dtype=np.uint8), 4)
    one.pull(other, 4, 8, 4)
    back = np.zeros(4, np.uint8)
    one.download(8, back)
    assert back.tolist() == [0, 1, 2, 3]
    assert one.clock.now() == 2.0


def chain_on(lanes_of, length, library, rng, **more):
    """A chain of ``length`` calls, each a piece on the lane that ``lanes_of`` says."""
    flat = random_flat(rng, chains(length))
    pieces = [Piece(str(number), (number,), lanes_of[number]) for number in range(len(flat.calls))]
    return flat, Placed(library, flat, pieces, LANE_SETS[0], speeds=NO_TIME, **more)


def test_a_chain_that_stays_on_the_device_is_copied_in_and_out_once(library):
    rng = np.random.default_rng(11)
    flat, placed = chain_on([1] * 7, 6, library, rng)
    x = tensor(rng)
    assert equal(within(PATIENCE_S, lambda: placed.machine.run([x])), sequential(flat, x))
    assert [o.way for o in placed.operations if o.way] == [(HOST, "sim:0"), ("sim:0", HOST)]


def test_what_several_subgraphs_read_is_copied_once(library):
    rng = np.random.default_rng(12)
    edges = [[], [0], [0], [0], [1, 2, 3]]
    flat = random_flat(rng, edges)
    pieces = [Piece(str(n), (n,), lane) for n, lane in enumerate((0, 1, 1, 1, 1))]
    placed = Placed(library, flat, pieces, LANE_SETS[0], speeds=NO_TIME)
    x = tensor(rng)
    assert equal(within(PATIENCE_S, lambda: placed.machine.run([x])), sequential(flat, x))
    assert [o.way for o in placed.operations if o.way].count((HOST, "sim:0")) == 1


def test_sixteen_callers_get_their_own_answers_from_a_device(library):
    rng = np.random.default_rng(13)
    edges = chains(4, 3, 5)
    flat = random_flat(rng, edges)
    lanes = LANE_SETS[2]
    placed = Placed(library, flat, random_pieces(rng, edges, lanes), lanes, speeds=NO_TIME)
    feeds = [tensor(rng) for _ in range(16)]
    expected = [sequential(flat, x) for x in feeds]
    wrong, ready = [], threading.Barrier(16)

    def call(index):
        ready.wait()
        wrong.extend(index for _ in range(10) if not equal(placed.machine.run([feeds[index]]), expected[index]))

    threads = [threading.Thread(target=call, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert wrong == []


def test_a_device_that_is_lost_at_any_moment_ends_the_run_and_is_named(library):
    rng = np.random.default_rng(14)
    for number in range(60):
        edges = random_edges(rng, 12)
        flat = random_flat(rng, edges)
        lanes = LANE_SETS[number % 2]
        placed = Placed(library, flat, random_pieces(rng, edges, lanes), lanes, speeds=NO_TIME)
        x = tensor(rng)
        within(PATIENCE_S, lambda p=placed, x=x: p.machine.run([x]))
        count = len(placed.operations)
        if count:
            placed.devices["sim:0"].change(lost_after=int(rng.integers(0, count)))
            with pytest.raises(RunError, match=r"subgraph '.*' failed on lane sim:0.*sim:0 is lost"):
                within(PATIENCE_S, lambda p=placed, x=x: p.machine.run([x]))
        placed.machine.close()


def test_a_failing_subgraph_on_a_device_is_named_and_the_next_run_is_right(library):
    rng = np.random.default_rng(15)
    flat = random_flat(rng, chains(3), "touchy")
    pieces = [Piece(str(n), (n,), 1) for n in range(len(flat.calls))]
    placed = Placed(library, flat, pieces, LANE_SETS[0], speeds=NO_TIME)
    with pytest.raises(RunError, match=r"subgraph '0' failed on lane sim:0: .*it is negative"):
        within(PATIENCE_S, lambda: placed.machine.run([np.full(8, -1.0)]))
    x = tensor(rng)
    assert equal(within(PATIENCE_S, lambda: placed.machine.run([x])), sequential(flat, x))


def test_slow_copies_only_take_longer(library):
    rng = np.random.default_rng(16)
    flat, placed = chain_on([0, 1, 0, 1], 3, library, rng)
    placed.devices["sim:0"].change(upload=Link(1e-3), download=Link(1e-3), copy_factor=3.0)
    x = tensor(rng)
    assert equal(within(PATIENCE_S, lambda: placed.machine.run([x])), sequential(flat, x))


def test_a_device_without_room_says_so(library):
    rng = np.random.default_rng(17)
    flat = random_flat(rng, chains(3))
    pieces = [Piece(str(n), (n,), 1) for n in range(len(flat.calls))]
    with pytest.raises(OutOfMemoryError, match="sim:0 has 16 bytes"):
        Placed(library, flat, pieces, LANE_SETS[0], speeds=Speeds(memory_bytes=16), device=Mixing)
