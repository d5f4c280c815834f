"""What ``--lanes`` can name."""

import pytest

from autotune.graph.lanes import Lane, copy_lanes, cores_of, coupled_lanes, cpu_lane, devices_of, parse_lanes
from schedules.vocabulary.errors import UsageError


@pytest.mark.parametrize(
    ("text", "lanes"),
    [
        ("cpu", (Lane("cpu:0-3", 0, 4),)),
        ("cpu:2x1", (Lane("cpu:0", 0, 1), Lane("cpu:1", 1, 1))),
        ("cpu:2x2", (Lane("cpu:0-1", 0, 2), Lane("cpu:2-3", 2, 2))),
        ("cpu:3+1", (Lane("cpu:0-2", 0, 3), Lane("cpu:3", 3, 1))),
        ("cpu:1+1+2", (Lane("cpu:0", 0, 1), Lane("cpu:1", 1, 1), Lane("cpu:2-3", 2, 2))),
        ("cpu:0,cpu:1", (Lane("cpu:0", 0, 1), Lane("cpu:1", 1, 1))),
        ("cpu:3, cpu:0-1", (Lane("cpu:3", 3, 1), Lane("cpu:0-1", 0, 2))),
        ("auto", (Lane("cpu:0-3", 0, 4), Lane("cpu:0-1", 0, 2), Lane("cpu:2-3", 2, 2))),
        ("auto:3+1", (Lane("cpu:0-3", 0, 4), Lane("cpu:0-2", 0, 3), Lane("cpu:3", 3, 1))),
        ("auto:4x1", (Lane("cpu:0-3", 0, 4), *(Lane(f"cpu:{core}", core, 1) for core in range(4)))),
    ],
)
def test_lanes_are_read(text, lanes):
    assert parse_lanes(text, 4) == lanes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu:3x2", "needs 6 threads and there are 4"),
        ("cpu:0x1", "needs 0 threads"),
        ("cpu:3+2", "needs 5 threads and there are 4"),
        ("cpu:0+1", "needs 1 threads"),
        ("cpu:2+", "not understood"),
        ("cpu:0,cpu:4", "names core 4 and there are 4; the first is 0"),
        ("cpu:0-2,cpu:2", "each core may be in one lane"),
        ("cpu:2-1", "ranges go up"),
        ("cpu:0,cpu:2x1", "not understood"),
        ("gpu", "not understood"),
        ("cpu,cpu", "not understood"),
        ("cpu,cuda:0", "not for this command"),
        ("cuda:0", "not for this command"),
    ],
)
def test_lanes_that_cannot_be_are_refused(text, message):
    with pytest.raises(UsageError, match=message):
        parse_lanes(text, 4)


def test_auto_on_one_thread_is_one_lane():
    assert parse_lanes("auto", 1) == (cpu_lane(0, 1),)


def test_lanes_with_a_device_are_understood():
    assert devices_of("cpu,cuda:0") == devices_of("cuda") == devices_of("cpu, cuda") == ("cuda:0",)
    assert devices_of("cpu:2x1") == devices_of("auto") == ()
    cpu, device = coupled_lanes("cpu,cuda:0", 2)
    assert (cpu.name, cpu.threads, device.name, list(device.cores)) == ("cpu:0-1", 2, "cuda:0", [2])
    assert coupled_lanes("cpu,cuda:0", 16)[0].threads == 15


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cpu,cuda:0,cuda:1", ["cpu:0-2", "cuda:0", "cuda:1"]),
        ("cpu,cuda:1", ["cpu:0-2", "cuda:1"]),
        ("cpu:0,cpu:1-3,cuda:0", ["cpu:0", "cpu:1-3", "cuda:0"]),
        ("cpu:2x1, cuda:0=2GB, cuda:2", ["cpu:0", "cpu:1", "cuda:0", "cuda:2"]),
        ("cpu:3+1,cuda", ["cpu:0-2", "cpu:3", "cuda:0"]),
        ("auto,cuda:0", ["cpu:0-2", "cpu:0", "cpu:1", "cuda:0"]),  # one of four threads is left to the device
        ("cuda:0,cuda:1", ["cpu:0", "cuda:0", "cuda:1"]),  # the first holds the model's inputs and outputs
    ],
)
def test_groups_of_cores_and_several_devices_are_lanes_of_one_run(text, names):
    lanes = coupled_lanes(text, 4)
    assert [lane.name for lane in lanes] == names
    assert devices_of(text) == tuple(name for name in names if name.startswith("cuda"))
    devices = [lane for lane in lanes if lane.device]
    taken = {core for lane in lanes if not lane.device for core in lane.cores}
    waiting = [core for lane in devices for core in lane.cores]  # threads of their own
    assert len(set(waiting)) == len(devices)
    assert not taken & set(waiting)


def test_each_device_may_have_a_limit_of_its_own():
    lanes = coupled_lanes("cpu,cuda:0=2GB,cuda:1=1GB,cuda:2", 2)
    assert [lane.limit_bytes for lane in lanes] == [0, 2 * 10**9, 10**9, 0]


def test_cores_are_known_as_they_were_typed():
    assert [cores_of(text) for text in ("cpu,cuda:0", "cpu:0, cpu:1,cuda:0", "cuda:0,cuda:1", "cpu:2x1")] == [
        "cpu",
        "cpu:0,cpu:1",
        "",
        "cpu:2x1",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cuda:0,cpu", "give a device as cpu,cuda:0"),
        ("cpu,cuda:0,gpu", "give a device as cpu,cuda:0"),
        ("cuda:1", "only cuda:0 can be named alone; give cpu,cuda:1"),
        ("cuda:0,cuda:0", "names cuda:0 twice; name each device once"),
        ("cpu,cuda:1,cuda,cuda:01", "names cuda:1 twice"),
    ],
)
def test_devices_that_cannot_be_lanes_are_refused_with_the_reason(text, message):
    with pytest.raises(UsageError, match=message) as caught:
        devices_of(text)
    assert str(caught.value).startswith(f"--lanes {text}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu:5x1,cuda:0", "needs 5 threads and there are 4"),
        ("cpu:0,cpu:4,cuda:0,cuda:1", "names core 4 and there are 4"),
        ("gpu,cuda:0", "not understood"),
    ],
)
def test_cores_next_to_a_device_are_refused_as_they_are_without_one(text, message):
    with pytest.raises(UsageError, match=message) as caught:
        coupled_lanes(text, 4)
    assert str(caught.value).startswith(f"--lanes {text}: ")


def test_a_device_may_have_a_limit():
    assert coupled_lanes("cpu,cuda:0=4GB", 2)[1].limit_bytes == 4 * 10**9
    assert coupled_lanes("cpu,cuda:0=1.5MB", 2)[1].limit_bytes == 1_500_000
    assert coupled_lanes("cpu,cuda:0", 2)[1].limit_bytes == 0
    with pytest.raises(UsageError, match="give cpu,cuda:0=4GB"):
        devices_of("cuda:0=4GB")
    with pytest.raises(UsageError, match="not understood"):
        parse_lanes("cpu,sim:0", 2)
    with pytest.raises(UsageError, match="leaves the device no memory"):
        devices_of("cpu,cuda:0=0GB")


def test_a_device_has_an_engine_per_direction():
    lanes = coupled_lanes("cpu,cuda:0", 2)
    engines = copy_lanes(lanes)
    assert {way: (lane.name, lane.first, lane.copies) for way, lane in engines.items()} == {
        ("", "cuda:0"): ("cuda:0 in", 3, True),
        ("cuda:0", ""): ("cuda:0 out", 4, True),
    }
    assert copy_lanes(lanes[:1]) == {}


def test_devices_that_reach_each_other_have_engines_for_that_too():
    lanes, direct = coupled_lanes("cpu,cuda:0,cuda:1", 2), [("cuda:1", "cuda:0"), ("cuda:0", "cuda:1")]
    engines = copy_lanes(lanes, direct)
    assert [lane.first for lane in engines.values()] == list(range(4, 10))  # threads of their own
    assert {way: (lane.name, lane.device) for way, lane in engines.items() if way in direct} == {
        ("cuda:0", "cuda:1"): ("cuda:0 to cuda:1", "cuda:1"),
        ("cuda:1", "cuda:0"): ("cuda:1 to cuda:0", "cuda:0"),
    }
