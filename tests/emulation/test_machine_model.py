"""LLVM's machine models: what they say of first guesses for AArch64, and of our own model of every processor."""

from __future__ import annotations

import numpy as np
import pytest

from research.machine_model import INDEPENDENT, LOADS, best_form, chosen, cycles, deviation, share, tool
from research.peaks import layer
from schedules.lower import claim
from schedules.processors import PROCESSORS, Processor
from schedules.target import Target
from schedules.templates.instructions.micro_kernel import ports_of

SHAPES = ((64, 64, 56, 1), (512, 2048, 7, 1), (2048, 512, 7, 1), (256, 256, 14, 3))
LEAST = 0.85

needs_model = pytest.mark.skipif(tool() is None, reason="not installed: llvm-mca of LLVM 19 or newer")


@needs_model
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize(
    ("processor", "kind"),
    [
        ("neoverse-n1", "fp32"),
        ("neoverse-v1", "fp32"),
        ("neoverse-n2", "fp32"),
        ("neoverse-n1", "int8"),
        ("neoverse-v1", "int8"),
        ("neoverse-n2", "int8"),
    ],
)
def test_first_guesses_reach_the_model_s_peak(processor: str, kind: str, shape: tuple[int, int, int, int]) -> None:
    target = Target.cpu(processor, 1)
    loop = chosen(kind, shape, target)
    assert share(loop, target, shape[2]) >= LEAST
    assert loop.stack == 0


@needs_model
@pytest.mark.parametrize(
    ("processor", "kind"),
    [
        ("neoverse-n1", "fp32"),
        ("neoverse-n2", "int8"),
        ("neoverse-v1", "fp32"),
        ("icelake-server", "fp32"),
        ("icelake-server", "int8"),
        ("sapphirerapids", "fp32"),
        ("znver4", "fp32"),
        ("haswell", "fp32"),
    ],
)
def test_our_cycles_are_a_bound_and_near_those_of_llvm(processor: str, kind: str) -> None:
    target, ratios = Target.cpu(processor, 1), []
    for shape in (SHAPES[0], SHAPES[3]):
        func = layer(*shape, *best_form(kind, target))
        space = claim(func, target).space
        drawn = [config for config in space.sample(200, np.random.default_rng(1)) if not config.integer("algorithm")]
        first = next(config for config in space.initial if not config.integer("algorithm"))
        ratios += [deviation(func, config, target)[0] for config in (first, *drawn[:3])]
    assert max(ratios) <= 1.02, ratios
    assert np.median(ratios) >= NEAR.get(processor, 0.9), ratios


NEAR = {"znver4": 0.65}
"""Where LLVM lets loads of a number into all lanes take the place of multiply-adds, which they do not in fact: kernels
of this kind were measured at 84 to 95 % of the peak on a Zen 4."""

INSTRUCTIONS = {
    "x86_64": {
        "fma": "vfmadd231ps\t%{wide}{last}, %{wide}{last}, %{wide}{number}",
        "vpdpbusd": "vpdpbusd\t%{wide}{last}, %{wide}{last}, %{wide}{number}",
        "vdpbf16ps": "vdpbf16ps\t%{wide}{last}, %{wide}{last}, %{wide}{number}",
    },
    "aarch64": {
        "fma": "fmla\tv{number}.4s, v30.4s, v31.s[0]",
        "sdot": "sdot\tv{number}.4s, v30.16b, v31.4b[0]",
        "usdot": "usdot\tv{number}.4s, v30.16b, v31.4b[0]",
        "usmmla": "usmmla\tv{number}.4s, v30.16b, v31.16b",
        "bfdot": "bfdot\tv{number}.4s, v30.8h, v31.2h[0]",
        "bfmmla": "bfmmla\tv{number}.4s, v30.8h, v31.8h",
    },
}
CLIENT = "LLVM has the client's one unit for 512 bits (llvm-project#81504)"
NO_ZEN5 = "LLVM 19 has Zen 4's figures; measured: 238 GFLOPS a core in fp32, 4.0 times as many operations in bytes"
OTHERWISE = {
    ("icelake-server", "fma"): f"{CLIENT}; measured: 178.7 GFLOPS a core at 2.8 GHz",
    **{
        (name, kind): CLIENT
        for name in ("sapphirerapids", "graniterapids")
        for kind in ("fma", "vpdpbusd", "vdpbf16ps")
    },
    **{("znver5", kind): NO_ZEN5 for kind in ("fma", "vpdpbusd", "vdpbf16ps")},
    ("znver4", "vpdpbusd"): "AMD: as often as fp32's",
    ("znver4", "vdpbf16ps"): "AMD: as often as fp32's",
    ("znver2", "loads"): "AMD: two loads and a store; LLVM: three of any",
}
"""Where the table says something else than LLVM, and why."""


@needs_model
@pytest.mark.parametrize(
    "entry", [processor for processor in PROCESSORS if processor.ports.products], ids=lambda entry: entry.name
)
def test_the_table_of_ports_is_llvm_s_but_where_it_is_known_better(entry: Processor) -> None:
    target = Target.cpu(entry.name, 1)
    wide, last, count = ("ymm", 15, 12) if target.vector_bytes == 32 else ("zmm", 31, INDEPENDENT)
    for name, (rate, latency) in ports_of(target).products.items():
        line = INSTRUCTIONS[target.architecture][name]
        alone = tuple(f"\t{line.format(wide=wide, last=last, number=number)}" for number in range(count))
        assert latency <= cycles(alone[:1], target) + 0.1, name
        rate_found = len(alone) / cycles(alone, target)
        assert rate_found <= rate * 1.05, name
        assert (rate_found >= rate * 0.9) != ((entry.name, name) in OTHERWISE), (name, rate_found)
    load = (LOADS[target.architecture].format(wide=wide),) * INDEPENDENT
    same = entry.ports.loads == pytest.approx(INDEPENDENT / cycles(load, target), rel=0.05)
    assert same != ((entry.name, "loads") in OTHERWISE)
