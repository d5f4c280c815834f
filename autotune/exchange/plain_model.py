"""Run a model that ``tune export`` wrote. It needs TVM and NumPy, and nothing else: copy it wherever you like.

    from plain_model import Model
    outputs = Model("exported").run({"data": array})        # output name → array

Folder: ``model.so`` (kernels), ``weights.npz`` and ``program.json``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

ALIGNMENT = 64  # bytes, assumed by the kernels
ONE_CORE_PER_THREAD = -2


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """A copy of ``array`` that kernels can read."""
    raw = np.zeros(array.nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class Model:
    """An exported model; call it from one thread."""

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        self.program = json.loads((folder / "program.json").read_text())
        threads = self.program["threads"]
        cores = [str(core) for core in range(threads)]
        allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        tvm.get_global_func("runtime.config_threadpool")(ONE_CORE_PER_THREAD, threads, cores)
        if allowed is not None:  # TVM binds the calling thread too
            os.sched_setaffinity(0, allowed)
        library = tvm.runtime.load_module(str((folder / "model.so").resolve()))
        with np.load(folder / "weights.npz") as arrays:
            self.weights = [aligned(arrays[f"arr_{number}"]) for number in range(len(arrays.files))]
        self.steps = self.program["steps"]
        self.arena = aligned(np.zeros(self.steps["arena_bytes"], np.uint8))
        self.calls = [(library[call["symbol"]], call["operands"]) for call in self.steps["calls"]]

    def run(self, feed: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs by name for inputs by name."""
        inputs = [aligned(np.asarray(feed[spec["name"]], spec["dtype"])) for spec in self.program["inputs"]]
        names = [spec["name"] for spec in self.program["outputs"]]
        for kernel, operands in self.calls:
            kernel(*(tvm.runtime.from_dlpack(self.tensor(operand, inputs)) for operand in operands))
        outputs = self.steps["outputs"]
        return {name: self.tensor(item, inputs).copy() for name, item in zip(names, outputs, strict=True)}

    def tensor(self, operand: Mapping[str, Any], inputs: list[NDArray[Any]]) -> NDArray[Any]:
        """The memory of one argument of a kernel."""
        shape: tuple[int, ...] = tuple(operand["shape"])
        if operand["place"] != "arena":
            array: NDArray[Any] = (inputs if operand["place"] == "input" else self.weights)[operand["index"]]
            return array.reshape(shape)
        dtype, begin = np.dtype(operand["dtype"]), int(operand["index"])
        memory: NDArray[Any] = self.arena[begin : begin + math.prod(shape) * dtype.itemsize].view(dtype)
        return memory.reshape(shape)
