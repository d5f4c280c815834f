"""The sums of a register tile: what ``register_tile.py`` describes, as instructions.

    rdi: the tile's first number    rsi: its first vector of weights    v0 …: the sums

A number is a pixel or a row of a matrix. What is needed most often is held in registers over a step of the sum: the
vectors of weights where there are fewer of them than of numbers, else the numbers, each spread over a vector. Where the
sums leave no register beside those (28 sums of 4 × 7), multiply-adds read a vector of weights from memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from schedules.target import Target
from schedules.templates.assembly.assembly_text import AssemblyText
from schedules.templates.assembly.vectors import AVX2, AVX512, OutOfScope, Vectors, vectors_of
from schedules.templates.instructions.dots import BF16, U8S8, DotForm
from schedules.templates.instructions.llvm_target import features_of

COUNTERS = ("r8", "rdx", "rcx", "rax")
"""Registers for the loops of a sum."""

DOT_OF_BYTES, DOT_OF_HALVES, DOT_OF_WORDS = "vpdpbusd", "vdpbf16ps", "vpmaddwd"

OF_WORDS = 5
"""Registers that products of bytes as words need beside the sums: two of a number, two of weights, one of products."""

LOW_BYTES = 0x00FF00FF
"""The low bytes of two words."""

WRITTEN_OUT = 128
"""Multiply-adds up to which the turns of a sum's inner loops stand one behind the other. Counting turns takes longer
than one multiply-add each: a tile of one sum over three channels, as in a first layer, had 0.42 of the speed of LLVM's
code, which does the same."""


@dataclass(frozen=True)
class SumLoop:
    """A loop over a part of the sum.

    Attributes:
        trips: how often it runs.
        stride: bytes from one number to the next.
    """

    trips: int
    stride: int


@dataclass(frozen=True)
class Prefetch:
    """Weights that are asked for before they are needed (``common/prefetch.py``), in every turn of a loop.

    Attributes:
        loop: its number, from outermost.
        places: bytes from the base to each line.
        step: by which the base moves on; 0 for rsi, which moves by itself.
        base: a register.
        locality: the instruction's end, "t0" for L1 or "t1" for L2.
    """

    loop: int
    places: tuple[int, ...]
    step: int
    base: str = "r9"
    locality: str = "t1"


@dataclass(frozen=True)
class TileSums:
    """The sums of a tile and the places of their operands.

    Attributes:
        numbers: bytes from rdi to each number.
        panels: bytes from rsi to the weights of each vector of sums.
        loops: of the sum, outermost first; weights lie one behind the other in their order.
        unroll: steps of the innermost loop that are written out.
        prefetch: what is asked for ahead; None for nothing.
        product: the instruction. It multiplies numbers and weights of 32 bits: floats, or several short ones, of which
            it adds up the products.
        resident: whether all weights lie in registers, the last ones (``load_weights``).
        vectors: what the registers are.
    """

    numbers: tuple[int, ...]
    panels: tuple[int, ...]
    loops: tuple[SumLoop, ...]
    unroll: int
    prefetch: Prefetch | None = None
    product: str = "vfmadd231ps"
    resident: bool = False
    vectors: Vectors = AVX512

    def sums(self) -> list[list[int]]:
        """Register of every sum: by vector of weights, by number."""
        count = len(self.numbers)
        return [[panel * count + number for number in range(count)] for panel in range(len(self.panels))]

    def free(self) -> Sequence[int]:
        """Registers that hold no sum and no weights."""
        held = self.weights if self.resident else 0
        return range(len(self.numbers) * len(self.panels), self.vectors.count - held)

    @property
    def weights(self) -> int:
        """Vectors of weights of the whole sum."""
        return math.prod(loop.trips for loop in self.loops) * len(self.panels)

    @property
    def can_hold(self) -> bool:
        """Whether all weights fit the registers, with the sums and two more."""
        whole = _is_written_out(self, self.loops) and self.product != DOT_OF_WORDS
        return whole and self.weights + len(self.numbers) * len(self.panels) + 2 <= self.vectors.count


def product_of(form: DotForm | None, target: Target) -> str:
    """The instruction that multiplies numbers of ``form``.

    Raises:
        OutOfScope: if there is none.
    """
    if form is None:
        return "vfmadd231ps"
    if form is BF16 and "avx512bf16" in features_of(target):
        return DOT_OF_HALVES
    if form is U8S8 and "avx512vnni" in features_of(target):
        return DOT_OF_BYTES
    if form is U8S8 and vectors_of(target) is AVX2 and "avxvnni" not in features_of(target):
        return DOT_OF_WORDS
    raise OutOfScope(f"products of {form.name}")


def load_weights(code: AssemblyText, tile: TileSums) -> None:
    """Load the weights of a ``resident`` tile, which begin at r12."""
    per_panel = tile.weights // len(tile.panels)
    for panel, place in enumerate(tile.panels):
        for step in range(per_panel):
            code.emit(f"vmovups v{resident_register(tile, panel, step)}, [r12+{place + step * tile.vectors.size}]")


def resident_register(tile: TileSums, panel: int, step: int) -> int:
    """The register of a vector of weights."""
    return tile.vectors.count - tile.weights + panel * (tile.weights // len(tile.panels)) + step


def clear(code: AssemblyText, tile: TileSums) -> None:
    """Set the sums to zero."""
    code.emit(*(f"vpxord v{total}, v{total}, v{total}" for panel in tile.sums() for total in panel))


def add_up(code: AssemblyText, tile: TileSums) -> None:
    """Add the products to the sums; rdi and rsi end elsewhere."""
    *outer, last = tile.loops
    steps = SumLoop(tile.unroll, last.stride)
    _nest(code, tile, [*outer, SumLoop(last.trips // tile.unroll, last.stride * tile.unroll), steps], 0, 0, 0)


def _nest(code: AssemblyText, tile: TileSums, loops: Sequence[SumLoop], at: int, data: int, weights: int) -> None:
    """The loops from number ``at`` on, whose first operands are so many bytes behind rdi and rsi."""
    if at == len(loops):
        _step(code, tile, data, weights)
        return
    loop, within = loops[at], loops[at + 1 :]
    panel = math.prod(inner.trips for inner in within) * tile.vectors.size
    if _is_written_out(tile, loops[at:]):
        for turn in range(loop.trips):
            _ask(code, tile, at, weights + turn * panel)
            _nest(code, tile, loops, at + 1, data + turn * loop.stride, weights + turn * panel)
        return
    move = loop.stride
    with code.repeated(COUNTERS[at], loop.trips):
        _ask(code, tile, at, 0)
        _nest(code, tile, loops, at + 1, 0, 0)
        if _is_written_out(tile, within):
            code.emit(f"add rsi, {panel}")
        else:
            move -= within[0].trips * within[0].stride
        if move:
            code.emit(f"add rdi, {move}")


def _is_written_out(tile: TileSums, loops: Sequence[SumLoop]) -> bool:
    """Return whether the turns of these loops stand one behind the other; those that ``unroll`` says always do."""
    products = math.prod(loop.trips for loop in loops) * len(tile.numbers) * len(tile.panels)
    return len(loops) <= 1 or products <= WRITTEN_OUT


def _ask(code: AssemblyText, tile: TileSums, at: int, weights: int) -> None:
    """Prefetch, if this is the loop that does; ``weights`` is where the turn's begin, behind rsi."""
    asked = tile.prefetch
    if asked is None or asked.loop != at:
        return
    moved = 0 if asked.step else weights
    code.emit(*(f"prefetch{asked.locality} [{asked.base}+{place + moved}]" for place in asked.places))
    if asked.step:
        code.emit(f"add {asked.base}, {asked.step}")


def check_registers(tile: TileSums) -> None:
    """Raise ``OutOfScope`` if the sums leave too few registers for their products."""
    if tile.product == DOT_OF_WORDS and len(tile.free()) < OF_WORDS:
        raise OutOfScope("more sums than products of words leave registers for")


def _step_of_words(code: AssemblyText, tile: TileSums, data: int, weights: int) -> None:
    """One term of every sum, of four bytes: bytes 0 and 2, then 1 and 3, as words. No sum of two can saturate.

    So many panels at a time as there are registers for; numbers are prepared anew for each lot.
    """
    product, low, high, *held = tile.free()
    lot, sums = len(held) // 2, tile.sums()
    for first in range(0, len(tile.panels), lot):
        panels = range(first, min(first + lot, len(tile.panels)))
        for at, panel in enumerate(panels):
            even, odd = held[2 * at : 2 * at + 2]
            code.emit(f"vmovups v{odd}, [rsi+{tile.panels[panel] + weights}]", f"vpsllw v{even}, v{odd}, 8")
            code.emit(f"vpsraw v{even}, v{even}, 8", f"vpsraw v{odd}, v{odd}, 8")
        for number, place in enumerate(tile.numbers):
            code.emit(f"vpbroadcastd v{high}, dword ptr [rdi+{place + data}]")
            code.emit(f"vpandd v{low}, v{high}, {code.constant_bits(LOW_BYTES)}", f"vpsrlw v{high}, v{high}, 8")
            for at, panel in enumerate(panels):
                for numbers, own in ((low, held[2 * at]), (high, held[2 * at + 1])):
                    total = sums[panel][number]
                    code.emit(f"vpmaddwd v{product}, v{numbers}, v{own}", f"vpaddd v{total}, v{total}, v{product}")


def _step(code: AssemblyText, tile: TileSums, data: int, weights: int) -> None:
    """One term of every sum."""
    if tile.product == DOT_OF_WORDS:
        _step_of_words(code, tile, data, weights)
        return
    held, sums, (panels, numbers) = list(tile.free()), tile.sums(), (len(tile.panels), len(tile.numbers))
    bytes_first = tile.product == DOT_OF_BYTES  # its first operand is unsigned: the number, which so cannot be spread
    must_load = bytes_first or not tile.vectors.is_evex

    def multiply(total: int, number: str, weight: str) -> None:
        first, second = (number, weight) if bytes_first or weight.startswith("[") else (weight, number)
        code.emit(f"{tile.product} v{total}, {first}, {second}")

    if tile.resident:
        own = [f"v{resident_register(tile, panel, weights // tile.vectors.size)}" for panel in range(panels)]
        for number, place in enumerate(tile.numbers):
            memory = f"dword ptr [rdi+{place + data}]"
            spread = f"{memory}{{1to16}}"
            if panels > 1 or must_load:
                spread = f"v{held[number % len(held)]}"
                code.emit(f"vbroadcastss {spread}, {memory}")
            for panel in range(panels):
                multiply(sums[panel][number], spread, own[panel])
        return
    if panels <= numbers:
        kept = min(panels, len(held) - 1)
        weight_of = [f"v{register}" for register in held[:kept]]
        weight_of += [f"[rsi+{place + weights}]" for place in tile.panels[kept:]]
        code.emit(*(f"vmovups {weight_of[panel]}, [rsi+{tile.panels[panel] + weights}]" for panel in range(kept)))
        for number, place in enumerate(tile.numbers):
            memory = f"dword ptr [rdi+{place + data}]"
            if panels == 1 and not must_load:
                multiply(sums[0][number], f"{memory}{{1to16}}", weight_of[0])
                continue
            code.emit(f"vbroadcastss v{held[kept]}, {memory}")
            for panel in range(panels):
                multiply(sums[panel][number], f"v{held[kept]}", weight_of[panel])
        return
    for number, place in enumerate(tile.numbers):
        code.emit(f"vbroadcastss v{held[number]}, dword ptr [rdi+{place + data}]")
    for panel, place in enumerate(tile.panels):
        vector = f"[rsi+{place + weights}]"
        if numbers > 1 and numbers < len(held):
            code.emit(f"vmovups v{held[numbers]}, {vector}")
            vector = f"v{held[numbers]}"
        for number in range(numbers):
            multiply(sums[panel][number], f"v{held[number]}", vector)
