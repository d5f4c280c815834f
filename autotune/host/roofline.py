"""The roofline of a CPU: the most fused multiply-adds and bytes read per second.

Both are measured, because a virtual machine's clock and its share of the memory bandwidth are in no data sheet. Three
kernels of our own do it:

    fma      12 or 16 accumulators of one vector each: enough to hide 4 cycles of latency on 2 ports, few enough for the
             register file, and 4 multiply-adds per load
    memory   the sum of an array larger than L2
    l2       the sum of half an L2 per thread, again and again
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import platformdirs
import tvm
from numpy.typing import NDArray
from tvm import s_tir, te

from autotune.host.machine import read_host, thread_cpus
from schedules.lower import tvm_target
from schedules.target import Target

MEMORY_BYTES = 64 * 2**20
"""Bytes of a large layer's weights. Heuristic: where L3 holds them this measures L3's speed, as it is for the layer;
larger arrays are slower, so the roofline is never below what a kernel can reach."""

FMA_STEPS = 32
"""Steps of the inner sum: each reads 4 vectors of 64 bytes, so all of them take 8 KiB, which any L1 holds."""

ROUNDS = 7
"""Timed runs of one kernel, of which the fastest counts. Heuristic, not measured."""

TIMES = 5
"""Another virtual machine, or where the host puts this one's cores, can halve the speed for seconds. So the roofline is
measured again the first times it is needed, and the largest values are kept: disturbances only make it smaller."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Roofline:
    """The bounds of a machine with a target's threads, fp32.

    Attributes:
        gflops: fused multiply-adds, each counting 2, in 1e9 per second.
        memory_gb_s, l2_gb_s: bytes read from memory and from L2, in 1e9 per second.
        l2_bytes: L2 caches of all threads together.
    """

    gflops: float
    memory_gb_s: float
    l2_gb_s: float
    l2_bytes: int

    def bound_s(self, flop: int, moved_bytes: int) -> float:
        """The roofline: least seconds for ``flop`` operations on ``moved_bytes`` bytes.

        Bytes that fit the L2 caches of all threads may have stayed there since the kernel that wrote them.
        """
        near = moved_bytes <= self.l2_bytes
        return max(flop / self.gflops, moved_bytes / (self.l2_gb_s if near else self.memory_gb_s)) / 1e9


def measure_roofline(target: Target, cache: Path | None = None) -> Roofline:
    """The roofline of this machine: the largest values of the first ``TIMES`` times (some 0.3 s each), kept on disk.

    Args:
        target: a CPU target that this machine can run.
        cache: folder to keep it in; None takes the user's cache folder. A file that cannot be read is replaced.
    """
    path = (cache or platformdirs.user_cache_path("tune-compiler")) / f"peak-{_key(target)}.json"
    known, times = _load(path)
    if known is not None and times >= TIMES:
        return known
    with ThreadPoolExecutor(1) as own:  # TVM keeps a pool per calling thread, and a pool cannot grow later
        peak = own.submit(_measure, target).result()
    known, times = _load(path)  # again: another process may have measured meanwhile
    if known is not None:
        peak = _larger(peak, known)
    _save(path, peak, times + 1)
    return peak


def _measure(target: Target) -> Roofline:
    cpus = [str(cpu) for cpu in thread_cpus(target.threads)]
    tvm.get_global_func("runtime.config_threadpool")(-2, target.threads, cpus)
    return roofline_by(target, _best_s)


def roofline_by(target: Target, best_s: Timer) -> Roofline:
    """The roofline of the machine on which ``best_s`` runs kernels."""
    return Roofline(
        _fma_gflops(target, best_s),
        _read_gb_s(target, MEMORY_BYTES, 1, best_s),
        _read_gb_s(target, target.l2_bytes // 2 * target.threads, 40, best_s),
        target.l2_bytes * target.threads,
    )


def _key(target: Target) -> str:
    """The target and the CPU's name: the same code runs at another clock on another model."""
    model = hashlib.sha256(read_host().model.encode()).hexdigest()[:8]
    return f"{target.fingerprint}-{model}"


def _larger(one: Roofline, other: Roofline) -> Roofline:
    return Roofline(**{name: max(value, getattr(other, name)) for name, value in asdict(one).items()})


def _load(path: Path) -> tuple[Roofline | None, int]:
    """What is on disk, and how often it was measured."""
    try:
        data = json.loads(path.read_text())
        times = int(data.pop("times", 1))
        return Roofline(**data), times
    except FileNotFoundError:
        return None, 0
    except (OSError, ValueError, TypeError, AttributeError) as error:
        logger.warning("%s cannot be read (%s); measuring again", path, error)
        return None, 0


def _save(path: Path, peak: Roofline, times: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".peak-", dir=path.parent) as own:  # another process may write too
            scratch = Path(own) / path.name
            scratch.write_text(json.dumps({**asdict(peak), "times": times}))
            scratch.replace(path)
    except OSError as error:
        logger.warning("%s cannot be written (%s); the roofline will be measured again next time", path, error)


Timer = Callable[[tvm.runtime.Module, list[tuple[int, ...]]], float]
"""(kernel, shapes of its fp32 parameters) → least seconds of one run."""


def _best_s(func: tvm.runtime.Module, shapes: list[tuple[int, ...]]) -> float:
    return best_of(func.mod, tvm.cpu(), [tvm.runtime.tensor(ordinary(shape)) for shape in shapes])


def best_of(module: tvm.runtime.Module, device: tvm.runtime.Device, arrays: list[tvm.runtime.Tensor]) -> float:
    """Least seconds of one run of ``main``: of a machine's peak every disturbance only takes away."""
    timer = module.time_evaluator("main", device, number=1, repeat=ROUNDS)
    timer(*arrays)
    return float(min(timer(*arrays).results))


def ordinary(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Numbers that no kernel is slow on, of ``shape``."""
    return np.full(shape, 1e-3, np.float32)


def _build(tensors: list[te.Tensor], target: Target) -> tvm.runtime.Module:
    """Compile a sum over two axes into a block of accumulators.

    The loops are (thread, …, lane, outer sum, inner sum); they become (thread in parallel, outer sum, inner sum, …
    unrolled from the last to the first, lane vectorised), so that the accumulators stay in registers.
    """
    sch = s_tir.Schedule(te.create_prim_func(tensors).with_attr("global_symbol", "main"))
    block = sch.get_sblock("out")
    thread, *registers, lane, outer, inner = sch.get_loops(block)
    sch.reorder(thread, outer, inner, *reversed(registers), lane)
    sch.parallel(thread)
    sch.vectorize(lane)
    for loop in registers:
        sch.unroll(loop)
    init = sch.decompose_reduction(block, outer)
    sch.vectorize(sch.get_loops(init)[-1])
    return tvm.compile(sch.mod, target=tvm_target(target))


def _fma_gflops(target: Target, best_s: Timer) -> float:
    kernel, shapes, flop = fma_kernel(target)
    return flop / best_s(kernel, shapes) / 1e9


def fma_kernel(target: Target) -> tuple[tvm.runtime.Module, list[tuple[int, ...]], int]:
    """The kernel that finds the FMA peak, the shapes of its parameters, and the operations of one run."""
    lanes, jobs, repeats = target.lanes(), 4 * target.threads, 3000
    rows = 4 if target.vector_registers >= 32 else 3
    shapes: list[tuple[int, ...]] = [(FMA_STEPS, 4, lanes), (jobs, rows), (jobs, rows, 4, lanes)]
    x, y = te.placeholder(shapes[0], name="x"), te.placeholder(shapes[1], name="y")
    r, k = te.reduce_axis((0, repeats), "r"), te.reduce_axis((0, FMA_STEPS), "k")
    out = te.compute(shapes[2], lambda t, i, j, v: te.sum(x[k, j, v] * y[t, i], axis=[r, k]), name="out")

    return _build([x, y, out], target), shapes, 2 * jobs * rows * 4 * lanes * repeats * FMA_STEPS


def _read_gb_s(target: Target, size_bytes: int, repeats: int, best_s: Timer) -> float:
    """Bytes per second of reading ``size_bytes``, one contiguous part per thread, ``repeats`` times."""
    vectors, lanes = 8, target.lanes()
    steps = size_bytes // (4 * target.threads * vectors * lanes)
    shape, out_shape = (target.threads, steps, vectors, lanes), (target.threads, vectors, lanes)
    data = te.placeholder(shape, name="data")
    r, k = te.reduce_axis((0, repeats), "r"), te.reduce_axis((0, steps), "k")
    out = te.compute(out_shape, lambda t, j, v: te.sum(data[t, k, j, v], axis=[r, k]), name="out")

    seconds = best_s(_build([data, out], target), [shape, out_shape])
    return repeats * target.threads * steps * vectors * lanes * 4 / seconds / 1e9
