"""Random programs on cores and a simulated device: kernels of the tests' library here, the same arithmetic there."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace

import numpy as np

from autotune.backends.cpu.device_lanes import device_calls
from autotune.backends.cpu.native_executor import NativeExecutor, thread_places
from autotune.backends.device_interface import Room
from autotune.graph.flat import Flat, FlatCall, Source, Use
from autotune.graph.lanes import Lane, copy_lanes
from autotune.graph.merge import Part, device_flat, merge, with_transfers
from autotune.graph.steps import Piece, Steps, arrange
from autotune.host.machine import thread_cpus
from autotune.interface import TensorSpec
from tests.simulated.software_device import SoftwareDevice

DEVICE = "sim:0"


def mix(number, inputs):
    """What the kernel ``mix`` of fake_kernels.cc writes, as many doubles as ``number``."""
    i = np.arange(number)
    total = 1.0 + i
    for j, array in enumerate(inputs):
        total = total + (j + 1) * array[(7 * i + j) % len(array)]
    return np.fmod(total, 1000.0)


def sequential(flat, x):
    """The outputs, one call after the other, every tensor in memory of its own."""
    outputs = []
    for call in flat.calls:
        inputs = [x if use.source.place == "input" else outputs[use.source.index] for use in call.arguments]
        outputs.append(mix(call.shape[0], inputs))
    return [outputs[use.source.index] for use in flat.outputs]


class Mixing(SoftwareDevice):
    """A simulated device that runs pieces of such programs, each for as long as is said.

    Attributes:
        seconds: name of a piece → how long it takes there.
    """

    seconds: dict[str, float] = {}  # noqa: RUF012  (replaced, never changed)

    def program(self, part):
        return Program(self, part)


class Program:
    def __init__(self, device, part):
        self._device, self._part = device, part

    def run(self, inputs, outputs):
        def work():
            for place, array in zip(outputs, self._part.compute(inputs), strict=True):
                place[...] = array

        self._device.occupy(work, self._device.seconds.get(self._part.name, 0.0))

    def close(self):
        pass


def value(call):
    return f"v{call}"


def part_of(flat, piece, memory, read_elsewhere):
    """The program of a piece for a lane of ``memory``, and for a device what runs it."""
    inside = {call: number for number, call in enumerate(piece.calls)}
    outside = {}
    calls = []
    for number in piece.calls:
        arguments = []
        for use in flat.calls[number].arguments:
            own = use.source.place == "arena" and use.source.index in inside
            name = "x" if use.source.place == "input" else value(use.source.index)
            index = inside[use.source.index] if own else outside.setdefault(name, len(outside))
            arguments.append(Use(Source("arena" if own else "input", index), use.shape, use.dtype))
        call = flat.calls[number]
        calls.append(FlatCall(call.symbol, tuple(arguments), call.shape, call.dtype))
    last_calls = [call for call in piece.calls if call in read_elsewhere] or [piece.calls[-1]]
    uses = tuple(Use(Source("arena", inside[call]), flat.calls[call].shape, "float64") for call in last_calls)
    own = Flat(tuple(calls), uses, {}, frozenset(), ())
    sizes = {"x": 8, **{value(n): call.shape[0] for n, call in enumerate(flat.calls)}}
    inputs, outputs = tuple(outside), tuple(value(call) for call in last_calls)
    if not memory:
        return Part(piece.name, own, inputs, outputs), None
    read_specs, written = (
        [TensorSpec(name, (sizes[name],), "float64") for name in names] for names in (inputs, outputs)
    )

    def compute(arrays):
        arrays, results = [np.array(array) for array in arrays], []
        for call in own.calls:
            read = [(arrays if u.source.place == "input" else results)[u.source.index] for u in call.arguments]
            if call.symbol == "touchy" and read[0][0] < 0.0:
                raise ValueError("it is negative")
            results.append(mix(call.shape[0], read))
        return [results[inside[call]] for call in last_calls]

    runs = SimpleNamespace(
        name=piece.name,
        inputs=read_specs,
        outputs=written,
        steps=Steps((), (), 0, ()),
        weights=(),
        compute=compute,
        path=piece.name,
    )
    return Part(piece.name, device_flat(piece.name, read_specs, written, memory), inputs, outputs, memory), runs


class Placed:
    """A program whose pieces run on ``lanes``; copies are made in the order in which pieces ask for them.

    Args:
        library: of fake_kernels.cc.
        asked: (value, way) in the order in which each way carries them.
        direct: ways between devices, past the host's memory.
    """

    def __init__(self, library, flat, pieces, lanes, asked=(), speeds=None, device=Mixing, direct=()):
        elsewhere = {use.source.index for use in flat.outputs}
        for piece in pieces:
            reads = {u.source.index for c in piece.calls for u in flat.calls[c].arguments if u.source.place == "arena"}
            elsewhere |= reads - set(piece.calls)
        built = [part_of(flat, piece, lanes[piece.lane].memory, elsewhere) for piece in pieces]
        parts = {piece.name: runs for piece, (_, runs) in zip(pieces, built, strict=True) if runs is not None}
        outputs = [value(use.source.index) for use in flat.outputs]
        self.merged = merge([part for part, _ in built], ["x"], outputs, direct=direct)
        engines = copy_lanes(lanes, direct)
        numbers = {way: len(lanes) + number for number, way in enumerate(engines)}
        own = [Piece(p.name, calls, p.lane) for p, calls in zip(pieces, self.merged.calls, strict=True)]
        ordered = with_transfers(own, self.merged, numbers, asked)
        every = (*lanes, *engines.values())
        sizes = {lane.threads for lane in every}
        self.steps = arrange(dict.fromkeys(sizes, self.merged.flat), ordered, every)
        room = dict(self.steps.device_bytes)
        self.devices = {name: device(name, Room(size), speeds) for name, size in room.items()}
        self.calls = device_calls(self.steps, self.devices, parts)
        where = thread_places(every, thread_cpus(2))
        self.machine = NativeExecutor(dict.fromkeys(sizes, library), self.steps, (), where, self.calls)

    @property
    def operations(self):
        return [operation for device in self.devices.values() for operation in device.operations]


def device_lane(first, number=0):
    return Lane(f"sim:{number}", first, 1, f"sim:{number}")


def until(moment):
    while time.perf_counter() < moment:
        time.sleep(1e-4)


def pairs(sequence):
    return list(itertools.pairwise(sequence))
