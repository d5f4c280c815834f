"""Weights on a stream of their own: whatever the device does first, every kernel reads its own weights."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from autotune.backends.cuda.driver import Driver
from autotune.backends.cuda.weight_stream import Fetch, StreamedCall, WeightStream
from tests.autotune_tests.backends_tests.cuda_tests.fake_driver import FakeBindings

PROGRAM = 77


class Numbered(FakeBindings):
    """Streams and events with numbers of their own."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1000)

    def __getattr__(self, name):
        if name in ("cuStreamCreate", "cuEventCreate"):
            return lambda *_: (0, next(self._numbers))
        return super().__getattr__(name)


def replayed(operations, rng):
    """Carry out what is on the streams in a random order that their waits allow; what each kernel finds in memory."""
    queues, memory, contents, recorded = {}, {}, [], set()
    for position, (name, arguments) in enumerate(operations):
        stream = arguments[0] if name == "cuStreamWaitEvent" else arguments[-1]
        queues.setdefault(stream, []).append((position, name, arguments))
    records = [(position, arguments[0]) for position, (name, arguments) in enumerate(operations) if "Record" in name]
    while any(queues.values()):
        able = []
        for stream, queue in queues.items():
            if not queue:
                continue
            position, name, arguments = queue[0]
            # A wait is for the event's newest record that was put on a stream before it.
            asked = max((at for at, event in records if at < position and event == arguments[1]), default=-1)
            if name != "cuStreamWaitEvent" or asked < 0 or asked in recorded:
                able.append(stream)
        assert able, "the streams wait in a circle"
        position, name, arguments = queues[able[rng.integers(len(able))]].pop(0)
        if name == "cuEventRecord":
            recorded.add(position)
        elif name == "cuMemcpyHtoDAsync":
            memory[arguments[0]] = arguments[1]
        elif name == "kernel":
            contents.append({target: memory.get(target) for target in arguments[0]})
    return contents


@pytest.mark.parametrize("seed", range(8))
def test_every_kernel_reads_its_own_weights_in_any_order_of_the_streams(seed):
    rng = np.random.default_rng(seed)
    bindings = Numbered()
    calls, expected, readers = [], [], 0
    for number in range(12):
        fetches = ()
        if rng.integers(3):
            places = [10_000 * (readers % 2) + place for place in range(rng.integers(1, 3))]
            fetches = tuple(Fetch(100 * number + place, place, 8) for place in places)
            readers += 1
        expected.append({fetch.target: fetch.source for fetch in fetches})
        targets = tuple(expected[-1])
        calls.append(StreamedCall(lambda t=targets: bindings.calls.append(("kernel", (t, PROGRAM))), fetches))
    stream = WeightStream(Driver(bindings), PROGRAM, calls)
    bindings.calls.clear()
    for _ in range(2):  # a run may follow another at once
        stream.launch()
    assert replayed(bindings.calls, rng) == expected * 2


def test_a_program_whose_weights_all_stay_has_one_stream_and_no_event_in_its_runs():
    bindings = Numbered()
    stream = WeightStream(Driver(bindings), PROGRAM, [StreamedCall(lambda: None)] * 3)
    bindings.calls.clear()
    stream.launch()
    assert bindings.calls == []
