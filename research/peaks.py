"""``python -m research.peaks build|time FOLDER``: which share of the peak of its type a convolution reaches.

``build`` compiles the first guesses for ResNet-50's layers in fp32, bf16 and int8 into FOLDER, with what follows them
in a model: bias and relu, stored as float32 or bfloat16, or the step to uint8. ``time`` runs them, in turn with the
peak of their type (``tune devices``), and prints the best guess of each as a table for docs/lab: kernels. Weights are
warm.
"""

from __future__ import annotations

import argparse
import json
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import te, tirx

from autotune.host.machine import host_target, thread_cpus
from autotune.host.roofline import best_of, fma_kernels
from schedules.lower import claim, lower, tvm_target
from schedules.target import Target
from schedules.templates.common.windows import Window
from schedules.templates.cpu.conv2d import conv2d
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions.dots import BF16, U8S8, DotForm
from schedules.vocabulary.errors import ScheduleError
from tests.schedules_tests.programs import dtypes, from_te, inputs, shapes, stored

# (input channels, output channels, height and width, kernel)
LAYERS = (
    (64, 64, 56, 1),
    (64, 256, 56, 1),
    (256, 64, 56, 1),
    (128, 512, 28, 1),
    (512, 128, 28, 1),
    (256, 1024, 14, 1),
    (1024, 256, 14, 1),
    (512, 2048, 7, 1),
    (2048, 512, 7, 1),
    (64, 64, 56, 3),
    (128, 128, 28, 3),
    (256, 256, 14, 3),
    (512, 512, 7, 3),
)
FORMS = {"fp32": None, "bf16": BF16, "int8": U8S8}
ROUNDS = 20


def layer(channels: int, filters: int, size: int, kernel: int, form: DotForm | None, lanes: int) -> tirx.PrimFunc:
    """One convolution with stride 1 and what follows it."""
    quad = () if form is None else (form.depth,)
    data, weight = ("float32", "float32") if form is None else (form.data, form.weight)
    x = te.placeholder((1, channels // lanes, size, size, lanes), data, name="x")
    inner = lanes // (1 if form is None else form.depth)
    w = te.placeholder((filters // lanes, channels // lanes, kernel, kernel, inner, lanes, *quad), weight, name="w")
    out = conv2d(x, w, Window((kernel, kernel), (1, 1), (kernel // 2,) * 4, (1, 1)))
    bias = te.placeholder((1, filters // lanes, 1, 1, lanes), out.dtype, name="bias")
    if form is not None:
        return from_te(x, w, bias, stored(out, bias, lambda at: (0, at[1], 0, 0, at[4])))
    relu = te.compute(
        out.shape,
        lambda n, o, h, v, b: te.max(out[n, o, h, v, b] + bias[0, o, 0, 0, b], tirx.const(0.0, "float32")),
        name="relu",
    )
    return from_te(x, w, bias, relu)


def build(folder: Path, target: Target, guesses: int, types: list[str]) -> None:
    """One library for each guess, named after what it computes."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in types:
        for number, sizes in enumerate(LAYERS):
            func = layer(*sizes, FORMS[kind], target.lanes())
            space = claim(func, target).space
            direct = [config for config in space.initial if not config.integer("algorithm")][:guesses]
            for guess, config in enumerate(direct):
                try:
                    module = compiled(lower(func, config, target).mod["main"], "main", tvm_target(target))
                except ScheduleError as error:
                    print(f"{kind} {sizes}: {error}")
                    continue
                module.mod.export_library(str(folder / f"{kind}-{number}-{guess}.so"))
                (folder / f"{kind}-{number}-{guess}.json").write_text(config.to_json())


def arguments_of(func: tirx.PrimFunc) -> list[tvm.runtime.Tensor]:
    """Random arrays, bfloat16 as its bits."""
    arrays: list[Any] = [*inputs(func), np.zeros(shapes(func)[-1], dtypes(func)[-1])]
    return [tvm.runtime.tensor(a.view(np.uint16) if a.dtype == "bfloat16" else a) for a in arrays]


def shares(folder: Path, target: Target, kind: str, number: int) -> tuple[float, float, str]:
    """(share of the peak, µs, config) of the best guess."""
    form = FORMS[kind]
    func = layer(*LAYERS[number], form, target.lanes())
    channels, filters, size, kernel = LAYERS[number]
    flop = 2 * channels * filters * size * size * kernel * kernel
    arrays = arguments_of(func)
    peaks = [
        (kernel.mod, [tvm.runtime.tensor(array) for array in operands], peak_flop)
        for kernel, operands, peak_flop in fma_kernels(target, form)
    ]
    modules = {path.stem: tvm.runtime.load_module(str(path)) for path in folder.glob(f"{kind}-{number}-*.so")}
    quick = {name: best_of(module, tvm.cpu(), arrays) for name, module in modules.items()}
    best = min(quick, key=lambda name: quick[name])
    timer = modules[best].time_evaluator("main", tvm.cpu(), number=5, repeat=1)
    ratios, seconds = [], []
    for _ in range(ROUNDS):
        now = max(peak_flop / best_of(mod, tvm.cpu(), operands) for mod, operands, peak_flop in peaks)
        seconds.append(float(timer(*arrays).mean))
        ratios.append(flop / seconds[-1] / now)
    config = json.loads((folder / f"{best}.json").read_text())["knobs"]
    return statistics.median(ratios), statistics.median(seconds) * 1e6, json.dumps(config)


def report(folder: Path, target: Target, types: list[str], verbose: bool) -> None:
    """The table, a row for each layer, and medians."""
    cpus = [str(cpu) for cpu in thread_cpus(target.threads)]
    tvm.get_global_func("runtime.config_threadpool")(-2, target.threads, cpus)
    print("| layer | " + " | ".join(f"{kind}: of peak, µs" for kind in types) + " |")
    print("|---|" + "---|" * len(types))
    all_shares: dict[str, list[float]] = {kind: [] for kind in types}
    for number, (channels, filters, size, kernel) in enumerate(LAYERS):
        cells = []
        for kind in types:
            share, microseconds, config = shares(folder, target, kind, number)
            all_shares[kind].append(share)
            cells.append(f"{share:.0%}, {microseconds:.0f}" + (f" {config}" if verbose else ""))
        print(f"| {kernel} × {kernel}, {channels} → {filters}, {size} × {size} | " + " | ".join(cells) + " |")
    print("| median | " + " | ".join(f"{statistics.median(values):.0%}" for values in all_shares.values()) + " |")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m research.peaks", description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=("build", "time"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--guesses", type=int, default=6)
    parser.add_argument("--types", nargs="+", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--configs", action="store_true", help="also print the best guess's config")
    chosen = parser.parse_args()
    target = host_target(chosen.threads)
    if chosen.step == "build":
        build(chosen.folder, target, chosen.guesses, chosen.types)
        return
    with ThreadPoolExecutor(1) as own:  # TVM keeps a pool per calling thread
        own.submit(report, chosen.folder, target, chosen.types, chosen.configs).result()


if __name__ == "__main__":
    main()
