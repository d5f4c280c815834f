"""The roofline of a CPU: the most multiply-adds and bytes read per second.

Both are measured, because a virtual machine's clock and its share of the memory bandwidth are in no data sheet. Kernels
of our own do it:

    fma      6 to 16 accumulators of one vector each: enough to hide 4 cycles of latency on 2 ports, few enough for the
             register file, and 4 multiply-adds per load; of fp32, and of each form of dot products
    tiles    2 × 2 tiles of sums, operands in L1, where the processor has AMX: it multiplies the short types so
    memory   the sum of an array larger than L2, 64 MiB
    l2       the sum of half an L2 per thread, again and again
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import s_tir, te, tirx
from tvm.s_tir.schedule import LoopRV

from autotune.host.machine import nodes_of, read_host, thread_cpus
from autotune.host.pages import paged
from autotune.options import cache_folder
from schedules.lower import tvm_target
from schedules.target import Target
from schedules.templates.amx.amx_ir import MOST_ROWS, ROW_BYTES
from schedules.templates.amx.amx_product import WIDE, has_amx, terms, use_amx
from schedules.templates.common.prefetch import INTO_L2, prefetch_ahead
from schedules.templates.common.register_tile import unroll_tile
from schedules.templates.common.splice import long
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions.dots import (
    BF16,
    S8S8,
    U8S8,
    DotForm,
    byte_form,
    depth_axes,
    multiplied,
    pair_form,
    use_dot,
)
from schedules.vocabulary.bounded import MOST_DEPTH, parsed_json
from tuning_logs.durable import write_file

MEMORY_BYTES = 64 * 2**20
"""Bytes of a large layer's weights. Heuristic: where L3 holds them this measures L3's speed, as it is for the layer;
larger arrays are slower, so the roofline is never below what a kernel can reach."""

FMA_STEPS = 32
"""Steps of the inner sum: each reads 4 vectors of 64 bytes, so all of them take 8 KiB, which any L1 holds."""

FEW_REGISTERS = ((3, 4), (3, 2), (4, 2))
"""Accumulators of dot products with 16 registers, rows × vectors. One that takes several instructions needs registers
besides: with the first, int8 came to 282e9 operations per second on a two-core Zen 3 (AVX2 alone) and bf16 to 136e9,
with the second to 310e9 and 151e9, with the third to 240e9 and 184e9."""

ROUNDS = 7
"""Timed runs of one kernel, of which the fastest counts. Heuristic, not measured."""

TIMES = 5
"""Another virtual machine, or where the host puts this one's cores, can halve the speed for seconds. So the roofline is
measured again the first times it is needed, and the largest values are kept: disturbances only make it smaller."""

DAY_S = 86400
"""After so many seconds it is measured once more: a host that was busy through all first times is quiet on another day.
On Ice Lake a peak of int8 measured so stayed at 298e9 operations per second, where 357e9 were reached."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Roofline:
    """The bounds of a machine with a target's threads.

    Attributes:
        gflops: fused multiply-adds of fp32, each counting 2, in 1e9 per second.
        memory_gb_s: bytes read of ``memory_bytes``, from memory or, where it holds as much, from L3, in 1e9 per second.
        l2_gb_s: bytes read from L2, likewise.
        l2_bytes: L2 caches of all threads together.
        bf16_gflops, int8_gops: multiply-adds of dot products, likewise; 0 where they were not measured. float16 is as
            fast as bf16.
        tf32_gflops: those of float32 operands that tensor cores round.
    """

    gflops: float
    memory_gb_s: float
    l2_gb_s: float
    l2_bytes: int
    bf16_gflops: float = 0.0
    int8_gops: float = 0.0
    tf32_gflops: float = 0.0

    def peak(self, dtypes: Sequence[str]) -> float:
        """The most operations, in 1e9 per second, of a kernel whose parameters have these types."""
        short = {"tf32": self.tf32_gflops, "float16": self.bf16_gflops}
        fastest = max(self.gflops, *(peak for dtype, peak in short.items() if list(dtypes).count(dtype) > 1), 0.0)
        for form, measured in ((U8S8, self.int8_gops), (S8S8, self.int8_gops), (BF16, self.bf16_gflops)):
            # Weights in bytes and their scales, between float32 activations and sums, may meet activations in int8.
            packed = form is U8S8 and {"uint8", "int8"} & set(dtypes) and list(dtypes).count("float32") > 2
            alone = form is S8S8 and list(dtypes).count("int8") < 2
            if packed or ({form.data, form.weight} <= set(dtypes) and not alone):
                fastest = max(fastest, measured)
        return fastest

    def bound_s(self, flop: int, moved_bytes: int, dtypes: Sequence[str] = ()) -> float:
        """The roofline: least seconds for ``flop`` operations on ``moved_bytes`` bytes by a kernel of these ``dtypes``.

        Bytes that fit the L2 caches of all threads may have stayed there since the kernel that wrote them.
        """
        near = moved_bytes <= self.l2_bytes
        return max(flop / self.peak(dtypes), moved_bytes / (self.l2_gb_s if near else self.memory_gb_s)) / 1e9


def measure_roofline(target: Target, cache: Path | None = None) -> Roofline:
    """The roofline of this machine: the largest values of the first ``TIMES`` times, then one a day, kept on disk.

    Measuring takes some 0.3 s.

    Args:
        target: a CPU target that this machine can run.
        cache: folder to keep it in; None takes the user's cache folder. A file that cannot be read is replaced.
    """
    path = (cache or cache_folder()) / f"roofline-{_key(target)}.json"
    known, times = _load(path)
    if known is not None and times >= TIMES and time.time() - path.stat().st_mtime < DAY_S:
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
        _gflops(target, best_s),
        read_gb_s(target, memory_bytes(target), 1, best_s),
        read_gb_s(target, target.l2_bytes // 2 * target.threads, 40, best_s),
        target.l2_bytes * target.threads,
        _dot_gflops(target, best_s, BF16),
        _dot_gflops(target, best_s, byte_form(target)),
    )


def memory_bytes(target: Target) -> int:
    """Bytes that are read for ``memory_gb_s``: ``MEMORY_BYTES``, or twice the L2 caches of many threads together.

    Less would stay in them from one run to the next.
    """
    return max(MEMORY_BYTES, 2 * target.l2_bytes * target.threads)


def _dot_gflops(target: Target, best_s: Timer, form: DotForm) -> float:
    """By AMX tiles or by dot products of one row; those of two do twice as much, as often on every processor that LLVM
    models.
    """
    if has_amx(form, target):
        kernel, arrays, flop = tile_kernel(target, form)
        return flop / best_s(kernel, arrays) / 1e9
    return _gflops(target, best_s, form) * (2 if pair_form(form, target) else 1)


def _key(target: Target) -> str:
    """The target and the CPU's name: the same code runs at another clock on another model."""
    model = hashlib.sha256(read_host().model.encode()).hexdigest()[:8]
    return f"{target.fingerprint}-{model}"


def _larger(one: Roofline, other: Roofline) -> Roofline:
    return Roofline(**{name: max(value, getattr(other, name)) for name, value in asdict(one).items()})


def _load(path: Path) -> tuple[Roofline | None, int]:
    """Return the roofline on disk, and how often it was measured."""
    try:
        data = parsed_json(path.read_text(), MOST_DEPTH)
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
        write_file(path, json.dumps({**asdict(peak), "times": times}).encode())
    except OSError as error:
        logger.warning("%s cannot be written (%s); the roofline will be measured again next time", path, error)


Timer = Callable[[tvm.runtime.Module, list[NDArray[Any]]], float]
"""(kernel, arrays for its parameters) → least seconds of one run."""


def _best_s(func: tvm.runtime.Module, arrays: list[NDArray[Any]]) -> float:
    return best_of(func.mod, tvm.cpu(), [tvm.runtime.from_dlpack(array) for array in arrays])


def best_of(module: tvm.runtime.Module, device: tvm.runtime.Device, arrays: list[tvm.runtime.Tensor]) -> float:
    """Least seconds of one run of ``main``: of a machine's peak every disturbance only takes away."""
    timer = module.time_evaluator("main", device, number=1, repeat=ROUNDS)
    timer(*arrays)
    return float(min(timer(*arrays).results))


def _ordinary(tensor: te.Tensor, cpus: Sequence[int] = ()) -> NDArray[Any]:
    """Numbers that no kernel is slow on, as ``tensor`` has them, in huge pages; bfloat16 as its bits.

    Args:
        cpus: those that read a part of the outermost axis each. They write it first, so that it lies in the memory of
            their node.
    """
    dtype, shape = str(tensor.dtype), [int(size) for size in tensor.shape]
    stored = np.dtype("uint16" if dtype == "bfloat16" else dtype)
    array = paged(math.prod(shape) * stored.itemsize).view(stored).reshape(shape)
    number = {"float32": 1e-3, "bfloat16": 0x3A83}.get(dtype, 1)  # 0x3A83: 1e-3
    if not cpus:
        array.fill(number)
        return array

    def fill(part: int) -> None:
        os.sched_setaffinity(0, {cpus[part]})  # of this thread alone
        array[part].fill(number)

    for part in range(len(cpus)):
        with ThreadPoolExecutor(1) as own:
            own.submit(fill, part).result()
    return array


def _build(tensors: list[te.Tensor], target: Target, form: DotForm | None = None) -> tvm.runtime.Module:
    """Compile a sum over two axes (and those of a dot product's ``form``) into a block of accumulators."""
    sch, lane = _scheduled(tensors, form is None, form is not None)
    if form is not None:
        use_dot(sch, lane, form, target)
    return compiled(sch.mod["main"], "main", tvm_target(target))


def _scheduled(tensors: list[te.Tensor], vector: bool, apart: bool) -> tuple[s_tir.Schedule, LoopRV]:
    """A sum, with its accumulators in registers, and the loop over lanes.

    The loops are (thread, …, lane, outer sum, inner sum); they become (thread in parallel, outer sum, inner sum, …
    unrolled from the last to the first, lane).

    Args:
        vector: whether lanes are those of one vector.
        apart: sum in memory of the kernel's own and write the result at the end. LLVM keeps sums in registers only
            where no instruction between may read them, as an operand in memory or a prefetch could.
    """
    sch = s_tir.Schedule(te.create_prim_func(tensors).with_attr("global_symbol", "main"))
    block = sch.get_sblock("out")
    thread, *registers, lane, outer, inner = sch.get_loops(block)[: len(tensors[-1].shape) + 2]
    within = sch.get_loops(block)[len(tensors[-1].shape) + 2 :]
    sch.reorder(thread, outer, inner, *reversed(registers), lane, *within)
    if apart:
        stored = sch.cache_write(block, 0, "global")
        sch.reverse_compute_at(stored, thread)
        unroll_tile(sch, stored, len(registers) + 1)
    sch.parallel(thread)
    if vector:
        sch.vectorize(lane)
    for loop in registers:
        sch.unroll(loop)
    init = sch.decompose_reduction(block, outer)
    unroll_tile(sch, init, len(registers) + 1 if apart else 1)
    return sch, lane


def _gflops(target: Target, best_s: Timer, form: DotForm | None = None) -> float:
    """The most of all kernels for it."""
    kernels = fma_kernels(target, form)
    return max(flop / best_s(kernel, arrays) for kernel, arrays, flop in kernels) / 1e9


def fma_kernels(
    target: Target, form: DotForm | None = None
) -> list[tuple[tvm.runtime.Module, list[NDArray[Any]], int]]:
    """Kernels of which the fastest finds the peak of multiply-adds, arrays for their parameters, operations of a run.

    Args:
        form: of dot products; None for fp32.
    """
    if target.vector_registers >= 32:
        return [_fma_kernel(target, form, 4, 4)]
    return [_fma_kernel(target, form, *tile) for tile in (FEW_REGISTERS if form else FEW_REGISTERS[:1])]


def _fma_kernel(
    target: Target, form: DotForm | None, rows: int, vectors: int
) -> tuple[tvm.runtime.Module, list[NDArray[Any]], int]:
    lanes, jobs, repeats = target.lanes(), 4 * target.threads, 3000
    quad = () if form is None else (form.depth,)
    data, weight = ("float32", "float32") if form is None else (form.data, form.weight)
    x = te.placeholder((FMA_STEPS, vectors, lanes, *quad), weight, name="x")
    y = te.placeholder((jobs, rows, *quad), data, name="y")
    r, k, within = te.reduce_axis((0, repeats), "r"), te.reduce_axis((0, FMA_STEPS), "k"), depth_axes(form)

    def element(t: tirx.Var, i: tirx.Var, j: tirx.Var, v: tirx.Var) -> tirx.Expr:
        weight, number = x[(k, j, v, *within)], y[(t, i, *within)]
        product = weight * number if form is None else multiplied(number, weight, form)
        return te.sum(product, axis=[r, k, *within])

    out = te.compute((jobs, rows, vectors, lanes), element, name="out")
    flop = 2 * jobs * rows * vectors * lanes * repeats * FMA_STEPS * math.prod(quad)
    return _build([x, y, out], target, form), [_ordinary(tensor) for tensor in (x, y, out)], flop


def tile_kernel(target: Target, form: DotForm) -> tuple[tvm.runtime.Module, list[NDArray[Any]], int]:
    """As one of ``fma_kernels``, by AMX tiles: 32 rows by 32 columns a job, again and again over the same terms."""
    jobs, repeats, term_count = 4 * target.threads, 500, terms(form)
    rows, columns = 2 * MOST_ROWS, 2
    sizes = long(jobs, FMA_STEPS // 4, repeats, term_count, columns, rows, MOST_ROWS, form.depth)
    job, steps, *_, tiles, pixels, lanes, quad = sizes
    x = te.placeholder((job, steps, pixels, sizes[3]), form.data, name="x")
    y = te.placeholder((tiles, steps, lanes, lanes, quad), form.weight, name="y")
    zero = tirx.IntImm("int64", 0)
    r, k, i = (te.reduce_axis((zero, size), name) for size, name in zip(sizes[2:0:-1] + sizes[3:4], "rki", strict=True))

    def element(t: tirx.Var, o: tirx.Var, p: tirx.Var, b: tirx.Var) -> tirx.Expr:
        product = multiplied(x[t, k, p, i], y[o, k, i // form.depth, b, i % form.depth], form)
        return te.sum(product, axis=[r, k, i])

    out = te.compute((job, tiles, pixels, lanes), element, name=WIDE)
    sch = s_tir.Schedule(te.create_prim_func([x, y, out]).with_attr("global_symbol", "main"))
    loops = sch.get_loops(sch.get_sblock(WIDE))
    sch.parallel(loops[0])
    use_amx(sch, loops[1], loops[0], (rows, columns, ROW_BYTES), form, ahead=False)
    flop = 2 * jobs * rows * columns * MOST_ROWS * term_count * repeats * (FMA_STEPS // 4)
    kernel = compiled(sch.mod["main"], "main", tvm_target(target))
    return kernel, [_ordinary(tensor) for tensor in (x, y, out)], flop


READ_AHEAD = 8192
"""Bytes by which memory is asked for before it is read. The processor's own prefetching ends at every page: a two-core
Sapphire Rapids read 310 MB at 30.0 to 32.8 GB/s without, and at 31.4 to 35.0 with 8 KiB, from the second to the
fifteenth time (the host's L3 keeps more of it each time)."""


def read_gb_s(target: Target, size_bytes: int, repeats: int, best_s: Timer) -> float:
    """1e9 bytes per second of reading ``size_bytes``, one contiguous part per thread, ``repeats`` times.

    What is read once comes from memory: it is prefetched, ``READ_AHEAD`` bytes ahead.
    """
    vectors, lanes = 8, target.lanes()
    steps = size_bytes // (4 * target.threads * vectors * lanes)
    shape, out_shape = (target.threads, steps, vectors, lanes), (target.threads, vectors, lanes)
    data = te.placeholder(shape, name="data")
    r, k = te.reduce_axis((0, repeats), "r"), te.reduce_axis((0, steps), "k")
    out = te.compute(out_shape, lambda t, j, v: te.sum(data[t, k, j, v], axis=[r, k]), name="out")

    sch, _ = _scheduled([data, out], vector=True, apart=repeats == 1)
    if repeats == 1:
        thread, _, step, *_ = loops = sch.get_loops(sch.get_sblock("out_update"))
        first = (sch.get(thread).loop_var * steps + sch.get(step).loop_var) * vectors + READ_AHEAD // (4 * lanes)
        prefetch_ahead(sch, 0, lanes, loops[2], [first + vector for vector in range(vectors)], INTO_L2)
    kernel = compiled(sch.mod["main"], "main", tvm_target(target))
    host = read_host()
    cpus = thread_cpus(min(target.threads, len(host.allowed)), host)
    beside = repeats == 1 and len(nodes_of(cpus, host)) > 1 and len(cpus) == target.threads
    seconds = best_s(kernel, [_ordinary(data, cpus if beside else ()), _ordinary(out)])
    return repeats * target.threads * steps * vectors * lanes * 4 / seconds / 1e9
