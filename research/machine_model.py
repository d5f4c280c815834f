"""``python -m research.machine_model PROCESSOR…``: what LLVM's model of a processor says of our micro-kernels.

Compiles the first guess of every convolution of ResNet-50 with stride 1 for each processor and gives the innermost
loop to ``llvm-mca``: products (multiply-adds or dot products of whole vectors) per cycle, as a share of what the same
model says of independent ones. It knows no caches: this is a bound. Spills are counted in the same loop.

``--cycles`` compares the cycles that cost models and bounds are told (``instructions/micro_kernel.py``) with LLVM's, of
first guesses and random configs. For that our model is given LLVM's numbers of products and loads in a cycle: whether
those are right is another question, which ``tests/emulation/test_machine_model.py`` has answers to.

It takes llvm-mca with models of the processors, such as Debian's llvm-19.
"""

from __future__ import annotations

import argparse
import math
import re
import shutil
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from tvm import tirx

from research.peaks import FORMS, LAYERS, layer
from schedules.config import Config
from schedules.lower import claim, lower, tvm_target
from schedules.target import Target
from schedules.templates.common.register_tile import registers_of
from schedules.templates.common.structure import find_anchor
from schedules.templates.cpu.conv2d import OP
from schedules.templates.cpu.conv2d_features import product_cycles
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions.dots import DotForm, byte_form, pair_form
from schedules.templates.instructions.hot_loop import PRODUCT, HotLoop, hot_loop
from schedules.templates.instructions.micro_kernel import ports_of, product_of
from schedules.vocabulary.errors import InstallError

PROCESSORS = ("neoverse-n1", "neoverse-v1", "neoverse-n2")
TOOLS = ("llvm-mca-22", "llvm-mca-21", "llvm-mca-20", "llvm-mca-19")
"""Versions before 19 have no model of some of these processors."""
ITERATIONS = 200
SVE_BYTES = {"neoverse-v1": 32}
"""Bytes of a vector of SVE where they are not 16 (vendors' manuals)."""
INSTRUCTIONS = (
    ("`fmla`", "fmla v{}.4s, v30.4s, v31.s[0]", "fmla z{}.s, z30.s, z7.s[0]", 4),
    ("`sdot`", "sdot v{}.4s, v30.16b, v31.4b[0]", "sdot z{}.s, z30.b, z7.b[0]", 16),
    ("`usmmla`", "usmmla v{}.4s, v30.16b, v31.16b", "usmmla z{}.s, z30.b, z31.b", 32),
    ("`bfdot`", "bfdot v{}.4s, v30.8h, v31.2h[0]", "bfdot z{}.s, z30.h, z7.h[0]", 8),
    ("`bfmmla`", "bfmmla v{}.4s, v30.8h, v31.8h", "bfmmla z{}.s, z30.h, z31.h", 16),
)
"""Name, as NEON has it, as SVE has it, multiply-adds of 16 bytes of vector."""
LOADS = {"x86_64": "\tvmovups\t64(%rax), %{wide}0", "aarch64": "\tldr\tq0, [x0, #64]"}
INDEPENDENT = 24
"""Products with a register each: more than hide the latency of any."""


def tool() -> str | None:
    """llvm-mca, if it is installed."""
    return next((path for name in TOOLS if (path := shutil.which(name))), None)


def cycles(lines: tuple[str, ...], target: Target) -> float:
    """Cycles of one iteration of a loop, by LLVM's model.

    Raises:
        InstallError: where there is no llvm-mca, or it does not understand the code.
    """
    program = tool()
    if program is None:
        raise InstallError(f"none of {', '.join(TOOLS)} was found; install for example Debian's llvm-19")
    command = [
        program,
        f"-mtriple={target.architecture}-linux-gnu",
        f"-mcpu={target.mcpu}",
        f"-iterations={ITERATIONS}",
    ]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    match = re.search(r"Total Cycles: +(\d+)", done.stdout)
    if match is None:
        raise InstallError(f"{program} failed: {done.stderr[:300]}")
    return int(match.group(1)) / ITERATIONS


def independent(loop: HotLoop) -> tuple[str, ...]:
    """Products as the loop has most of, none of which waits for another."""
    kinds = [line for line in loop.lines if PRODUCT.search(line)]
    name = statistics.mode(line.split()[0] for line in kinds)
    line = next(line for line in kinds if line.split()[0] == name)
    if "%" not in line:
        first, *rest = re.split(r"(?<=,)", line)
        rest = [re.sub(r"\bv\d+", f"v{30 + at % 2}", operand) for at, operand in enumerate(rest)]
        return tuple(re.sub(r"\bv\d+", f"v{number}", first) + "".join(rest) for number in range(INDEPENDENT))
    kind = re.findall(r"%([xyz]mm)\d+", line)[-1]
    last = 15 if kind == "ymm" else 31
    count = min(INDEPENDENT, last - 2)
    return tuple(f"\t{name}\t%{kind}{last}, %{kind}{last - 1}, %{kind}{number}" for number in range(count))


def share(loop: HotLoop, target: Target, width: int = 2) -> float:
    """Products per cycle over those of independent products, without those of a column that makes a ``width`` even."""
    alone = independent(loop)
    ratio = (loop.products / cycles(loop.lines, target)) / (len(alone) / cycles(alone, target))
    return ratio * width / (width + width % 2) if any("mmla" in line for line in loop.lines) else ratio


def best_form(kind: str, target: Target) -> tuple[DotForm | None, int]:
    """The form that convolutions of this type get, and the channels of a block."""
    form, lanes = FORMS[kind], target.lanes()
    if form is None:
        return None, lanes
    form = byte_form(target) if kind == "int8" else form
    pairs = pair_form(form, target)
    lanes = max(lanes, pairs.depth if pairs and kind == "int8" else 0)
    return pairs or form, lanes


def products_per_cycle(instruction: str, products: int, target: Target) -> float:
    """Multiply-adds of one number each, by an instruction that does so many; 0 where the processor lacks it."""
    lines = tuple("\t" + instruction.format(number) for number in range(INDEPENDENT))
    try:
        return INDEPENDENT * products / cycles(lines, target)
    except InstallError:
        return 0.0


def print_instructions(processors: Sequence[str]) -> None:
    """Peaks of NEON and of SVE, a row per processor and instruction."""
    for name in processors:
        target = Target.cpu(name, 1)
        for kind, neon, sve, products in INSTRUCTIONS:
            wide = products * SVE_BYTES.get(name, 16) // 16
            rates = (products_per_cycle(neon, products, target), products_per_cycle(sve, wide, target))
            print(f"| {name} | {kind} | " + " | ".join(f"{rate:.0f}" if rate else "–" for rate in rates) + " |")


def chosen(kind: str, shape: tuple[int, int, int, int], target: Target, guess: int = 0) -> HotLoop:
    """The innermost loop of a layer's best direct first guess."""
    func = layer(*shape, *best_form(kind, target))
    configs = [config for config in claim(func, target).space.initial if config.integer("algorithm") == 0]
    return loop_of(func, configs[guess], target)


def loop_of(func: tirx.PrimFunc, config: Config, target: Target) -> HotLoop:
    """The innermost loop of a config."""
    built = compiled(lower(func, config, target).mod["main"], "main", tvm_target(target))
    loop = hot_loop(str(built.mod.inspect_source("asm")))
    assert loop is not None, f"{config.to_json()} has no loop with products"
    return loop


def deviation(func: tirx.PrimFunc, config: Config, target: Target) -> tuple[float, HotLoop]:
    """Our cycles of a config's products over LLVM's, with its numbers of products and loads in a cycle."""
    loop, anchor = loop_of(func, config, target), find_anchor(func, OP)
    assert anchor is not None
    space, alone = claim(func, target).space, independent(loop)
    rate = len(alone) / cycles(alone, target)
    product = {product_of(anchor.form, target): (rate, cycles(alone[:1], target))}
    wide = "zmm" if target.vector_bytes == 64 else "ymm"
    load = LOADS[target.architecture].format(wide=wide)
    loads = INDEPENDENT / cycles((load,) * INDEPENDENT, target)
    columns = space.columns(space.row(config)[None, :])
    terms = float(columns["depth"][0]) * math.prod(anchor.reduction[1:4])
    sums = math.prod(config.integer(name) for name in ("to", "th", "tw")) * registers_of(anchor.spatial[4], target)
    ahead = ports_of(target).window if loop.products >= sums * terms else 0.0  # whole tiles follow each other, or none
    ports = replace(ports_of(target), products=product, loads=loads, window=ahead)
    over_peak = product_cycles(columns, anchor, target, ports)
    return float(over_peak[0]) / rate * loop.products / cycles(loop.lines, target), loop


def deviations(kind: str, target: Target, count: int) -> Iterator[tuple[float, str]]:
    """``deviation`` and what it is of, for each layer's first guess and some random configs."""
    rng = np.random.default_rng(0)
    for shape in LAYERS:
        func = layer(*shape, *best_form(kind, target))
        space = claim(func, target).space
        drawn = [config for config in space.sample(40 * count, rng) if config.integer("algorithm") == 0][:count]
        first = next(config for config in space.initial if config.integer("algorithm") == 0)
        for config in (first, *drawn):
            ratio, loop = deviation(func, config, target)
            yield ratio, f"{shape} {config.to_json()}: {loop.products} products, {loop.stack} of the stack"


def print_deviations(processors: Sequence[str], kinds: Sequence[str], verbose: bool) -> None:
    """How far our cycles are from LLVM's, a row per processor and type."""
    for name in processors:
        for kind in kinds:
            pairs = list(deviations(kind, Target.cpu(name, 1), 2))
            if verbose:
                print("\n".join(f"  {ratio:.2f} {text}" for ratio, text in pairs))
            ratios = [ratio for ratio, _ in pairs]
            off = statistics.median(abs(1 - ratio) for ratio in ratios)
            print(
                f"| {name} | {kind} | {len(ratios)} | {off:.1%} | {min(ratios):.2f} | {max(ratios):.2f} |", flush=True
            )


def main() -> None:
    """Print a row per processor and type."""
    parser = argparse.ArgumentParser(prog="python -m research.machine_model", description="Share of the model's peak")
    parser.add_argument("processors", nargs="*", default=PROCESSORS)
    parser.add_argument("--types", nargs="+", choices=FORMS, default=["fp32", "int8"])
    parser.add_argument("--cycles", action="store_true", help="print only how far our model is from LLVM's")
    parser.add_argument("--layers", action="store_true", help="print a row per layer, too")
    parser.add_argument("--instructions", action="store_true", help="print only multiply-adds per cycle, NEON and SVE")
    arguments = parser.parse_args()
    if arguments.instructions:
        print_instructions(arguments.processors)
        return
    if arguments.cycles:
        print_deviations(arguments.processors, arguments.types, arguments.layers)
        return
    for name in arguments.processors:
        target = Target.cpu(name, 1)
        for kind in arguments.types:
            shares, stack = [], 0
            for shape in LAYERS:
                loop = chosen(kind, shape, target)
                shares.append(share(loop, target, shape[2]))
                stack += loop.stack
                if arguments.layers:
                    print(
                        f"  {shape}: {shares[-1]:.2f}, {loop.products} products, {loop.stack} of the stack", flush=True
                    )
            least, median = min(shares), statistics.median(shares)
            print(f"| {name} | {kind} | {median:.0%} | {least:.0%} | {stack} |", flush=True)


if __name__ == "__main__":
    main()
