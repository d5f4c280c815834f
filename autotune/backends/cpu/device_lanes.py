"""Functions that the core calls on lanes that are devices, like kernels (``native_executor.py``).

A device's thread runs subgraphs; the threads of its copy engines bring tensors in and out, each when what it copies is
there. So a copy goes on beside kernels, and what one subgraph leaves for the next stays in the device's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from autotune.artifact.directory import Artifact
from autotune.backends.cpu.native_executor import DeviceCall
from autotune.backends.cpu.program_words import nbytes
from autotune.backends.device_interface import Device
from autotune.backends.executor import Arrays
from autotune.graph.merge import COPY, device_symbol
from autotune.graph.steps import Operand, Step, Steps
from schedules.vocabulary.errors import AutotuneError


def device_calls(steps: Steps, devices: Mapping[str, Device], parts: Mapping[str, Artifact]) -> dict[int, DeviceCall]:
    """Number of a call → what answers it, for all calls on lanes that are devices.

    Args:
        devices: by name, as ``Lane.device``.
        parts: subgraph → what the device runs of it.

    Raises:
        AutotuneError: if a device has no room for a subgraph, naming both.
    """
    answers: dict[int, DeviceCall] = {}
    number = 0
    for group in steps.groups:
        lane = steps.lanes[group.lane]
        calls = [(number + index, steps.calls[number + index]) for index in range(group.calls)]
        number += group.calls
        for index, step in calls if lane.device else ():
            if step.symbol == COPY:
                answers[index] = _copy(step.operands, devices)
            elif step.symbol == device_symbol(group.name, 0):
                answers[index] = _program(group.name, step, devices[lane.device], parts[group.name])
            else:
                answers[index] = _nothing
    return answers


def _copy(operands: tuple[Operand, ...], devices: Mapping[str, Device]) -> DeviceCall:
    source, target = operands
    if target.place not in devices:
        return partial(_download, devices[source.place].download, source.index)
    device = devices[target.place]
    if source.place not in devices:
        return partial(_upload, device.upload, target.index)
    pull = partial(device.pull, devices[source.place], source.index, target.index, nbytes(target))
    return lambda _arrays: pull()


def _download(download: Callable[..., None], offset: int, arrays: Arrays) -> None:
    download(offset, arrays[0])


def _upload(upload: Callable[..., None], offset: int, arrays: Arrays) -> None:
    upload(arrays[0], offset)


def _program(name: str, step: Step, device: Device, part: Artifact) -> DeviceCall:
    """Loads a subgraph; the last operands of ``step`` are its outputs, the first one's at the very end."""
    count = len(part.outputs)
    places = [operand.index for operand in step.operands]
    inputs, outputs = places[: len(places) - count], [places[-1], *places[len(places) - count : -1]]
    try:
        run = device.load(part, inputs, outputs)
    except AutotuneError as error:
        raise type(error)(f"subgraph {name!r} cannot be loaded: {error}") from error
    return lambda _arrays: run()


def _nothing(_arrays: Arrays) -> None:
    """Do nothing: the call that runs the subgraph writes the result."""
