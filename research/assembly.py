"""``python -m research.assembly MODEL.onnx…``: kernels written as assembly compared with the same ones compiled.

The first guess and some random configs of every task are built both ways. Both run in turn on random numbers, and their
results are compared. One line per family is printed: milliseconds of both builds (medians), compiled / assembled time
(geometric mean and range), and results that differ by more than rounding. A family is a template; Winograd is its own.

``--only depthwise winograd`` measures what these two writers bring.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tvm
from tvm import tirx

from autotune.host.machine import host_target
from autotune.importer.guarded_import import import_model
from autotune.measure.kernel_builder import Builder
from autotune.measure.output_check import aligned, numpy_dtype
from autotune.options import Precision
from schedules import lower
from schedules.config import Config
from schedules.target import Target
from schedules.templates.common.winograd_transforms import BT

RUNS = 21
SYMBOL = "kernel"


@dataclass
class Compared:
    """What was found.

    Attributes:
        seconds: of the builds, assembled and compiled.
        ratios: compiled / assembled time of each config.
        left: configs that only the compiler makes.
        wrong: configs whose results differ.
    """

    seconds: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    ratios: list[float] = field(default_factory=list)
    left: int = 0
    wrong: int = 0


def compare(compared: Compared, func: tirx.PrimFunc, config: Config, target: Target, folder: Path) -> None:
    """Build one config both ways, and run both in turn."""
    builder = Builder(target, lower)
    libraries = [str(folder / f"{len(compared.ratios)}-{way}.so") for way in ("assembled", "compiled")]
    start = time.perf_counter()
    text = lower.assembly(func, config, target, SYMBOL)
    if not text:
        compared.left += 1
        return
    builder.assemble(text, libraries[0])
    half = time.perf_counter()
    builder.compile(lower.lower(func, config, target).mod["main"], SYMBOL, libraries[1])
    for seconds, took in zip(compared.seconds, (half - start, time.perf_counter() - half), strict=True):
        seconds.append(took)
    arguments_in = [random_array(param) for param in func.params[:-1]]
    for index, how in lower.repack(func, config).items():
        packed = how.apply(arguments_in[index])
        arguments_in[index] = aligned(packed.shape, packed.dtype)
        arguments_in[index][...] = packed
    results = [random_array(func.params[-1]) for _ in libraries]
    tensors = [[tvm.runtime.from_dlpack(array) for array in (*arguments_in, result)] for result in results]
    kernels = [tvm.runtime.load_module(library)[SYMBOL] for library in libraries]
    laps: tuple[list[float], list[float]] = ([], [])
    for _ in range(RUNS):
        for kernel, arguments, lap in zip(kernels, tensors, laps, strict=True):
            start = time.perf_counter()
            kernel(*arguments)
            lap.append(time.perf_counter() - start)
    compared.ratios.append(statistics.median(laps[1]) / statistics.median(laps[0]))
    values = [result.astype(np.float64) for result in results]
    apart = np.abs(values[0] - values[1]).max()
    least = 0.0 if results[0].dtype.kind == "f" else 1.0  # of bytes and of bits of bfloat16, one unit
    compared.wrong += int(apart > least + 1e-4 * np.abs(values[1]).max())


def family_of(template: str, config: Config) -> str:
    """The family of a config's kernel."""
    return "winograd" if dict(config.items).get("algorithm") in BT else template


def random_array(param: tirx.Var) -> np.ndarray:
    """Random numbers for a parameter."""
    rng = np.random.default_rng(0)
    dtype = numpy_dtype(str(param.ty.dtype))
    array = aligned(tuple(int(extent) for extent in param.ty.shape), dtype)
    if dtype == np.uint16:
        array[...] = rng.standard_normal(array.shape).astype(np.float32).view(np.uint32) >> 16
    elif dtype.kind == "f":
        array[...] = rng.standard_normal(array.shape)
    else:
        limits = np.iinfo(dtype)
        array[...] = rng.integers(max(limits.min, -1000), min(limits.max, 1000), array.shape, endpoint=True)
    return array


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m research.assembly", description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--configs", type=int, default=7, help="random ones of every task")
    parser.add_argument("--only", nargs="*", default=[], help="families, such as depthwise and winograd; else all")
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    target = host_target()
    cores = [str(core) for core in range(target.threads)]
    for path in options.models:
        _, program = import_model(path, {}, target, precision=Precision.parse(options.precision))
        tvm.get_global_func("runtime.config_threadpool")(-2, target.threads, cores)
        families: dict[str, Compared] = {}
        rng = np.random.default_rng(1)
        with tempfile.TemporaryDirectory() as folder:
            for task in program.tasks:
                func = lower.load_program(program.programs[task.key])
                claimed = lower.claim(func, target)
                space = claimed.space
                rows = map(space.config, space.rows[rng.permutation(len(space.rows))])
                wanted = {family_of(claimed.template, config) for config in space.initial}
                left = dict.fromkeys(wanted & set(options.only) if options.only else wanted, options.configs)
                for config in (*space.seeds, *space.initial[:1], *rows):
                    family = family_of(claimed.template, config)
                    if not any(left.values()):
                        break
                    if left.get(family, 0):
                        left[family] -= 1
                        (own_folder := Path(folder) / family).mkdir(exist_ok=True)
                        compare(families.setdefault(family, Compared()), func, config, target, own_folder)
        for family, compared in sorted(families.items()):
            print(f"{path.stem} {family}: {line_of(compared)}", flush=True)


def line_of(compared: Compared) -> str:
    """Return the lines that ``main`` prints about a family."""
    if not compared.ratios:
        return f"{compared.left} configs left to the compiler"
    built = " and ".join(f"{statistics.median(seconds) * 1e3:.0f}" for seconds in compared.seconds)
    mean = math.exp(statistics.mean(map(math.log, compared.ratios)))
    return (
        f"{len(compared.ratios)} configs assembled and compiled in {built} ms, compiled / assembled {mean:.3f} "
        f"({min(compared.ratios):.2f}–{max(compared.ratios):.2f}), {compared.wrong} differ, {compared.left} left"
    )


if __name__ == "__main__":
    main()
